"""Learning signals, and what the paper does to them before they multiply grad log Q (Section 2.3).

A signal has the shape `(samples, cases, signals)`: one signal per layer of Q, or a single one for all layers. A
`Transformation` is a pair of pure functions, in the manner of optax: `init` makes its parameters psi and its state,
`update` transforms the signal. `chain` composes them. Algorithm 1 of the paper is

    chain(input_dependent_baseline(), running_mean(), variance_normalisation())

and leaving one out is one of the ablations of Figure 1. An estimator takes any of them:

    estimators.nvil(signals.input_dependent_baseline(units=50), signals.running_mean())
    estimators.nvil(signals.leave_one_out(), samples=4)

**A transformation of your own** is a class with these two methods; here, one that clips the signal:

    class Clip(signals.Transformation):
        largest: float

        def init(self, key, signal, contexts):
            return None, None                  # no parameters psi, no state

        def update(self, signal, contexts, psi, state):
            return jnp.clip(signal, -self.largest, self.largest), 0.0, None

`update` returns the new signal, the trained baseline that was subtracted (0 if none: the estimator trains psi through
it), and the new state. A baseline must not depend on the latents it is a baseline for, or the estimator is biased:
`exact.gradient_moments` tells.
"""

import abc
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nvil.errors import UsageError, choose, count_of
from nvil.layers import Affine, affine
from nvil.sparse import SparseCases, dense, takes_sparse

Signal = Float[Array, "samples cases signals"]
Contexts = tuple[Float[Array, "*_ _"] | SparseCases, ...]
"""What each signal's baseline may see. That of the first, x, has no sample axis."""
Order = Literal["paper", "strict"]


def global_signal(
    log_p: Float[Array, "samples cases terms"], log_q: Float[Array, "samples cases layers"]
) -> Float[Array, "samples cases 1"]:
    """l(x, h) = log P(x, h) - log Q(h | x), one signal for all layers (Section 2.3.1)."""
    return (jnp.sum(log_p, axis=-1) - jnp.sum(log_q, axis=-1))[..., None]


def local_signals(
    log_p: Float[Array, "samples cases terms"], log_q: Float[Array, "samples cases layers"]
) -> Float[Array, "samples cases layers"]:
    """l^i(x, h) = log P(h^(i-1:n)) - log Q(h^(i:n) | h^(i-1)), with x for h^0 (Section 2.3.3).

    Signal i keeps all the terms from layer i up, so the signals are one cumulative sum from the deepest layer down.
    """
    layers = log_q.shape[-1]
    if layers == 1:
        return global_signal(log_p, log_q)
    if log_p.shape[-1] != layers + 1:
        raise UsageError(
            f"Local signals for {layers} layers need {layers + 1} terms from the model's log_prob, "
            f"but it gave {log_p.shape[-1]}; return one term per layer, or use the global signal (`local=False`, where "
            "the estimator has it)."
        )
    terms = log_p[..., :-1] - log_q
    return jax.lax.cumsum(terms, axis=terms.ndim - 1, reverse=True) + log_p[..., -1:]


class Transformation(eqx.Module):
    """The contract of every step between the raw signal and the one that multiplies grad log Q."""

    sparse: ClassVar[bool] = False
    """Whether contexts may be `nvil.sparse.SparseCases`: they are only multiplied by weights, or not looked at."""

    @abc.abstractmethod
    def init(self, key: Key[Array, ""], signal: Signal, contexts: Contexts) -> tuple[Any, Any]:
        """Make `(psi, state)`: trained parameters, and statistics that start at those of `signal`."""

    @abc.abstractmethod
    def update(self, signal: Signal, contexts: Contexts, psi: Any, state: Any) -> tuple[Signal, Signal | float, Any]:
        """Return `(transformed signal, C, new state)`, C being the trained baseline that was subtracted, or 0."""

    def baselined(self, signal: Signal, contexts: Contexts, psi: Any, state: Any) -> Signal:
        """The signal less only what does not depend on its own draws: its expected gradient is the true one.

        Gradients that go through reparameterised draws are added to others that have no signal, so there a scale, or a
        running mean that holds a share of the signal itself, would be a bias. By default nothing is subtracted.
        """
        return signal


class InputDependentBaseline(Transformation):
    """Subtract C^i_psi(h^(i-1)), a network with one layer of tanh units and a linear output (Section 2.3.1).

    Each signal has a baseline of its own. Algorithm 1 trains it with Delta psi = sum l grad C, where l is the signal
    after *all* transformations; the estimator does that with the C returned by `update`.
    The output starts at zero, so that an untrained baseline changes nothing.
    """

    sparse: ClassVar[bool] = True
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

    def baselined(self, signal: Signal, contexts: Contexts, psi: Any, state: None) -> Signal:
        return self.update(signal, contexts, psi, state)[0]


class RunningMean(Transformation):
    """Subtract c, a running mean of the signal: c <- decay c + (1 - decay) mean(l) (Algorithm 1).

    The paper subtracts the *updated* c, which holds a share (1 - decay) / n of each of the n signals it is subtracted
    from: without normalisation the expected gradient of Q is then exactly 1 - (1 - decay) / n of the true one.
    `order="strict"` subtracts the previous c, which removes this bias.
    """

    sparse: ClassVar[bool] = True
    decay: float = 0.8
    order: Order = "paper"

    def init(self, key: Key[Array, ""], signal: Signal, contexts: Contexts) -> tuple[None, Float[Array, " signals"]]:
        return None, _batch_mean(signal)

    def update(
        self, signal: Signal, contexts: Contexts, psi: None, state: Float[Array, " signals"]
    ) -> tuple[Signal, float, Float[Array, " signals"]]:
        updated = _smooth(self.decay, state, _batch_mean(signal))
        return signal - (updated if self.order == "paper" else state), 0.0, updated

    def baselined(self, signal: Signal, contexts: Contexts, psi: None, state: Float[Array, " signals"]) -> Signal:
        """Less the previous c, whatever the order."""
        return signal - state


class VarianceNormalisation(Transformation):
    """Divide by max(1, sqrt v), v a running variance of the signal: v <- decay v + (1 - decay) var(l) (Algorithm 1).

    The maximum lets learning stop as the signal fades (Section 2.3.2). `order` is as in `RunningMean`: with "strict"
    the expected gradient of layer i of Q is exactly 1 / max(1, sqrt v^i) of the true one, v from before the update.
    """

    sparse: ClassVar[bool] = True
    decay: float = 0.8
    order: Order = "paper"

    def init(self, key: Key[Array, ""], signal: Signal, contexts: Contexts) -> tuple[None, Float[Array, " signals"]]:
        return None, batch_variance(signal)

    def update(
        self, signal: Signal, contexts: Contexts, psi: None, state: Float[Array, " signals"]
    ) -> tuple[Signal, float, Float[Array, " signals"]]:
        updated = _smooth(self.decay, state, batch_variance(signal))
        variance = updated if self.order == "paper" else state
        return signal / jnp.maximum(1.0, jnp.sqrt(variance)), 0.0, updated


class LeaveOneOut(Transformation):
    """Subtract from each sample's signal the mean over the *other* samples of the same case (Kool et al., 2019).

        l_s <- l_s - 1/(S - 1) sum_{t != s} l_t

    The other samples are independent of sample s, so this is a baseline: with nothing after it the estimator is
    unbiased. It needs at least two samples per case.
    """

    sparse: ClassVar[bool] = True

    def init(self, key: Key[Array, ""], signal: Signal, contexts: Contexts) -> tuple[None, None]:
        return None, None

    def update(self, signal: Signal, contexts: Contexts, psi: None, state: None) -> tuple[Signal, float, None]:
        samples = signal.shape[0]
        if samples < 2:
            raise UsageError("A leave-one-out baseline needs at least 2 samples per case, got 1.")
        return (signal - jnp.mean(signal, axis=0)) * (samples / (samples - 1)), 0.0, None

    def baselined(self, signal: Signal, contexts: Contexts, psi: None, state: None) -> Signal:
        return self.update(signal, contexts, psi, state)[0]


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
            seen = contexts if takes_sparse(transformation) else dense(contexts)
            signal, baseline, new_state = transformation.update(signal, seen, own_psi, own_state)
            total = total + baseline
            states.append(new_state)
        return signal, total, tuple(states)

    def baselined(self, signal: Signal, contexts: Contexts, psi: tuple[Any, ...], state: tuple[Any, ...]) -> Signal:
        for transformation, own_psi, own_state in zip(self.transformations, psi, state, strict=True):
            seen = contexts if takes_sparse(transformation) else dense(contexts)
            signal = transformation.baselined(signal, seen, own_psi, own_state)
        return signal


def input_dependent_baseline(units: int = 100) -> InputDependentBaseline:
    """Subtract C(x), a network with `units` tanh units (Section 2.3.1)."""
    count_of(1, units=units)
    return InputDependentBaseline(units)


def running_mean(decay: float = 0.8, order: Order = "paper") -> RunningMean:
    """Subtract a running mean c of the signal (Algorithm 1); `decay` is its smoothing factor alpha."""
    return RunningMean(*_checked(decay, order))


def variance_normalisation(decay: float = 0.8, order: Order = "paper") -> VarianceNormalisation:
    """Divide by the running standard deviation max(1, sqrt v) of the signal (Section 2.3.2)."""
    return VarianceNormalisation(*_checked(decay, order))


def leave_one_out() -> LeaveOneOut:
    """Subtract the mean signal of the other samples of the same case."""
    return LeaveOneOut()


def chain(*transformations: Transformation) -> Chain:
    """Apply `transformations` one after another; none at all leave the signal as it is."""
    for each in transformations:
        if not isinstance(each, Transformation):
            raise UsageError(f"{each!r} is not a signals.Transformation; try signals.running_mean(), for example.")
    return Chain(transformations)


def _checked(decay: float, order: Order) -> tuple[float, Order]:
    if not 0 <= decay < 1:
        raise UsageError(f"`decay` must be at least 0 and less than 1, got {decay}.")
    choose("order", order, ("paper", "strict"))
    return decay, order


def _batch_mean(signal: Signal) -> Float[Array, " signals"]:
    return jnp.mean(signal, axis=(0, 1))


def batch_variance(signal: Signal) -> Float[Array, " signals"]:
    """The variance of each signal over the samples and cases of a minibatch."""
    return jnp.var(signal, axis=(0, 1))


def _smooth(decay: float, old: Float[Array, " signals"], new: Float[Array, " signals"]) -> Float[Array, " signals"]:
    return decay * old + (1 - decay) * new


def _zero_output(units: int, dtype: Any) -> Affine:
    return Affine(jnp.zeros((units, 1), dtype), jnp.zeros(1, dtype))
