"""A data set: training and test cases with all that was decided when they were made."""

import dataclasses
import hashlib
from typing import Any, Literal

import numpy as np

from nvil.errors import UsageError
from nvil.rows import SparseRows, column_sums, row_sums, select
from nvil.streams import Stream

Kind = Literal["binary", "counts"]
Cases = Any
"""One case a row: an array of bits, `Grey` levels to be binarized at every draw, `SparseRows`, or a `Stream`."""


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Training and test cases, one a row.

    - `kind`: "binary", or "counts" for the word counts of documents.
    - `test`: None for a stream.
    - `validation`: where the data set has one of its own; otherwise it is split off the training cases.
    - `image`: the (height, width) of a case where it is a picture.
    - `choices`: what was decided about its values, defaults filled in.
    - `vocabulary`: the words that columns count.
    - `note`: in a few words, what the values were taken for and how the cases were made.
    """

    name: str
    train: Cases
    test: Cases
    kind: Kind = "binary"
    validation: Cases | None = None
    image: tuple[int, int] | None = None
    choices: Any = None
    vocabulary: tuple[str, ...] | None = None
    note: str = ""

    @property
    def documents(self) -> bool:
        return self.kind == "counts"

    def sizes(self, validation: int) -> tuple[int, int, int]:
        """The numbers of training, validation and test cases, where a run holds `validation` cases out."""
        train, test = self.train.shape[0], self.test.shape[0]
        if self.validation is not None:
            return train, self.validation.shape[0], test
        return train - validation, validation, test

    @property
    def lengths(self) -> tuple[int, ...] | None:
        """A hundred quantiles of the lengths of training documents: those of sampled ones. None for bits."""
        if not self.documents:
            return None
        words = row_sums(self.train.first() if isinstance(self.train, Stream) else self.train)
        if not np.any(words > 0):
            raise UsageError("The first documents are all empty, so that nothing can be learned from their lengths.")
        return tuple(np.quantile(words[words > 0], np.linspace(0.005, 0.995, 100)).round().astype(int).tolist())

    @property
    def fingerprint(self) -> str:
        """Identifies the very bits of the data, so that a run cannot go on with other data unnoticed."""
        digest = hashlib.sha256("\n".join(self.vocabulary or ()).encode())
        if isinstance(self.train, Stream):  # its cases are not known beforehand
            return f"stream-{self.train.width}-{digest.hexdigest()[:8]}"
        for part in (self.train, self.test, self.validation):
            if part is None:
                continue
            digest.update(repr((part.shape, getattr(part, "scale", None))).encode())
            sparse = isinstance(part, SparseRows)
            arrays = (part.values, part.columns, part.begin, part.end) if sparse else (getattr(part, "values", part),)
            for array in arrays:
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]


def held_out(cases: Cases, count: int, *, seed: int) -> tuple[Cases, Cases]:
    """Split `count` random cases off: `(the rest, those)`, each in their old order."""
    order = np.random.default_rng(seed).permutation(cases.shape[0])
    return select(cases, np.sort(order[count:])), select(cases, np.sort(order[:count]))


def factorial_bound(cases: Cases) -> float:
    """The log-likelihood per case that no model with independent variables can exceed on these very cases."""
    rate = column_sums(cases) / cases.shape[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = rate * np.log(rate) + (1 - rate) * np.log1p(-rate)
    return float(np.sum(np.nan_to_num(terms)))


def unigram_bound(train: Cases, test: Cases) -> tuple[float, float]:
    """Perplexity per document and per word without latents: the words' training frequencies, plus half a count each."""
    frequency = column_sums(train) + 0.5
    log_rate = np.log(frequency / frequency.sum())
    lengths = row_sums(test)
    scores = np.concatenate([block @ log_rate for block in test.blocks()])
    written = lengths > 0
    per_document = np.exp(-np.mean(scores[written] / lengths[written]))
    return float(per_document), float(np.exp(-scores.sum() / lengths.sum()))
