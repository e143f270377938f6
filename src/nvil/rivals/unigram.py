"""The unigram model: every word is drawn from the same distribution, the smoothed word frequencies of the training set.

    log P(x) = sum_w x_w log p_w,   p_w = (n_w + 1/2) / (N + V/2)

n_w counts word w in all N words of the training documents, V is the size of the vocabulary. It is what a document
model with latent variables must beat.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from nvil.errors import above_zero
from nvil.rivals.checks import Documents, document_lengths, word_counts
from nvil.rivals.early_stopping import Report
from nvil.rivals.perplexity import mean_rate


@dataclass(frozen=True)
class Settings:
    smoothing: float = 0.5


class Parameters(NamedTuple):
    log_frequencies: Float[np.ndarray, " words"]


def fit(
    x: Documents,
    settings: Settings | None = None,
    *,
    validation: Documents | None = None,
    seed: int = 0,
    report: Report | None = None,
) -> Parameters:
    """`report` is called once, with (1, mean over documents of log P per word); `seed` changes nothing."""
    settings = settings or Settings()
    above_zero(smoothing=settings.smoothing)
    counts = word_counts(x)
    totals = np.asarray(counts.sum(axis=0)).ravel() + settings.smoothing
    parameters = Parameters(np.log(totals) - np.log(np.sum(totals)))
    if report:
        held = counts if validation is None else word_counts(validation, counts.shape[1])
        report(1, mean_rate(log_prob(parameters, held), document_lengths(held)))
    return parameters


def log_prob(parameters: Parameters, x: Documents) -> Float[np.ndarray, " documents"]:
    """log P(x), exact, one number per document."""
    return word_counts(x, len(parameters.log_frequencies)) @ parameters.log_frequencies
