"""Neural variational inference and learning: Algorithm 1 of the paper, and REINFORCE as its bare form."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nvil import signals
from nvil.contracts import Estimator, Info, Latents, Pair, Parameters, SignalInfo
from nvil.errors import UsageError, count_of
from nvil.estimators.samples import (
    enumerate_latents,
    fixed,
    log_probs,
    reparameterised,
    sample_latents,
    scored,
)
from nvil.signals import Chain, Contexts, Transformation, batch_variance, global_signal, local_signals

COLD = 0.1
"""The weight that the terms of the layers above the first start with, where there is a warm-up."""


class Warming(NamedTuple):
    """The state of NVIL with a warm-up: how many updates there were, and the state of its transformations."""

    updates: Int[Array, ""]
    transformation: Any


class NVIL(Estimator):
    """The score-function estimator of Eq. 5 and 6 with a transformed learning signal.

        grad theta = 1/S sum_s grad log P(x, h_s)
        grad phi^i = 1/S sum_s l^i_s grad log Q(h^i_s | h^(i-1)_s)
        grad psi^i = 1/S sum_s l^i_s grad C^i(h^(i-1)_s)

    for S samples h_s ~ Q(h | x) of every case, summed over the cases. Build it with `nvil` or `reinforce`.

    Gaussian layers of Q need no score function: their draws are functions of phi, and gradients go through them, both
    of the bound and of the log Q of discrete layers above (Section 3.1; Kingma & Welling, 2014), there times the signal
    less its baselines but not rescaled (`Transformation.baselined`). They have signals too, which are used for nothing.

    With a warm-up it climbs another bound at first, in which the terms of layer i have a weight w^i:

        log P(x | h^1) + sum_i w^i (log P(h^i | h^(i+1)) - log Q(h^i | h^(i-1)))

    with w^1 = 1, and w^i = min(1, 0.1 + 0.9 t / warm_up) for the others, after t updates. That is not in the paper:
    it is the warm-up of Bowman et al. (2016) and Sonderby et al. (2016), for the layers above the first alone. A unit
    of an upper layer costs nats from the start, but helps only once the layers around it have learned to use it.
    Without a warm-up many such units switch off before then, and stay off. The bound in `Info` is the unweighted one.
    """

    sparse: ClassVar[bool] = True
    transformation: Chain
    samples: int = 1
    local: bool = True
    warm_up: int = 0

    def __check_init__(self) -> None:
        count_of(1, samples=self.samples)
        count_of(0, warm_up=self.warm_up)
        if self.samples < 2 and any(
            isinstance(each, signals.LeaveOneOut) for each in self.transformation.transformations
        ):
            raise UsageError("A leave-one-out baseline needs at least 2 samples per case; give samples=2 or more.")

    def init(self, key: Key[Array, ""], pair: Pair, x: Any) -> tuple[Any, Any]:
        """Baselines, and statistics c and v that start at those of one extra draw for `x`.

        The paper does not say where c and v start. Zero would make the first updates huge, and the draw is independent
        of the first update's, so an order that is unbiased stays so from the first update on.
        """
        draw_key, psi_key = jax.random.split(key)
        h = self.sample(draw_key, pair, x)
        updates = jnp.asarray(0, jnp.int32)
        signal = self.signals(*self.weighted(*log_probs(pair, x, h), updates))
        psi, state = self.transformation.init(psi_key, signal, self.contexts(pair, x, h))
        return psi, Warming(updates, state) if self.warm_up else state

    def sample(self, key: Key[Array, ""], pair: Pair, x: Any) -> Latents:
        """h ~ Q(h | x), shape `(samples, cases, ...)`."""
        return sample_latents(key, pair, x, self.samples)

    def gradients_from(self, draws: Latents, params: Parameters, x: Any, state: Any) -> tuple[Parameters, Any, Info]:
        """Algorithm 1, line by line, for latents `draws` that have been sampled already."""
        updates, state = state if self.warm_up else (None, state)

        def objective(params: Parameters) -> tuple[Float[Array, ""], tuple[Any, Info]]:
            h = reparameterised(params.pair, x, draws)
            log_p, log_q = log_probs(params.pair, x, h)
            # Q may share parameters with what its baselines see; the baselines' loss must not train those.
            contexts = jax.lax.stop_gradient(self.contexts(params.pair, x, draws))
            weighted_p, weighted_q = self.weighted(log_p, log_q, updates)
            raw = jax.lax.stop_gradient(self.signals(weighted_p, weighted_q))
            signal, baseline, new_state = self.transformation.update(raw, contexts, params.baselines, state)
            unscaled = self.transformation.baselined(raw, contexts, params.baselines, state)
            signal, unscaled, new_state = jax.lax.stop_gradient((signal, unscaled, new_state))
            info = Info(
                bound=jnp.mean(jnp.sum(log_p, axis=-1) - jnp.sum(log_q, axis=-1)),
                signal=SignalInfo(
                    raw_deviation=jnp.std(raw, axis=(0, 1)),
                    mean=jnp.mean(signal, axis=(0, 1)),
                    deviation=jnp.std(signal, axis=(0, 1)),
                ),
            )
            # Its gradient is what Algorithm 1 accumulates in Delta theta, Delta phi and Delta psi.
            by_phi = scored(params.inference, log_q if h is draws else log_probs(params.pair, x, draws)[1])
            total = jnp.sum(weighted_p) + jnp.sum(signal * by_phi) + jnp.sum(signal * baseline)
            if h is not draws:  # log Q of discrete layers as a function of the draws below, and of the others as it is
                by_draws = scored(params.inference, log_probs(fixed(params.pair), x, h)[1])
                total = total + jnp.sum(unscaled * by_draws)
                total = total - jnp.sum(weighted_q - scored(params.inference, weighted_q))
            return total / self.samples, (new_state, info)

        gradients, (state, info) = eqx.filter_grad(objective, has_aux=True)(params)
        return gradients, state if updates is None else Warming(updates + 1, state), info

    def enumerate_draws(self, pair: Pair, x: Any) -> tuple[Latents, Float[Array, " outcomes"]]:
        return enumerate_latents(pair, x, self.samples)

    def signal_names(self) -> tuple[str, ...]:
        names = ["raw"]
        for step in self.transformation.transformations:
            name = type(step).__name__
            names.append(name if name not in names else f"{name} {len(names)}")
        return tuple(names)

    def signal_variances(
        self, draws: Latents, params: Parameters, x: Any, state: Any
    ) -> tuple[Float[Array, " signals"], ...]:
        """A running mean changes no variance: what it takes away is the mean."""
        contexts = self.contexts(params.pair, x, draws)
        updates, state = state if self.warm_up else (None, state)
        signal = self.signals(*self.weighted(*log_probs(params.pair, x, draws), updates))
        variances = [batch_variance(signal)]
        for step, psi, own in zip(self.transformation.transformations, params.baselines, state, strict=True):
            signal, _, _ = step.update(signal, contexts, psi, own)
            variances.append(batch_variance(signal))
        return tuple(variances)

    def weighted(
        self, log_p: Float[Array, "*_ terms"], log_q: Float[Array, "*_ layers"], updates: Int[Array, ""] | None
    ) -> tuple[Float[Array, "*_ terms"], Float[Array, "*_ layers"]]:
        """The terms of log P(x, h) and of log Q(h | x), each times the weight of its layer after so many updates."""
        if updates is None or not self.warm_up:
            return log_p, log_q
        layers = log_q.shape[-1]
        if log_p.shape[-1] != layers + 1:
            raise UsageError(
                f"A warm-up for {layers} layers needs {layers + 1} terms from the model's log_prob, but it gave "
                f"{log_p.shape[-1]}; return one term per layer, or leave `warm_up` out."
            )
        above = jnp.minimum(1, COLD + (1 - COLD) * updates.astype(log_q.dtype) / self.warm_up)
        weights = jnp.where(jnp.arange(layers) == 0, 1, above)
        return log_p * jnp.concatenate([jnp.ones_like(weights[:1]), weights]), log_q * weights

    def signals(self, log_p: Array, log_q: Array) -> Float[Array, "samples cases signals"]:
        """The learning signals before any transformation."""
        return local_signals(log_p, log_q) if self.local else global_signal(log_p, log_q)

    def contexts(self, pair: Pair, x: Any, h: Latents) -> Contexts:
        """What the baseline of each signal sees: h^(i-1) for layer i, and x for the global signal."""
        contexts = pair.inference.contexts(x, h)
        return contexts if self.local else contexts[:1]


def nvil(*transformations: Transformation, samples: int = 1, local: bool = True, warm_up: int = 0) -> NVIL:
    """NVIL with the paper's variance reduction techniques, or with the `transformations` given instead.

    **Arguments:**

    - `transformations`: of the learning signal, in order (`nvil.signals`). Without any, those of Algorithm 1:
      `input_dependent_baseline()`, `running_mean()`, `variance_normalisation()`.
    - `samples`: of the latents, for every case of a minibatch.
    - `local`: a learning signal per layer (Section 2.3.3), each with statistics and a baseline of its own, instead of
      one signal for all layers with one of each, the baseline on x.
    - `warm_up`: updates over which the layers above the first reach full weight (`NVIL`); 0 for none, as in the paper.
      A fifth of all updates is a good start for nets of three layers; with two it did not help.

    !!! example

        >>> from nvil import signals
        >>> estimator = nvil(signals.input_dependent_baseline(units=50), signals.running_mean())
        >>> two_samples = nvil(signals.leave_one_out(), samples=2)
    """
    paper = (signals.input_dependent_baseline(), signals.running_mean(), signals.variance_normalisation())
    return NVIL(signals.chain(*(transformations or paper)), samples, local, warm_up)


def reinforce(*, samples: int = 1, local: bool = False, warm_up: int = 0) -> NVIL:
    """The naive estimator of Eq. 6: NVIL without any transformation of the signal. `warm_up` is as in `nvil`."""
    return NVIL(signals.chain(), samples, local, warm_up)


def rloo(*, samples: int = 4, local: bool = True, warm_up: int = 0) -> NVIL:
    """REINFORCE with a leave-one-out baseline over `samples` of the latents, at least 2 (Kool et al., 2019).

    A name for `nvil(signals.leave_one_out(), samples=samples)`: nothing is trained but P and Q, and it is unbiased.
    `warm_up` is as in `nvil`.
    """
    count_of(2, samples=samples)
    return NVIL(signals.chain(signals.leave_one_out()), samples, local, warm_up)
