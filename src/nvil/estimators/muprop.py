"""MuProp: a first-order expansion at the mean field as the control variate (Gu, Levine, Sutskever & Mnih, 2016)."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nvil.contracts import Estimator, Info, Latents, Pair, Parameters, SignalInfo
from nvil.errors import count_of
from nvil.estimators.bernoulli import chain, check_bernoulli, logits_of
from nvil.estimators.samples import enumerate_latents, for_every_sample, log_probs, sample_latents
from nvil.signals import local_signals


class MuProp(Estimator):
    """The signal less its Taylor expansion at the mean field m, whose own gradient is put back in closed form.

        m^i     = sigmoid(a^i(m^(i-1))),   g^i = d l(m) / d m^i, through the layers above
        r^i     = l^i(h) - l^i(m) - g^i . (h^i - m^i)
        grad phi^i   = r^i grad log Q(h^i | h^(i-1)) + g^i . grad sigmoid(a^i(h^(i-1)))
        grad theta   = grad log P(x, h)

    averaged over samples h ~ Q(h | x); l^i are NVIL's local signals. Neither l^i(m) nor g^i depends on h, so this is
    unbiased. The mean field is one deterministic pass for every case, whatever the number of samples. log P must be
    differentiable in h, between 0 and 1 too.
    """

    sparse: ClassVar[bool] = True
    samples: int = 1

    def __check_init__(self) -> None:
        count_of(1, samples=self.samples)

    def check(self, pair: Pair) -> None:
        check_bernoulli("MuProp", pair)

    def sample(self, key: Key[Array, ""], pair: Pair, x: Any) -> Latents:
        """h ~ Q(h | x), shape `(samples, cases, ...)`."""
        return sample_latents(key, pair, x, self.samples)

    def gradients_from(self, draws: Latents, params: Parameters, x: Any, state: None) -> tuple[Parameters, None, Info]:
        field, expected, slopes = jax.lax.stop_gradient(mean_field(params.pair, x))

        def objective(params: Parameters) -> tuple[Float[Array, ""], Info]:
            log_p, log_q = log_probs(params.pair, x, draws)
            raw = jax.lax.stop_gradient(local_signals(log_p, log_q))
            linear = [jnp.sum(g * (h - m), axis=-1) for g, h, m in zip(slopes, draws, field, strict=True)]
            signal = raw - expected - jnp.stack(linear, axis=-1)
            means = jax.tree.map(jax.nn.sigmoid, for_every_sample(lambda h: logits_of(params.inference, x, h), draws))
            put_back = sum(jnp.sum(g * mean) for g, mean in zip(slopes, means, strict=True))
            info = Info(
                jnp.mean(jnp.sum(log_p, axis=-1) - jnp.sum(log_q, axis=-1)),
                SignalInfo(jnp.std(raw, axis=(0, 1)), jnp.mean(signal, axis=(0, 1)), jnp.std(signal, axis=(0, 1))),
            )
            return (jnp.sum(log_p) + jnp.sum(signal * log_q) + put_back) / self.samples, info

        gradients, info = eqx.filter_grad(objective, has_aux=True)(params)
        return gradients, None, info

    def enumerate_draws(self, pair: Pair, x: Any) -> tuple[Latents, Float[Array, " outcomes"]]:
        return enumerate_latents(pair, x, self.samples)


def mean_field(pair: Pair, x: Any) -> tuple[Latents, Float[Array, "cases layers"], Latents]:
    """The mean field m of every case, its local signals l^i(m), and their slopes g^i."""

    def signals(shifts: Latents) -> tuple[Float[Array, ""], tuple[Latents, Array]]:
        field = chain(pair.inference, x, lambda i, logits: jax.nn.sigmoid(logits) + shifts[i])
        log_p, log_q = pair.model.log_prob(x, field), pair.inference.log_prob(field, x)
        return jnp.sum(log_p) - jnp.sum(log_q), (field, local_signals(log_p[None], log_q[None])[0])

    zeros = chain(pair.inference, x, lambda i, logits: jnp.zeros_like(logits))
    slopes, (field, expected) = jax.grad(signals, has_aux=True)(zeros)
    return field, expected, slopes


def muprop(*, samples: int = 1) -> MuProp:
    """MuProp with `samples` of the latents for every case. For factorial Bernoulli inference networks.

    !!! example

        >>> estimator = muprop(samples=2)
    """
    return MuProp(samples)
