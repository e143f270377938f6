"""Minibatches that are gathered from the data a window at a time.

A window has the same shape whatever the number of cases, dense or sparse, so that the folds of a cross-validation, and
calls of `partial_fit`, run one compiled program.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from nvil.data.streams import WINDOW_BYTES, InOrder
from nvil.domains import Domain
from nvil.rows import Rows

MOST_UPDATES = 100


class Gathered:
    """A `Source` of the cases of `rows`, all but its windows."""

    def __init__(self, rows: Rows, seed: int):
        self.rows, self.seed = rows, seed

    def case_shape(self) -> tuple[int, ...]:
        return self.rows.case_shape()

    def check(self, domain: Domain) -> None:
        self.rows.check(domain)

    def hold_out(self, count: int, seed: int) -> tuple[Any, Rows]:
        rest, held_out = self.rows.hold_out(count, seed)
        return type(self)(rest, self.seed), held_out

    def first(self) -> Rows:
        return self.rows


class AtRandom(Gathered):
    """Cases drawn at random with replacement (Section 4.1), a function of the seed and of where a window begins."""

    def window(self, step: int, batch_size: int) -> tuple[InOrder, int]:
        updates = _updates(self.rows, batch_size)
        random = np.random.default_rng([self.seed, step])
        return _window(self.rows, random.integers(0, self.rows.shape[0], updates * batch_size), step), updates


class InTurn(Gathered):
    """Every case once, in order; a minibatch that is not full at the end is filled with cases drawn at random."""

    done = 0

    def window(self, step: int, batch_size: int) -> tuple[InOrder, int]:
        cases = self.rows.shape[0]
        random = np.random.default_rng([self.seed, step])
        filled = random.integers(0, cases, -cases % batch_size)
        left = np.concatenate([np.arange(cases), filled])[self.done * batch_size :]
        updates = _updates(self.rows, batch_size)
        given = min(updates, len(left) // batch_size)
        self.done += given
        # The rest of the window is not drawn from.
        return _window(self.rows, np.resize(left[: given * batch_size], updates * batch_size), step), given


def _updates(rows: Rows, batch_size: int) -> int:
    """How many updates a window lasts."""
    return max(1, min(MOST_UPDATES, WINDOW_BYTES // (4 * batch_size * rows.shape[1])))


def _window(rows: Rows, places: Any, step: int) -> InOrder:
    values = np.asarray(rows.select(places).dense(), np.float32)
    return InOrder(jnp.asarray(values), jnp.asarray(step, jnp.int32))
