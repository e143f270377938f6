"""A data set: training and test cases with all that was decided when they were made."""

import dataclasses
import hashlib
from typing import Any, Literal

import jax
import numpy as np

from nvil.data.sparse import MATRIX_ROWS, as_matrix
from nvil.errors import UsageError
from nvil.models import document_lengths
from nvil.rows import Rows, as_rows, as_source

Kind = Literal["binary", "counts", "numbers", "categories"]
Cases = Any
"""One case per row: an array of bits, or `Rows` of another kind; for training also a `Stream`."""


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Training and test cases, one per row.

    - `kind`: "binary", "counts" for the word counts of documents, "numbers" for real ones, or "categories", which are
      one-hot here.
    - `test`: None for a stream.
    - `validation`: where the data set has one of its own; otherwise it is split off the training cases.
    - `image`: the (height, width) of a case where it is a picture.
    - `choices`: what was decided about its values, defaults filled in.
    - `context`: how many columns, the first ones, the others are modelled given; 0 for models of all columns.
    - `categories`: how many columns every variable has, where they are one-hot; else None.
    - `vocabulary`: the words that columns count.
    - `names`: of the variables, where a table has them; for people, no model sees them.
    - `note`: in a few words, what the values were taken for and how the cases were made.
    - `labels`: the class of every case by split, "train" and "test", where that is known; for people, no model sees it.
    - `source`: the named set or the file that it was loaded from; None for what was made in Python, or changed there.
    """

    name: str
    train: Cases
    test: Cases
    kind: Kind = "binary"
    validation: Cases | None = None
    image: tuple[int, int] | None = None
    choices: Any = None
    context: int = 0
    categories: int | None = None
    vocabulary: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None
    note: str = ""
    labels: dict[str, tuple[str, ...]] | None = None
    source: str | None = dataclasses.field(default=None, init=False, compare=False)  # so that `replace` leaves it out

    def loaded_from(self, source: str) -> "Dataset":
        """Itself, knowing where it came from."""
        object.__setattr__(self, "source", source)
        return self

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
        return document_lengths(as_source(self.train).first(), self.context)

    @property
    def fingerprint(self) -> str:
        """Identifies the very bits of the data, so that a run cannot go on with other data unnoticed."""
        return fingerprint(self.train, self.test, self.validation, vocabulary=self.vocabulary)


@as_rows.register
def _(data: Dataset) -> Rows:
    raise UsageError(f"The data set {data.name!r} has several parts: give one of them, its `train` or its `test`.")


def held_out_cases(cases: int) -> int:
    """How many cases are the test set, where data has none of its own: a tenth."""
    return max(1, cases // 10)


def hold_out_places(cases: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The places that `Rows.hold_out(count, seed=0)` takes training and test cases from."""
    train, test = as_rows(np.arange(cases)[:, None]).hold_out(count, seed=0)
    return train.dense().ravel(), test.dense().ravel()


def hold_out_labels(labels: tuple[str, ...], count: int) -> dict[str, tuple[str, ...]]:
    """Labels in the places that `Rows.hold_out(count, seed=0)` gives their cases, as training and test cases."""
    train, test = (tuple(labels[i] for i in rows.tolist()) for rows in hold_out_places(len(labels), count))
    return {"train": train, "test": test}


def fingerprint(*parts: Any, vocabulary: tuple[str, ...] | None = None) -> str:
    """Identifies the very bits of cases; None stands for no cases. A stream's are not known beforehand."""
    digest = hashlib.sha256("\n".join(vocabulary or ()).encode())
    for part in parts:
        if part is None:
            continue
        rows = as_source(part)
        if not isinstance(rows, Rows):
            return f"stream-{rows.first().shape[1]}-{digest.hexdigest()[:8]}"
        digest.update(repr((type(rows).__name__, rows.shape, getattr(rows, "scale", None))).encode())
        for array in jax.tree.leaves(rows):
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def factorial_bound(cases: Cases, context: int = 0, categories: int | None = None) -> float:
    """The log-likelihood per case that no model with independent variables can exceed on these very cases.

    The first `context` columns are given, not modelled. Variables are bits, or one-hot in as many `categories` each.
    """
    rate = as_rows(cases).mean()[context:]
    with np.errstate(divide="ignore", invalid="ignore"):
        off = (1 - rate) * np.log1p(-rate) if categories is None else 0.0
        terms = rate * np.log(rate) + off
    return float(np.sum(np.nan_to_num(terms)))


def independent_bound(train: Cases, test: Cases, context: int = 0, categories: int | None = None) -> float:
    """The log-likelihood per test case of independent variables at their training means, half a case added to each."""
    train = as_rows(train)
    rate = (train.column_sums()[context:] + 0.5) / (train.shape[0] + 0.5 * (categories or 2))
    on = as_rows(test).mean()[context:]
    off = (1 - on) * np.log1p(-rate) if categories is None else 0.0
    return float(np.sum(on * np.log(rate) + off))


def gaussian_bound(train: Cases, test: Cases, context: int = 0) -> float:
    """The log-density per test case of independent Gaussians with the training cases' means and deviations."""
    train, test = as_rows(train), as_rows(test)
    mean, deviation = (each[context:] for each in (train.mean(), column_deviations(train)))
    noise = (np.asarray(test.dense(), float)[:, context:] - mean) / deviation
    return float(np.mean(np.sum(-0.5 * noise**2 - np.log(deviation) - 0.5 * np.log(2 * np.pi), axis=1)))


def column_deviations(rows: Rows) -> np.ndarray:
    """The standard deviation of every column."""
    mean = rows.mean()
    squares = sum(np.sum((np.asarray(block.dense(), float) - mean) ** 2, axis=0) for block in rows.blocks(MATRIX_ROWS))
    return np.sqrt(squares / max(1, rows.shape[0]))


def unigram_bound(train: Cases, test: Cases, context: int = 0) -> tuple[float, float]:
    """Perplexity per document and per word without latents: the words' training frequencies, plus half a count each."""
    frequency = as_rows(train).column_sums()[context:] + 0.5
    log_rate = np.log(frequency / frequency.sum())
    test = as_rows(test).after(context)
    lengths = test.row_sums()
    scores = np.concatenate([as_matrix(block) @ log_rate for block in test.blocks(MATRIX_ROWS)])
    written = lengths > 0
    per_document = np.exp(-np.mean(scores[written] / lengths[written]))
    return float(per_document), float(np.exp(-scores.sum() / lengths.sum()))
