"""The wake-sleep algorithm (Hinton et al., 1995), NVIL's rival in the paper (Section 3.3)."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nvil.contracts import Estimator, Info, Pair, Parameters, needs
from nvil.errors import count_of
from nvil.estimators.samples import (
    enumerate_dreams,
    enumerate_latents,
    every_two,
    log_probs,
    sample_dreams,
    sample_latents,
)


class WakeSleep(Estimator):
    """Both phases in one update, on a minibatch and on as many dreams.

        wake:   grad theta = 1/S sum_s grad log P(x, h_s),   h_s ~ Q(h | x), as in NVIL
        sleep:  grad phi   = grad log Q(h' | x'),            (x', h') ~ P(x, h)   (Eq. 13)

    The sleep phase fits Q to the model's own samples, not to the data, so there is no one objective that both phases
    climb. The model needs `sample(key, cases)` besides the contract.
    """

    sparse: ClassVar[bool] = True
    samples: int = 1

    def __check_init__(self) -> None:
        count_of(1, samples=self.samples)

    def check(self, pair: Pair) -> None:
        needs(pair.model, "sample")

    def sample(self, key: Key[Array, ""], pair: Pair, x: Any) -> Any:
        """`(h, (x', h'))`: latents for the minibatch, and a dream for every case of it."""
        wake, sleep = jax.random.split(key)
        return sample_latents(wake, pair, x, self.samples), sample_dreams(sleep, pair, x)

    def gradients_from(self, draws: Any, params: Parameters, x: Any, state: None) -> tuple[Parameters, None, Info]:
        h, (dream_x, dream_h) = draws

        def objective(params: Parameters) -> tuple[Float[Array, ""], Info]:
            log_p, log_q = log_probs(params.pair, x, h)
            dream_log_q = params.inference.log_prob(dream_h, dream_x)
            bound = jnp.mean(jnp.sum(log_p, axis=-1) - jnp.sum(log_q, axis=-1))
            return jnp.sum(log_p) / self.samples + jnp.sum(dream_log_q), Info(bound, signal=None)

        gradients, info = eqx.filter_grad(objective, has_aux=True)(params)
        return gradients, None, info

    def enumerate_draws(self, pair: Pair, x: Any) -> tuple[Any, Float[Array, " outcomes"]]:
        return every_two(enumerate_latents(pair, x, self.samples), enumerate_dreams(pair, x))


def wake_sleep(*, samples: int = 1) -> WakeSleep:
    """Wake-sleep with `samples` draws of the latents for every case in the wake phase.

    The paper trains it with a smaller learning rate than NVIL's, 1e-4.
    """
    return WakeSleep(samples)
