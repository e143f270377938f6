"""Optimisers of the models that are trained by gradients: one update, and Adam with a rate that falls to zero."""

from typing import TypeVar, cast

import optax

Parameters = TypeVar("Parameters")


def falling_adam(learning_rate: float, updates: int) -> optax.GradientTransformation:
    """Adam whose learning rate falls linearly to zero over `updates` updates."""
    return optax.adam(optax.linear_schedule(learning_rate, 0.0, updates))


def updated(
    optimiser: optax.GradientTransformation, gradient: Parameters, state: optax.OptState, parameters: Parameters
) -> tuple[Parameters, optax.OptState]:
    """The parameters and the state of the optimiser after one update."""
    change, state = optimiser.update(cast(optax.Updates, gradient), state, cast(optax.Params, parameters))
    return cast(Parameters, optax.apply_updates(cast(optax.Params, parameters), change)), state
