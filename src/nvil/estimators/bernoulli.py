"""What estimators that look inside Q share: the logits of its factorial Bernoulli layers, and the noise behind them.

With u uniform on (0, 1) a unit is on where u > 1 - p, p = sigmoid(a): where z = a + log u - log(1 - u) is positive.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nvil import exact
from nvil.contracts import Latents, Pair
from nvil.errors import UsageError
from nvil.estimators.samples import count_cases
from nvil.layers import Bernoulli
from nvil.networks import InferenceNetwork
from nvil.random import uniform


def check_bernoulli(name: str, pair: Pair) -> None:
    """Refuse an inference network of any other layers."""
    fits = isinstance(pair.inference, InferenceNetwork)
    if not (fits and all(type(layer) is Bernoulli for layer in pair.inference.layers)):
        raise UsageError(
            f"{name} needs an inference network of factorial Bernoulli layers, which this pair does not have: take "
            '`inference="factorial"` and `latents="bernoulli"`, or an estimator for any layers, such as nvil, rloo or '
            "vimco."
        )


def check_temperature(temperature: float) -> None:
    """Refuse a temperature that no relaxation has."""
    if not (math.isfinite(temperature) and temperature > 0):
        raise UsageError(f"`temperature` must be a positive number, got {temperature}.")


def logits_of(inference: Any, x: Any, h: Latents) -> tuple[Float[Array, "cases _"], ...]:
    """The logits of every layer given the one below."""
    return tuple(
        layer.logits(context) for layer, context in zip(inference.layers, inference.contexts(x, h), strict=True)
    )


def is_on(u: Float[Array, "*_"], mean: Float[Array, "*_"]) -> Float[Array, "*_"]:
    """The units that the noise u turns on."""
    return (1 - u < mean).astype(mean.dtype)


def logit(u: Float[Array, "*_"]) -> Float[Array, "*_"]:
    return jnp.log(u) - jnp.log1p(-u)


def chain(
    inference: Any, x: Any, value: Callable[[int, Float[Array, "cases _"]], Float[Array, "cases _"]]
) -> tuple[Float[Array, "cases _"], ...]:
    """The values of all layers from the data up; `value(i, logits)` makes those of layer i."""
    (context,) = inference.contexts(x, ())
    values = []
    for i, layer in enumerate(inference.layers):
        values.append(value(i, layer.logits(context)))
        context = inference.above(x, values[-1])
    return tuple(values)


def layer_noise(key: Key[Array, ""], inference: Any, x: Any) -> tuple[Float[Array, "cases _"], ...]:
    """Uniform numbers for every unit of every layer."""
    keys = jax.random.split(key, len(inference.layers))
    return tuple(uniform(own, (count_cases(x), layer.units)) for own, layer in zip(keys, inference.layers, strict=True))


# Every outcome, for `nvil.exact`

Outcomes = tuple[Any, Float[Array, " outcomes"]]
"""Draws stacked along a leading axis, and their log-probabilities."""


def branch(outcomes: Outcomes, choices: Array, log_prob: Float[Array, "choices outcomes"]) -> tuple[Any, Array, Array]:
    """Every outcome followed by every one of its `choices` (choices, outcomes, ...): `(before, chosen, log_prob)`."""
    before, old = outcomes
    times = len(choices)
    repeated = jax.tree.map(lambda leaf: jnp.tile(leaf, (times, *[1] * (leaf.ndim - 1))), before)
    return repeated, choices.reshape(-1, *choices.shape[2:]), (old + log_prob).reshape(-1)


def quadrature(edges: Float[Array, "cells_and_one *shape"], nodes: int) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights of uniform noise within cells between `edges`, along a leading axis."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    points, weights = (each.reshape(-1, *[1] * edges.ndim) for each in (points, weights / 2))
    width = edges[1:] - edges[:-1]
    where = edges[:-1] + width * (points + 1) / 2
    return where.reshape(-1, *edges.shape[1:]), (width * weights).reshape(-1, *edges.shape[1:])


def every_unit(
    choices: Float[Array, "choices *batch units"], weights: Float[Array, "choices *batch units"]
) -> tuple[Float[Array, "all *batch units"], Float[Array, "all *batch"]]:
    """Every combination of the choices of each unit, and its log-probability."""
    count, units = choices.shape[0], choices.shape[-1]
    which = exact.every_choice(count, units)
    chosen = jnp.stack([choices[which[:, j], ..., j] for j in range(units)], axis=-1)
    weight = jnp.stack([weights[which[:, j], ..., j] for j in range(units)], axis=-1)
    return chosen, jnp.sum(jnp.log(weight), axis=-1)


def every_case(one: Callable[[Any], Outcomes], x: Float[Array, "cases visible"], samples: int) -> Outcomes:
    """Every outcome of `samples` draws for every case; `one` lists those of one draw for one case."""
    cases = len(x)
    listed = [one(x[case : case + 1]) for case in range(cases)]
    draws = jax.tree.map(lambda *leaves: jnp.stack(leaves)[:, :, 0], *[draws for draws, _ in listed])
    log_prob = jnp.stack([log_prob for _, log_prob in listed])
    choices = exact.every_choice(log_prob.shape[1], samples * cases).reshape(-1, samples, cases)
    return (
        jax.tree.map(lambda leaf: leaf[np.arange(cases), choices], draws),
        jnp.sum(log_prob[np.arange(cases), choices], axis=(1, 2)),
    )
