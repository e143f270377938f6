"""Optax optimisers with a learning rate for each parameter group: model, inference network, baselines.

The paper makes the inference network's rate "five times smaller than for the model (which is the one we report)"
(Section 4.1). It does not give the baselines' rate; here it is the model's. Adam is not the paper's: for it equal rates
learned faster, and are the default.
"""

import functools
from collections.abc import Callable

import optax

from nvil.contracts import Parameters


@functools.cache  # the same object for the same rates, so that training with it compiles once
def sgd(learning_rate: float = 3e-4, *, inference_ratio: float = 0.2) -> optax.GradientTransformation:
    """The paper's plain stochastic gradient ascent, on gradients *summed* over the minibatch."""
    return _grouped(optax.sgd, learning_rate, inference_ratio)


@functools.cache
def adam(learning_rate: float = 3e-3, *, inference_ratio: float = 1.0) -> optax.GradientTransformation:
    """Adam (Kingma & Ba, 2015): not the paper's recipe, but it learns in a fraction of the updates."""
    return _grouped(optax.adam, learning_rate, inference_ratio)


def _grouped(
    optimiser: Callable[..., optax.GradientTransformation], learning_rate: float, inference_ratio: float
) -> optax.GradientTransformation:
    # As groups, because scaling the loss of the inference network would do nothing under Adam.
    return optax.partition(
        {
            "model": optimiser(learning_rate),
            "inference": optimiser(learning_rate * inference_ratio),
            "baselines": optimiser(learning_rate),
        },
        Parameters("model", "inference", "baselines"),
    )
