"""Sparse matrices of word counts on disk, laid out to be mapped into memory.

values.npy, columns.npy   the entries, row after row
offsets.npy               where each row begins, and the end of the last
vocabulary.txt            the words, one per line, one per column
test.npy                  the rows of the test set, where there is one
labels.txt                the class of every row, one per line, where these are known
"""

import contextlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nvil.data.sparse import MATRIX_ROWS, as_matrix
from nvil.errors import UsageError
from nvil.rows import Rows, as_rows


class MatrixWriter:
    """Writes rows as they come; memory holds a buffer and the offsets, however long the matrix grows."""

    def __init__(self, folder: Path, width: int):
        self.folder = folder
        self.offsets = [0]
        self.columns_type = np.uint16 if width <= 2**16 else np.int32
        self.files = {name: (folder / f"{name}.raw").open("wb") for name in ("values", "columns")}

    def add(self, columns: Iterable[Any], counts: Iterable[Any]) -> None:
        """One row of counts, up to 65,535 each."""
        columns, values = np.fromiter(columns, self.columns_type), np.fromiter(counts, np.float64)
        kept = (values >= 0) & (values < 2**16) & (values == np.round(values))
        if not np.all(kept):
            odd = values[~kept][0]
            raise UsageError(f"Row {len(self.offsets) - 1} has a count of {odd:g}; whole numbers 0 to 65535 are kept.")
        self.files["columns"].write(columns.tobytes())
        self.files["values"].write(values.astype(np.uint16).tobytes())
        self.offsets.append(self.offsets[-1] + len(columns))

    def finish(
        self, vocabulary: tuple[str, ...], test: np.ndarray | None = None, labels: tuple[str, ...] | None = None
    ) -> None:
        for name, dtype in (("values", np.uint16), ("columns", self.columns_type)):
            self.files[name].close()
            raw = self.folder / f"{name}.raw"
            with (self.folder / f"{name}.npy").open("wb") as file:
                header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (self.offsets[-1],)}
                np.lib.format.write_array_header_1_0(file, header)
                with raw.open("rb") as entries:
                    shutil.copyfileobj(entries, file)
            raw.unlink()
        np.save(
            self.folder / "offsets.npy", np.asarray(self.offsets, np.int32 if self.offsets[-1] < 2**31 else np.int64)
        )
        if test is not None:
            np.save(self.folder / "test.npy", test)
        for name, lines in (("vocabulary", vocabulary), ("labels", labels)):
            if lines is not None:
                (self.folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@contextlib.contextmanager
def matrix_writer(path: Path, width: int) -> Iterator[MatrixWriter]:
    """Write to a temporary folder that takes the place of `path` when the block ends well, and goes when not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        writer = MatrixWriter(temporary, width)
        with contextlib.ExitStack() as files:
            for file in writer.files.values():
                files.enter_context(file)
            yield writer
        temporary.chmod(0o755)
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()  # one that is not empty is another's, who was faster
        os.replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def save_matrix(
    folder: str | os.PathLike[str],
    matrix: Any,
    vocabulary: Iterable[str],
    test: Any = None,
    labels: Iterable[str] | None = None,
) -> None:
    """Write word counts to a folder that `nvil train --data FOLDER` maps into memory.

    **Arguments:**

    - `folder`: where to write; one that exists must be empty.
    - `matrix`: a SciPy sparse matrix or anything else that holds one case per row.
    - `vocabulary`: a word for every column.
    - `test`: the numbers of the rows that are the test set; without them a tenth is held out when it is loaded.
    - `labels`: the class of every row, for the page of a run; no model sees it.
    """
    path, words = Path(folder), tuple(vocabulary)
    rows = as_rows(matrix)
    if len(words) != rows.shape[1] or any("\n" in word for word in words):
        raise UsageError(
            f"The vocabulary must have one word, without line breaks, per column ({rows.shape[1]}), got {len(words)}."
        )
    classes = None if labels is None else tuple(labels)
    if classes is not None and (len(classes) != rows.shape[0] or any("\n" in label for label in classes)):
        raise UsageError(
            f"There must be one label, without line breaks, per row ({rows.shape[0]}), got {len(classes)}."
        )
    if test is not None and (len(test) == 0 or min(test) < 0 or max(test) >= rows.shape[0]):
        raise UsageError(f"The test rows must be among the {rows.shape[0]} rows.")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} is there already and not an empty folder.")
    with matrix_writer(path, len(words)) as writer:
        for row in iterate_rows(rows):
            writer.add(*row)
        writer.finish(words, None if test is None else np.asarray(test), classes)


def iterate_rows(rows: Rows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """`(columns, counts)` of every row."""
    for block in map(as_matrix, rows.blocks(MATRIX_ROWS)):
        for begin, end in zip(block.indptr[:-1], block.indptr[1:], strict=True):
            yield block.indices[begin:end], block.data[begin:end]


def write_documents(folder: Path, documents: Any, *, words: int, test: int, seed: int = 0) -> None:
    """Count the words of a corpus that is too large to hold, in two passes, and write the counts to `folder`.

    `documents()` iterates over the documents from the start, each a list of tokens. The vocabulary is the `words` most
    frequent tokens; `test` random documents, a function of `seed`, are the test set.
    """
    frequency: Counter[str] = Counter()
    number = 0
    for tokens in documents():
        frequency.update(tokens)
        number += 1
    if not frequency:
        raise UsageError("The token files hold no documents.")
    if test >= number:
        raise UsageError(f"Cannot hold out {test} test documents of {number}.")
    # Ties go by the word, so that the same files give the same columns.
    vocabulary = tuple(sorted(frequency, key=lambda word: (-frequency[word], word))[:words])
    column = {word: i for i, word in enumerate(vocabulary)}
    held_out = np.sort(np.random.default_rng(seed).permutation(number)[:test])
    with matrix_writer(folder, len(vocabulary)) as writer:
        for tokens in documents():
            counts = Counter(tokens)
            known = sorted((column[word], times) for word, times in counts.items() if word in column)
            writer.add((place for place, _ in known), (times for _, times in known))
        writer.finish(vocabulary, held_out)
