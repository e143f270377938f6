"""Lines of text as a stream of cases."""

import itertools
import re
from collections.abc import Iterable, Iterator

import numpy as np

from nvil.data.choices import Choices
from nvil.data.streams import Stream
from nvil.data.text import WORD
from nvil.errors import UsageError


def from_lines(lines: Iterable[str], choices: Choices, vocabulary: tuple[str, ...] | None = None) -> Stream:
    """A stream of lines, one case each.

    A line holds numbers with spaces, commas or tabs between them; or pairs `column:count`, columns counted from
    `choices.first_index`, of which there are `choices.columns`; or, with a `vocabulary`, the text of a document.
    """
    lines = (line for line in lines if line.strip() or vocabulary is not None)
    if choices.binarize not in (None, "none") and (vocabulary is not None or choices.columns is not None):
        raise UsageError("`binarize` is for lines of numbers, not for pairs or text.")
    if vocabulary is not None:
        return Stream(_counted(lines, vocabulary), "counts")
    first = next(iter(lines), None)
    if first is None:
        raise UsageError("The stream ended before its first case.")
    lines = itertools.chain([first], lines)
    if ":" in first or choices.columns is not None:
        if choices.columns is None:
            raise UsageError("Lines of column:count pairs do not say how many columns there are; give `columns`.")
        return Stream(
            _pairs(lines, choices.columns, choices.first_index), "binary" if choices.values == "binary" else "counts"
        )
    return Stream(_numbers(lines, choices), "counts" if choices.values == "counts" else "binary")


def _numbers(lines: Iterable[str], choices: Choices) -> Iterator[np.ndarray]:
    random = np.random.default_rng(0)
    if choices.binarize == "threshold" and choices.threshold is None:
        raise UsageError("A stream's smallest and largest values are not known beforehand; give `threshold`.")
    if choices.binarize == "stochastic" and choices.white is None:
        raise UsageError("A stream's largest value is not known beforehand; give `white`.")
    for number, line in enumerate(lines, 1):
        try:
            row = np.asarray([float(cell) for cell in re.split(r"[\s,]+", line.strip())])
        except ValueError as error:
            raise UsageError(f"Line {number} of the stream is not numbers: {line.strip()[:40]!r}.") from error
        highest = choices.white if choices.binarize == "stochastic" else np.inf
        lowest = 0 if choices.binarize == "stochastic" else -np.inf
        if not np.all(np.isfinite(row) & (row >= lowest) & (row <= highest)):
            raise UsageError(
                f"Line {number} of the stream has a value that cannot be made binary: {line.strip()[:40]!r}."
            )
        if choices.binarize == "threshold":
            row = row >= choices.threshold
        elif choices.binarize == "stochastic":
            row = random.random(len(row)) < row / choices.white
        yield row


def _pairs(lines: Iterable[str], columns: int, first_index: int) -> Iterator[np.ndarray]:
    for number, line in enumerate(lines, 1):
        row = np.zeros(columns, np.float32)
        for i, pair in enumerate(line.split()):
            place, separator, count = pair.partition(":")
            if not separator and i == 0:  # a label, as svmlight has it
                continue
            try:
                column, value = int(place) - first_index, float(count)
            except ValueError as error:
                raise UsageError(f"Line {number} of the stream has {pair!r} where column:count is needed.") from error
            if not 0 <= column < columns:
                raise UsageError(f"Line {number} of the stream has a column {place}, but there are only {columns}.")
            row[column] += value
        yield row


def _counted(lines: Iterable[str], vocabulary: tuple[str, ...]) -> Iterator[np.ndarray]:
    column = {word: i for i, word in enumerate(vocabulary)}
    for line in lines:
        row = np.zeros(len(vocabulary), np.float32)
        for word in re.findall(WORD, line.lower()):
            if word in column:
                row[column[word]] += 1
        yield row
