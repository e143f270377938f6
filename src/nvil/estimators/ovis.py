"""OVIS: control variates that are optimal for the bound of many samples in a limit (Liévin et al., 2020)."""

import math
from typing import ClassVar

import jax
from jaxtyping import Array, Float

from nvil.errors import UsageError
from nvil.estimators.samples import many_sample_bound
from nvil.estimators.vimco import VIMCO


class OVIS(VIMCO):
    """Climbs the bound of K samples as VIMCO does, with the control variates c_k of its paper's Eq. 17.

        L     = log 1/K sum_k w_k,   v_k = w_k / sum_j w_j,   L_-k = log 1/(K-1) sum_{j != k} w_j
        c_k   = L_-k - gamma v_k + (1 - gamma) log(1 - 1/K)
        grad  = sum_k (L - v_k - c_k) grad log Q(h_k | x) + sum_k v_k grad log P(x, h_k)

    With gamma = 0, the limit in which one sample outweighs all others, c_k does not depend on h_k and the estimate is
    *unbiased*: what multiplies grad log Q is -log(1 - v_k) - v_k. With gamma = 1, the limit of many samples of like
    weight, it is log (1 - 1/K) / (1 - v_k): less noise there, and *biased* for Q, as c_k then depends on h_k. (VIMCO
    with the arithmetic mean has c_k = L_-k.)
    """

    sparse: ClassVar[bool] = True
    mean: str = "arithmetic"
    gamma: float = 0.0

    def __check_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise UsageError(f"`gamma` must be at least 0 and at most 1, got {self.gamma}.")

    def signal(self, log_weights: Float[Array, "samples cases"]) -> Float[Array, "samples cases"]:
        """L - c_k."""
        shares = jax.nn.softmax(log_weights, axis=0)
        constant = (1 - self.gamma) * math.log(1 - 1 / self.samples)
        return many_sample_bound(log_weights) - self.without_each(log_weights) + self.gamma * shares - constant


def ovis(*, samples: int = 5, gamma: float = 0.0) -> OVIS:
    """OVIS with `samples` of the latents for every case, at least 2.

    `gamma` is 0 for the unbiased estimate; up to 1 it trades bias for noise where many samples weigh alike.

    !!! example

        >>> estimator = ovis(samples=5)
    """
    return OVIS(samples, gamma=float(gamma))
