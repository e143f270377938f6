"""Files of data, by what their names end in. A file that cannot be right ends in one clear sentence."""

import contextlib
import csv
import dataclasses
import functools
import gzip
import io
import lzma
import os
import re
import shlex
import struct
import tarfile
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from nvil.data import text
from nvil.data.choices import Choices
from nvil.data.columns import kept_columns
from nvil.data.folders import (
    PICTURES,
    checked_text,
    files_in,
    folder_labels,
    idx_pair,
    is_idx,
    read_pictures,
    split_of,
    splits_of,
    texts,
)
from nvil.data.sparse import SparseRows, sparse_rows, stored_rows
from nvil.errors import UsageError
from nvil.rows import in_common_type

Labels = dict[str, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Contents:
    """What a file holds: `{"all": rows}`, or `{"train": ..., "test": ...}` (and `"validation"`) where it says so."""

    splits: dict[str, Any]
    vocabulary: tuple[str, ...] | None = None
    note: str = ""
    decided: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Choices that were left open, as the reader made them."""
    names: tuple[str, ...] | None = None
    """Of the columns, where a header has them."""
    image: tuple[int, int] | None = None
    """(height, width), where the file says that cases are pictures."""
    context: int = 0
    """How many columns, the first ones, the others are to be modelled given."""
    labels: Labels = dataclasses.field(default_factory=dict)
    """What class every case of a split belongs to, where that is known; no model sees it."""
    text: bool = False
    """Whether words were counted here."""


FORMATS = (
    ".npy, .npz, .csv, .tsv, .amat, idx, .svm or .svmlight, .mtx, docword.*.txt, .txt (one document per line), .tar of "
    "texts (all but .npz also with .gz), or a folder of texts, of pictures (.png, .jpg) or of idx files"
)


def read(
    path: Path,
    choices: Choices | None = None,
    *,
    width: int | None = None,
    vocabulary: tuple[str, ...] | None = None,
) -> Contents:
    """The contents of a file or folder; text is counted in the words of `vocabulary` where one is given.

    `width` is the number of columns that a trained model expects, for formats that do not say how wide they are.
    """
    if not path.exists():
        raise UsageError(f"There is no file {path}.")
    reader = _reader(path)
    choices = choices or Choices()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries, about files that are odd but can be read
            contents = reader(path, choices, width, vocabulary)
    except UsageError:
        raise
    except (MemoryError, OverflowError) as error:
        raise UsageError(f"Cannot read {path}: it claims to hold more than fits in memory.") from error
    except READ_ERRORS as error:
        raise UsageError(f"Cannot read {path}: {one_line(error)}.") from error
    splits = {
        name: checked_rows(rows, path if name == "all" else f"{path} ({name})")
        for name, rows in contents.splits.items()
    }
    if choices.drop_columns and reader not in (_read_csv, _read_amat):  # these leave them out while reading
        splits = {name: without_columns(rows, choices.drop_columns, path, width) for name, rows in splits.items()}
    widths = {rows.shape[1] for rows in splits.values()}
    if len(widths) > 1:
        raise UsageError(f"The arrays of {path} have different numbers of columns: {sorted(widths)}.")
    words = contents.vocabulary
    if words is not None and len(words) != min(widths):
        raise UsageError(f"{path} has {min(widths)} columns but {len(words)} words in its vocabulary.")
    return dataclasses.replace(contents, splits=splits, labels=_fitting(contents.labels, splits))


def _fitting(labels: Labels, splits: dict[str, Any]) -> Labels:
    """Those of the training and test cases, where each has one; no file is refused for labels, which no model sees."""
    parts = {name: rows for name, rows in splits.items() if name != "validation"}
    fit = all(len(labels.get(name, ())) == rows.shape[0] for name, rows in parts.items())
    return {name: labels[name] for name in parts} if fit else {}


READ_ERRORS = (
    OSError,
    csv.Error,
    ValueError,
    EOFError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    NotImplementedError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    struct.error,
)
"""What the libraries below raise on damaged files."""


def _reader(path: Path) -> Callable[..., Contents]:
    if path.is_dir():
        return _read_matrix_folder if (path / "offsets.npy").exists() else _read_folder
    name = path.name.lower()
    if re.search(r"\.(tar|tgz)(\.gz|\.bz2|\.xz)?$", name):
        return _read_text_archive
    plain = name.removesuffix(".gz")
    if is_idx(plain):
        return _read_idx
    if plain.startswith("docword") and plain.endswith(".txt"):
        return _read_bag_of_words
    suffix = Path(plain).suffix
    if suffix == ".npz" and plain != name:
        suffix = ".gz"
    if suffix not in READERS:
        raise UsageError(f"Cannot tell what kind of data {path} is; it must be one of {FORMATS}.")
    return READERS[suffix]


def checked_rows(rows: Any, where: Path | str) -> Any:
    """Numbers, at least one case of at least one value; sparse matrices become `SparseRows`."""
    if scipy.sparse.issparse(rows) or isinstance(rows, SparseRows):
        if 0 in rows.shape:
            raise UsageError(f"{where} is empty: its shape is {rows.shape}.")
        return rows if isinstance(rows, SparseRows) else sparse_rows(rows)
    if not (np.issubdtype(rows.dtype, np.integer) or np.issubdtype(rows.dtype, np.floating) or rows.dtype == bool):
        raise UsageError(f"{where} holds {rows.dtype} values; numbers are needed.")
    if rows.ndim < 2:
        raise UsageError(f"{where} has shape {rows.shape}; it must have one case per row.")
    if rows.size == 0:
        raise UsageError(f"{where} is empty: its shape is {rows.shape}.")
    return in_common_type(rows).reshape(len(rows), -1)


def without_columns(rows: Any, drop: tuple[str, ...], where: Any, width: int | None = None) -> Any:
    """A table without some of its columns."""
    if isinstance(rows, SparseRows):
        raise UsageError(
            f"{where} is not a table of numbers, so there are no columns to drop; leave `drop_columns` out."
        )
    kept = kept_columns(rows.shape[1], None, drop, where, width)
    return rows if kept is None else rows[:, kept]


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The bytes of a file, decompressed where its name ends in .gz."""
    with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as file:
        yield file


def _whole(path: Path) -> bytes:
    """All bytes of a file; one that unpacks to more than half the memory is refused before it does harm."""
    limit = physical_memory() // 2
    with opened(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise MemoryError
    return content


@contextlib.contextmanager
def _unpacked(path: Path) -> Iterator[Any]:
    """As `opened`, for readers that take all of a file: one that unpacks to more than half the memory is refused."""
    with io.BytesIO(_whole(path)) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        yield file


def physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read_npy(path: Path, *_: Any) -> Contents:
    if path.suffix.lower() == ".gz":
        with _unpacked(path) as file:
            return Contents({"all": np.lib.format.read_array(file, allow_pickle=False)})
    # Mapped, so that a header that promises more than the file holds is found out at once.
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        array.close()
        raise UsageError(f"Cannot read {path}: it is an archive, so its name must end in .npz.")
    return Contents({"all": array})


def _read_npz(path: Path, *_: Any) -> Contents:
    with path.open("rb") as file:
        if file.read(6) == b"\x93NUMPY":
            raise UsageError(f"Cannot read {path}: it is an array, so its name must end in .npy.")
    with zipfile.ZipFile(path) as archive:
        if any(entry.flag_bits & 1 for entry in archive.infolist()):
            raise UsageError(f"Cannot read {path}: it is encrypted.")
        if sum(entry.file_size for entry in archive.infolist()) > physical_memory():
            raise MemoryError
    with np.load(path, allow_pickle=False) as arrays:
        names = set(arrays.files)
        words = tuple(map(str, arrays["vocab"].ravel().tolist())) if "vocab" in names else None
        if {"data", "shape", "format"} <= names:
            return Contents({"all": _saved_by_scipy(arrays)}, words)
        parts = ("data", "indices", "indptr")
        if {f"{split}_{part}" for split in ("train", "test") for part in parts} <= names:
            width = len(words) if words else 1 + max(int(arrays[f"{s}_indices"].max()) for s in ("train", "test"))
            rows = {s: _sparse(arrays, f"{s}_", (len(arrays[f"{s}_indptr"]) - 1, width)) for s in ("train", "test")}
            return Contents(rows, words, labels=_npz_labels(arrays))
        if {"train", "test"} <= names:
            splits = {s: arrays[s] for s in ("train", "test", "validation") if s in names}
            return Contents(splits, labels=_npz_labels(arrays))
        if len(names) == 1:
            return Contents({"all": arrays[names.pop()]})
    found = ", ".join(sorted(names)) or "nothing"
    raise UsageError(f"{path} must hold one array, or two named train and test; it holds {found}.")


def _npz_labels(arrays: Any) -> Labels:
    """`train_labels` and the like: words, or whole numbers, which are places in `groups` where there is such a list."""
    found: Labels = {}
    with contextlib.suppress(*READ_ERRORS):  # objects are not unpickled, and labels may be missed
        groups = arrays["groups"].ravel().tolist() if "groups" in arrays.files else None
        for name in (name for name in arrays.files if name.endswith("_labels")):
            values = arrays[name]
            if values.ndim == 1 and values.dtype.kind in "biuU":
                places = values.tolist() if groups is None or values.dtype.kind == "U" else [groups[i] for i in values]
                found[name.removesuffix("_labels")] = tuple(map(str, places))
    return found


def _saved_by_scipy(arrays: Any) -> Any:
    """What `scipy.sparse.save_npz` wrote, in rows."""
    layout = arrays["format"].item()
    layout = layout.decode() if isinstance(layout, bytes) else layout
    shape = tuple(map(int, arrays["shape"].tolist()))
    if layout == "csr":
        return _sparse(arrays, "", shape)
    if layout == "csc":
        return scipy.sparse.csr_array(_sparse(arrays, "", shape[::-1]).T)
    if layout == "coo" and "row" in arrays.files:
        parts = (arrays["data"], (arrays["row"], arrays["col"]))
        if parts[0].dtype.kind not in "biuf" or len(shape) != 2 or max(shape) > 2**31:
            raise ValueError("its parts are not those of a matrix of numbers")
        return scipy.sparse.csr_array(scipy.sparse.coo_array(parts, shape=shape))
    raise ValueError(f"it is a sparse matrix in the layout {layout!r}, not csr, csc or coo")


def _sparse(arrays: Any, prefix: str, shape: tuple[int, ...]) -> Any:
    data, indices, indptr = (arrays[f"{prefix}{part}"] for part in ("data", "indices", "indptr"))
    if data.dtype.kind not in "biuf" or any(part.dtype.kind not in "iu" for part in (indices, indptr)):
        raise ValueError("its parts are not numbers")
    if len(shape) != 2 or max(shape) > 2**31 or len(indptr) != shape[0] + 1:
        raise ValueError(f"its shape {shape} does not fit its {len(indptr)} row ends")
    matrix = scipy.sparse.csr_array((data, indices, indptr), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


def _read_csv(path: Path, choices: Choices, width: int | None, _: Any) -> Contents:
    delimiter = "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","
    return _read_table(path, delimiter, choices.drop_columns, width)


def _read_amat(path: Path, choices: Choices, width: int | None, _: Any) -> Contents:
    """Numbers with spaces between them, one case per line."""
    bits = None if choices.drop_columns else _plain_bits(_whole(path))
    return _read_table(path, None, choices.drop_columns, width) if bits is None else Contents({"all": bits})


def _plain_bits(content: bytes) -> np.ndarray | None:
    """Lines of `0 1 0 ... 1` of one length, a hundred times as fast as a general parser; None for anything else."""
    line = content.find(b"\n") + 1
    if line < 2 or len(content) % line:
        return None
    table = np.frombuffer(content, np.uint8).reshape(-1, line)
    separators, bits = table[:, 1::2], table[:, 0::2] ^ ord("0")
    if line % 2 or bits.max() > 1 or np.any(separators[:, :-1] != ord(" ")) or np.any(separators[:, -1] != ord("\n")):
        return None
    return bits


def _read_table(path: Path, delimiter: str | None, drop: tuple[str, ...], width: int | None) -> Contents:
    with _unpacked(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig") as whole:
        written = ((i, line) for i, line in enumerate(whole) if line.strip())
        (blank, first), (_, second) = next(written, (0, "")), next(written, (0, ""))
    if not first:
        raise UsageError(f"{path} is empty.")
    delimiter = delimiter and _delimiter(delimiter, first, second)
    cells = _cells(first, delimiter)
    header = _is_header(cells, _cells(second, delimiter))
    names = tuple(cell or f"Unnamed: {i}" for i, cell in enumerate(cells)) if header else None
    kept = kept_columns(len(cells), names, drop, path, width)

    def table(*, words: bool) -> np.ndarray:
        with _unpacked(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig") as whole:
            lines = _in_figures(whole, delimiter) if words else whole
            if kept is not None:  # then NumPy no longer looks how many columns there are
                lines = _of_width(lines, len(cells), delimiter, blank + header)
            how = {"skiprows": blank + header, "ndmin": 2, "comments": None, "usecols": kept}
            return np.loadtxt(lines, delimiter=delimiter, quotechar='"', **how)

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a header and nothing else is a warning to NumPy
        try:
            try:
                numbers = table(words=False)
            except ValueError as error:
                if re.search(r"could not convert string .*(true|false|\")", str(error), re.IGNORECASE) is None:
                    raise
                numbers = table(words=True)
        except UserWarning as error:
            raise ValueError("there is nothing below its header") from error
        except ValueError as error:
            raise _told(error, delimiter, blank + header, names) from error
    if names is not None and kept is None and len(names) != numbers.shape[1]:
        raise ValueError(f"its header has {len(names)} names for {numbers.shape[1]} columns")
    if names is None and _names_above_bits(numbers):
        raise UsageError(
            f"The first line of {path} ({', '.join(cells[:3])}{', ...' if len(cells) > 3 else ''}) is unlike the 0s "
            "and 1s below it: if it names the columns, put a letter before every number, and if it is a case, put a "
            "line of names above it."
        )
    return Contents({"all": numbers}, names=names if names is None or kept is None else tuple(names[i] for i in kept))


def _delimiter(usual: str, first: str, second: str) -> str:
    """The usual one, unless the first lines of a table show another: a comma, a semicolon or a tab."""
    first, second = (re.sub('"[^"]*"', "", line) for line in (first, second))
    signs = [sign for sign in f"{usual},;\t" if sign in first] or [usual]
    return next((sign for sign in signs if sign in second), signs[0])


def _cells(line: str, delimiter: str | None) -> list[str]:
    line = line.rstrip("\n")
    parts = line.split() if delimiter is None else next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))
    return [cell.strip().strip("\"'") for cell in parts]


def _is_header(first: list[str], second: list[str]) -> bool:
    """Whether the first line of a table has the names of its columns."""
    if not all(_is_number(cell) or _is_truth(cell) for cell in first):
        return True
    if any(map(_is_truth, first)):
        return not any(map(_is_truth, second))
    return len(first) > 4 and first == [str(i) for i in range(len(first))]  # that of a frame without names


def _names_above_bits(table: np.ndarray) -> bool:
    """Whether the first row looks like a header of numbers, such as years, above nothing but 0 and 1."""
    first, rest = table[0], table[1:]
    numbered = len(first) > 1 and np.all((first > 1) & (first == np.round(first))) and len(set(first)) == len(first)
    return bool(numbered and len(rest) > 1 and np.all((rest == 0) | (rest == 1)))


def _in_figures(lines: Iterator[str], delimiter: str | None) -> Iterator[str]:
    """Lines with 1 and 0 for the cells true and false; NumPy knows neither them nor quotes after a space."""
    truth = re.compile(r' *("?)(?:(true)|false)\1 *', re.IGNORECASE)

    @functools.lru_cache(1000)
    def figure(cell: str) -> str:
        found = truth.fullmatch(cell)
        return cell.lstrip(" ") if found is None else "1" if found[2] else "0"

    for line in lines:
        yield (delimiter or " ").join(map(figure, line.rstrip("\n").split(delimiter)))


def _told(error: ValueError, delimiter: str | None, skipped: int, names: Sequence[str] | None) -> ValueError:
    """What NumPy said of a cell that is not a number, with its line in the file and its column for `drop_columns`."""
    found = re.search(r"could not convert string (.*) to \w+ at row (\d+), column (\d+)", str(error), re.DOTALL)
    if found is None:
        return error
    value, row, place = found[1], int(found[2]), int(found[3]) - 1
    column = place if names is None or place >= len(names) else names[place]
    where = f"line {row + 1 + skipped}, column {column!r},"
    if delimiter == "," and ";" in value:
        return ValueError("its values are separated by semicolons, so it must have no commas")
    if delimiter != "," and re.fullmatch(r"'-?\d*,\d+'", value):
        return ValueError(f"{value} in {where} has a decimal comma, which must be a point")
    if "\\n" in value:
        return ValueError(f"a quote in {where} is not closed")
    if not value.strip("'\" "):
        missing = f"line {row + 1 + skipped} has no value in column {column!r}"
        return ValueError(f"{missing}, and what is missing must be filled in, or the line left out")
    return ValueError(
        f"{value} in {where} is not a number, and if that column is not data, "
        f"leave it out with `drop_columns` {shlex.quote(str(column))}"
    )


def _of_width(lines: Iterator[str], width: int, delimiter: str | None, skipped: int) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if '"' in line and delimiter is not None:
            line = re.sub(f'(^|{re.escape(delimiter)}) +"', r'\1"', line)  # as NumPy knows quotes
            cells = next(csv.reader([line], delimiter=delimiter))
        else:
            cells = line.split(delimiter)
        if number > skipped and line.strip() and len(cells) != width:
            raise ValueError(f"line {number} has {len(cells)} columns, not {width}")
        yield line


def _is_truth(cell: str) -> bool:
    return cell.lower() in ("true", "false")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def _read_idx(path: Path, *_: Any) -> Contents:
    """The format of MNIST: two zero bytes, type, number of dimensions, their sizes, then the values."""
    content = _whole(path)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in IDX_TYPES:
        raise ValueError("it does not begin as an idx file does")
    header = 4 + 4 * content[3]
    if len(content) < header:
        raise ValueError("it ends within its header")
    shape = struct.unpack(f">{content[3]}I", content[4:header])
    dtype = np.dtype(IDX_TYPES[content[2]])
    promised = header + dtype.itemsize * int(np.prod([1, *shape], dtype=object))
    if len(content) != promised:
        raise ValueError(f"its header promises {promised} bytes and it has {len(content)}")
    values = np.frombuffer(content, dtype, offset=header).reshape(shape).astype(dtype.newbyteorder("="))
    return Contents({"all": values}, image=(shape[1], shape[2]) if len(shape) == 3 else None)


def idx_labels(pictures: Path) -> tuple[str, ...]:
    """The labels that lie beside an idx file of pictures, as those of MNIST do; none where there are none."""
    name = re.sub("images(.)idx3", r"labels\1idx1", pictures.name.removesuffix(".gz"))
    found = [path for path in (pictures.with_name(name), pictures.with_name(f"{name}.gz")) if path.exists()]
    if name != pictures.name.removesuffix(".gz") and found:
        with contextlib.suppress(*READ_ERRORS):
            return tuple(map(str, _read_idx(found[0]).splits["all"].ravel().tolist()))
    return ()


def _read_svmlight(path: Path, choices: Choices, width: int | None, _: Any) -> Contents:
    """Lines of `label index:value ...`; labels are left out."""
    from sklearn.datasets import load_svmlight_file

    zero_based = choices.first_index == 0
    try:
        matrix: Any = load_svmlight_file(str(path), n_features=width, zero_based=zero_based)[0]  # pyright: ignore
    except ValueError as error:
        if "zero-based" in str(error) or "index 0" in str(error):
            raise UsageError(f"{path} has an index 0, and svmlight files count from 1; say `first_index=0`.") from error
        raise
    if matrix.shape[1] > 2**31:
        raise ValueError(f"it has an index of {matrix.shape[1]}")
    return Contents({"all": matrix})


MATRIX_MARKET_FIELDS = {"integer": 3, "unsigned-integer": 3, "real": 3, "double": 3, "pattern": 2}


def _read_matrix_market(path: Path, *_: Any) -> Contents:
    """Matrix Market, general matrices of numbers; read here because SciPy's reader crashes on some damaged files."""
    with opened(path) as file:
        head = file.readline(200).decode("latin-1").lower().split()
        if len(head) != 5 or head[:2] != ["%%matrixmarket", "matrix"]:
            raise ValueError("it does not begin as a Matrix Market file does")
        form, field, symmetry = head[2:]
        if form not in ("coordinate", "array") or field not in MATRIX_MARKET_FIELDS or symmetry != "general":
            raise ValueError(f"it is a {form} {field} {symmetry} matrix, and only general ones of numbers are read")
        sizes = next((line.split() for line in file if line.strip() and not line.startswith(b"%")), [])
        rows, columns, *entries = (int(size) for size in sizes)
        if form == "array":
            table = _numbers_of(file, 1)
            if len(table) != rows * columns:
                raise ValueError(f"it promises {rows} x {columns} numbers and has {len(table)}")
            return Contents({"all": table.reshape(columns, rows).T})
        table = _numbers_of(file, MATRIX_MARKET_FIELDS[field])
    if entries != [len(table)]:
        raise ValueError(f"it promises {entries} entries and has {len(table)}")
    values = table[:, 2] if table.shape[1] == 3 else np.ones(len(table))
    return Contents({"all": _from_entries(table[:, :2], values, (rows, columns))})


def _numbers_of(file: Any, columns: int) -> np.ndarray:
    """The lines of numbers that are left in a file, read in blocks."""
    parts = [np.zeros((0, columns))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the empty block at the end
        while len(part := np.loadtxt(file, ndmin=2, max_rows=1_000_000, comments=None)):
            if part.shape[1] != columns:
                raise ValueError(f"an entry has {part.shape[1]} numbers, not {columns}")
            parts.append(part)
    return np.concatenate(parts)


def _from_entries(places: np.ndarray, values: np.ndarray, shape: tuple[int, int]) -> Any:
    """A matrix from (row, column) pairs that count from 1."""
    if min(shape) < 1 or max(shape) >= 2**31:
        raise ValueError(f"it claims to be {shape[0]} x {shape[1]}")
    if shape[0] * 32 > physical_memory():
        raise MemoryError
    if not np.all((places >= 1) & (places <= shape) & (places == np.round(places))):
        raise ValueError("it has an entry at a place that it does not hold")
    row, column = places.astype(np.int64).T - 1
    return scipy.sparse.coo_array((values, (row, column)), shape=shape).tocsr()


def _read_bag_of_words(path: Path, *_: Any) -> Contents:
    """UCI's docword.NAME.txt: documents, words and entries on a line each, then lines of `document word count`.

    The words are in vocab.NAME.txt beside it.
    """
    beside = path.with_name(re.sub(r"^docword(.*?\.txt)(\.gz)?$", r"vocab\1", path.name, flags=re.IGNORECASE))
    words = tuple(beside.read_text(encoding="utf-8").split()) if beside.exists() else None
    with opened(path) as file:
        documents, width, entries = (int(file.readline(100)) for _ in range(3))
        table = _numbers_of(file, 3)
    if len(table) != entries:
        raise ValueError(f"it promises {entries} entries and has {len(table)}")
    return Contents({"all": _from_entries(table[:, :2], table[:, 2], (documents, width))}, words)


def _read_matrix_folder(path: Path, *_: Any) -> Contents:
    """A folder that `save_matrix` wrote: a sparse matrix on disk, mapped into memory and not read."""
    values, columns, offsets = (
        np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ("values", "columns", "offsets")
    )
    numbers = all(part.ndim == 1 and part.dtype.kind in "iu" for part in (columns, offsets))
    if not numbers or values.ndim != 1 or values.dtype.kind not in "iuf" or len(values) != len(columns):
        raise ValueError("its arrays do not make a matrix")
    words = tuple((path / "vocabulary.txt").read_text(encoding="utf-8").split("\n")[:-1])
    if not len(offsets) or offsets[0] != 0 or offsets[-1] > len(values) or np.any(np.diff(offsets) < 0):
        raise ValueError("its offsets are not those of rows")
    if len(columns) and not (columns.min() >= 0 and columns.max() < len(words)):
        raise ValueError("it has a column that is not in its vocabulary")
    rows = stored_rows(values, columns, offsets, len(words))
    classes = path / "labels.txt"
    labels = tuple(classes.read_text(encoding="utf-8").split("\n")[:-1] if classes.exists() else [])
    if not (path / "test.npy").exists():
        return Contents({"all": rows}, words, labels={"all": labels})
    test = np.load(path / "test.npy", allow_pickle=False)
    if (
        test.ndim != 1
        or test.dtype.kind not in "iu"
        or (len(test) and not 0 <= test.min() <= test.max() < rows.shape[0])
    ):
        raise ValueError("its test rows are not among its rows")
    train = np.setdiff1d(np.arange(rows.shape[0]), test)
    places = {"train": train, "test": test}
    known = len(labels) == rows.shape[0]
    return Contents(
        {name: rows.select(own) for name, own in places.items()},
        words,
        labels={name: tuple(labels[i] for i in own.tolist()) for name, own in places.items()} if known else {},
    )


def _read_lines(path: Path, choices: Choices, _: Any, vocabulary: tuple[str, ...] | None) -> Contents:
    """One document per line."""

    def documents() -> Iterator[bytes]:
        with opened(path) as file:
            yield from (checked_text(line, path) for line in file)

    return _counted({"all": documents}, path, choices, vocabulary)


def _read_folder(path: Path, choices: Choices, width: int | None, vocabulary: tuple[str, ...] | None) -> Contents:
    """Pictures, idx files, or texts, one document per file; folders named train and test are the two splits."""
    files = files_in(path)
    idx = [file for file in files if is_idx(file.name)]
    if idx:
        pair = idx_pair(idx, path)
        parts = {split: _read_idx(file) for split, file in pair.items()}
        image = next(iter(parts.values())).image
        splits = {split: part.splits["all"] for split, part in parts.items()}
        return Contents(splits, image=image, labels={split: idx_labels(file) for split, file in pair.items()})
    names = {file: file.relative_to(path).as_posix() for file in files}
    splits = splits_of(names.values())
    pictures = [file for file in files if file.suffix.lower() in PICTURES]
    if 2 * len(pictures) > len(files):
        if odd := next((file for file in files if file not in pictures), None):
            raise UsageError(f"{odd} is not a picture (.png or .jpg) as the others in {path} are; move it elsewhere.")
        by_split = {split: [file for file in files if split in ("all", split_of(names[file]))] for split in splits}
        cases, image = read_pictures(by_split, physical_memory())
        return Contents(cases, image=image, labels=folder_labels(names.values()))
    for file in files:
        if file.suffix.lower() != ".txt" and Path(file.name.lower().removesuffix(".gz")).suffix in READERS:
            raise UsageError(f"{file} is a file of data, not a text among texts; give the file itself.")
    documents = {split: lambda split=split: texts(files, path, split) for split in splits}
    counted = _counted(documents, path, choices, vocabulary)
    return dataclasses.replace(counted, labels=folder_labels(names.values()))


def _read_text_archive(path: Path, choices: Choices, _: Any, vocabulary: tuple[str, ...] | None) -> Contents:
    """Texts in a .tar archive, which is read and never unpacked."""

    def documents(which: str) -> Iterator[bytes]:
        with contextlib.closing(members(path)) as every:
            for name, content in every:
                if which in ("all", split_of(name)):
                    yield checked_text(content, f"{path}, {name}")

    names = [name for name, _ in members(path)]
    counted = _counted(
        {split: lambda split=split: documents(split) for split in splits_of(names)}, path, choices, vocabulary
    )
    return dataclasses.replace(counted, labels=folder_labels(names))


def case_names(path: Path) -> dict[str, list[str]]:
    """The files that the cases of a folder or a .tar archive come from, for every split; nothing for other data."""
    if path.is_dir():
        names = [file.relative_to(path).as_posix() for file in files_in(path)]
        if _reader(path) is not _read_folder or any(map(is_idx, names)):
            return {}
    elif path.exists() and _reader(path) is _read_text_archive:
        names = [name for name, _ in members(path)]
    else:
        return {}
    return {split: [name for name in names if split in ("all", split_of(name))] for split in splits_of(names)}


def members(path: Path) -> Generator[tuple[str, bytes], None, None]:
    """The files in a .tar archive, in memory one after another: `(name, content)`."""
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name.startswith(("/", "\\")) or ".." in Path(member.name).parts:
                raise UsageError(f"{path} has a member {member.name!r} that leaves its folder; it is not read.")
            if member.isfile() and (file := archive.extractfile(member)) is not None:
                if member.size > physical_memory() // 2:
                    raise MemoryError
                yield member.name.removeprefix("./"), file.read()


def _counted(
    splits: dict[str, Callable[[], Iterator[bytes]]],
    path: Path,
    choices: Choices,
    vocabulary: tuple[str, ...] | None,
) -> Contents:
    counted = text.count(
        splits,
        words=choices.words,
        stop_words=choices.stop_words or "english",
        max_df=choices.max_df,
        vocabulary=vocabulary,
        where=path,
    )
    return Contents(counted.splits, counted.vocabulary, counted.note, counted.decided, text=True)


READERS: dict[str, Callable[..., Contents]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".amat": _read_amat,
    ".svm": _read_svmlight,
    ".svmlight": _read_svmlight,
    ".libsvm": _read_svmlight,
    ".mtx": _read_matrix_market,
    ".txt": _read_lines,
}


def one_line(error: BaseException) -> str:
    """What a library said, as the end of a sentence."""
    said = str(error).strip()
    if "pickle" in said.lower() or "object array" in said.lower():
        return "it is damaged, or holds objects that could only be unpickled, which is never done"
    return said.splitlines()[0].split(";")[0].rstrip(".") if said else type(error).__name__
