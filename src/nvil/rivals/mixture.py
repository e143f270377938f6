"""MoB: a mixture of factorial Bernoulli distributions, trained by EM.

    log P(x) = log sum_k w_k prod_d p_kd^x_d (1 - p_kd)^(1 - x_d)

    E-step: r_nk = P(k | x_n)
    M-step: w_k  = (sum_n r_nk + s) / (N + K s)
            p_kd = (sum_n r_nk x_nd + s) / (sum_n r_nk + 2 s)

`smoothing` s adds s imaginary cases to each component and s imaginary 1s and 0s to each of its pixels. So EM climbs the
log-likelihood plus `log_prior`, that of Dirichlet(1 + s) and Beta(1 + s, 1 + s) priors, and never lowers it.

Salakhutdinov & Murray (2008), "On the quantitative analysis of deep belief networks", give 137.6 nats for 500
components on binarized MNIST.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from nvil.errors import above_zero, count_of
from nvil.rivals.checks import binary_cases
from nvil.rivals.early_stopping import Report, train


@dataclass(frozen=True)
class Settings:
    components: int = 500
    smoothing: float = 0.1
    epochs: int = 100
    patience: int = 5
    block: int = 1000


class Parameters(NamedTuple):
    log_weights: Float[Array, " components"]
    logits: Float[Array, "components pixels"]


def fit(
    x: np.ndarray,
    settings: Settings | None = None,
    *,
    validation: np.ndarray | None = None,
    seed: int = 0,
    report: Report | None = None,
) -> Parameters:
    """An epoch is one iteration of EM; `report` is called with (epoch, mean log-likelihood per case)."""
    settings = settings or Settings()
    count_of(1, components=settings.components, epochs=settings.epochs, block=settings.block)
    above_zero(smoothing=settings.smoothing)
    x = binary_cases(x)
    held = x[:1000] if validation is None else binary_cases(validation, x.shape[1])
    blocks, weights = _in_blocks(x, settings.block)
    return train(
        start(x, settings, seed),
        lambda parameters, _: em_step(parameters, blocks, weights, settings.smoothing),
        lambda parameters: float(np.mean(log_prob(parameters, held))),
        epochs=settings.epochs,
        patience=settings.patience,
        validated=validation is not None,
        report=report,
    )


def log_prob(
    parameters: Parameters, x: Num[np.ndarray, "cases pixels"], *, block: int = 1000
) -> Float[np.ndarray, " cases"]:
    """log P(x), exact, one number per case."""
    x = binary_cases(x, parameters.logits.shape[1])
    parts = [_log_prob(parameters, jnp.asarray(x[i : i + block])) for i in range(0, len(x), block)]
    return np.concatenate([np.asarray(part) for part in parts])


def log_prior(parameters: Parameters, smoothing: float) -> float:
    """s sum_k log w_k + s sum_kd log p_kd (1 - p_kd): what EM adds to the log-likelihood of all cases."""
    pixels = jax.nn.log_sigmoid(parameters.logits) + jax.nn.log_sigmoid(-parameters.logits)
    return smoothing * float(jnp.sum(parameters.log_weights) + jnp.sum(pixels))


def start(x: np.ndarray, settings: Settings, seed: int) -> Parameters:
    """Equal weights; each component halfway between the mean case and a case drawn at random, that one blurred."""
    rng = np.random.default_rng(seed)
    drawn = rng.choice(len(x), settings.components, replace=len(x) < settings.components)
    means = 0.5 * (np.mean(x, axis=0) * 0.98 + 0.01) + 0.5 * (0.25 + 0.5 * x[drawn])
    log_weights = jnp.full(settings.components, -np.log(settings.components), jnp.float32)
    return Parameters(log_weights, jnp.asarray(np.log(means) - np.log1p(-means), jnp.float32))


@jax.jit
def em_step(
    parameters: Parameters,
    blocks: Num[Array, "blocks block pixels"],
    weights: Float[Array, "blocks block"],
    smoothing: float | Float[Array, ""],
) -> Parameters:
    """One E-step over all blocks of cases, then the M-step. A case of weight 0 is not there."""

    def add(totals: tuple[Array, Array], block: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        cases, weight = block[0].astype(parameters.logits.dtype), block[1]
        share = jax.nn.softmax(_joint(parameters, cases), axis=-1) * weight[:, None]
        return (totals[0] + jnp.sum(share, axis=0), totals[1] + share.T @ cases), None

    nothing = (jnp.zeros_like(parameters.log_weights), jnp.zeros_like(parameters.logits))
    (count, ones), _ = jax.lax.scan(add, nothing, (blocks, weights))
    zeros = count[:, None] - ones
    logits = jnp.log(ones + smoothing) - jnp.log(jnp.maximum(zeros, 0) + smoothing)
    log_weights = jnp.log(count + smoothing)
    return Parameters(log_weights - jax.nn.logsumexp(log_weights), logits)


def _joint(parameters: Parameters, x: Float[Array, "cases pixels"]) -> Float[Array, "cases components"]:
    """log P(x, k) = log w_k + x . a_k - sum_d log(1 + exp a_kd), a the log-odds of p."""
    constant = parameters.log_weights - jnp.sum(jax.nn.softplus(parameters.logits), axis=-1)
    return x @ parameters.logits.T + constant


@jax.jit
def _log_prob(parameters: Parameters, x: Num[Array, "cases pixels"]) -> Float[Array, " cases"]:
    return jax.nn.logsumexp(_joint(parameters, x.astype(parameters.logits.dtype)), axis=-1)


def _in_blocks(x: np.ndarray, block: int) -> tuple[Array, Array]:
    block = min(block, len(x))
    blocks = -(-len(x) // block)
    padded = np.zeros((blocks * block, x.shape[1]), x.dtype)
    padded[: len(x)] = x
    weights = (np.arange(blocks * block) < len(x)).astype(np.float32)
    return jnp.asarray(padded.reshape(blocks, block, -1)), jnp.asarray(weights.reshape(blocks, block))
