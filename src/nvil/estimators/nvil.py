"""Neural variational inference and learning: Algorithm 1 of the paper, and REINFORCE as its bare form."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nvil import exact
from nvil.contracts import Estimator, Info, Latents, Pair, Parameters
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
        log_p, log_q, contexts = self._terms(pair, x, h)
        return self.transformation.init(psi_key, self._signals(log_p, log_q), contexts)

    def sample(self, key: Key[Array, ""], pair: Pair, x: Any) -> Latents:
        """H ~ Q(h | x), shape `(samples, cases, ...)`."""
        keys = jax.random.split(key, self.samples)
        return _for_every_sample(lambda key: pair.inference.sample(key, x), keys)

    def gradients_from(self, draws: Latents, params: Parameters, x: Any, state: Any) -> tuple[Parameters, Any, Info]:
        """Algorithm 1, line by line, for latents `draws` that have been sampled already."""

        def objective(params: Parameters) -> tuple[Float[Array, ""], tuple[Any, Info]]:
            log_p, log_q, contexts = self._terms(params.pair, x, draws)
            raw = jax.lax.stop_gradient(self._signals(log_p, log_q))
            signal, baseline, new_state = self.transformation.update(raw, contexts, params.baselines, state)
            signal, new_state = jax.lax.stop_gradient((signal, new_state))
            info = Info(
                bound=jnp.mean(jnp.sum(log_p, axis=-1) - jnp.sum(log_q, axis=-1)),
                signal_mean=jnp.mean(signal, axis=(0, 1)),
                signal_deviation=jnp.std(signal, axis=(0, 1)),
                raw_deviation=jnp.std(raw, axis=(0, 1)),
            )
            # Its gradient is what Algorithm 1 accumulates in Delta theta, Delta phi and Delta psi.
            total = jnp.sum(log_p) + jnp.sum(signal * log_q) + jnp.sum(signal * baseline)
            return total / self.samples, (new_state, info)

        gradients, (state, info) = eqx.filter_grad(objective, has_aux=True)(params)
        return gradients, state, info

    def enumerate_draws(self, pair: Pair, x: Any) -> tuple[Latents, Float[Array, " outcomes"]]:
        latents = pair.inference.support()
        log_q = exact.inference_log_prob(pair.inference, x, latents)
        cases, states = log_q.shape
        choices = np.stack(np.meshgrid(*[np.arange(states)] * (self.samples * cases), indexing="ij"), axis=-1).reshape(
            -1, self.samples, cases
        )
        draws = jax.tree.map(lambda values: jnp.asarray(values)[choices], latents)
        return draws, jnp.sum(log_q[np.arange(cases), choices], axis=(1, 2))

    def _terms(
        self, pair: Pair, x: Any, h: Latents
    ) -> tuple[Float[Array, "samples cases terms"], Float[Array, "samples cases layers"], Any]:
        """Log P, log Q and contexts for every sample; what depends on x alone is computed once."""
        log_p = _for_every_sample(lambda h: pair.model.log_prob(x, h), h)
        log_q = _for_every_sample(lambda h: pair.inference.log_prob(h, x), h)
        return log_p, log_q, pair.inference.contexts(x, h)

    def _signals(self, log_p: Array, log_q: Array) -> Float[Array, "samples cases layers"]:
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
    transformations = (
        (baseline, InputDependentBaseline(units)),
        (running_mean, RunningMean(decay, order)),
        (normalisation, VarianceNormalisation(decay, order)),
    )
    return NVIL(Chain(tuple(t for used, t in transformations if used)), samples, local)


def reinforce(*, samples: int = 1) -> NVIL:
    """The naive estimator of Eq. 6: NVIL with every technique off."""
    return nvil(samples=samples, local=False, baseline=False, running_mean=False, normalisation=False)


def _for_every_sample(function: Callable[[Any], Any], samples: Any) -> Any:
    """Map over a leading axis. An axis of one is taken off first: kept, it costs a copy of every layer's gradient."""
    if jax.tree.leaves(samples)[0].shape[0] > 1:
        return jax.vmap(function)(samples)
    only = jax.tree.map(lambda leaf: leaf[0], samples)
    return jax.tree.map(lambda leaf: leaf[None], function(only))
