"""Sparse word counts: a corpus is never held densely, at most the minibatch at hand is."""

from collections.abc import Iterator
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int, Key

from nvil.domains import Domain
from nvil.errors import UsageError
from nvil.rows import Rows, as_rows, in_common_type
from nvil.sparse import SparseCases

SPARSE = 20
"""Minibatches are sparse where at most one value in so many is not zero; of more, dense products are faster."""
MATRIX_ROWS = 1000
"""Rows that are made a SciPy matrix at a time."""


class SparseRows(Rows):
    """Rows of a compressed sparse matrix: row r holds the entries from `begin[r]` up to `end[r]`.

    Counts and columns are kept in the smallest types that hold them, so that RCV1 (60 million entries) takes 180 MB.
    A row has about `usual` entries.
    """

    values: Any
    columns: Any
    begin: Any
    end: Any
    width: int = eqx.field(static=True)
    usual: int = eqx.field(static=True)
    in_parts: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.begin), self.width

    def select(self, rows: Any) -> "SparseRows":
        return SparseRows(self.values, self.columns, self.begin[rows], self.end[rows], self.width, self.usual)

    def take(self, rows: Int[Array, " size"], key: Key[Array, ""]) -> Any:
        return self._cases(rows).dense()

    def sparse(self) -> "SparseRows":
        if self.usual * SPARSE > self.width:
            return self
        return DrawnSparse(self.values, self.columns, self.begin, self.end, self.width, self.usual)

    def compact(self) -> Rows:
        return sparse_rows(self.matrix())

    def _cases(self, rows: Int[Array, " size"]) -> SparseCases:
        piece = len(rows) * self.usual * 5 // 4  # room for the entries of most minibatches
        return SparseCases(self.begin[rows], self.end[rows], self.values, self.columns, self.width, piece)

    def dense(self) -> np.ndarray:
        return self.matrix().toarray()

    def row_sums(self) -> Float[np.ndarray, " cases"]:
        return np.concatenate([np.zeros(0), *(block.sum(axis=1, dtype=float) for block in self.matrices())])

    def after(self, given: int) -> Rows:
        return sparse_rows(self.matrix()[:, given:]) if given else self

    def column_sums(self) -> Float[np.ndarray, " width"]:
        total = np.zeros(self.width)
        for block in self.matrices():
            total += np.bincount(block.indices, block.data, minlength=self.width)
        return total

    def outside(self, domain: Domain) -> tuple[int, float] | None:
        """Of what is stored: a zero is in every domain that word counts can be in."""
        if domain.of_rows:
            return super().outside(domain)
        for i, block in enumerate(self.matrices()):
            wrong = ~domain.allows(block.data)
            if np.any(wrong):
                first = int(np.argmax(wrong))
                row = int(np.searchsorted(block.indptr, first, side="right")) - 1
                return i * MATRIX_ROWS + row, float(block.data[first])
        return None

    def matrix(self) -> Any:
        """The same as a SciPy matrix."""
        begin, end = np.asarray(self.begin), np.asarray(self.end)
        counts = end - begin
        offsets = np.concatenate([[0], np.cumsum(counts)])
        places = np.repeat(begin - offsets[:-1], counts) + np.arange(offsets[-1])
        parts = (np.asarray(self.values)[places], np.asarray(self.columns)[places].astype(np.int32), offsets)
        return scipy.sparse.csr_array(parts, shape=self.shape)

    def matrices(self) -> Iterator[Any]:
        """The rows as SciPy matrices of `MATRIX_ROWS` rows each."""
        return map(as_matrix, self.blocks(MATRIX_ROWS))


class DrawnSparse(SparseRows):
    """Sparse rows whose minibatches are sparse too."""

    def take(self, rows: Int[Array, " size"], key: Key[Array, ""]) -> SparseCases:
        return self._cases(rows)


def stored_rows(values: np.ndarray, columns: np.ndarray, offsets: np.ndarray, width: int) -> SparseRows:
    """The rows of a compressed sparse matrix."""
    if len(values) >= 2**31:  # a device takes the offsets in 32 bits, and would cut them without a word
        raise UsageError(f"The matrix has {len(values)} entries; at most {2**31 - 1} can be trained on.")
    usual = max(1, -(-len(values) // max(1, len(offsets) - 1)))
    return SparseRows(values, columns, np.asarray(offsets[:-1]), np.asarray(offsets[1:]), width, usual)


def as_matrix(rows: Rows) -> Any:
    """Rows of any kind as a SciPy matrix."""
    return rows.matrix() if isinstance(rows, SparseRows) else scipy.sparse.csr_array(rows.dense())


@as_rows.register(scipy.sparse.sparray)
@as_rows.register(scipy.sparse.spmatrix)
def sparse_rows(matrix: Any) -> SparseRows:
    """A SciPy matrix as `SparseRows`; entries at the same place are added up."""
    if matrix.ndim != 2:
        raise UsageError(f"The data must have one case per row, got a sparse array of shape {matrix.shape}.")
    if matrix.dtype.kind not in "biuf":
        raise UsageError(f"The data holds {matrix.dtype} values; numbers are needed.")
    matrix = scipy.sparse.csr_array(matrix)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    values = smallest(in_common_type(matrix.data))
    columns = matrix.indices.astype(np.uint16 if matrix.shape[1] <= 2**16 else np.int32)
    if not len(values):  # at least one entry, so that the rows of a matrix of zeros can be drawn too
        values, columns = np.zeros(1, np.uint8), np.zeros(1, columns.dtype)
    offsets = matrix.indptr.astype(np.int32)
    return stored_rows(values, columns, offsets, matrix.shape[1])


def smallest(values: np.ndarray) -> np.ndarray:
    """Whole numbers from 0 up in the smallest type that holds them; others as they are."""
    if len(values) and values.min() >= 0 and np.array_equal(values, np.round(values)):
        for kind in (np.uint8, np.uint16):
            if values.max() <= np.iinfo(kind).max:
                return values.astype(kind)
    return values
