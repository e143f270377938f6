"""Straight-through: samples go forward, gradients go back through the means. *Biased* (Bengio et al., 2013)."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nvil.contracts import Estimator, Info, Latents, Pair, Parameters, log_weight
from nvil.errors import count_of
from nvil.estimators.bernoulli import chain, check_bernoulli
from nvil.estimators.samples import enumerate_latents, for_every_sample, sample_latents


class StraightThrough(Estimator):
    """The gradient of log P(x, h) - log Q(h | x) as if dh = d sigmoid(a), in all layers at once.

        h^i = [u < sigmoid(a^i)] forward,   dh^i / da^i = sigmoid'(a^i) backward

    Biased for Q: right only where log P(x, h) - log Q(h | x) is linear in h. The gradient of theta is unbiased. It is
    here to be compared with; docs/estimators.md has its bias on a small model.
    """

    sparse: ClassVar[bool] = True
    samples: int = 1

    def __check_init__(self) -> None:
        count_of(1, samples=self.samples)

    def check(self, pair: Pair) -> None:
        check_bernoulli("Straight-through", pair)

    def sample(self, key: Key[Array, ""], pair: Pair, x: Any) -> Latents:
        """h ~ Q(h | x), shape `(samples, cases, ...)`."""
        return sample_latents(key, pair, x, self.samples)

    def gradients_from(self, draws: Latents, params: Parameters, x: Any, state: None) -> tuple[Parameters, None, Info]:
        def objective(params: Parameters) -> tuple[Float[Array, ""], Info]:
            def value(h: Latents) -> Float[Array, " cases"]:
                def through(i: int, logits: Array) -> Array:
                    mean = jax.nn.sigmoid(logits)
                    return mean + jax.lax.stop_gradient(h[i] - mean)

                return log_weight(params.pair, x, chain(params.inference, x, through))

            bounds = for_every_sample(value, draws)
            return jnp.sum(bounds) / self.samples, Info(jnp.mean(bounds))

        gradients, info = eqx.filter_grad(objective, has_aux=True)(params)
        return gradients, None, info

    def enumerate_draws(self, pair: Pair, x: Any) -> tuple[Latents, Float[Array, " outcomes"]]:
        return enumerate_latents(pair, x, self.samples)


def straight_through(*, samples: int = 1) -> StraightThrough:
    """The straight-through estimator, *biased*, with `samples` of the latents for every case.

    !!! example

        >>> estimator = straight_through()
    """
    return StraightThrough(samples)
