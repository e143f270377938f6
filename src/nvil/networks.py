"""The model P and the inference network Q as chains of layers; both give log-probabilities *per layer*."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nvil.contracts import Constant
from nvil.errors import UsageError
from nvil.layers import Affine, Gaussian, Layer, Multinomial, Nonlinear
from nvil.rows import Source
from nvil.sparse import SparseCases

Cases = Float[Array, "*batch visible"] | SparseCases


class BeliefNetwork(eqx.Module):
    """P(x, h) = P(x | h^1) prod_i P(h^i | h^(i+1)) P(h^n), the layered model of Section 2.3.3.

    `layers` go from the data up: `layers[0]` is P(x | h^1), `layers[-1]` the prior P(h^n), whose context is empty.

    A conditional model P(x, h | y) has cases that begin with `given` columns of y: every layer sees y beside the layer
    above it, and log-probabilities, the bound among them, are those of the other columns given these. Where y is of
    real numbers, it is seen less its `center`, in units of its `deviation`.
    """

    layers: tuple[Layer, ...]
    given: int = eqx.field(static=True, default=0)
    center: Constant | None = None
    deviation: Constant | None = None

    def log_prob(self, x: Cases, h: tuple[Float[Array, "*batch _"], ...]) -> Float[Array, "*batch terms"]:
        values: tuple[Any, ...] = (x if isinstance(x, SparseCases) else x[..., self.given :], *h)
        terms = [
            layer.log_prob(value, context)
            for layer, value, context in zip(self.layers, values, self.parents(x, h), strict=True)
        ]
        return jnp.stack(terms, axis=-1)

    def parents(self, x: Cases, h: tuple[Float[Array, "*batch _"], ...]) -> tuple[Float[Array, "*batch _"], ...]:
        """What each layer is conditioned on: the layer above it, and y."""
        above = (*h, _empty(h[-1].shape[:-1], h[-1].dtype))
        if isinstance(x, SparseCases):  # documents, without y
            return above
        y = self.seen(x[..., : self.given])
        return tuple(beside(value, y) for value in above)

    def seen(self, y: Float[Array, "*batch given"]) -> Float[Array, "*batch given"]:
        """The context as the layers see it."""
        return y if self.center is None or self.deviation is None else _standardised(y, self.center, self.deviation)

    def sample(
        self, key: Key[Array, ""], cases: int, y: Float[Array, "cases given"] | None = None
    ) -> tuple[Float[Array, "cases visible"], tuple[Float[Array, "cases _"], ...]]:
        """Ancestral samples (x, h), from the deepest layer down to the data; of a conditional model ((y, x), h)."""
        y = self._known(y, (cases,))
        value = _empty((cases,), float)
        values = []
        keys = jax.random.split(key, len(self.layers))
        for layer, layer_key in zip(reversed(self.layers), keys, strict=True):
            value = layer.sample(layer_key, beside(value, self.seen(y)))
            values.append(value)
        *h, x = values
        return beside(y, x), tuple(reversed(h))

    def mean(
        self, h: tuple[Float[Array, "*batch _"], ...], y: Float[Array, "*batch given"] | None = None
    ) -> Float[Array, "*batch visible"]:
        """E[x | h]: what a person wants to see of a sample or a reconstruction.

        Of a conditional model it is (y, E[x | h, y]), a whole case.
        """
        y = self._known(y, h[0].shape[:-1])
        return beside(y, self.layers[0].mean(beside(h[0], self.seen(y))))

    @property
    def sparse(self) -> bool:
        """Whether x may be `nvil.sparse.SparseCases`: documents, without a context."""
        return isinstance(self.layers[0], Multinomial) and not self.given

    def _known(self, y: Array | None, batch: tuple[int, ...]) -> Float[Array, "*batch given"]:
        if y is None and self.given:
            raise UsageError(f"The model is conditional: give the {self.given} columns of its context as `y`.")
        return _empty(batch, float) if y is None else y

    def check(self, source: Source) -> None:
        """Refuse data that the visible layer cannot explain."""
        self.layers[0].check(source, self.given)

    def support(self) -> tuple[Float[np.ndarray, "states _"], ...]:
        """Every joint state of the latents."""
        return _joint_support(self.layers[1:])

    def visible_support(self, y: Float[Array, " given"] | None = None) -> Float[np.ndarray | Array, "states visible"]:
        """Every case there can be; of a conditional model, given y."""
        states = self.layers[0].support()
        if not self.given:
            return states
        return beside(jnp.broadcast_to(self._known(y, ()), (len(states), self.given)), jnp.asarray(states))


class InferenceNetwork(eqx.Module):
    """Q(h | x) = Q(h^1 | x) prod_i Q(h^(i+1) | h^i), the layered inference network of Section 2.3.3.

    The input is centred by `center`, the mean of the training data (Section 4.2); samples, not means, go up. Where the
    first `given` columns of a case are the context y of a conditional model, every layer sees them, centred. Real
    numbers are also divided by their `deviation`.
    """

    layers: tuple[Layer, ...]
    center: Constant
    given: int = eqx.field(static=True, default=0)
    deviation: Constant | None = None

    def contexts(
        self, x: Cases, h: tuple[Float[Array, "*samples _"], ...]
    ) -> tuple[Float[Array, "*_ _"] | SparseCases, ...]:
        return (self._centred(x), *(self.above(x, value) for value in h[:-1]))

    def above(self, x: Cases, value: Float[Array, "*_ _"]) -> Float[Array, "*_ _"]:
        """What the layer above one with this `value` is conditioned on: the value, and y."""
        return value if isinstance(x, SparseCases) else beside(value, self._centred(x)[..., : self.given])

    def log_prob(self, h: tuple[Float[Array, "*batch _"], ...], x: Cases) -> Float[Array, "*batch layers"]:
        terms = [
            layer.log_prob(value, context)
            for layer, value, context in zip(self.layers, h, self.contexts(x, h), strict=True)
        ]
        return jnp.stack(terms, axis=-1)

    def sample(self, key: Key[Array, ""], x: Cases) -> tuple[Float[Array, "*batch _"], ...]:
        context = self._centred(x)
        h = []
        keys = jax.random.split(key, len(self.layers))
        for layer, layer_key in zip(self.layers, keys, strict=True):
            h.append(layer.sample(layer_key, context))
            context = self.above(x, h[-1])
        return tuple(h)

    def mean(self, x: Cases, h: tuple[Float[Array, "*batch _"], ...]) -> tuple[Float[Array, "*batch _"], ...]:
        """E[h^i_j | h^i_1..j-1, h^(i-1)] of every unit, given a sample h of what it depends on.

        Averaged over samples h ~ Q(h | x) it is E[h | x]; for the first layer of a factorial Q one sample is enough.
        """
        return tuple(
            layer.conditional_mean(value, context)
            for layer, value, context in zip(self.layers, h, self.contexts(x, h), strict=True)
        )

    def reparameterised(
        self, x: Cases, h: tuple[Float[Array, "*batch _"], ...]
    ) -> tuple[Float[Array, "*batch _"], ...]:
        """The same h, those of Gaussian layers as functions of Q's parameters and of the layers below (Section 3.1)."""
        values = []
        context = self._centred(x)
        for layer, value in zip(self.layers, h, strict=True):
            values.append(layer.reparameterised(value, context) if isinstance(layer, Gaussian) else value)
            context = self.above(x, values[-1])
        return tuple(values)

    def pathwise(self) -> tuple[bool, ...]:
        """Which layers `reparameterised` makes functions of parameters; the others need the score function."""
        return tuple(isinstance(layer, Gaussian) for layer in self.layers)

    def support(self) -> tuple[Float[np.ndarray, "states _"], ...]:
        """Every joint state of the latents."""
        return _joint_support(self.layers)

    @property
    def sparse(self) -> bool:
        """Whether x may be `nvil.sparse.SparseCases`: the first that is done to it, centred, is a product."""
        first = self.layers[0]
        inputs = first.moments if isinstance(first, Gaussian) else getattr(first, "logits", None)
        return isinstance(inputs, Affine | Nonlinear) and not self.given and self.deviation is None

    def _centred(self, x: Any) -> Any:
        return _standardised(x, self.center, self.deviation)


def _standardised(values: Any, center: Constant, deviation: Constant | None) -> Any:
    values = values - jax.lax.stop_gradient(center.value)
    return values if deviation is None else values / jax.lax.stop_gradient(deviation.value)


def beside(value: Float[Array, "*batch _"], other: Float[Array, "*_ _"]) -> Float[Array, "*batch _"]:
    """Two groups of units as one; `other` may lack leading axes, or be empty."""
    if not other.shape[-1]:
        return value
    return jnp.concatenate([value, jnp.broadcast_to(other, (*value.shape[:-1], other.shape[-1]))], axis=-1)


def _empty(batch: tuple[int, ...], dtype: Any) -> Float[Array, "*batch 0"]:
    """The context of a layer without parents."""
    return jnp.zeros((*batch, 0), dtype)


def _joint_support(layers: tuple[Layer, ...]) -> tuple[Float[np.ndarray, "states _"], ...]:
    states = itertools.product(*(layer.support() for layer in layers))
    return tuple(np.stack(values) for values in zip(*states, strict=True))
