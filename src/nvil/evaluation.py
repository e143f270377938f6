"""The bound of a trained model on data, streamed in blocks so that memory does not grow with data or samples."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nvil.contracts import Pair, bound_of_one_sample
from nvil.domains import COUNTS
from nvil.errors import UsageError, count_of
from nvil.layers import Layer
from nvil.random import seeded_key
from nvil.rows import as_rows, dense_blocks, explained

BLOCK = 500
"""Cases that are evaluated at a time."""
Objective = Callable[[Key[Array, ""], Pair, Any], Float[Array, " cases"]]
"""One unbiased draw per case, given a key, as `Estimator.objective`."""


class Evaluation(NamedTuple):
    """The bound per case, in nats, and how sure it is.

    - `bound`: E_Q[log P(x, h) - log Q(h | x)] averaged over cases and samples. It is the *average* bound of the
      samples, as in the paper, not an importance-weighted one.
    - `bound_se`: its standard error as an estimate for new cases, the standard deviation between cases over
      sqrt(cases); None for a single case.
    - `monte_carlo_se`: the part of the error that more samples would remove (on these very cases); None for one sample.
    """

    bound: float
    bound_se: float | None
    monte_carlo_se: float | None
    samples: int
    cases: int


def evaluate(
    pair: Pair, x: Any, *, samples: int = 10, seed: int = 0, objective: Objective = bound_of_one_sample
) -> Evaluation:
    """Estimate the bound of `pair` on the rows of `x` with `samples` draws from Q for every case.

    `objective` is what is averaged in its place, for estimators that climb another one.
    """
    means, variances = case_bounds(pair, x, samples=samples, seed=seed, objective=objective)
    return _summary(means, variances, samples)


class DocumentEvaluation(NamedTuple):
    """Perplexities, besides the bound. Both are upper bounds, as they put the bound in the place of log P(x).

    - `perplexity`: exp(-1/N sum_n L(x_n) / L_n), the paper's (Section 4.3): the mean over *documents* of the per-word
      bound, so that a short document weighs as much as a long one.
    - `corpus_perplexity`: exp(-sum_n L(x_n) / sum_n L_n), the mean over *words*.
    - `empty_documents`: have no words, and are in neither.
    """

    evaluation: Evaluation
    perplexity: float
    corpus_perplexity: float
    empty_documents: int


def evaluate_documents(pair: Pair, x: Any, *, samples: int = 10, seed: int = 0) -> DocumentEvaluation:
    """Estimate the bound and the perplexities of a document model on rows of word counts."""
    lengths = word_counts(pair, x)
    means, variances = case_bounds(pair, x, samples=samples, seed=seed)
    return DocumentEvaluation(_summary(means, variances, samples), *perplexities(means, lengths))


def word_counts(pair: Pair, x: Any) -> Float[np.ndarray, " cases"]:
    """How many words each document has, for the perplexity of a model of documents."""
    visible = getattr(pair.model, "layers", (None,))[0]
    if isinstance(visible, Layer) and visible.domain != COUNTS:
        raise UsageError(
            "This model explains whether a word is there, not how often, so it has no perplexity; build a document "
            "model with nvil.document_model, or sbn(..., lengths=...)."
        )
    lengths = as_rows(x).after(getattr(pair.model, "given", 0)).row_sums()
    if not np.any(lengths > 0):
        raise UsageError("There are no words to evaluate: every document is empty.")
    return lengths


def perplexities(values: Float[np.ndarray, " cases"], lengths: Float[np.ndarray, " cases"]) -> tuple[float, float, int]:
    """The perplexity, the corpus perplexity and the empty documents, from log P(x) or the bound of every document."""
    written = lengths > 0
    per_document = np.mean(values[written] / lengths[written])
    per_word = np.sum(values[written]) / np.sum(lengths)
    return float(np.exp(-per_document)), float(np.exp(-per_word)), int(np.sum(~written))


def _summary(means: np.ndarray, variances: np.ndarray, samples: int) -> Evaluation:
    cases = len(means)
    between = float(np.std(means, ddof=1) / cases**0.5) if cases > 1 else None
    within = float(np.sqrt(np.mean(variances) / (samples * cases))) if samples > 1 else None
    return Evaluation(float(np.mean(means)), between, within, samples, cases)


def case_bounds(
    pair: Pair, x: Any, *, samples: int = 10, seed: int = 0, objective: Objective = bound_of_one_sample
) -> tuple[Float[np.ndarray, " cases"], Float[np.ndarray, " cases"]]:
    """For every case, the mean and the variance over samples of log P(x, h) - log Q(h | x)."""
    count_of(1, samples=samples)
    key = seeded_key(seed, "evaluation")
    means, variances = in_blocks(
        pair, x, lambda i, rows: block_bounds(pair, rows, samples, jax.random.fold_in(key, i), objective)
    )
    return means, variances


def in_blocks(
    pair: Pair, x: Any, function: Callable[[int, np.ndarray], tuple[Array, ...]]
) -> tuple[Float[np.ndarray, " cases"], ...]:
    """What `function(i, rows)` gives per case for the i-th block of rows, for all rows of `x`."""
    x = explained(pair, as_rows(x).fixed())
    cases = x.shape[0]
    if cases == 0:
        raise UsageError("There are no cases to evaluate.")
    block = min(BLOCK, cases)
    parts = []
    for i, rows in enumerate(dense_blocks(x, block)):
        # The last block is padded to the same shape, so that nothing compiles twice.
        padded = np.concatenate([rows, np.repeat(rows[-1:], block - len(rows), axis=0)])
        parts.append([np.asarray(part, float)[: len(rows)] for part in function(i, padded)])
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


@eqx.filter_jit
def block_bounds(
    pair: Pair, x: Array | np.ndarray, samples: int, key: Key[Array, ""], objective: Objective
) -> tuple[Float[Array, " cases"], Float[Array, " cases"]]:
    x = as_float(x)

    def add(i: Array, moments: tuple[Array, Array]) -> tuple[Array, Array]:
        mean, squares = moments  # Welford's running moments: memory does not grow with the samples
        bounds = objective(jax.random.fold_in(key, i), pair, x)
        new = mean + (bounds - mean) / jnp.asarray(i + 1, mean.dtype)
        return new, squares + (bounds - mean) * (bounds - new)

    zeros = jnp.zeros(x.shape[0], x.dtype)
    mean, squares = jax.lax.fori_loop(0, samples, add, (zeros, zeros))
    return mean, squares / max(1, samples - 1)


def as_float(x: Any) -> Float[Array, "*_"]:
    """Data as stored (for example bytes) in the floating type that the networks compute in."""
    return jnp.asarray(x).astype(float)
