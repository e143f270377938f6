"""The two perplexities of a document model: the paper's, in which every document counts alike, and per word."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Num

from nvil.errors import UsageError


class Perplexities(NamedTuple):
    per_document: float
    per_word: float


def perplexities(log_probs: Num[np.ndarray, " documents"], lengths: Num[np.ndarray, " documents"]) -> Perplexities:
    """exp(-1/N sum_n log P(x_n) / L_n), which the paper reports (Section 4.3), and exp(-sum_n log P(x_n) / sum_n L_n).

    Empty documents are left out.
    """
    rates, lengths = _rates(log_probs, lengths)
    per_word = np.sum(rates * lengths) / np.sum(lengths)
    return Perplexities(float(np.exp(-np.mean(rates))), float(np.exp(-per_word)))


def mean_rate(log_probs: Num[np.ndarray, " documents"], lengths: Num[np.ndarray, " documents"]) -> float:
    """1/N sum_n log P(x_n) / L_n over documents that are not empty: minus the logarithm of the paper's perplexity."""
    return float(np.mean(_rates(log_probs, lengths)[0]))


def perplexity_errors(log_probs: Num[np.ndarray, " documents"], lengths: Num[np.ndarray, " documents"]) -> Perplexities:
    """The standard errors of both, the documents being a random sample: for figures from a few documents of many.

    A change e of the logarithm changes a perplexity p by p e; the logarithm is a mean over documents, or a ratio of
    two such means.
    """
    rates, lengths = _rates(log_probs, lengths)
    if len(rates) < 2:
        raise UsageError("Standard errors need at least 2 documents that are not empty, got 1.")
    per_document, per_word = perplexities(rates * lengths, lengths)
    residuals = lengths * (rates + np.log(per_word)) / np.mean(lengths)
    root = np.sqrt(len(rates))
    return Perplexities(
        float(per_document * np.std(rates, ddof=1) / root), float(per_word * np.std(residuals, ddof=1) / root)
    )


def _rates(log_probs: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    log_probs, lengths = np.asarray(log_probs, np.float64), np.asarray(lengths, np.float64)
    if log_probs.shape != lengths.shape or log_probs.ndim != 1:
        raise UsageError(f"One length per log-probability is needed, got {lengths.shape} for {log_probs.shape}.")
    written = lengths > 0
    if not written.any():
        raise UsageError("No document has any words.")
    return log_probs[written] / lengths[written], lengths[written]
