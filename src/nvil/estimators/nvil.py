"""Neural variational inference and learning: Algorithm 1 of the paper, and REINFORCE as its bare form."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nvil.contracts import Estimator, Info, Latents, Pair, Parameters, SignalInfo
from nvil.errors import UsageError, choose
from nvil.estimators.samples import enumerate_latents, log_probs, sample_latents
from nvil.signals import (
    Chain,
    InputDependentBaseline,
    Order,
    RunningMean,
    Transformation,
    VarianceNormalisation,
    global_signal,
    local_signals,
)


class NVIL(Estimator):
    """The score-function estimator of Eq. 5 and 6 with a transformed learning signal.

        grad theta = 1/S sum_s grad log P(x, h_s)
        grad phi^i = 1/S sum_s l^i_s grad log Q(h^i_s | h^(i-1)_s)
        grad psi^i = 1/S sum_s l^i_s grad C^i(h^(i-1)_s)

    for S samples h_s ~ Q(h | x) of every case, summed over the cases. Build it with `nvil` or `reinforce`.
    """

    transformation: Transformation
    samples: int = 1
    local: bool = True

    def init(self, key: Key[Array, ""], pair: Pair, x: Any) -> tuple[Any, Any]:
        """Baselines, and statistics c and v that start at those of one extra draw for `x`.

        The paper does not say where c and v start. Zero would make the first updates huge, and the draw is independent
        of the first update's, so an order that is unbiased stays so from the first update on.
        """
        draw_key, psi_key = jax.random.split(key)
        h = self.sample(draw_key, pair, x)
        signals = self.signals(*log_probs(pair, x, h))
        return self.transformation.init(psi_key, signals, pair.inference.contexts(x, h))

    def sample(self, key: Key[Array, ""], pair: Pair, x: Any) -> Latents:
        """h ~ Q(h | x), shape `(samples, cases, ...)`."""
        return sample_latents(key, pair, x, self.samples)

    def gradients_from(self, draws: Latents, params: Parameters, x: Any, state: Any) -> tuple[Parameters, Any, Info]:
        """Algorithm 1, line by line, for latents `draws` that have been sampled already."""

        def objective(params: Parameters) -> tuple[Float[Array, ""], tuple[Any, Info]]:
            log_p, log_q = log_probs(params.pair, x, draws)
            # Q may share parameters with what its baselines see; they are no business of the baselines' loss.
            contexts = jax.lax.stop_gradient(params.inference.contexts(x, draws))
            raw = jax.lax.stop_gradient(self.signals(log_p, log_q))
            signal, baseline, new_state = self.transformation.update(raw, contexts, params.baselines, state)
            signal, new_state = jax.lax.stop_gradient((signal, new_state))
            info = Info(
                bound=jnp.mean(jnp.sum(log_p, axis=-1) - jnp.sum(log_q, axis=-1)),
                signal=SignalInfo(
                    raw_deviation=jnp.std(raw, axis=(0, 1)),
                    mean=jnp.mean(signal, axis=(0, 1)),
                    deviation=jnp.std(signal, axis=(0, 1)),
                ),
            )
            # Its gradient is what Algorithm 1 accumulates in Delta theta, Delta phi and Delta psi.
            total = jnp.sum(log_p) + jnp.sum(signal * log_q) + jnp.sum(signal * baseline)
            return total / self.samples, (new_state, info)

        gradients, (state, info) = eqx.filter_grad(objective, has_aux=True)(params)
        return gradients, state, info

    def enumerate_draws(self, pair: Pair, x: Any) -> tuple[Latents, Float[Array, " outcomes"]]:
        return enumerate_latents(pair, x, self.samples)

    def signals(self, log_p: Array, log_q: Array) -> Float[Array, "samples cases layers"]:
        """The learning signals before any transformation."""
        return local_signals(log_p, log_q) if self.local else global_signal(log_p, log_q)


def nvil(
    *,
    samples: int = 1,
    local: bool = True,
    baseline: bool = True,
    running_mean: bool = True,
    normalisation: bool = True,
    order: Order = "paper",
    decay: float = 0.8,
    units: int = 100,
) -> NVIL:
    """NVIL as in the paper; every technique can be turned off alone.

    **Arguments:**

    - `samples`: of the latents, for every case of a minibatch.
    - `local`: a learning signal for every layer (Section 2.3.3) instead of one for all.
    - `baseline`: subtract the input-dependent baseline C(x), a network with `units` tanh units.
    - `running_mean`: subtract the running mean c of the signal.
    - `normalisation`: divide by the running deviation max(1, sqrt v) of the signal.
    - `order`: "paper" uses c and v after their update, as Algorithm 1 does; "strict" uses the previous ones, which
      makes the estimator unbiased (up to the scale of the normalisation).
    - `decay`: the smoothing factor alpha of c and v.
    """
    if samples < 1 or units < 1:
        raise UsageError(f"samples and units must be at least 1, not {samples} and {units}.")
    if not 0 <= decay < 1:
        raise UsageError(f"decay must be from 0 up to but not including 1, not {decay}.")
    choose("order", order, ("paper", "strict"))
    transformations = (
        (baseline, InputDependentBaseline(units)),
        (running_mean, RunningMean(decay, order)),
        (normalisation, VarianceNormalisation(decay, order)),
    )
    return NVIL(Chain(tuple(t for used, t in transformations if used)), samples, local)


def reinforce(*, samples: int = 1) -> NVIL:
    """The naive estimator of Eq. 6: NVIL with every technique off."""
    return nvil(samples=samples, local=False, baseline=False, running_mean=False, normalisation=False)
