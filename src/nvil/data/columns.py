"""The columns of a table: which to leave out, and which look as if they should be."""

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from nvil.errors import UsageError

NOT_DATA = {"label", "labels", "class", "target", "id", "index", "unnamed: 0"}
"""Names, in lower case, of a first or last column that is hardly a variable."""


def kept_columns(
    width: int, names: Sequence[str] | None, drop: Sequence[str], where: Any, expected: int | None = None
) -> list[int] | None:
    """The places of the columns that are left, or None for all of them.

    New cases for a model of `expected` variables may come without what was dropped from its training cases.
    """
    if not drop or width == expected:
        return None
    dropped = set(_places(width, names, drop, where, "to drop"))
    if len(dropped) == width:
        raise UsageError(f"`drop_columns` leaves nothing of the {width} columns of {where}.")
    return [place for place in range(width) if place not in dropped]


def context_first(width: int, names: Sequence[str] | None, given: Sequence[str], where: Any) -> tuple[list[int], int]:
    """The places of all columns, those to condition on first, and how many these are."""
    context = list(dict.fromkeys(_places(width, names, given, where, "to condition on")))
    if len(context) == width:
        raise UsageError(f"`given` leaves nothing to model of the {width} columns of {where}.")
    chosen = set(context)
    return context + [place for place in range(width) if place not in chosen], len(context)


def _places(width: int, names: Sequence[str] | None, columns: Sequence[str], where: Any, purpose: str) -> list[int]:
    """The places of columns that are named by places, by ranges of places, or by names in the header."""
    found = []
    for column in columns:
        if re.fullmatch(r"-?\d+", column):
            ends = int(column), int(column)
        elif column in (names or ()):
            found += [place for place, name in enumerate(names or ()) if name == column]
            continue
        elif match := re.fullmatch(r"(\d+)-(\d+)", column):
            ends = int(match[1]), int(match[2])
        else:
            shown = f"its columns are {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}" if names else None
            raise UsageError(
                f"{where} has no column {column!r} {purpose}; "
                f"{shown or 'its columns have no names, only places from 0'}."
            )
        if not (-width <= ends[0] <= ends[1] < width):
            raise UsageError(f"{where} has no column {column} {purpose}; it has {width}, the first is 0.")
        found += [place % width for place in range(ends[0], ends[1] + 1)]
    return found


def odd_column(rows: np.ndarray, names: Sequence[str] | None) -> tuple[int, str] | None:
    """The place of a first or last column that looks like a label or an index, and why; None where there is none."""
    cases, width = rows.shape
    if width < 3 or not np.all(np.isfinite(rows)):
        return None
    for place in (0, width - 1):
        if names and names[place].lower() in NOT_DATA:
            return place, f"its name is {names[place]!r}"
    whole = [place for place in (0, width - 1) if np.array_equal(rows[:, place], np.round(rows[:, place]))]
    for place in whole:
        column = rows[:, place].astype(float)
        if cases >= 10 and column[0] in (0, 1) and np.all(np.diff(column) == 1):
            return place, "it counts the cases"
    highest = rows.max(axis=0).astype(float)
    for place in whole:
        usual = np.delete(highest, place).max()
        if highest[place] >= 2 * usual > 0:
            return place, f"whole numbers up to {highest[place]:g}, where no other value is above {usual:g}"
    if math.isqrt(width - 1) ** 2 == width - 1 > 9:
        for place in whole:
            usual = np.delete(highest, place).max()
            few = len(np.unique(rows[:, place])) <= min(100, cases // 2)
            if few and 1 < highest[place] != usual:
                beside = f"beside a square of {width - 1} with values up to {usual:g}"
                return place, f"whole numbers up to {highest[place]:g}, {beside}"
    return None


def named_by_number(names: Sequence[str] | None) -> bool:
    """Whether columns have no names, or names that differ in numbers alone, as those of pixels do (pixel0, 3x7)."""
    return len({re.sub(r"\d+", "0", name) for name in names or ("",)}) == 1


def said(place: int, why: str, names: Sequence[str] | None) -> str:
    """What to say of an odd column."""
    return (
        f"column {called(place, names)} is unlike the rest ({why}): if it is a label or an index, "
        f"{leave_out(place, names)}"
    )


def telling(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Names of columns, unless they are only numbers, which say nothing."""
    return None if all(map(str.isdecimal, names or ())) else tuple(names or ())


def in_order(names: Sequence[str], known: Sequence[str], where: Any) -> list[int]:
    """The places of columns with these `names` in the order that a model knows them in."""
    if sorted(names) == sorted(known) and len(set(names)) == len(names):
        return [names.index(name) for name in known]
    missing = next((name for name in known if name not in names), None)
    lacks = "the columns that the model knows" if missing is None else f"the column {missing!r}, which the model knows"
    raise UsageError(
        f"{where} does not have {lacks}: rename its columns, or leave their names out where they are in the order of "
        "the training data."
    )


def called(place: int, names: Sequence[str] | None) -> str:
    """A column by its place, and by its name where it has one."""
    return f"{place}, {names[place]!r}," if names and names[place] else str(place)


def leave_out(place: int, names: Sequence[str] | None) -> str:
    """What to do about a column that cannot be modelled."""
    name = names[place] if names else ""
    typed = name if re.fullmatch(r"[^\W\d]\w*", name) else str(place)
    return f'leave it out with `drop_columns="{typed}"`'
