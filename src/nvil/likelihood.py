"""log P(x) itself, where the bound is not enough: estimated by importance sampling, or exactly by enumeration.

Both stream: memory grows neither with the data nor with the samples or states.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nvil.contracts import Pair, bound_of_one_sample, check_is_pair, needs
from nvil.errors import UsageError, count_of
from nvil.evaluation import as_float, in_blocks
from nvil.layers import Categorical, Layer
from nvil.networks import BeliefNetwork
from nvil.random import seeded_key

MOST_UNITS = 16
"""Latents whose states are listed: 2^16 of them."""


class LogLikelihood(NamedTuple):
    """log P(x) per case, in nats, and how sure it is.

    - `log_likelihood`: exact, or the importance-weighted estimate log 1/K sum_k P(x, h_k) / Q(h_k | x), h_k ~ Q(h | x),
      which is at most log P(x) in expectation and tends to it as K grows. An average over the cases.
    - `log_likelihood_se`: its standard error as an estimate for new cases, the standard deviation between cases over
      sqrt(cases); None for a single case, and where an estimate is -inf.
    - `monte_carlo_se`: the part of the error that more samples would remove (on these very cases), to first order in
      the variance of the weights; None for one sample and for exact values.
    - `effective_samples`, `least_effective_samples`: (sum_k w_k)^2 / sum_k w_k^2, its mean over the cases and the least
      of them. Where it is near 1, one sample outweighs all others and neither estimate nor error can be trusted. None
      for exact values.
    - `samples`: K, or None for exact values.
    """

    log_likelihood: float
    log_likelihood_se: float | None
    monte_carlo_se: float | None
    effective_samples: float | None
    least_effective_samples: float | None
    samples: int | None
    cases: int


def importance(pair: Pair, x: Any, *, samples: int = 1000, seed: int = 0) -> LogLikelihood:
    """Estimate log P(x) of the rows of `x` with `samples` draws from Q for every case."""
    return summary(*case_importance(pair, x, samples=samples, seed=seed), samples)


def exact(pair: Pair, x: Any) -> LogLikelihood:
    """log P(x) of the rows of `x`, summed over every state of the latents: of small models only."""
    return summary(case_exact(pair, x))


def case_importance(
    pair: Pair, x: Any, *, samples: int = 1000, seed: int = 0
) -> tuple[Float[np.ndarray, " cases"], Float[np.ndarray, " cases"]]:
    """For every case, the importance-weighted estimate of log P(x) and its effective number of samples."""
    count_of(1, samples=samples)
    key = seeded_key(seed, "importance")
    values, effective = in_blocks(
        pair, x, lambda i, rows: block_importance(pair, rows, samples, jax.random.fold_in(key, i))
    )
    return values, effective


def case_exact(pair: Pair, x: Any) -> Float[np.ndarray, " cases"]:
    """For every case, log P(x) = log sum_h P(x, h)."""
    check_is_pair(pair)
    model = pair.model
    needs(model, "support")
    if isinstance(model, BeliefNetwork) and math.prod(map(_states, model.layers[1:])) > 2**MOST_UNITS:
        variables = sum(layer.units // getattr(layer, "categories", 1) for layer in model.layers[1:])
        raise UsageError(
            f"The model has {variables} latents, and the states of at most {MOST_UNITS} binary ones can be listed: "
            "take the estimate by importance sampling instead."
        )
    latents = jax.tree.map(jnp.asarray, model.support())
    (values,) = in_blocks(pair, x, lambda _, rows: (_log_sum(model, rows, latents),))
    return values


def _states(layer: Layer) -> int:
    """How many values a layer of latents can take."""
    if isinstance(layer, Categorical):
        return layer.categories ** (layer.units // layer.categories)
    return 2**layer.units  # of a Gaussian layer, `support` says that there are none to list


def summary(
    values: Float[np.ndarray, " cases"],
    effective: Float[np.ndarray, " cases"] | None = None,
    samples: int | None = None,
) -> LogLikelihood:
    """The averages over cases."""
    cases = len(values)
    finite = bool(np.all(np.isfinite(values)))
    between = float(np.std(values, ddof=1) / cases**0.5) if cases > 1 and finite else None
    if samples is None or effective is None:
        return LogLikelihood(float(np.mean(values)), between, None, None, None, None, cases)
    # The variance of log mean w is, to first order, that of mean w over its squared mean: (K / ESS - 1) / (K - 1).
    with np.errstate(divide="ignore"):  # no sample had any weight
        variances = np.maximum(0, samples / effective - 1) / max(1, samples - 1)
    within = float(np.sqrt(np.sum(variances)) / cases) if samples > 1 else None
    means = float(np.mean(values)), float(np.mean(effective))
    return LogLikelihood(means[0], between, within, means[1], float(np.min(effective)), samples, cases)


@eqx.filter_jit
def block_importance(
    pair: Pair, x: Array | np.ndarray, samples: int, key: Key[Array, ""]
) -> tuple[Float[Array, " cases"], Float[Array, " cases"]]:
    x = as_float(x)

    def add(i: Array, sums: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        largest, total, squares = sums  # of weights over the largest so far, and over its square
        log_weight = bound_of_one_sample(jax.random.fold_in(key, i), pair, x)
        new = jnp.maximum(largest, log_weight)
        # Weights of 0 before any other: exp(-inf + inf) would not be a number.
        old, own = (jnp.where(jnp.isneginf(new), 0, jnp.exp(each - new)) for each in (largest, log_weight))
        return new, total * old + own, squares * old**2 + own**2

    zeros = jnp.zeros(x.shape[0], x.dtype)
    largest, total, squares = jax.lax.fori_loop(0, samples, add, (zeros - jnp.inf, zeros, zeros))
    return largest + jnp.log(total / samples), jnp.where(squares > 0, total**2 / squares, 0)


@eqx.filter_jit
def _log_sum(model: Any, x: Array | np.ndarray, latents: Any) -> Float[Array, " cases"]:
    x = as_float(x)

    def add(total: Array, h: Any) -> tuple[Array, None]:
        h = jax.tree.map(lambda value: jnp.broadcast_to(value, (x.shape[0], *value.shape)), h)
        return jnp.logaddexp(total, jnp.sum(model.log_prob(x, h), axis=-1)), None

    return jax.lax.scan(add, jnp.full(x.shape[0], -jnp.inf, x.dtype), latents)[0]
