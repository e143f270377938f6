"""Annealed importance sampling (Neal, 2001), the part that every model shares.

A chain moves through the distributions f_0, f_1, ..., f_K, from one that is easy to sample to the one of interest, and
gathers the weight w = prod_k f_k(v_k-1) / f_k-1(v_k-1). The mean of w over chains is an unbiased estimate of Z_K / Z_0.
Its logarithm is too low on average, so log-likelihoods are too high on average, the less so the smaller the error is.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from nvil.errors import count_of


class Estimate(NamedTuple):
    """Log-likelihoods, one per case, with the standard error of each estimate.

    A standard error without axes is that of log Z, in which all cases err together. `rows` tells which cases were
    evaluated, where not all were.
    """

    log_prob: np.ndarray
    standard_error: np.ndarray
    rows: np.ndarray


def log_mean(log_weights: Float[np.ndarray, "*batch chains"]) -> tuple[np.ndarray, np.ndarray]:
    """log of the mean weight over chains, and its standard error: that of the mean weight divided by the mean."""
    log_weights = np.asarray(log_weights, np.float64)
    largest = np.max(log_weights, axis=-1)
    weights = np.exp(log_weights - largest[..., None])
    mean = np.mean(weights, axis=-1)
    error = np.std(weights, axis=-1, ddof=1) / np.sqrt(weights.shape[-1])
    return np.asarray(largest + np.log(mean)), np.asarray(error / mean)


def temperatures(count: int) -> Float[np.ndarray, " count"]:
    """`count` inverse temperatures from 0 to 1, denser near 1, as Salakhutdinov & Murray (2008) space 14,500 of them.

    Of 29, 1 goes to [0, 0.5], 8 to [0.5, 0.9] and 20 to [0.9, 1].
    """
    count_of(2, temperatures=count)
    return np.interp(np.linspace(0, 29, count), [0, 1, 9, 29], [0, 0.5, 0.9, 1])
