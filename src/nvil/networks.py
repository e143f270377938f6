"""The model P and the inference network Q as chains of layers; both give log-probabilities *per layer*."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nvil.contracts import Constant
from nvil.layers import Layer
from nvil.rows import Source


class BeliefNetwork(eqx.Module):
    """P(x, h) = P(x | h^1) prod_i P(h^i | h^(i+1)) P(h^n), the layered model of Section 2.3.3.

    `layers` go from the data up: `layers[0]` is P(x | h^1), `layers[-1]` the prior P(h^n), whose context is empty.
    """

    layers: tuple[Layer, ...]

    def log_prob(
        self, x: Float[Array, "*batch visible"], h: tuple[Float[Array, "*batch _"], ...]
    ) -> Float[Array, "*batch terms"]:
        values = (x, *h)
        contexts = (*h, _empty(h[-1].shape[:-1], h[-1].dtype))
        terms = [
            layer.log_prob(value, context) for layer, value, context in zip(self.layers, values, contexts, strict=True)
        ]
        return jnp.stack(terms, axis=-1)

    def sample(
        self, key: Key[Array, ""], cases: int
    ) -> tuple[Float[Array, "cases visible"], tuple[Float[Array, "cases _"], ...]]:
        """Ancestral samples (x, h), from the deepest layer down to the data."""
        value = _empty((cases,), float)
        values = []
        keys = jax.random.split(key, len(self.layers))
        for layer, layer_key in zip(reversed(self.layers), keys, strict=True):
            value = layer.sample(layer_key, value)
            values.append(value)
        *h, x = values
        return x, tuple(reversed(h))

    def mean(self, h: tuple[Float[Array, "*batch _"], ...]) -> Float[Array, "*batch visible"]:
        """E[x | h]: what a person wants to see of a sample or a reconstruction."""
        return self.layers[0].mean(h[0])

    def check(self, source: Source) -> None:
        """Refuse data that the visible layer cannot explain."""
        self.layers[0].check(source)

    def support(self) -> tuple[Float[np.ndarray, "states _"], ...]:
        """Every joint state of the latents."""
        return _joint_support(self.layers[1:])

    def visible_support(self) -> Float[np.ndarray, "states visible"]:
        """Every case there can be."""
        return self.layers[0].support()


class InferenceNetwork(eqx.Module):
    """Q(h | x) = Q(h^1 | x) prod_i Q(h^(i+1) | h^i), the layered inference network of Section 2.3.3.

    The input is centred by `center`, the mean of the training data (Section 4.2); samples, not means, go up.
    """

    layers: tuple[Layer, ...]
    center: Constant

    def contexts(
        self, x: Float[Array, "*batch visible"], h: tuple[Float[Array, "*samples _"], ...]
    ) -> tuple[Float[Array, "*_ _"], ...]:
        return (self._centred(x), *h[:-1])

    def log_prob(
        self, h: tuple[Float[Array, "*batch _"], ...], x: Float[Array, "*batch visible"]
    ) -> Float[Array, "*batch layers"]:
        terms = [
            layer.log_prob(value, context)
            for layer, value, context in zip(self.layers, h, self.contexts(x, h), strict=True)
        ]
        return jnp.stack(terms, axis=-1)

    def sample(self, key: Key[Array, ""], x: Float[Array, "*batch visible"]) -> tuple[Float[Array, "*batch _"], ...]:
        value = self._centred(x)
        h = []
        keys = jax.random.split(key, len(self.layers))
        for layer, layer_key in zip(self.layers, keys, strict=True):
            value = layer.sample(layer_key, value)
            h.append(value)
        return tuple(h)

    def mean(
        self, x: Float[Array, "*batch visible"], h: tuple[Float[Array, "*batch _"], ...]
    ) -> tuple[Float[Array, "*batch _"], ...]:
        """E[h^i_j | h^i_1..j-1, h^(i-1)] of every unit, given a sample h of what it depends on.

        Averaged over samples h ~ Q(h | x) it is E[h | x]; for the first layer of a factorial Q one sample is enough.
        """
        return tuple(
            layer.conditional_mean(value, context)
            for layer, value, context in zip(self.layers, h, self.contexts(x, h), strict=True)
        )

    def support(self) -> tuple[Float[np.ndarray, "states _"], ...]:
        """Every joint state of the latents."""
        return _joint_support(self.layers)

    def _centred(self, x: Float[Array, "*batch visible"]) -> Float[Array, "*batch visible"]:
        return x - jax.lax.stop_gradient(self.center.value)


def _empty(batch: tuple[int, ...], dtype: Any) -> Float[Array, "*batch 0"]:
    """The context of a layer without parents."""
    return jnp.zeros((*batch, 0), dtype)


def _joint_support(layers: tuple[Layer, ...]) -> tuple[Float[np.ndarray, "states _"], ...]:
    states = itertools.product(*(layer.support() for layer in layers))
    return tuple(np.stack(values) for values in zip(*states, strict=True))
