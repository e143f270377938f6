"""Gumbel-softmax, or concrete, relaxation: *biased* (Jang et al., 2017; Maddison et al., 2017)."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nvil.contracts import Estimator, Info, Pair, Parameters, log_weight
from nvil.errors import count_of
from nvil.estimators.bernoulli import (
    Outcomes,
    branch,
    chain,
    check_bernoulli,
    check_temperature,
    every_case,
    every_unit,
    is_on,
    layer_noise,
    logit,
    quadrature,
)
from nvil.estimators.samples import for_every_sample


class Concrete(Estimator):
    """The exact gradient, by reparameterisation, of another objective: that of relaxed latents between 0 and 1.

        s^i = sigmoid((a^i(s^(i-1)) + log u - log(1 - u)) / temperature)
        grad log P(x, s) - log Q(s | x),   with the Bernoulli log-probabilities at s in the place of h

    Biased for both P and Q: less so at a low temperature, which has more variance. Reported and validated is the bound
    of the binary latents that the same noise makes. docs/estimators.md has its bias on a small model.
    """

    sparse: ClassVar[bool] = True
    samples: int = 1
    temperature: float = 0.5

    def __check_init__(self) -> None:
        count_of(1, samples=self.samples)
        check_temperature(self.temperature)

    def check(self, pair: Pair) -> None:
        check_bernoulli("The concrete relaxation", pair)

    def sample(self, key: Key[Array, ""], pair: Pair, x: Any) -> Any:
        """Uniform noise for every layer, shape `(samples, cases, units)`."""
        return for_every_sample(lambda key: layer_noise(key, pair.inference, x), jax.random.split(key, self.samples))

    def gradients_from(self, draws: Any, params: Parameters, x: Any, state: None) -> tuple[Parameters, None, Info]:
        def objective(params: Parameters) -> tuple[Float[Array, ""], Info]:
            def value(u: Any, *, relaxed: bool) -> Float[Array, " cases"]:
                def latents(i: int, logits: Array) -> Array:
                    if relaxed:
                        return jax.nn.sigmoid((logits + logit(u[i])) / self.temperature)
                    return is_on(u[i], jax.nn.sigmoid(logits))

                return log_weight(params.pair, x, chain(params.inference, x, latents))

            total = jnp.sum(for_every_sample(lambda u: value(u, relaxed=True), draws))
            bounds = for_every_sample(lambda u: value(u, relaxed=False), draws)
            return total / self.samples, Info(jnp.mean(bounds))

        gradients, info = eqx.filter_grad(objective, has_aux=True)(params)
        return gradients, None, info

    def enumerate_draws(self, pair: Pair, x: Any) -> Outcomes:
        """Not every draw, of which there is a continuum: Gauss-Legendre quadrature, 16 nodes either side of s = 1/2.

        The error is small where 1 / temperature is whole, so that the relaxed latents are rational functions of u, and
        no logit is large.
        """

        def one(x: Float[Array, "1 visible"]) -> Outcomes:
            us, log_prob = (), jnp.zeros(1, x.dtype)
            (context,) = (each[None] for each in pair.inference.contexts(x, ()))
            for layer in pair.inference.layers:
                logits = layer.logits(context)
                off = 1 - jax.nn.sigmoid(logits)
                u, own = every_unit(*quadrature(jnp.stack([jnp.zeros_like(off), off, jnp.ones_like(off)]), nodes=16))
                (us, logits), u, log_prob = branch(((us, logits), log_prob), u, own[..., 0])
                relaxed = jax.nn.sigmoid((logits + logit(u)) / self.temperature)
                us, context = (*us, u), pair.inference.above(x, relaxed)
            return us, log_prob

        return every_case(one, x, self.samples)


def concrete(*, samples: int = 1, temperature: float = 0.5) -> Concrete:
    """The Gumbel-softmax (concrete) estimator, *biased*, at a fixed `temperature`.

    !!! example

        >>> estimator = concrete(temperature=0.5)
    """
    return Concrete(samples, float(temperature))
