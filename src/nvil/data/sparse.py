"""Sparse word counts: a corpus is never held densely, only the minibatch at hand is."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int, Key

from nvil.domains import Domain
from nvil.errors import UsageError
from nvil.rows import Rows, as_rows

PIECE = 128
MATRIX_ROWS = 1000
"""Rows that are made a SciPy matrix at a time."""


class SparseRows(Rows):
    """Rows of a compressed sparse matrix: row r holds the entries from `begin[r]` up to `end[r]`.

    Counts and columns are kept in the smallest types that hold them, so that RCV1 (60 million entries) takes 180 MB.
    """

    values: Any
    columns: Any
    begin: Any
    end: Any
    width: int = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.begin), self.width

    def select(self, rows: Any) -> "SparseRows":
        return SparseRows(self.values, self.columns, self.begin[rows], self.end[rows], self.width)

    def take(self, rows: Int[Array, " size"], key: Key[Array, ""]) -> Float[Array, "size width"]:
        """The given rows, dense.

        Entries are added up in place, `PIECE` of every row at a time, until the fullest row *of these* is done.
        """
        begin, end = self.begin[rows], self.end[rows]
        dense = jnp.zeros((len(rows), self.width), float)
        row = jnp.arange(len(rows))[:, None]

        def add(piece: Array, dense: Array) -> Array:
            places = begin[:, None] + piece * PIECE + jnp.arange(PIECE, dtype=begin.dtype)
            stored = places < end[:, None]
            places = jnp.minimum(places, len(self.values) - 1)
            values = jnp.where(stored, self.values[places], 0).astype(dense.dtype)
            return dense.at[row, self.columns[places].astype(jnp.int32)].add(values)

        pieces = -(-jnp.max(end - begin, initial=0) // PIECE)
        return jax.lax.fori_loop(0, pieces, add, dense)

    def dense(self) -> np.ndarray:
        return self.matrix().toarray()

    def row_sums(self) -> Float[np.ndarray, " cases"]:
        return np.concatenate([np.zeros(0), *(block.sum(axis=1, dtype=float) for block in self.matrices())])

    def column_sums(self) -> Float[np.ndarray, " width"]:
        total = np.zeros(self.width)
        for block in self.matrices():
            total += np.bincount(block.indices, block.data, minlength=self.width)
        return total

    def outside(self, domain: Domain) -> tuple[int, float] | None:
        """Of what is stored: a zero is in every domain that word counts can be in."""
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
    if matrix.nnz >= 2**31:
        raise UsageError(f"The matrix has {matrix.nnz} entries; at most {2**31 - 1} can be trained on.")
    values = smallest(matrix.data)
    columns = matrix.indices.astype(np.uint16 if matrix.shape[1] <= 2**16 else np.int32)
    if not len(values):  # at least one entry, so that the rows of a matrix of zeros can be drawn too
        values, columns = np.zeros(1, np.uint8), np.zeros(1, columns.dtype)
    offsets = matrix.indptr.astype(np.int32)
    return SparseRows(values, columns, offsets[:-1], offsets[1:], matrix.shape[1])


def smallest(values: np.ndarray) -> np.ndarray:
    """Whole numbers from 0 up in the smallest type that holds them; others as they are."""
    if len(values) and values.min() >= 0 and np.array_equal(values, np.round(values)):
        for kind in (np.uint8, np.uint16):
            if values.max() <= np.iinfo(kind).max:
                return values.astype(kind)
    return values
