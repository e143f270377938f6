"""VIMCO: the bound of many samples, with each sample's baseline made of the others (Mnih & Rezende, 2016)."""

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nvil.contracts import Estimator, Info, Latents, Pair, Parameters, SignalInfo
from nvil.errors import choose, count_of
from nvil.estimators.samples import (
    enumerate_latents,
    log_probs,
    log_weights,
    many_sample_bound,
    reparameterised,
    sample_latents,
    scored,
)

MEANS = ("geometric", "arithmetic")


class VIMCO(Estimator):
    """Climbs the bound of K samples, L_K = E[log 1/K sum_k w_k] with w_k = P(x, h_k) / Q(h_k | x).

        L     = log 1/K sum_k w_k
        L_-k  = log 1/K (sum_{j != k} w_j + m_k),   m_k the mean of the weights w_j, j != k
        grad  = sum_k (L - L_-k) grad log Q(h_k | x) + sum_k w_k / (sum_j w_j) grad log w_k

    The learning signal L - L_-k says how much better the bound is for sample k. The mean m_k may be geometric or
    arithmetic; either way L_-k does not depend on h_k, and the estimate is unbiased. Draws of Gaussian layers are
    reparameterised: the second term goes through them, and the first has the log Q of the other layers only.
    """

    sparse: ClassVar[bool] = True
    samples: int = 5
    mean: str = "geometric"

    def __check_init__(self) -> None:
        choose("mean", self.mean, MEANS)
        count_of(2, samples=self.samples)

    def sample(self, key: Key[Array, ""], pair: Pair, x: Any) -> Latents:
        """h ~ Q(h | x), shape `(samples, cases, ...)`."""
        return sample_latents(key, pair, x, self.samples)

    def gradients_from(self, draws: Latents, params: Parameters, x: Any, state: None) -> tuple[Parameters, None, Info]:
        def objective(params: Parameters) -> tuple[Float[Array, ""], Info]:
            log_p, terms = log_probs(params.pair, x, reparameterised(params.pair, x, draws))
            log_p, log_q = jnp.sum(log_p, axis=-1), jnp.sum(terms, axis=-1)
            bound = many_sample_bound(log_p - log_q)
            signal = jax.lax.stop_gradient(self.signal(log_p - log_q))
            info = Info(
                bound=jnp.mean(bound),
                signal=SignalInfo(
                    raw_deviation=jnp.std(bound)[None],
                    mean=jnp.mean(signal)[None],
                    deviation=jnp.std(signal)[None],
                ),
            )
            discrete = jnp.sum(scored(params.inference, terms), axis=-1)
            return jnp.sum(signal * discrete) + jnp.sum(bound), info

        gradients, info = eqx.filter_grad(objective, has_aux=True)(params)
        return gradients, None, info

    def signal(self, log_weights: Float[Array, "samples cases"]) -> Float[Array, "samples cases"]:
        """L - L_-k, which multiplies grad log Q(h_k | x)."""
        return many_sample_bound(log_weights) - self.without_each(log_weights)

    def without_each(self, log_weights: Float[Array, "samples cases"]) -> Float[Array, "samples cases"]:
        """L_-k, with each weight in turn replaced by the mean of the others.

        With the arithmetic mean that is the bound of the K - 1 other samples. Sums leave the weight out from the start:
        to subtract it later would lose all digits where it is the largest by far.
        """
        own = jnp.eye(self.samples, dtype=bool)[..., None]
        if self.mean == "arithmetic":
            others = jnp.where(own, -jnp.inf, log_weights)
            return jax.nn.logsumexp(others, axis=1) - math.log(self.samples - 1)
        means = jnp.sum(jnp.where(own, 0, log_weights), axis=1) / (self.samples - 1)
        return jax.nn.logsumexp(jnp.where(own, means, log_weights), axis=1) - math.log(self.samples)

    def enumerate_draws(self, pair: Pair, x: Any) -> tuple[Latents, Float[Array, " outcomes"]]:
        return enumerate_latents(pair, x, self.samples)

    def objective(self, key: Key[Array, ""], pair: Pair, x: Any) -> Float[Array, " cases"]:
        """The bound of K samples."""
        return many_sample_bound(log_weights(pair, x, self.sample(key, pair, x)))

    def signal_names(self) -> tuple[str, ...]:
        return ("raw", "LeaveOneOut")

    def signal_variances(
        self, draws: Latents, params: Parameters, x: Any, state: None
    ) -> tuple[Float[Array, " signals"], ...]:
        weights = log_weights(params.pair, x, draws)
        return jnp.var(many_sample_bound(weights))[None], jnp.var(self.signal(weights))[None]


def vimco(*, samples: int = 5, mean: str = "geometric") -> VIMCO:
    """VIMCO with `samples` of the latents for every case, at least 2, and the `mean` that stands for a left-out weight.

    Validation, the best parameters and reports are those of the bound of as many samples, which is above the bound of
    one: compare runs by `nvil evaluate`.

    !!! example

        >>> estimator = vimco(samples=5)
    """
    return VIMCO(samples, mean)
