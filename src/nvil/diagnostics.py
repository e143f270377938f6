"""What a person wants to know of a model in training, measured on fresh minibatches apart from the updates.

Everything random here is a function of the run's key and the update it is looked at, and nothing of it goes back into
training, so that looking changes no bit of a run.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from nvil.contracts import Estimator, Latents, Pair, Parameters, TrainState, trained
from nvil.errors import count_of
from nvil.layers import AutoregressiveBernoulli, Bernoulli, Categorical, Gaussian, Layer
from nvil.networks import BeliefNetwork, InferenceNetwork
from nvil.random import seeded_key
from nvil.rows import Rows

MINIBATCHES = 8
FITTING = 1000
"""Updates of an estimator's own baselines before its noise is measured."""
IN_USE = 0.01
"""Nats of KL divergence from which a unit counts as used."""
BINARY = Bernoulli | AutoregressiveBernoulli
_APART = np.uint32(2**32 - 1)
"""No update has this number: the key made with it is apart from all that training uses."""


class Diagnostics(NamedTuple):
    """Measured at one state, averaged over `MINIBATCHES` minibatches.

    - `signal_variance`: the variance of each learning signal, raw and after each transformation (by the name of its
      class): one less the ratio of two neighbours is the share that a baseline removes. None for an estimator without
      a learning signal.
    - `gradient_snr`: for model, inference network and baselines, |E g| / sqrt(trace Var g) of one update's gradient g;
      None for one that does not vary.
    - `kl`: the terms E[log Q(h^i | h^(i-1)) - log P(h^i | h^(i+1))] that the bound pays for every layer, in nats.
    - `units_in_use`: the share of every layer's units with a `unit_kl` above `IN_USE`.

    The last two are None for networks that are not chains of our layers.
    """

    signal_variance: dict[str, list[float]] | None
    gradient_snr: dict[str, float | None]
    kl: list[float] | None
    units_in_use: list[float] | None


def diagnose(estimator: Estimator, batch_size: int, state: TrainState, rows: Rows) -> Diagnostics:
    """Look at `state`; costs about as much as `MINIBATCHES` updates. `rows` are on the device."""
    variances, (means, squares), divergences = _measure(estimator, batch_size, state, rows)
    names = estimator.signal_names()
    return Diagnostics(
        {name: np.asarray(each).tolist() for name, each in zip(names, variances, strict=True)} or None,
        {
            name: signal_to_noise(float(mean), float(square), MINIBATCHES)
            for name, mean, square in zip(Parameters._fields, means, squares, strict=True)
            if jax.tree.leaves(trained(getattr(state.params, name)))
        },
        None if divergences is None else np.asarray(divergences[0]).tolist(),
        None if divergences is None else [float(np.mean(np.asarray(units) > IN_USE)) for units in divergences[1]],
    )


class GradientNoise(NamedTuple):
    """How much the gradient of one update varies at a fixed point, per case of the minibatch, for model and inference.

    - `variance`: the trace of its covariance, over minibatches and draws of the latents.
    - `from_latents`: the part of it that is there for one and the same minibatch.
    - `signal_to_noise`: |E g| / sqrt(variance), which no scaling of the gradient changes; None where it does not vary.
    """

    variance: dict[str, float]
    from_latents: dict[str, float]
    signal_to_noise: dict[str, float | None]


def gradient_noise(
    estimator: Estimator, batch_size: int, pair: Pair, rows: Rows, *, minibatches: int = 100, seed: int = 0
) -> GradientNoise:
    """Measure an estimator's gradients for `pair`, with its baselines and statistics fitted to that pair first.

    `rows` are on the device.
    """
    count_of(2, minibatches=minibatches)
    key = seeded_key(seed, "gradient noise")
    baselines, estimator_state = _fitted(estimator, batch_size, pair, rows, key)
    square_of_mean, mean_square, within = (
        np.asarray(each, float)[:2]
        for each in _noise(estimator, batch_size, pair, baselines, estimator_state, rows, key, minibatches)
    )
    variance = (mean_square - square_of_mean) * minibatches / (minibatches - 1)
    names = Parameters._fields[:2]
    return GradientNoise(
        dict(zip(names, variance.tolist(), strict=True)),
        dict(zip(names, within.tolist(), strict=True)),
        {
            name: signal_to_noise(float(square), float(mean), minibatches)
            for name, square, mean in zip(names, square_of_mean, mean_square, strict=True)
        },
    )


def signal_to_noise(square_of_mean: float, mean_square: float, draws: int) -> float | None:
    """|E g| / sqrt(trace Var g), from |mean g|^2 and the mean of |g|^2 over independent draws of g.

    Both expectations are estimated without bias: |mean g|^2 is too large by trace Var g / draws. Where noise leaves
    less than nothing of |E g|^2, the ratio is 0.
    """
    variance = (mean_square - square_of_mean) * draws / (draws - 1)
    if not variance > 0:
        return None
    return max(0.0, square_of_mean - variance / draws) ** 0.5 / variance**0.5


def unit_kl(pair: Pair, x: Float[Array, "cases visible"], key: Key[Array, ""]) -> tuple[Float[Array, " _"], ...]:
    """For every layer of latents, the KL divergence of each latent of Q from that of P in nats, a mean over the cases.

    It is in closed form, given what each is conditioned on in a sample h ~ Q(h | x): for autoregressive layers, the
    units before it too. For the deepest layer the sum over units is then an unbiased
    estimate of its KL term in the bound. For a layer below, P sees a sample h^(i+1) that was made from h^i: the
    divergence shows whether a unit is used, but the sum is not the layer's term in the bound (`Diagnostics.kl` is).
    """
    return tuple(jnp.mean(layer, axis=0) for layer in unit_kl_given(pair, x, pair.inference.sample(key, x)))


def unit_kl_given(pair: Pair, x: Array, h: Latents) -> list[Float[Array, "cases _"]]:
    """`unit_kl` for given latents, for every case."""
    above = pair.model.parents(x, h)[1:]
    divergences = []
    for q, p, value, below, context in zip(
        pair.inference.layers, pair.model.layers[1:], h, pair.inference.contexts(x, h), above, strict=True
    ):
        divergences.append(_divergence(q, p, value, below, context))
    return divergences


def _divergence(q: Layer, p: Layer, value: Array, below: Array, context: Array) -> Float[Array, "cases _"]:
    if isinstance(q, Categorical) and isinstance(p, Categorical):
        a, b = q.log_rates(value, below), p.log_rates(value, context)
        return jnp.sum(jnp.exp(a) * (a - b), axis=-1)
    if isinstance(q, Gaussian) and isinstance(p, Gaussian):
        (m, log_s), (prior_m, prior_log_s) = q.conditional_moments(value, below), p.conditional_moments(value, context)
        scale = jnp.exp(-2 * prior_log_s)
        return prior_log_s - log_s + 0.5 * (jnp.exp(2 * log_s) + (m - prior_m) ** 2) * scale - 0.5
    assert isinstance(q, BINARY)
    assert isinstance(p, BINARY)
    a, b = q.conditional_logits(value, below), p.conditional_logits(value, context)
    return jax.nn.sigmoid(a) * (a - b) - jax.nn.softplus(a) + jax.nn.softplus(b)


def layer_kl(pair: Pair, x: Array, h: Latents) -> Float[Array, " layers"]:
    """An unbiased estimate of every layer's KL term in the bound, a mean over the cases; h ~ Q(h | x)."""
    sampled = jnp.mean(pair.inference.log_prob(h, x) - pair.model.log_prob(x, h)[..., 1:], axis=0)
    deepest = jnp.mean(jnp.sum(unit_kl_given(pair, x, h)[-1], axis=-1))  # the same expectation, less noise
    return sampled.at[-1].set(deepest)


def has_known_layers(pair: Pair) -> bool:
    """Whether `pair` is made of chains of our layers of latents, of which `unit_kl` can be had."""
    if not (isinstance(pair.model, BeliefNetwork) and isinstance(pair.inference, InferenceNetwork)):
        return False
    each = list(zip(pair.inference.layers, pair.model.layers[1:], strict=True))
    return all(
        any(isinstance(q, kind) and isinstance(p, kind) for kind in (BINARY, Categorical, Gaussian)) for q, p in each
    )


@eqx.filter_jit
def _measure(estimator: Estimator, batch_size: int, state: TrainState, rows: Rows) -> Any:
    key = jax.random.fold_in(jax.random.fold_in(state.key, _APART), state.step)
    pair = state.params.pair

    def one(key: Key[Array, ""]) -> Any:
        data_key, draw_key, latent_key = jax.random.split(key, 3)
        x = rows.minibatch(data_key, batch_size)
        draws = estimator.sample(draw_key, pair, x)
        gradients, _, _ = estimator.gradients_from(draws, state.params, x, state.estimator)
        variances = estimator.signal_variances(draws, state.params, x, state.estimator)
        divergences = None
        if has_known_layers(pair):
            h = pair.inference.sample(latent_key, x)
            divergences = layer_kl(pair, x, h), [jnp.mean(units, axis=0) for units in unit_kl_given(pair, x, h)]
        return trained(gradients), (_squares(gradients), variances, divergences)

    def add(total: Any, key: Key[Array, ""]) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, one(key)), None

    keys = jax.random.split(key, MINIBATCHES)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(one, keys[0]))
    total, _ = jax.lax.scan(add, zeros, keys)
    gradients, (squares, variances, divergences) = jax.tree.map(lambda leaf: leaf / MINIBATCHES, total)
    return variances, (_squares(gradients), squares), divergences


@eqx.filter_jit
def _fitted(estimator: Estimator, batch_size: int, pair: Pair, rows: Rows, key: Key[Array, ""]) -> tuple[Any, Any]:
    """Baselines and state of the estimator after `FITTING` updates of them by Adam with the pair held fixed."""
    optimiser = optax.adam(3e-3)

    def batch(t: Any) -> tuple[Array, Key[Array, ""]]:
        data_key, draw_key = jax.random.split(jax.random.fold_in(key, t))
        return rows.minibatch(data_key, batch_size), draw_key

    def update(t: Any, carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        baselines, state, moments = carry
        x, draw_key = batch(t)
        gradients, state, _ = estimator.gradients(draw_key, Parameters(*pair, baselines), x, state)
        steps, moments = optimiser.update(jax.tree.map(jnp.negative, gradients.baselines), moments)
        return eqx.apply_updates(baselines, steps), state, moments

    x, init_key = batch(FITTING)
    baselines, state = estimator.init(init_key, pair, x)
    if not jax.tree.leaves((baselines, state)):
        return baselines, state
    begin = (baselines, state, optimiser.init(baselines))
    return jax.lax.fori_loop(0, FITTING, update, begin)[:2]


@eqx.filter_jit
def _noise(
    estimator: Estimator,
    batch_size: int,
    pair: Pair,
    baselines: Any,
    state: Any,
    rows: Rows,
    key: Key[Array, ""],
    minibatches: int,
) -> tuple[Float[Array, "3"], Float[Array, "3"], Float[Array, "3"]]:
    """|mean g|^2, the mean of |g|^2, and the variance between two draws of the latents for the same minibatch."""
    params = Parameters(*pair, baselines)

    def one(key: Key[Array, ""]) -> Any:
        data_key, *draw_keys = jax.random.split(key, 3)
        x = rows.minibatch(data_key, batch_size)
        first, second = (
            jax.tree.map(lambda leaf: leaf / batch_size, trained(estimator.gradients(own, params, x, state)[0]))
            for own in draw_keys
        )
        return first, _squares(first), _squares(jax.tree.map(jnp.subtract, first, second)) / 2

    def add(total: Any, key: Key[Array, ""]) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, one(key)), None

    keys = jax.random.split(jax.random.fold_in(key, _APART), minibatches)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(one, keys[0]))
    total, _ = jax.lax.scan(add, zeros, keys)
    gradients, squares, within = jax.tree.map(lambda leaf: leaf / minibatches, total)
    return _squares(gradients), squares, within


def _squares(gradients: Parameters) -> Float[Array, "3"]:
    return jnp.stack([jnp.asarray(optax.tree.norm(trained(group), squared=True), float) for group in gradients])
