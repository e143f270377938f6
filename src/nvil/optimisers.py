"""Optax optimisers with a learning rate for each parameter group: model, inference network, baselines.

The paper makes the inference network's rate "five times smaller than for the model (which is the one we report)"
(Section 4.1). It does not give the baselines' rate; here it is the model's. Adam is not the paper's: for it equal rates
learned faster, and are the default. Any optax optimiser over `nvil.contracts.Parameters` will do in their place.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from nvil.contracts import Parameters
from nvil.errors import UsageError, at_least, choose, count_of

Schedule = Callable[[Any], Any]
SCHEDULES = ("constant", "cosine", "linear")


def sgd(
    learning_rate: float | Schedule = 3e-4,
    *,
    inference_ratio: float = 0.2,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    within_decay: float | None = None,
    clip: float | None = None,
) -> optax.GradientTransformation:
    """The paper's plain stochastic gradient ascent, on gradients *summed* over the minibatch.

    For documents they are sums over words as well, so that a step grows with their length: the paper takes 3e-5 on 20
    Newsgroups (Section 4.3), and longer documents want less. Adam does not mind.

    **Arguments:**

    - `learning_rate`: of the model and the baselines; a number, or any optax schedule.
    - `inference_ratio`: the inference network's learning rate over the model's.
    - `momentum`: of the classical kind; 0 in the paper.
    - `weight_decay`, `within_decay`, `clip`: as in `adam`.
    """
    if not 0 <= momentum < 1:
        raise UsageError(f"`momentum` must be at least 0 and less than 1, got {momentum}.")
    return _optimiser(("sgd", float(momentum)), learning_rate, inference_ratio, weight_decay, within_decay, clip)


def adam(
    learning_rate: float | Schedule = 3e-3,
    *,
    inference_ratio: float = 1.0,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    within_decay: float | None = None,
    clip: float | None = None,
) -> optax.GradientTransformation:
    """Adam (Kingma & Ba, 2015): not the paper's recipe, but it learns in a fraction of the updates.

    **Arguments:**

    - `learning_rate`: of the model and the baselines; a number, or any optax schedule, such as `schedule(...)` gives.
    - `inference_ratio`: the inference network's learning rate over the model's.
    - `b1`, `b2`, `eps`: as in optax. Adam's steps do not know how small a gradient is until it is as small as `eps`, so
      with a small one the weights of a pixel that is on in one case of ten thousand move as far as any other's, and
      overfit. Gradients are sums over the minibatch: on binarized MNIST 1e-2 generalises best (results/search.md).
    - `weight_decay`: of the weights, each update, times the learning rate (Loshchilov & Hutter, 2019). Only arrays of
      two or more dimensions decay: the biases, which set how often a latent is on, are left alone.
    - `within_decay`: of the connections within autoregressive layers (arrays that their layer calls `within`), in the
      place of `weight_decay`; by default the same. On binarized MNIST these want less of it (results/search.md).
    - `clip`: the largest norm of the gradient, summed over the minibatch, of all parameters together.
    """
    step = ("adam", float(b1), float(b2), float(eps))
    return _optimiser(step, learning_rate, inference_ratio, weight_decay, within_decay, clip)


def schedule(kind: str, learning_rate: float, updates: int, *, final_rate: float = 0.0) -> float | Schedule:
    """A learning rate that goes from `learning_rate` to `final_rate` over `updates`: "cosine" or "linear".

    "constant" is the paper's: it "found them to produce superior results to the annealing schedules" (Section 4.1).
    """
    choose("schedule", kind, SCHEDULES)
    _check_rate("learning_rate", learning_rate)
    count_of(1, updates=updates)
    at_least(0, final_rate=final_rate)
    return _schedule(kind, float(learning_rate), int(updates), float(final_rate))


@functools.cache
def _schedule(kind: str, learning_rate: float, updates: int, final_rate: float) -> float | Schedule:
    if kind == "constant":
        return learning_rate
    if kind == "linear":
        return optax.linear_schedule(learning_rate, final_rate, updates)
    return optax.cosine_decay_schedule(learning_rate, updates, alpha=final_rate / learning_rate)


def _optimiser(
    step: tuple[Any, ...],
    learning_rate: float | Schedule,
    inference_ratio: float,
    weight_decay: float,
    within_decay: float | None,
    clip: float | None,
) -> optax.GradientTransformation:
    if not callable(learning_rate):
        _check_rate("learning_rate", learning_rate)
        learning_rate = float(learning_rate)
    _check_rate("inference_ratio", inference_ratio)
    within_decay = weight_decay if within_decay is None else within_decay
    for name, value in (("weight_decay", weight_decay), ("within_decay", within_decay)):
        if not 0 <= value < math.inf:
            raise UsageError(f"`{name}` must be at least 0 and finite, got {value}.")
    if clip is not None:
        _check_rate("clip", clip)
        clip = float(clip)
    return _built(step, learning_rate, float(inference_ratio), float(weight_decay), float(within_decay), clip)


def _check_rate(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise UsageError(f"`{name}` must be a positive number, got {value}.")


@functools.cache  # the same object for the same settings, so that training with it compiles once
def _built(
    step: tuple[Any, ...],
    learning_rate: float | Schedule,
    inference_ratio: float,
    weight_decay: float,
    within_decay: float,
    clip: float | None,
) -> optax.GradientTransformation:
    rates = Parameters(learning_rate, _times(learning_rate, inference_ratio), learning_rate)
    # As groups, because scaling the loss of the inference network would do nothing under Adam.
    by_group: dict[Any, optax.GradientTransformation] = {
        name: optax.scale_by_learning_rate(rate) for name, rate in rates._asdict().items()
    }
    parts = (
        optax.clip_by_global_norm(clip) if clip is not None else None,
        _step(*step),
        *_decays(weight_decay, within_decay),
        optax.partition(by_group, Parameters(*Parameters._fields)),
    )
    return optax.chain(*(part for part in parts if part is not None))


def _step(kind: str, *settings: Any) -> optax.GradientTransformation:
    if kind == "adam":
        return _scale_by_adam(*settings)
    return optax.trace(*settings) if settings[0] else optax.identity()


def _scale_by_adam(b1: float, b2: float, eps: float) -> optax.GradientTransformation:
    """`optax.scale_by_adam` in the order of Kingma & Ba, Section 2, with the corrections of both biases in one number.

    Optax divides both moments by theirs, for every parameter, which takes up to a tenth of a whole update
    (`benchmarks/parts.py`).
    """

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        count: Any = optax.safe_increment(state.count)
        mean = optax.tree.update_moment(updates, state.mu, b1, 1)
        square = optax.tree.update_moment_per_elem_norm(updates, state.nu, b2, 2)
        steps = count.astype(float)
        root = jnp.sqrt(1 - b2**steps)
        step = root / (1 - b1**steps)

        def scaled(mean: Array, square: Array) -> Array:
            return step.astype(mean.dtype) * mean / (jnp.sqrt(square) + (eps * root).astype(mean.dtype))

        return jax.tree.map(scaled, mean, square), optax.ScaleByAdamState(count, mean, square)

    return optax.GradientTransformation(optax.scale_by_adam(b1, b2, eps).init, update)


def _decays(weight_decay: float, within_decay: float) -> list[optax.GradientTransformation]:
    """One pass over the parameters for each decay that is not zero; one for both where they are equal."""
    if weight_decay == within_decay:
        decays = [(weight_decay, _are_weights)]
    else:
        decays = [(weight_decay, _are_weights_between), (within_decay, _are_weights_within)]
    return [optax.add_decayed_weights(decay, mask=which) for decay, which in decays if decay]


def _are_weights(params: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)


def _are_weights_within(params: Any) -> Any:
    """Connections within an autoregressive layer, known by their name."""
    return jax.tree.map_with_path(lambda path, _: jax.tree_util.keystr(path[-1:], simple=True) == "within", params)


def _are_weights_between(params: Any) -> Any:
    return jax.tree.map(lambda weight, within: weight and not within, _are_weights(params), _are_weights_within(params))


def _times(learning_rate: float | Schedule, ratio: float) -> float | Schedule:
    if not callable(learning_rate):
        return learning_rate * ratio

    def scaled(count: Array) -> Array:
        return learning_rate(count) * ratio

    return scaled
