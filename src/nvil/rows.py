"""Data as rows that a compiled loop can draw minibatches from: plain arrays, grey levels, and sparse word counts.

A corpus is never held densely: only the minibatch at hand is. `select` shares the storage of what it selects from, so
that splitting a memory-mapped corpus copies nothing.
"""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int, Key

from nvil.errors import UsageError
from nvil.random import uniform

PIECE = 128
BLOCK = 10_000
NO_TABLE = (
    "The data is no table: numbers are needed, the same number of them in every case. "
    "Cases that come one by one are an iterator, or an nvil.Stream."
)


class SparseRows(eqx.Module):
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
        """Some of the rows, on the same storage."""
        return SparseRows(self.values, self.columns, self.begin[rows], self.end[rows], self.width)

    def take(self, rows: Int[Array, " size"]) -> Float[Array, "size width"]:
        """The given rows, dense, inside a compiled loop.

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

    def matrix(self) -> Any:
        """The same as a SciPy matrix."""
        counts = self.end - self.begin
        offsets = np.concatenate([[0], np.cumsum(counts)])
        places = np.repeat(self.begin - offsets[:-1], counts) + np.arange(offsets[-1])
        parts = (self.values[places], self.columns[places].astype(np.int32), offsets)
        return scipy.sparse.csr_array(parts, shape=self.shape)

    def blocks(self) -> Iterator[Any]:
        """The rows as SciPy matrices of `BLOCK` rows each."""
        for start in range(0, self.shape[0], BLOCK):
            yield self.select(slice(start, start + BLOCK)).matrix()


class Grey(eqx.Module):
    """Grey levels from 0 to `scale`, read as probabilities: every minibatch is binarized anew."""

    values: Any
    scale: float = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def select(self, rows: Any) -> "Grey":
        return Grey(self.values[rows], self.scale)

    def take(self, rows: Int[Array, " size"], key: Key[Array, ""]) -> Float[Array, "size width"]:
        """The given rows with every pixel on with the probability that its grey level says."""
        probabilities = self.values[rows].astype(float) / self.scale
        return (uniform(key, probabilities.shape) < probabilities).astype(float)

    def binarized(self, seed: int) -> np.ndarray:
        """One fixed binarization, for validation and test."""
        uniform = np.random.default_rng(seed).random(self.shape, dtype=np.float32)
        return (uniform < self.values / np.float32(self.scale)).astype(np.uint8)


class InOrder(eqx.Module):
    """A part of a stream: every case is drawn once, in order, from update `first` on."""

    data: Any
    first: Int[Array, ""]


def take(data: Any, rows: Int[Array, " size"], key: Key[Array, ""]) -> Float[Array, "size ..."]:
    """Rows of data on a device, as the networks take them."""
    if isinstance(data, SparseRows):
        return data.take(rows)
    if isinstance(data, Grey):
        return data.take(rows, key)
    return data[rows].astype(float)


def as_rows(data: Any) -> Any:
    """Whatever holds one case a row: an array, `SparseRows`, `Grey`; SciPy matrices and data frames are converted."""
    if isinstance(data, SparseRows | Grey | InOrder):
        return data
    if scipy.sparse.issparse(data):
        return sparse_rows(data)
    if isinstance(data, jax.Array):
        return data
    try:
        # A data frame may hold columns of several types.
        array = data.to_numpy(float, na_value=np.nan) if hasattr(data, "iloc") else np.asarray(data)
    except (ValueError, TypeError) as error:
        raise UsageError(NO_TABLE) from error
    if array.dtype == object:
        raise UsageError(NO_TABLE)
    return array


def sparse_rows(matrix: Any) -> SparseRows:
    """A SciPy matrix as `SparseRows`; entries at the same place are added up."""
    matrix = scipy.sparse.csr_array(matrix)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    if matrix.nnz >= 2**31:
        raise UsageError(f"The matrix has {matrix.nnz} entries; at most {2**31 - 1} can be trained on.")
    values = smallest(matrix.data)
    columns = matrix.indices.astype(np.uint16 if matrix.shape[1] <= 2**16 else np.int32)
    if not len(values):  # one entry at least, so that the rows of a matrix of zeros can be drawn too
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


def on_device(data: Any) -> Any:
    """Data as the training loop takes it."""
    return jax.tree.map(jnp.asarray, as_rows(data))


def select(data: Any, rows: Any) -> Any:
    """Some of the rows."""
    return data.select(rows) if isinstance(data, SparseRows | Grey) else data[rows]


def fixed(data: Any, seed: int = 0) -> Any:
    """Data to evaluate on: grey levels are binarized once and for all."""
    return data.binarized(seed) if isinstance(data, Grey) else data


def dense_blocks(data: Any, size: int) -> Iterator[np.ndarray]:
    """The rows as dense arrays of `size` rows each."""
    data = fixed(as_rows(data))
    for start in range(0, data.shape[0], size):
        block = select(data, slice(start, start + size))
        yield block.matrix().toarray() if isinstance(block, SparseRows) else np.asarray(block)


def row_sums(data: Any) -> np.ndarray:
    """The sum of every row: the lengths of documents."""
    data = as_rows(data)
    if not isinstance(data, SparseRows):
        return np.asarray(data).sum(axis=1)
    return np.concatenate([np.zeros(0), *(block.sum(axis=1, dtype=float) for block in data.blocks())])


def column_sums(data: Any) -> np.ndarray:
    """The sum of every column, in double precision: the counts of words."""
    data = as_rows(data)
    if isinstance(data, Grey):
        return data.values.sum(axis=0, dtype=float) / data.scale
    if not isinstance(data, SparseRows):
        return np.asarray(data).sum(axis=0, dtype=float)
    total = np.zeros(data.width)
    for block in data.blocks():
        total += np.bincount(block.indices, block.data, minlength=data.width)
    return total


def mean_row(data: Any) -> Float[np.ndarray, " width"]:
    """The mean of all rows."""
    data = as_rows(data)
    return column_sums(data) / max(1, data.shape[0])
