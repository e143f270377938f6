"""Data sets: the digits that ship with scikit-learn, and the user's own arrays in files.

Models here are of binary data. How other values become binary is always the user's stated choice, `--binarize`.
"""

import dataclasses
import hashlib
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from jaxtyping import UInt8

from nvil.errors import UsageError, choose

Bits = UInt8[np.ndarray, "_ visible"]
Cases = Any
"""`Bits`, or a SciPy sparse matrix of word counts; one case a row."""


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Training and test cases, one a row: arrays of bits, or sparse matrices of word counts.

    `image` is the (height, width) of a case where it is a picture; `threshold` is what a file's values were binarized
    at; `note` says in a few words how the cases were made.
    """

    name: str
    train: Cases
    test: Cases
    image: tuple[int, int] | None = None
    threshold: float | None = None
    note: str = ""
    vocabulary: tuple[str, ...] | None = None

    @property
    def documents(self) -> bool:
        return scipy.sparse.issparse(self.train)

    @property
    def lengths(self) -> tuple[int, ...] | None:
        """A hundred quantiles of the lengths of training documents: those of sampled ones. None for bits."""
        if not self.documents:
            return None
        words = np.asarray(self.train.sum(axis=1)).ravel()
        return tuple(np.quantile(words[words > 0], np.linspace(0.005, 0.995, 100)).round().astype(int).tolist())

    @property
    def fingerprint(self) -> str:
        """Identifies the very bits of the data, so that a run cannot go on with other data unnoticed."""
        digest = hashlib.sha256()
        for part in (self.train, self.test):
            digest.update(repr(part.shape).encode())
            arrays = (part.data, part.indices, part.indptr) if scipy.sparse.issparse(part) else (part,)
            for array in arrays:
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]


def load(source: str, *, binarize: str = "none", threshold: float | None = None) -> Dataset:
    """Load a named set (`digits`) or a file (`.npy`, `.npz`, `.csv`) with its training and test cases."""
    if source in NAMED:
        return NAMED[source]()
    path = Path(source)
    if not path.suffix and not path.exists():
        choose("data set", source, NAMED)
    splits = read(path)
    if any(scipy.sparse.issparse(part) for part in splits.values()):
        return _documents(path, splits)
    values = np.concatenate(list(splits.values()))
    if binarize == "threshold" and threshold is None:
        threshold = (float(values.min()) + float(values.max())) / 2
    ready = {name: binary(part, path, binarize, threshold) for name, part in splits.items()}
    if "test" in ready:
        train, test = ready["train"], ready["test"]
    else:
        train, test = held_out(ready["all"], max(1, len(values) // 10), seed=0)
    note = "" if threshold is None else f"on where the value is at least {threshold:g}"
    return Dataset(path.name, train, test, _square(values.shape[1]), threshold, note)


def _documents(path: Path, splits: dict[str, Any]) -> Dataset:
    vocabulary = splits.pop("vocabulary", None)
    counted = {name: counts(part, path) for name, part in splits.items()}
    if "test" in counted:
        train, test = counted["train"], counted["test"]
    else:
        train, test = held_out(counted["all"], max(1, counted["all"].shape[0] // 10), seed=0)
    if train.sum() == 0:
        raise UsageError(f"Every training document of {path} is empty.")
    if vocabulary is not None and len(vocabulary) != train.shape[1]:
        raise UsageError(f"{path} has {train.shape[1]} columns but {len(vocabulary)} words in its vocabulary.")
    return Dataset(path.name, train, test, note="word counts", vocabulary=vocabulary)


def counts(matrix: Any, where: Path | str) -> Cases:
    """A sparse matrix of word counts: whole numbers from 0 up."""
    matrix = scipy.sparse.csr_array(matrix)
    values = matrix.data
    if not np.all(np.isfinite(values)) or np.any(values < 0) or np.any(values != np.round(values)):
        raise UsageError(f"{where} should hold word counts, whole numbers from 0 up, and holds other values.")
    return scipy.sparse.csr_array(matrix.astype(np.float32))


def load_cases(
    path: Path, *, visible: int, documents: bool = False, binarize: str = "none", threshold: float | None = None
) -> Cases:
    """All cases of a file, for a model that was trained on `visible` variables."""
    splits = read(path)
    splits.pop("vocabulary", None)
    parts = list(splits.values())
    sparse = scipy.sparse.issparse(parts[0])
    cases: Any = scipy.sparse.vstack(parts) if sparse else np.concatenate(parts)
    if cases.shape[1] != visible:
        raise UsageError(f"{path} has {cases.shape[1]} columns, but the model was trained on {visible}.")
    if sparse != documents:
        wanted = "word counts (a sparse .npz)" if documents else "binary values, not sparse word counts"
        raise UsageError(f"{path} does not fit the model, which was trained on {wanted}.")
    return counts(cases, path) if documents else binary(cases, path, binarize, threshold)


def digits() -> Dataset:
    """The 1797 digits of 8x8 pixels in scikit-learn; a pixel is on where its ink is at least 8 of 16.

    297 random cases are the test set, always the same.
    """
    from sklearn.datasets import load_digits

    cases = (load_digits(return_X_y=True)[0] >= 8).astype(np.uint8)
    train, test = held_out(cases, 297, seed=0)
    return Dataset("digits", train, test, image=(8, 8), note="a pixel is on where its ink is at least 8 of 16")


NAMED = {"digits": digits}


def held_out(cases: Any, count: int, *, seed: int) -> tuple[Any, Any]:
    """Split `count` random cases off: `(the rest, those)`, each in their old order."""
    order = np.random.default_rng(seed).permutation(cases.shape[0])
    return cases[np.sort(order[count:])], cases[np.sort(order[:count])]


def read(path: Path) -> dict[str, Any]:
    """The arrays of a file: `{"all": ...}`, or `{"train": ..., "test": ...}` where the file says so.

    An .npz may also hold sparse matrices, as SciPy saves one, or as `train_data`, `train_indices`, `train_indptr` and
    the same for `test`, with the words in `vocab`.
    """
    readers = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv}
    if path.suffix not in readers:
        raise UsageError(f"Cannot tell what kind of data {path} is; its name should end in {', '.join(readers)}.")
    try:
        arrays = readers[path.suffix](path)
    except FileNotFoundError as error:
        raise UsageError(f"There is no file {path}.") from error
    except IsADirectoryError as error:
        raise UsageError(f"{path} is a folder, not a file of data.") from error
    except UsageError:
        raise
    except MemoryError as error:
        raise UsageError(f"Cannot read {path}: it claims to hold more than fits in memory.") from error
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(f"Cannot read {path}: {_one_line(error)}.") from error
    for name, array in arrays.items():
        if name == "vocabulary" or scipy.sparse.issparse(array):
            continue
        where = path if name == "all" else f"{path} ({name})"
        if not (
            np.issubdtype(array.dtype, np.integer) or np.issubdtype(array.dtype, np.floating) or array.dtype == bool
        ):
            raise UsageError(f"{where} holds {array.dtype} values; numbers are needed.")
        if array.ndim < 2:
            raise UsageError(f"{where} has shape {array.shape}; one case a row is needed.")
        if array.size == 0:
            raise UsageError(f"{where} is empty: its shape is {array.shape}.")
        arrays[name] = array.reshape(len(array), -1)
    widths = {array.shape[1] for name, array in arrays.items() if name != "vocabulary"}
    if len(widths) > 1:
        raise UsageError(f"The arrays of {path} have different numbers of columns: {sorted(widths)}.")
    return arrays


def binary(cases: np.ndarray, where: Path | str, binarize: str, threshold: float | None) -> Bits:
    """Cases as bytes in {0, 1}; what is not binary needs `binarize="threshold"`."""
    if not np.all(np.isfinite(cases)):
        row, column = np.argwhere(~np.isfinite(cases))[0]
        raise UsageError(f"{where} has a value that is not a finite number, at row {row}, column {column} (from 0).")
    if choose("binarization", binarize, ("none", "threshold")) == "threshold":
        assert threshold is not None
        return (cases >= threshold).astype(np.uint8)
    outside = (cases != 0) & (cases != 1)
    if np.any(outside):
        row, column = np.argwhere(outside)[0]
        raise UsageError(
            f"{where} has values other than 0 and 1, first {cases[row, column]:g} at row {row}, column {column} "
            "(from 0); say how to make them binary with --binarize threshold."
        )
    return cases.astype(np.uint8)


def factorial_bound(cases: Bits) -> float:
    """The log-likelihood per case that no model with independent variables can exceed on these very cases."""
    rate = np.mean(cases, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = rate * np.log(rate) + (1 - rate) * np.log1p(-rate)
    return float(np.sum(np.nan_to_num(terms)))


def _read_npy(path: Path) -> dict[str, np.ndarray]:
    with path.open("rb") as file:
        array = np.load(file, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("it is an archive, so its name should end in .npz")
    return {"all": array}


def _read_npz(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("it is an array, so its name should end in .npy")
        names = set(archive.files)
        if {"data", "indices", "indptr", "shape"} <= names:
            return {"all": _sparse(archive, "", tuple(archive["shape"].tolist()))}
        if {f"{split}_{part}" for split in ("train", "test") for part in ("data", "indices", "indptr")} <= names:
            words = tuple(archive["vocab"].tolist()) if "vocab" in names else None
            width = len(words) if words else 1 + max(int(archive[f"{s}_indices"].max()) for s in ("train", "test"))
            splits = {s: _sparse(archive, f"{s}_", (len(archive[f"{s}_indptr"]) - 1, width)) for s in ("train", "test")}
            return {**splits, "vocabulary": words} if words else splits
        if {"train", "test"} <= names:
            return {"train": archive["train"], "test": archive["test"]}
        if len(names) == 1:
            return {"all": archive[names.pop()]}
    found = ", ".join(sorted(names)) or "nothing"
    raise UsageError(f"{path} should hold one array, or two named train and test; it holds {found}.")


def _read_csv(path: Path) -> dict[str, np.ndarray]:
    with path.open(encoding="utf-8-sig") as file:
        blank, first = next(((i, line) for i, line in enumerate(file) if line.strip()), (0, ""))
    if not first:
        raise UsageError(f"{path} is empty.")
    try:
        [float(cell) for cell in first.split(",")]
        header = blank
    except ValueError:
        header = blank + 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a header and nothing else is a warning to NumPy
        try:
            return {"all": np.loadtxt(path, delimiter=",", skiprows=header, ndmin=2, encoding="utf-8-sig")}
        except UserWarning as error:
            raise ValueError("there is nothing below its header") from error


def _sparse(archive: Any, prefix: str, shape: tuple[int, ...]) -> scipy.sparse.csr_array:
    parts = tuple(archive[f"{prefix}{part}"] for part in ("data", "indices", "indptr"))
    matrix = scipy.sparse.csr_array(parts, shape=shape)
    matrix.check_format(full_check=True)
    matrix.sum_duplicates()
    return matrix


def unigram_bound(train: Any, test: Any) -> tuple[float, float]:
    """Perplexity per document and per word without latents: the words' training frequencies, plus half a count each."""
    frequency = np.asarray(train.sum(axis=0)).ravel() + 0.5
    log_rate = np.log(frequency / frequency.sum())
    lengths = np.asarray(test.sum(axis=1)).ravel()
    scores = test @ log_rate
    written = lengths > 0
    per_document = np.exp(-np.mean(scores[written] / lengths[written]))
    return float(per_document), float(np.exp(-scores.sum() / lengths.sum()))


def _square(width: int) -> tuple[int, int] | None:
    side = round(width**0.5)
    return (side, side) if side * side == width and side > 2 else None


def _one_line(error: Exception) -> str:
    text = str(error).strip()
    if "pickle" in text:
        return "it is damaged, or holds objects that could only be unpickled, which is never done"
    return text.splitlines()[0].split(";")[0].rstrip(".") if text else type(error).__name__
