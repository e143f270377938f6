"""The named pairs (P, Q). Layer sizes are listed from the data up, and `chain` prints them so."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nvil.contracts import Pair
from nvil.errors import UsageError
from nvil.layers import Bernoulli, affine
from nvil.networks import BeliefNetwork, InferenceNetwork


def sbn(
    visible: int,
    hidden: Sequence[int],
    *,
    mean: Float[Array | np.ndarray, " visible"] | None = None,
    seed: int = 0,
) -> Pair:
    """A sigmoid belief network of any depth with its factorial inference network.

    Every layer of P and Q is factorial Bernoulli with affine logits.

    **Arguments:**

    - `visible`: the number of observed binary variables.
    - `hidden`: the number of latent variables in each layer, from the data up.
    - `mean`: the mean of the training data. Q and its baselines see the input less this mean, and the visible biases
      start at its logit, so that the untrained model has about the right number of pixels on.
    - `seed`: of the initial weights.

    !!! example

        >>> pair = sbn(784, (200, 200))
        >>> chain(pair)
        'x 784 <- h1 200 <- h2 200'
    """
    sizes = _sizes(visible, hidden)
    center = jnp.full(visible, 0.0) if mean is None else jnp.asarray(mean, float)
    if center.shape != (visible,):
        raise UsageError(f"The mean has shape {center.shape}, but there are {visible} visible units.")
    down, up = jax.random.split(jax.random.key(seed))
    data, *latents = _bernoulli_layers(down, inputs=(*sizes[1:], 0), outputs=sizes)
    if mean is not None:
        # A pixel that never changes in the training data must not start at an infinite bias.
        rate = jnp.clip(center, 1e-2, 1 - 1e-2)
        data = eqx.tree_at(lambda layer: layer.logits.bias, data, jnp.log(rate) - jnp.log1p(-rate))
    inference = _bernoulli_layers(up, inputs=sizes[:-1], outputs=sizes[1:])
    return Pair(BeliefNetwork((data, *latents)), InferenceNetwork(inference, center))


def chain(pair: Pair) -> str:
    """The layer sizes from the data up, as `x 784 <- h1 500 <- h2 200`."""
    names = ("x", *(f"h{i}" for i in range(1, len(pair.model.layers))))
    return " <- ".join(f"{name} {layer.units}" for name, layer in zip(names, pair.model.layers, strict=True))


def _bernoulli_layers(key, *, inputs: Sequence[int], outputs: Sequence[int]) -> tuple[Bernoulli, ...]:
    keys = jax.random.split(key, len(outputs))
    return tuple(
        Bernoulli(affine(layer_key, size_in, size_out), size_out)
        for layer_key, size_in, size_out in zip(keys, inputs, outputs, strict=True)
    )


def _sizes(visible: int, hidden: Sequence[int]) -> tuple[int, ...]:
    if not hidden:
        raise UsageError("A model needs at least one hidden layer; give its size, for example 200.")
    for size in (visible, *hidden):
        if size < 1:
            raise UsageError(f"A layer of size {size} cannot be; every size must be at least 1.")
    return (visible, *hidden)
