"""What the values of a file are: bits, grey levels to be made bits, word counts, real numbers, or categories."""

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import scipy.sparse

from nvil.data.choices import Choices
from nvil.data.columns import called, leave_out, odd_column, said
from nvil.data.dataset import Kind
from nvil.data.grey import Grey
from nvil.data.readers import Contents
from nvil.data.sparse import SparseRows, sparse_rows
from nvil.domains import BINARY
from nvil.errors import UsageError
from nvil.rows import as_rows

log = logging.getLogger("nvil")
MOST_CATEGORIES = 1000
"""Of a variable: a column with more is hardly one of categories, and each is a column of every variable."""
BINARIZE = 'say how to make them binary with `binarize="threshold"` or `binarize="stochastic"`'


def kind_of(contents: Contents, where: Any, choices: Choices) -> Kind:
    """What the user says the values are; by itself binary or counts, where there is no doubt."""
    if choices.values != "auto":
        return cast("Kind", choices.values)  # as it was checked to be
    if choices.binarize not in (None, "none"):
        return "binary"
    if contents.vocabulary is not None:
        return "counts"
    parts = list(contents.splits.values())
    if not any(isinstance(part, SparseRows) for part in parts):
        for part in parts:
            _check_dense(part, where, contents.names, pictures=contents.image is not None)
        return "binary"
    if all(np.all(BINARY.allows(part.values)) for part in parts):
        raise UsageError(
            f'Every value stored in {where} is 1: say `values="binary"` for variables that are on or off, '
            'or `values="counts"` for the words of documents.'
        )
    return "counts"


def as_counts(rows: Any, where: Any) -> SparseRows:
    """Word counts, whole numbers from 0 up, as sparse rows."""
    rows = rows if isinstance(rows, SparseRows) else sparse_rows(scipy.sparse.csr_array(rows))
    values = rows.values
    if values.dtype.kind != "u" and (
        not np.all(np.isfinite(values)) or np.any(values < 0) or np.any(values != np.round(values))
    ):
        raise UsageError(
            f"{where} must hold word counts, whole numbers from 0 up, but holds other values; "
            "if they are not counts, say how to make them binary with `binarize`."
        )
    if values.max(initial=0) < 2**24:  # whole numbers up to there are exact in single precision
        return rows
    raise UsageError(f"{where} must hold word counts, but holds one of {values.max():g}.")


def as_grey(rows: Any, where: Any, choices: Choices) -> Grey:
    """Grey levels from 0 to `choices.white`."""
    rows = _dense(rows)
    _check_finite(rows, where)
    assert choices.white is not None
    if rows.min() < 0 or rows.max() > choices.white:
        raise UsageError(
            f"{where} has values from {rows.min():g} to {rows.max():g}; stochastic binarization reads values from 0 to "
            f"`white` ({choices.white:g}) as probabilities."
        )
    return Grey(rows, choices.white)


def as_binary(rows: Any, where: Any, choices: Choices) -> Any:
    """Bytes in {0, 1}: rows that are binary already, or thresholded ones."""
    if choices.binarize == "threshold":
        assert choices.threshold is not None
        if isinstance(rows, SparseRows) and choices.threshold > 0:  # what is not stored stays off
            _check_finite(rows.values[None], where)
            on = (rows.values >= choices.threshold).astype(np.uint8)
            return dataclasses.replace(rows, values=on)
        rows = _dense(rows)
        _check_finite(rows, where)
        return (rows >= choices.threshold).astype(np.uint8)
    if isinstance(rows, SparseRows):
        if not np.all(BINARY.allows(rows.values)):
            raise UsageError(f'{where} has values other than 0 and 1; {BINARIZE}, or say `values="counts"`.')
        return rows
    _check_dense(rows, where)
    return rows.astype(np.uint8)


def as_numbers(rows: Any, where: Any) -> np.ndarray:
    """Finite numbers in single precision."""
    rows = _dense(rows)
    _check_finite(rows, where)
    return rows.astype(np.float32)


def as_categories(rows: Any, where: Any) -> np.ndarray:
    """The numbers of categories, from 0, not one-hot yet: how many there are is known of all parts together."""
    rows = _dense(rows)
    _check_finite(rows, where)
    wrong = (rows < 0) | (rows != np.round(rows))
    if np.any(wrong):
        row, column = np.argwhere(wrong)[0]
        raise UsageError(
            f"{where} must hold the numbers of categories, whole numbers from 0 up, but has {rows[row, column]:g} at "
            f"row {row}, column {column} (from 0)."
        )
    return rows


def count_categories(parts: list[np.ndarray], where: Any, names: tuple[str, ...] | None, places: Sequence[int]) -> int:
    """How many categories a variable has: as many as the one that has most. `places` are those in the file."""
    highest = np.max([part.max(axis=0) for part in parts], axis=0)
    column = int(np.argmax(highest))
    if highest[column] >= MOST_CATEGORIES:
        place = places[column]
        raise UsageError(
            f"Column {called(place, names)} of {where} holds {highest[column]:g}, and categories are numbered from 0 "
            f"to at most {MOST_CATEGORIES - 1}; if it does not hold categories, {leave_out(place, names)}."
        )
    if highest[column] == 0:
        raise UsageError(f"Every value of {where} is 0, so there is a single category, and nothing to model.")
    return int(highest[column]) + 1


def one_hot_rows(rows: np.ndarray, categories: int, where: Any) -> np.ndarray:
    """`categories` columns of bytes for every variable, a single 1 among them."""
    beyond = rows >= categories
    if np.any(beyond):
        row, column = np.argwhere(beyond)[0]
        raise UsageError(
            f"{where} has the category {rows[row, column]:g} at row {row}, column {column} (from 0), but the model was "
            f"trained on categories from 0 to {categories - 1}."
        )
    on = np.zeros((*rows.shape, categories), np.uint8)
    np.put_along_axis(on, rows.astype(np.int64)[..., None], 1, axis=-1)
    return on.reshape(len(rows), -1)


def check_deviations(rows: np.ndarray, where: Any, names: tuple[str, ...] | None, places: Sequence[int]) -> None:
    """Refuse a column of one value alone, of which a Gaussian can make the density as large as it likes.

    `places` are those of the columns in the file.
    """
    same = np.flatnonzero(np.ptp(rows, axis=0) == 0)
    if len(same):
        place = places[same[0]]
        raise UsageError(
            f"Column {called(place, names)} of {where} is the same in every training case, so there is nothing to "
            f"model; {leave_out(place, names)}."
        )


def value_range(rows: Any) -> tuple[float, float]:
    """The smallest and the largest value, 0 included for sparse rows."""
    if isinstance(rows, SparseRows):
        return min(0.0, float(rows.values.min())), max(0.0, float(rows.values.max()))
    return float(rows.min()), float(rows.max())


def stacked(parts: list[Any]) -> Any:
    """The rows of several parts, one after another."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], SparseRows):
        return sparse_rows(scipy.sparse.vstack([part.matrix() for part in parts]))
    return np.concatenate(parts)


def _dense(rows: Any) -> np.ndarray:
    return rows.matrix().toarray() if isinstance(rows, SparseRows) else rows


def _check_finite(rows: np.ndarray, where: Any) -> None:
    if rows.dtype.kind == "f" and not np.all(np.isfinite(rows)):
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise UsageError(f"{where} has a value that is not a finite number, at row {row}, column {column} (from 0).")


def _check_dense(rows: np.ndarray, where: Any, names: tuple[str, ...] | None = None, *, pictures: bool = False) -> None:
    """Refuse values other than 0 and 1, with a hint at what they may be."""
    _check_finite(rows, where)
    outside = ~BINARY.allows(rows)
    if not np.any(outside):
        return
    row, column = np.argwhere(outside)[0]
    whole = not pictures and rows.min() >= 0 and np.array_equal(rows, np.round(rows))
    first = f"{where} has values other than 0 and 1, first {rows[row, column]:g} at row {row}, column {column} (from 0)"
    if (odd := odd_column(rows, names)) is not None:
        others = (
            "the others are 0 and 1 alone" if not np.any(np.delete(outside, odd[0], axis=1)) else f"then {BINARIZE}"
        )
        raise UsageError(f"{first}; {said(*odd, names)}; {others}.")
    if whole:
        other = 'if they are word counts, say `values="counts"`, or `values="categories"` if they are numbers of those'
    else:
        other = 'to model them as they are, say `values="numbers"`'
    raise UsageError(f"{first}; {BINARIZE}, or, {other}.")


def check_columns(parts: list[Any], contents: Contents, where: Any, choices: Choices) -> None:
    """Before a default is taken from the values, refuse a label or an index among them; else only tell of it."""
    rows = parts[0]
    odd = None if isinstance(rows, SparseRows) else odd_column(rows, contents.names)
    if odd is None:
        return
    name = {"threshold": "threshold", "stochastic": "white"}.get(choices.binarize or "")
    text = f"{where}: {said(*odd, contents.names)}"
    if name is not None and getattr(choices, name) is None:
        raise UsageError(f"{text}; if it is data like the rest, give `{name}`.")
    log.warning("%s.", text)


def check_varied(parts: list[Any], where: Any, choices: Choices, *, given: bool) -> None:
    """Refuse a threshold that leaves (almost) every variable the same in all cases; one that was `given` may pass."""
    width = parts[0].shape[1]
    on = sum(as_rows(part).column_sums() for part in parts)
    varied = int(np.sum((on > 0) & (on < sum(part.shape[0] for part in parts))))
    if varied > width // 20:
        return
    same = f"{width - varied} of the {width} variables of {where} are the same in every case"
    text = f"With a threshold of {choices.threshold:g}, {same}"
    if not given or not varied:
        raise UsageError(
            f"{text}; give a `threshold` among the values of most variables, or drop columns that are not data."
        )
    log.warning("%s.", text)
