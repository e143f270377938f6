"""Reweighted wake-sleep: wake-sleep with many samples, weighted by importance (Bornschein & Bengio, 2015)."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nvil.contracts import Estimator, Info, Pair, Parameters, needs
from nvil.errors import UsageError, count_of
from nvil.estimators.samples import (
    enumerate_dreams,
    enumerate_latents,
    every_two,
    log_probs,
    log_weights,
    many_sample_bound,
    sample_dreams,
    sample_latents,
)


class ReweightedWakeSleep(Estimator):
    """Three phases in one update, any mix of the last two, with K samples h_k ~ Q(h | x) of every case.

        weights:     v_k = w_k / sum_j w_j,   w_k = P(x, h_k) / Q(h_k | x)
        wake theta:  grad theta = sum_k v_k grad log P(x, h_k)
        wake phi:    grad phi   = sum_k v_k grad log Q(h_k | x)
        sleep phi:   grad phi   = grad log Q(h' | x'),          (x', h') ~ P(x, h)

    Wake theta is an unbiased estimate of the gradient of the bound of K samples. Wake phi is *biased*: it tends to the
    gradient of E_P(h | x)[log Q(h | x)], which fits Q to the posterior, as K grows, and has mean 0 for K = 1. Sleep phi
    is unbiased for E_P(x, h)[log Q(h | x)], on the model's own cases. No one objective is climbed by all; what is
    reported and validated is the bound of K samples. With `sleep=1` and one sample this is wake-sleep.
    """

    sparse: ClassVar[bool] = True
    samples: int = 5
    sleep: float = 0.5

    def __check_init__(self) -> None:
        count_of(1, samples=self.samples)
        if not 0 <= self.sleep <= 1:
            raise UsageError(f"`sleep` must be at least 0 and at most 1, got {self.sleep}.")

    def check(self, pair: Pair) -> None:
        if self.sleep:
            needs(pair.model, "sample")

    def sample(self, key: Key[Array, ""], pair: Pair, x: Any) -> Any:
        """`(h, (x', h'))`: latents for the minibatch, and a dream for every case of it, or None without sleep."""
        wake, sleep = jax.random.split(key)
        dreams = sample_dreams(sleep, pair, x) if self.sleep else None
        return sample_latents(wake, pair, x, self.samples), dreams

    def gradients_from(self, draws: Any, params: Parameters, x: Any, state: None) -> tuple[Parameters, None, Info]:
        h, dreams = draws

        def objective(params: Parameters) -> tuple[Float[Array, ""], Info]:
            log_p, log_q = (jnp.sum(terms, axis=-1) for terms in log_probs(params.pair, x, h))
            weights = jax.lax.stop_gradient(jax.nn.softmax(log_p - log_q, axis=0))
            total = jnp.sum(weights * (log_p + (1 - self.sleep) * log_q))
            if dreams is not None:
                dream_x, dream_h = dreams
                total = total + self.sleep * jnp.sum(params.inference.log_prob(dream_h, dream_x))
            return total, Info(jnp.mean(many_sample_bound(log_p - log_q)))

        gradients, info = eqx.filter_grad(objective, has_aux=True)(params)
        return gradients, None, info

    def enumerate_draws(self, pair: Pair, x: Any) -> tuple[Any, Float[Array, " outcomes"]]:
        h, log_prob = enumerate_latents(pair, x, self.samples)
        if not self.sleep:
            return (h, None), log_prob
        return every_two((h, log_prob), enumerate_dreams(pair, x))

    def objective(self, key: Key[Array, ""], pair: Pair, x: Any) -> Float[Array, " cases"]:
        """The bound of K samples, which the wake phase of theta climbs."""
        return many_sample_bound(log_weights(pair, x, sample_latents(key, pair, x, self.samples)))


def reweighted_wake_sleep(*, samples: int = 5, sleep: float = 0.5) -> ReweightedWakeSleep:
    """Reweighted wake-sleep with `samples` of the latents for every case.

    **Arguments:**

    - `samples`: of the latents, for every case of a minibatch.
    - `sleep`: the share of the sleep phase in the gradient of Q: 0 for the wake phase alone, 1 for the sleep phase
      alone, one half for the paper's mix of both.

    !!! example

        >>> estimator = reweighted_wake_sleep(samples=5, sleep=0.0)
    """
    return ReweightedWakeSleep(samples, float(sleep))
