"""Text as word counts, through scikit-learn's CountVectorizer."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from nvil.errors import UsageError, choose

WORD = r"(?u)\b[^\W\d_]{2,}\b"
"""A word: two letters or more."""


@dataclasses.dataclass(frozen=True)
class Counted:
    """Word counts of every split in the columns of one vocabulary."""

    splits: dict[str, Any]
    vocabulary: tuple[str, ...]
    note: str


def count(
    splits: Mapping[str, Callable[[], Iterator[bytes | str]]],
    *,
    words: int,
    stop_words: str = "none",
    vocabulary: tuple[str, ...] | None = None,
    encoding: str = "utf-8",
    where: Path | str = "The text",
) -> Counted:
    """Count words, in lower case: the `words` most frequent of the first split, or those of `vocabulary`.

    Columns are in alphabetical order. Bytes that `encoding` does not know are replaced, and the note says in how many
    documents.
    """
    from sklearn.feature_extraction.text import CountVectorizer

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
        counter = CountVectorizer(
            max_features=words, stop_words=None if stop_words == "none" else stop_words, **settings
        )
        try:
            matrices[first] = counter.fit_transform(decoded(first))
        except ValueError as error:  # "empty vocabulary"
            raise UsageError(f"{where} holds no words to count.") from error
        vocabulary = tuple(map(str, counter.get_feature_names_out()))
        note = f"words, the {len(vocabulary)} most frequent, of two letters or more in lower case"
        note += ", English stop words left out" if stop_words == "english" else ""
    else:
        counter = CountVectorizer(vocabulary=list(vocabulary), **settings)
        note = f"words, counted in the {len(vocabulary)} of the vocabulary"
    for name in splits:
        if name not in matrices:
            matrices[name] = counter.transform(decoded(name))
        if not matrices[name].shape[0]:
            raise UsageError(f"{where} holds no documents.")
    if damaged:
        note += f"; {len(damaged)} documents with bytes that are not {encoding.upper()}, replaced"
    return Counted({name: scipy.sparse.csr_array(matrix) for name, matrix in matrices.items()}, vocabulary, note)
