"""Grey levels read as probabilities: each minibatch is binarized anew."""

from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nvil.domains import Domain
from nvil.random import uniform
from nvil.rows import DenseRows, Rows


class Grey(Rows):
    """Grey levels from 0 to `scale`: a pixel is on with the probability that its grey level gives."""

    values: Any
    scale: float = eqx.field(static=True)
    in_parts: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def select(self, rows: Any) -> "Grey":
        return Grey(self.values[rows], self.scale)

    def take(self, rows: Int[Array, " size"], key: Key[Array, ""]) -> Float[Array, "size width"]:
        probabilities = self.values[rows].astype(float) / self.scale
        return (uniform(key, probabilities.shape) < probabilities).astype(float)

    def dense(self) -> np.ndarray:
        """The probabilities."""
        return np.asarray(self.values) / self.scale

    def row_sums(self) -> Float[np.ndarray, " cases"]:
        return np.asarray(self.values).sum(axis=1, dtype=float) / self.scale

    def column_sums(self) -> Float[np.ndarray, " width"]:
        return np.asarray(self.values).sum(axis=0, dtype=float) / self.scale

    def outside(self, domain: Domain) -> tuple[int, float] | None:
        """Whatever the domain, draws are zeros and ones; the grey levels must be probabilities."""
        grey = Domain("", lambda values: (values >= 0) & (values <= self.scale))
        return DenseRows(self.values).outside(grey)

    def fixed(self, seed: int = 0) -> DenseRows:
        """One binarization for all, for validation and test."""
        draws = np.random.default_rng(seed).random(self.shape, dtype=np.float32)
        return DenseRows((draws < np.asarray(self.values) / np.float32(self.scale)).astype(np.uint8))
