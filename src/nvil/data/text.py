"""Text as word counts, through scikit-learn's CountVectorizer."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse

from nvil.data.dataset import held_out_cases, hold_out_places
from nvil.errors import UsageError, choose

WORD = r"(?u)\b[^\W\d_]{2,}\b"
"""A word: two letters or more."""


@dataclasses.dataclass(frozen=True)
class Counted:
    """Word counts of every split in the columns of one vocabulary."""

    splits: dict[str, Any]
    vocabulary: tuple[str, ...]
    note: str
    decided: dict[str, Any]
    """What was left open, and how it was decided."""


FREQUENT = 0.5
"""Words in a larger share of the documents say little about any of them..."""
ENOUGH = 100
"""...where there are at least this many documents to tell."""


def count(
    splits: Mapping[str, Callable[[], Iterator[bytes | str]]],
    *,
    words: int,
    stop_words: str = "english",
    max_df: float | None = None,
    by: Literal["documents", "tokens"] = "documents",
    vocabulary: tuple[str, ...] | None = None,
    encoding: str = "utf-8",
    where: Path | str = "The text",
) -> Counted:
    """Count words, in lower case, in the columns of `vocabulary`, or of one chosen from the training documents.

    These are the first split, or, of "all" documents, those that will not be split off as the test set.
    Chosen are the `words` words that most documents hold (one odd document, such as a binary file sent as text, then
    brings none of its own) or that occur most often (`by` "tokens"), without `stop_words` and without those in a larger
    share of the documents than `max_df`. Columns are in alphabetical order. Bytes that `encoding` does not know are
    replaced, and the note says in how many documents.
    """
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

    choose("list of stop words", stop_words, ("none", "english"))
    damaged = set()

    def decoded(name: str) -> Iterator[str]:
        for i, document in enumerate(splits[name]()):
            if isinstance(document, str):
                yield document
                continue
            try:
                yield document.decode(encoding)
            except UnicodeDecodeError:
                damaged.add((name, i))
                yield document.decode(encoding, errors="replace")

    settings: dict[str, Any] = {"token_pattern": WORD, "dtype": np.int32}
    matrices: dict[str, Any] = {}
    first = next(iter(splits))
    if vocabulary is None:
        counter = CountVectorizer(**settings)
        try:
            every: Any = scipy.sparse.csr_array(counter.fit_transform(decoded(first)))
        except UsageError:
            raise
        except ValueError as error:  # "empty vocabulary"
            raise UsageError(f"{where} holds no words to count.") from error
        names = counter.get_feature_names_out()
        train = every[_training(every.shape[0])] if first == "all" else every
        max_df = (FREQUENT if train.shape[0] >= ENOUGH else 1.0) if max_df is None else max_df
        documents, tokens = np.bincount(train.indices, minlength=train.shape[1]), train.sum(axis=0)
        if not documents.any():
            raise UsageError(f"Every training document of {where} is empty.")
        allowed = (documents > 0) & (documents <= max_df * train.shape[0])
        if stop_words == "english":
            allowed &= ~np.isin(names, list(ENGLISH_STOP_WORDS))
        if not allowed.any():
            raise UsageError(f"{where} holds no words to count but those that `stop_words` or `max_df` leave out.")
        candidates = np.flatnonzero(allowed)
        documents, frequency = documents[candidates], tokens[candidates]
        # By tokens as CountVectorizer does it, also where two words occur equally often: the named sets rest on it.
        order = np.lexsort((-frequency, -documents)) if by == "documents" else np.argsort(-frequency)
        chosen = np.sort(candidates[order[:words]])
        matrices[first] = every[:, chosen]
        vocabulary = tuple(map(str, names[chosen]))
        note = _described(vocabulary, stop_words, max_df, by)
        note += f"; {int(tokens[chosen].sum()):,} of {int(tokens.sum()):,} tokens kept"
    else:
        note = f"words, counted in the {len(vocabulary)} of the vocabulary"
    counter = CountVectorizer(vocabulary=list(vocabulary), **settings)
    for name in splits:
        if name not in matrices:
            matrices[name] = counter.transform(decoded(name))
        if not matrices[name].shape[0]:
            raise UsageError(f"{where} holds no documents.")
    if damaged:
        note += f"; {len(damaged)} documents with bytes that are not {encoding.upper()}, replaced"
    counted = {name: scipy.sparse.csr_array(matrix) for name, matrix in matrices.items()}
    return Counted(counted, vocabulary, note, {"stop_words": stop_words, "max_df": max_df})


def _training(documents: int) -> np.ndarray:
    """The places of the training documents among all."""
    if documents < 2:
        return np.arange(documents)
    return hold_out_places(documents, held_out_cases(documents))[0]


def _described(vocabulary: tuple[str, ...], stop_words: str, max_df: float, by: str) -> str:
    most = "those in most documents" if by == "documents" else "the most frequent"
    left_out = ["English stop words"] if stop_words == "english" else []
    left_out += [f"words in more than {max_df:.0%} of the documents"] if max_df < 1 else []
    text = f"{len(vocabulary)} words, {most}, of two letters or more in lower case"
    return f"{text}, {' and '.join(left_out)} left out" if left_out else text
