"""Double control variates: a Taylor expansion on top of the leave-one-out baseline (Titsias & Shi, 2022)."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nvil.contracts import Estimator, Info, Latents, Pair, Parameters, SignalInfo
from nvil.errors import count_of
from nvil.estimators.bernoulli import check_bernoulli, logits_of
from nvil.estimators.samples import enumerate_latents, for_every_sample, log_probs, sample_latents
from nvil.signals import local_signals


class DoubleControlVariates(Estimator):
    """RLOO whose signals, and so whose baselines too, lack their first-order part; its gradient is put back.

        f      = log P(x, h) - log Q(h | x),   p^i_k = sigmoid(a^i(h^(i-1)_k))
        g^i_k  = 1/(K - 1) sum_{j != k} d f(h_j) / d h^i
        s^i_k  = l^i_k - alpha^i g^i_k . (h^i_k - p^i_k)
        grad a^i_k   = (s^i_k - 1/(K - 1) sum_{j != k} s^i_j) (h^i_k - p^i_k) + alpha^i g^i_k p^i_k (1 - p^i_k)
        grad theta   = 1/K sum_k grad log P(x, h_k)

    averaged over K samples h_k ~ Q(h | x); l^i are NVIL's local signals. The slopes g_k are those of the other samples,
    which the backward pass for theta has at hand, so this is unbiased for every alpha. alpha, one per layer, starts at
    0, where this is RLOO, and learns to make the mean square of grad a small, and with it its variance. log P must be
    differentiable in h.
    """

    sparse: ClassVar[bool] = True
    samples: int = 4

    def __check_init__(self) -> None:
        count_of(2, samples=self.samples)

    def check(self, pair: Pair) -> None:
        check_bernoulli("Double control variates", pair)

    def init(self, key: Key[Array, ""], pair: Pair, x: Any) -> tuple[Float[Array, " layers"], None]:
        return jnp.zeros(len(pair.inference.layers), float), None

    def sample(self, key: Key[Array, ""], pair: Pair, x: Any) -> Latents:
        """h ~ Q(h | x), shape `(samples, cases, ...)`."""
        return sample_latents(key, pair, x, self.samples)

    def gradients_from(self, draws: Latents, params: Parameters, x: Any, state: None) -> tuple[Parameters, None, Info]:
        def value(changing: Any) -> tuple[Float[Array, ""], tuple[Array, Array]]:
            model, h = changing
            log_p, log_q = log_probs(Pair(model, params.inference), x, h)
            return jnp.sum(log_p) - jnp.sum(log_q), (log_p, log_q)

        # One pass for both: log Q has no part in theta's gradient.
        (model, slopes), (log_p, log_q) = eqx.filter_grad(value, has_aux=True)((params.model, draws))
        raw = local_signals(log_p, log_q)
        logits = for_every_sample(lambda h: logits_of(params.inference, x, h), draws)
        means = jax.tree.map(jax.nn.sigmoid, logits)

        def along(alphas: Float[Array, " layers"]) -> tuple[Float[Array, ""], tuple[list[Array], list[Array]]]:
            found, signals = [], []
            for i, (h, mean) in enumerate(zip(draws, means, strict=True)):
                slope = _others(slopes[i])
                signal = raw[..., i] - alphas[i] * jnp.sum(slope * (h - mean), axis=-1)
                signals.append(signal - _others(signal))
                found.append(signals[-1][..., None] * (h - mean) + alphas[i] * slope * mean * (1 - mean))
            return -sum((jnp.mean(jnp.mean(own, axis=0) ** 2) for own in found), jnp.zeros(())), (found, signals)

        psi, (found, signals) = jax.grad(along, has_aux=True)(params.baselines)

        def total(inference: Any) -> Float[Array, ""]:
            own = for_every_sample(lambda h: logits_of(inference, x, h), draws)
            return sum((jnp.sum(d * each) for d, each in zip(found, own, strict=True)), jnp.zeros(()))

        inference = eqx.filter_grad(total)(params.inference)
        signal = jnp.stack(signals, axis=-1)
        info = Info(
            jnp.mean(jnp.sum(log_p, axis=-1) - jnp.sum(log_q, axis=-1)),
            SignalInfo(jnp.std(raw, axis=(0, 1)), jnp.mean(signal, axis=(0, 1)), jnp.std(signal, axis=(0, 1))),
        )
        model, inference = jax.tree.map(lambda leaf: leaf / self.samples, (model, inference))
        return Parameters(model, inference, psi), None, info

    def enumerate_draws(self, pair: Pair, x: Any) -> tuple[Latents, Float[Array, " outcomes"]]:
        return enumerate_latents(pair, x, self.samples)


def _others(values: Float[Array, "samples *_"]) -> Float[Array, "samples *_"]:
    """For every sample, the mean over the others."""
    return (jnp.sum(values, axis=0) - values) / (values.shape[0] - 1)


def double_control_variates(*, samples: int = 4) -> DoubleControlVariates:
    """RLOO with double control variates: `samples` of the latents for every case, at least 2.

    For factorial Bernoulli inference networks.

    !!! example

        >>> estimator = double_control_variates(samples=4)
    """
    return DoubleControlVariates(samples)
