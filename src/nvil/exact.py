"""Exact quantities of small models, by enumeration of all latent states.

Use these in float64 (`jax.config.update("jax_enable_x64", True)`) to test a model or an estimator without Monte Carlo
error. `latents` is a pytree of stacked states; networks made of layers list their own with `support()`.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nvil.contracts import Estimator, Inference, Latents, Model, Pair, Parameters


def model_log_prob(model: Model, x: Any, latents: Latents) -> Float[Array, "cases states"]:
    """log P(x, h) for every case and every latent state."""
    return _for_every_state(lambda h: jnp.sum(model.log_prob(x, h), axis=-1), x, latents)


def inference_log_prob(inference: Inference, x: Any, latents: Latents) -> Float[Array, "cases states"]:
    """log Q(h | x) for every case and every latent state."""
    return _for_every_state(lambda h: jnp.sum(inference.log_prob(h, x), axis=-1), x, latents)


def log_likelihood(model: Model, x: Any, latents: Latents) -> Float[Array, " cases"]:
    """log P(x) = log sum_h P(x, h)."""
    return jax.nn.logsumexp(model_log_prob(model, x, latents), axis=-1)


def posterior(model: Model, x: Any, latents: Latents) -> Float[Array, "cases states"]:
    """P(h | x)."""
    return jax.nn.softmax(model_log_prob(model, x, latents), axis=-1)


def bound(pair: Pair, x: Any, latents: Latents, samples: int = 1) -> Float[Array, " cases"]:
    """L_K(x) = E_Q[log 1/K sum_k P(x, h_k) / Q(h_k | x)] for K = `samples` independent h_k ~ Q(h | x).

    That of one sample is the bound of the paper, L(x) = E_Q[log P(x, h) - log Q(h | x)] (Section 2.1). The sum is over
    the states to the power of K.
    """
    log_p = model_log_prob(pair.model, x, latents)
    log_q = inference_log_prob(pair.inference, x, latents)
    possible = log_q > -jnp.inf  # what Q rules out adds nothing, and no 0 * inf either
    signal = jnp.where(possible, log_p, 0) - jnp.where(possible, log_q, 0)
    choices = every_choice(log_q.shape[-1], samples)
    probability = jnp.exp(jnp.sum(log_q[:, choices], axis=-1))
    values = jax.nn.logsumexp(signal[:, choices], axis=-1) - math.log(samples)
    return jnp.sum(probability * values, axis=-1)


def bound_gradient(pair: Pair, x: Any, latents: Latents, samples: int = 1) -> Pair:
    """The gradient of the bound, summed over the cases, for the model and the inference network."""
    return eqx.filter_grad(lambda pair: jnp.sum(bound(pair, x, latents, samples)))(pair)


class Moments(NamedTuple):
    """The exact mean of an estimator's gradient and the exact variance of each of its entries."""

    mean: Any
    variance: Any


@eqx.filter_jit
def gradient_moments(estimator: Estimator, params: Parameters, x: Any, state: Any) -> Moments:
    """The exact expectation and variance of `estimator.gradients`, over every draw it could make for the minibatch `x`.

    The number of draws is that of the latent states to the power of cases times samples: keep all three small.
    """
    draws, log_prob = estimator.enumerate_draws(params.pair, x)

    def gradients(draw: Any) -> Any:
        return estimator.gradients_from(draw, params, x, state)[0]

    outcomes = jax.vmap(gradients, axis_size=len(log_prob))(draws)
    weights = jnp.exp(log_prob)
    mean = jax.tree.map(lambda values: jnp.tensordot(weights, values, axes=1), outcomes)
    variance = jax.tree.map(
        lambda values, average: jnp.tensordot(weights, (values - average) ** 2, axes=1), outcomes, mean
    )
    return Moments(mean, variance)


def every_choice(states: int, times: int) -> Int[np.ndarray, "outcomes times"]:
    """All ways to choose one of `states`, `times` times."""
    return np.stack(np.meshgrid(*[np.arange(states)] * times, indexing="ij"), axis=-1).reshape(-1, times)


def _for_every_state(log_prob, x: Any, latents: Latents) -> Float[Array, "cases states"]:
    cases = jax.tree.leaves(x)[0].shape[0]

    def one(state: Latents) -> Float[Array, " cases"]:
        return log_prob(jax.tree.map(lambda value: jnp.broadcast_to(value, (cases, *value.shape)), state))

    return jax.vmap(one, out_axes=-1)(jax.tree.map(jnp.asarray, latents))
