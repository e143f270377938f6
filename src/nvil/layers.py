"""A layer is a conditional distribution: `sample`, `log_prob` and `mean`, given a context.

Both the model P and the inference network Q are chains of layers. Leading axes are batch axes. A layer without
parents, such as the prior P(h^n), is a layer whose context has no units: an array of shape `(*batch, 0)`.
"""

import abc
import itertools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nvil.random import uniform

LogitsMap = Callable[[Float[Array, "*batch inputs"]], Float[Array, "*batch units"]]


class Affine(eqx.Module):
    """The paper's map from a context to logits: `context @ weights + bias`."""

    weights: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __call__(self, context: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        return context @ self.weights + self.bias


def affine(key: Key[Array, ""], inputs: int, outputs: int) -> Affine:
    """An `Affine` map with uniform weights in +-sqrt(6 / (inputs + outputs)) and zero bias.

    The paper does not say how it starts its weights; this is the choice of Glorot & Bengio (2010).
    """
    limit = np.sqrt(6.0 / (inputs + outputs)).item()
    weights = jax.random.uniform(key, (inputs, outputs), minval=-limit, maxval=limit)
    return Affine(weights, jnp.zeros(outputs, weights.dtype))


class Layer(eqx.Module):
    """The contract of every layer: a distribution over `value` (*batch, units) given `context` (*batch, inputs)."""

    @abc.abstractmethod
    def sample(self, key: Key[Array, ""], context: Float[Array, "*batch inputs"]) -> Float[Array, "*batch units"]:
        """Draw one value for every case of the batch."""

    @abc.abstractmethod
    def log_prob(
        self, value: Float[Array, "*batch units"], context: Float[Array, "*batch inputs"]
    ) -> Float[Array, "*batch"]:
        """Log P(value | context), one number a case."""

    @abc.abstractmethod
    def mean(self, context: Float[Array, "*batch inputs"]) -> Float[Array, "*batch units"]:
        """E[value | context]."""

    @abc.abstractmethod
    def support(self) -> Float[np.ndarray, "states units"]:
        """Every value the layer can take, for enumeration (`nvil.exact`); small discrete layers only."""


class Bernoulli(Layer):
    """Factorial Bernoulli units: the layers of a sigmoid belief network.

    log P(v | context) = sum_j v_j a_j - log(1 + exp a_j),   a = logits(context)
    """

    logits: LogitsMap
    units: int = eqx.field(static=True)

    def sample(self, key: Key[Array, ""], context: Float[Array, "*batch inputs"]) -> Float[Array, "*batch units"]:
        mean = self.mean(context)
        return (uniform(key, mean.shape) < mean).astype(mean.dtype)

    def log_prob(
        self, value: Float[Array, "*batch units"], context: Float[Array, "*batch inputs"]
    ) -> Float[Array, "*batch"]:
        return bernoulli_log_prob(value, self.logits(context))

    def mean(self, context: Float[Array, "*batch inputs"]) -> Float[Array, "*batch units"]:
        return jax.nn.sigmoid(self.logits(context))

    def support(self) -> Float[np.ndarray, "states units"]:
        return binary_vectors(self.units)


def bernoulli_log_prob(
    value: Float[Array, "*batch units"], logits: Float[Array, "*batch units"]
) -> Float[Array, "*batch"]:
    """sum_j v_j a_j - log(1 + exp a_j), without overflow for any finite logit a_j."""
    return jnp.sum(value * logits - softplus(logits), axis=-1)


@jax.custom_jvp
def softplus(logits: Float[Array, "*_"]) -> Float[Array, "*_"]:
    """log(1 + exp a) = max(a, 0) + log(1 + exp(-|a|)), with derivative sigmoid(a).

    On a CPU this is twice as fast, with its derivative, as `jax.nn.softplus`; in Q the sigmoid is at hand already.
    """
    return jnp.maximum(logits, 0) + jnp.log1p(jnp.exp(-jnp.abs(logits)))


@softplus.defjvp
def _softplus_jvp(primals, tangents):
    (logits,), (tangent,) = primals, tangents
    return softplus(logits), jax.nn.sigmoid(logits) * tangent


def binary_vectors(units: int) -> Float[np.ndarray, "states units"]:
    """All 2^units binary vectors, one a row."""
    return np.array(list(itertools.product((0.0, 1.0), repeat=units))).reshape(2**units, units)
