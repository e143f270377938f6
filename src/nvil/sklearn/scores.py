"""The bound, or log P(x) itself, of every case, as scikit-learn wants it: whatever the company a case is in."""

import zlib
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key

from nvil.apply import in_blocks
from nvil.contracts import Pair, bound_of_one_sample
from nvil.errors import choose
from nvil.evaluation import as_float, block_bounds
from nvil.likelihood import block_importance, case_exact
from nvil.random import seeded_key
from nvil.rows import Rows

ESTIMATES = ("bound", "importance", "exact")


def case_scores(pair: Pair, rows: Rows, estimate: str, *, samples: int, seed: int) -> Float[np.ndarray, " cases"]:
    """The bound, an importance-weighted estimate of log P(x), or log P(x), for every case.

    A case's samples come from a key of its own contents and the seed, so that neither the order nor the number of the
    cases changes its score, and yet the samples of different cases are independent.
    """
    choose("estimate", estimate, ESTIMATES)
    if estimate == "exact":
        return case_exact(pair, rows)

    key = seeded_key(seed, "scores")

    def scores(x: np.ndarray) -> Float[Array, " cases"]:
        marks = np.array([zlib.crc32(np.asarray(case, np.float32).tobytes()) for case in x], np.uint32)
        return _scores(pair, x, jax.vmap(jax.random.fold_in, (None, 0))(key, marks), samples, estimate == "importance")

    return in_blocks(scores, pair, rows)


@eqx.filter_jit
def _scores(pair: Pair, x: Any, keys: Key[Array, " cases"], samples: int, weighted: bool) -> Float[Array, " cases"]:
    def one(x: Float[Array, " visible"], key: Key[Array, ""]) -> Float[Array, ""]:
        if weighted:
            return block_importance(pair, x[None], samples, key)[0][0]
        return block_bounds(pair, x[None], samples, key, bound_of_one_sample)[0][0]

    return jax.vmap(one)(as_float(x), keys)
