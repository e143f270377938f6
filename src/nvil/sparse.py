"""Cases as sparse rows: word counts of documents, never held densely but for the minibatch at hand."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int


class SparseRows(eqx.Module):
    """A compressed sparse row matrix whose rows can be drawn inside a compiled loop."""

    values: Float[Array, " stored"]
    columns: Int[Array, " stored"]
    offsets: Int[Array, " ends"]
    width: int = eqx.field(static=True)
    longest: int = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.offsets) - 1, self.width

    def __getitem__(self, rows: Int[Array, " size"]) -> Float[Array, "size width"]:
        """The given rows, dense: the entries of each, padded to those of the fullest row, are added up in place."""
        begin, end = self.offsets[rows], self.offsets[rows + 1]
        places = begin[:, None] + jnp.arange(self.longest, dtype=begin.dtype)
        stored = places < end[:, None]
        places = jnp.minimum(places, len(self.values) - 1)
        values = jnp.where(stored, self.values[places], 0)
        dense = jnp.zeros((len(rows), self.width), self.values.dtype)
        return dense.at[jnp.arange(len(rows))[:, None], self.columns[places]].add(values)


def device_rows(data: Any) -> Any:
    """Data as the training loop takes it: an array, or `SparseRows` for a SciPy sparse matrix."""
    if isinstance(data, SparseRows):
        return data
    if not scipy.sparse.issparse(data):
        return jnp.asarray(data)
    matrix: Any = scipy.sparse.csr_array(data)
    longest = max(1, int(np.diff(matrix.indptr).max(initial=0)))
    # One entry at least, so that the rows of a matrix of zeros can be drawn too.
    values, columns = (part if len(part) else np.zeros(1, part.dtype) for part in (matrix.data, matrix.indices))
    return SparseRows(
        jnp.asarray(values, float), jnp.asarray(columns), jnp.asarray(matrix.indptr), matrix.shape[1], longest
    )


def dense_rows(rows: Any) -> np.ndarray:
    """A block of rows as a dense array."""
    return rows.toarray() if scipy.sparse.issparse(rows) else np.asarray(rows)


def mean_row(data: Any) -> Float[np.ndarray, " width"]:
    """The mean of all rows."""
    return np.asarray(data.mean(axis=0)).ravel()
