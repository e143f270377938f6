"""What the estimators that sample h ~ Q(h | x) share: draws of shape `(samples, cases, ...)`, and all there are."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nvil import exact
from nvil.contracts import Latents, Pair, given_of
from nvil.sparse import repeated


def sample_latents(key: Key[Array, ""], pair: Pair, x: Any, samples: int) -> Latents:
    """h ~ Q(h | x), `samples` times for every case."""
    return for_every_sample(lambda key: pair.inference.sample(key, x), jax.random.split(key, samples))


def log_probs(
    pair: Pair, x: Any, h: Latents
) -> tuple[Float[Array, "samples cases terms"], Float[Array, "samples cases layers"]]:
    """log P(x, h) and log Q(h | x), term by term, for every sample.

    What Q makes of x alone is computed once. P has nothing of the kind, and takes all samples as the cases of one
    batch: with an axis for samples, XLA would transpose what the gradient of its weights is computed from.
    """
    log_q = for_every_sample(lambda h: pair.inference.log_prob(h, x), h)
    samples, cases = jax.tree.leaves(h)[0].shape[:2]
    together = jax.tree.map(lambda leaf: leaf.reshape(samples * cases, *leaf.shape[2:]), h)
    log_p = pair.model.log_prob(repeated(x, samples), together)
    return log_p.reshape(samples, cases, -1), log_q


def reparameterised(pair: Pair, x: Any, h: Latents) -> Latents:
    """The same draws, those of Gaussian layers as functions of Q's parameters: gradients then go through them."""
    if not any(_pathwise(pair.inference)):
        return h
    return for_every_sample(lambda h: pair.inference.reparameterised(x, h), h)


def scored(inference: Any, log_q: Float[Array, "samples cases layers"]) -> Float[Array, "samples cases layers"]:
    """The terms of layers that need the score function; 0 for those whose draws are reparameterised."""
    pathwise = _pathwise(inference)
    return log_q * (1 - np.asarray(pathwise, log_q.dtype)) if any(pathwise) else log_q


def fixed(pair: Pair) -> Pair:
    """The same pair with parameters that gradients do not reach."""
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array(leaf) else leaf, pair)


def _pathwise(inference: Any) -> tuple[bool, ...]:
    return inference.pathwise() if hasattr(inference, "pathwise") else ()


def log_weights(pair: Pair, x: Any, h: Latents) -> Float[Array, "samples cases"]:
    """log P(x, h) - log Q(h | x) for every sample: the logarithms of the importance weights."""
    log_p, log_q = log_probs(pair, x, h)
    return jnp.sum(log_p, axis=-1) - jnp.sum(log_q, axis=-1)


def many_sample_bound(log_weights: Float[Array, "samples cases"]) -> Float[Array, " cases"]:
    """log 1/K sum_k P(x, h_k) / Q(h_k | x): at most log P(x) in expectation, and nearer to it with every sample."""
    return jax.nn.logsumexp(log_weights, axis=0) - math.log(log_weights.shape[0])


def enumerate_latents(pair: Pair, x: Any, samples: int) -> tuple[Latents, Float[Array, " outcomes"]]:
    """Every outcome of `sample_latents` and its log-probability."""
    latents = pair.inference.support()
    log_q = exact.inference_log_prob(pair.inference, x, latents)
    cases, states = log_q.shape
    choices = exact.every_choice(states, samples * cases).reshape(-1, samples, cases)
    draws = jax.tree.map(lambda values: jnp.asarray(values)[choices], latents)
    return draws, jnp.sum(log_q[np.arange(cases), choices], axis=(1, 2))


def sample_dreams(key: Key[Array, ""], pair: Pair, x: Any) -> tuple[Any, Latents]:
    """(x', h') ~ P(x, h), as many as there are cases in `x`; of a conditional model given their context."""
    return pair.model.sample(key, count_cases(x), *given_of(pair.model, x))


def enumerate_dreams(pair: Pair, x: Any) -> tuple[Any, Float[Array, " outcomes"]]:
    """Every outcome of `sample_dreams`, `(x', h')`, and its log-probability."""
    cases = count_cases(x)
    given = given_of(pair.model, x)
    every = [jnp.asarray(pair.model.visible_support(*(y[i] for y in given))) for i in range(cases)]
    latents = jax.tree.map(jnp.asarray, pair.model.support())
    joint = jnp.stack([exact.model_log_prob(pair.model, rows, latents) for rows in every])
    choices = exact.every_choice(joint[0].size, cases)
    row, column = np.divmod(choices, joint.shape[2])
    case = np.arange(cases)
    draws = jnp.stack(every)[case, row], jax.tree.map(lambda values: values[column], latents)
    return draws, jnp.sum(joint[case, row, column], axis=1)


def every_two(
    first: tuple[Any, Float[Array, " _"]], second: tuple[Any, Float[Array, " _"]]
) -> tuple[Any, Float[Array, " outcomes"]]:
    """Every outcome of two independent draws, with its log-probability."""
    one, other = (index.ravel() for index in jnp.indices((len(first[1]), len(second[1]))))
    draws = (
        jax.tree.map(lambda values: values[one], first[0]),
        jax.tree.map(lambda values: values[other], second[0]),
    )
    return draws, first[1][one] + second[1][other]


def count_cases(x: Any) -> int:
    return jax.tree.leaves(x)[0].shape[0]


def for_every_sample(function: Callable[[Any], Any], samples: Any) -> Any:
    """Map over a leading axis. An axis of one is taken off first: kept, it costs a copy of every layer's gradient."""
    if jax.tree.leaves(samples)[0].shape[0] > 1:
        return jax.vmap(function)(samples)
    only = jax.tree.map(lambda leaf: leaf[0], samples)
    return jax.tree.map(lambda leaf: leaf[None], function(only))
