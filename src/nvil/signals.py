"""Learning signals, and what the paper does to them before they multiply grad log Q (Section 2.3).

A signal array has shape `(*batch, layers)`: one signal for every layer of Q. A `Transformation` is a pair of pure
functions, in the manner of optax: `init` makes its parameters psi and its state, `update` transforms the signal.
`Chain` composes them. Algorithm 1 of the paper is

    Chain((InputDependentBaseline(), RunningMean(), VarianceNormalisation()))

and leaving one out is one of the ablations of Figure 1.
"""

import abc
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nvil.errors import UsageError
from nvil.layers import Affine, affine

Signal = Float[Array, "*batch layers"]
Contexts = tuple[Float[Array, "*_ _"], ...]
Order = Literal["paper", "strict"]


def global_signal(log_p: Float[Array, "*batch terms"], log_q: Signal) -> Signal:
    """l(x, h) = log P(x, h) - log Q(h | x), the same for every layer (Section 2.3.1)."""
    signal = jnp.sum(log_p, axis=-1) - jnp.sum(log_q, axis=-1)
    return jnp.broadcast_to(signal[..., None], log_q.shape)


def local_signals(log_p: Float[Array, "*batch terms"], log_q: Signal) -> Signal:
    """l^i(x, h) = log P(h^(i-1:n)) - log Q(h^(i:n) | h^(i-1)), with x for h^0 (Section 2.3.3).

    Signal i keeps all the terms from layer i up, so the signals are one cumulative sum from the deepest layer down.
    """
    layers = log_q.shape[-1]
    if layers == 1:
        return global_signal(log_p, log_q)
    if log_p.shape[-1] != layers + 1:
        raise UsageError(
            f"Local signals for {layers} layers need {layers + 1} terms from the model's log_prob, "
            f"but it gave {log_p.shape[-1]}; give one term a layer or turn local signals off."
        )
    terms = log_p[..., :-1] - log_q
    return jax.lax.cumsum(terms, axis=terms.ndim - 1, reverse=True) + log_p[..., -1:]


class Transformation(eqx.Module):
    """The contract of every step between the raw signal and the one that multiplies grad log Q."""

    @abc.abstractmethod
    def init(self, key: Key[Array, ""], signal: Signal, contexts: Contexts) -> tuple[Any, Any]:
        """Make `(psi, state)`: trained parameters, and statistics that start at those of `signal`."""

    @abc.abstractmethod
    def update(self, signal: Signal, contexts: Contexts, psi: Any, state: Any) -> tuple[Signal, Signal | float, Any]:
        """Return `(transformed signal, C, new state)`, C being the trained baseline that was subtracted, or 0."""


class InputDependentBaseline(Transformation):
    """Subtract C^i_psi(h^(i-1)), a network with one layer of tanh units and a linear output (Section 2.3.1).

    Each layer has a baseline of its own. Algorithm 1 trains it with Delta psi = sum l grad C, where l is the signal
    after *all* transformations; the estimator does that with the C returned by `update`.
    The output starts at zero, so that an untrained baseline changes nothing.
    """

    units: int = 100

    def init(self, key: Key[Array, ""], signal: Signal, contexts: Contexts) -> tuple[Any, None]:
        keys = jax.random.split(key, len(contexts))
        psi = tuple(
            (affine(layer_key, context.shape[-1], self.units), _zero_output(self.units, signal.dtype))
            for layer_key, context in zip(keys, contexts, strict=True)
        )
        return psi, None

    def update(self, signal: Signal, contexts: Contexts, psi: Any, state: None) -> tuple[Signal, Signal, None]:
        outputs = [
            output(jnp.tanh(hidden(context)))[..., 0] for (hidden, output), context in zip(psi, contexts, strict=True)
        ]
        # The first layer's context is x alone, without the sample axis of the signal.
        baseline = jnp.stack([jnp.broadcast_to(output, signal.shape[:-1]) for output in outputs], axis=-1)
        return signal - baseline, baseline, None


class RunningMean(Transformation):
    """Subtract c, a running mean of the signal: c <- decay c + (1 - decay) mean(l) (Algorithm 1).

    The paper subtracts the *updated* c, which holds a share (1 - decay) / n of each of the n signals it is subtracted
    from: without normalisation the expected gradient of Q is then exactly 1 - (1 - decay) / n of the true one.
    `order="strict"` subtracts the previous c and is unbiased.
    """

    decay: float = 0.8
    order: Order = "paper"

    def init(self, key: Key[Array, ""], signal: Signal, contexts: Contexts) -> tuple[None, Float[Array, " layers"]]:
        return None, _batch_mean(signal)

    def update(
        self, signal: Signal, contexts: Contexts, psi: None, state: Float[Array, " layers"]
    ) -> tuple[Signal, float, Float[Array, " layers"]]:
        updated = _smooth(self.decay, state, _batch_mean(signal))
        return signal - (updated if self.order == "paper" else state), 0.0, updated


class VarianceNormalisation(Transformation):
    """Divide by max(1, sqrt v), v a running variance of the signal: v <- decay v + (1 - decay) var(l) (Algorithm 1).

    The maximum lets learning stop as the signal fades (Section 2.3.2). `order` is as in `RunningMean`: with "strict"
    the expected gradient of layer i of Q is exactly 1 / max(1, sqrt v^i) of the true one, v from before the update.
    """

    decay: float = 0.8
    order: Order = "paper"

    def init(self, key: Key[Array, ""], signal: Signal, contexts: Contexts) -> tuple[None, Float[Array, " layers"]]:
        return None, _batch_variance(signal)

    def update(
        self, signal: Signal, contexts: Contexts, psi: None, state: Float[Array, " layers"]
    ) -> tuple[Signal, float, Float[Array, " layers"]]:
        updated = _smooth(self.decay, state, _batch_variance(signal))
        variance = updated if self.order == "paper" else state
        return signal / jnp.maximum(1.0, jnp.sqrt(variance)), 0.0, updated


class Chain(Transformation):
    """Apply transformations one after another. The empty chain leaves the signal as it is: REINFORCE."""

    transformations: tuple[Transformation, ...] = ()

    def init(self, key: Key[Array, ""], signal: Signal, contexts: Contexts) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        psis, states = [], []
        for i, transformation in enumerate(self.transformations):
            psi, state = transformation.init(jax.random.fold_in(key, i), signal, contexts)
            signal, _, _ = transformation.update(signal, contexts, psi, state)
            psis.append(psi)
            states.append(state)
        return tuple(psis), tuple(states)

    def update(
        self, signal: Signal, contexts: Contexts, psi: tuple[Any, ...], state: tuple[Any, ...]
    ) -> tuple[Signal, Signal, tuple[Any, ...]]:
        total = jnp.zeros_like(signal)
        states = []
        for transformation, own_psi, own_state in zip(self.transformations, psi, state, strict=True):
            signal, baseline, new_state = transformation.update(signal, contexts, own_psi, own_state)
            total = total + baseline
            states.append(new_state)
        return signal, total, tuple(states)


def _batch_mean(signal: Signal) -> Float[Array, " layers"]:
    return jnp.mean(signal, axis=tuple(range(signal.ndim - 1)))


def _batch_variance(signal: Signal) -> Float[Array, " layers"]:
    return jnp.var(signal, axis=tuple(range(signal.ndim - 1)))


def _smooth(decay: float, old: Float[Array, " layers"], new: Float[Array, " layers"]) -> Float[Array, " layers"]:
    return decay * old + (1 - decay) * new


def _zero_output(units: int, dtype: Any) -> Affine:
    return Affine(jnp.zeros((units, 1), dtype), jnp.zeros(1, dtype))
