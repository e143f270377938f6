"""Loading: named sets, the user's own files, and arrays, made ready for training.

Models here are of binary data, word counts, real numbers and categories. What the values of a file were taken for is
always said, and how other values become binary is always a stated choice.
"""

import dataclasses
import io
import math
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nvil.data.choices import Choices
from nvil.data.columns import context_first, in_order, kept_columns, named_by_number, telling
from nvil.data.dataset import Cases, Dataset, Kind, held_out_cases, hold_out_labels
from nvil.data.lines import from_lines
from nvil.data.readers import Contents, case_names, checked_rows, read, without_columns
from nvil.data.registry import NAMED
from nvil.data.sparse import SparseRows, sparse_rows
from nvil.data.streams import Stream
from nvil.data.values import (
    as_binary,
    as_categories,
    as_counts,
    as_grey,
    as_numbers,
    check_columns,
    check_deviations,
    check_varied,
    count_categories,
    kind_of,
    one_hot_rows,
    stacked,
    value_range,
)
from nvil.errors import UsageError, choose
from nvil.rows import as_rows, plain


def load(source: Any, choices: Choices | None = None, *, test: Any = None, **more: Any) -> Dataset:
    """Load a named set, a file or folder, or anything that holds one case per row, as training and test cases.

    **Arguments:**

    - `source`: a name (`nvil data list`), a path, an array, a SciPy sparse matrix, a data frame, a `Stream`, or "-" for
      a stream of lines from standard input.
    - `test`: test cases, for an array; without them a tenth of the cases, always the same, are held out.
    - `choices`: or, one by one, the fields of `Choices`, which win over those of `choices`.

    !!! example

        >>> data = load("digits")
        >>> data.train.shape, data.test.shape, data.note
        ((1500, 64), (297, 64), 'a pixel is on where its ink is at least 8 of 16')
        >>> import numpy as np
        >>> load(np.eye(20)).note
        'binary: every value is 0 or 1'
    """
    for name in more.keys() & {"drop_columns", "given"}:
        which = more[name]
        more[name] = tuple(map(str, (which,) if isinstance(which, str | int) else which))
    for name in more:
        choose("keyword argument", name, Choices.__dataclass_fields__)
    choices = dataclasses.replace(choices or Choices(), **more).checked()
    if test is not None and isinstance(source, str | os.PathLike | Stream | Iterator):
        raise UsageError("`test` is for training cases that are an array; leave it out, or load the cases first.")
    if isinstance(source, str) and source in NAMED:
        named = NAMED[source]
        if named.grey:
            choices = dataclasses.replace(choices, binarize=choices.binarize or "stochastic")
        elif choices.binarize not in (None, "none"):
            raise UsageError(f"The data set {source!r} has no grey levels to binarize; leave `binarize` out.")
        if choices.of_text():
            raise UsageError(f"The words of the data set {source!r} are fixed; leave `words` and the like out.")
        if choices.drop_columns:
            raise UsageError(f"The columns of the data set {source!r} are fixed; leave `drop_columns` out.")
        if choices.given and named.context:
            raise UsageError(f"What the data set {source!r} is modelled given is fixed; leave `given` out.")
        kind = "counts" if named.prepare else "binary"
        if choices.values not in ("auto", kind):
            raise UsageError(f"The values of the data set {source!r} are {kind}; leave `values` out.")
        return _dataset(named.load(), source, choices).loaded_from(source)
    if isinstance(source, str) and source == "-":
        return _streamed(source, choices).loaded_from(source)
    if isinstance(source, Stream):
        return _streamed(source, choices)
    if isinstance(source, Iterator):
        return _streamed(Stream(source, "counts" if choices.values == "counts" else "binary"), choices)
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if not path.suffix and not path.exists():
            choose("data set", str(source), NAMED)
        contents = read(path, choices, vocabulary=choices.read_vocabulary())
        return _dataset(contents, path, choices).loaded_from(str(path.resolve()))
    given = {"all": source} if test is None else {"train": source, "test": test}
    parts = {name: _table(part, choices) for name, part in given.items()}
    if len({rows.shape[1] for rows, _ in parts.values()}) > 1:
        raise UsageError("The training and the test cases have different numbers of columns.")
    names = next(iter(parts.values()))[1]
    splits = {name: rows for name, (rows, _) in parts.items()}
    if test is not None:
        splits |= _by_name(Contents({"test": splits["test"]}, names=parts["test"][1]), names, "The test data").splits
    return _dataset(Contents(splits, names=names), "The data", choices)


def _table(source: Any, choices: Choices, width: int | None = None) -> tuple[Any, tuple[str, ...] | None]:
    """What someone holds in Python as rows of numbers, and the names of its columns where it has any."""
    where = "The data"
    if hasattr(source, "iloc") and not hasattr(source, "columns"):
        raise UsageError(f"The data must have one case per row, got a series of shape {source.shape}.")
    names = tuple(map(str, source.columns)) if hasattr(source, "iloc") else None
    if names is None:
        rows = plain(as_rows(source))
        if len(rows.shape) != 2 or 0 in rows.shape:
            raise UsageError(f"The data must have one case per row, got an array of shape {rows.shape}.")
        rows = checked_rows(rows, where)
        return (without_columns(rows, choices.drop_columns, where, width) if choices.drop_columns else rows), None
    kept = kept_columns(len(names), names, choices.drop_columns, where, width)
    frame = source if kept is None else source.iloc[:, kept]
    names = names if kept is None else tuple(names[i] for i in kept)
    for place, name in enumerate(names):
        try:
            if getattr(frame.dtypes.iloc[place], "kind", None) == "c":
                raise TypeError("complex numbers")
            frame.iloc[:, [place]].to_numpy(float, na_value=math.nan)
        except (ValueError, TypeError) as error:
            raise UsageError(
                f"The column {name!r} of the data does not hold numbers; if it is not data, leave it out with "
                f'`drop_columns="{name}"`.'
            ) from error
    if 0 in frame.shape:
        raise UsageError(f"The data must have one case per row, got a frame of shape {frame.shape}.")
    return checked_rows(plain(as_rows(frame)), where), names


def load_cases(
    source: Any,
    choices: Choices,
    *,
    visible: int,
    kind: Kind,
    categories: int | None = None,
    vocabulary: tuple[str, ...] | None = None,
    names: tuple[str, ...] | None = None,
) -> Cases:
    """All cases of a named set, a file or an array for a trained model, made what its own data was made.

    That was by the run's resolved `choices`. Where its columns had `names`, those of a table may come in any order.
    """
    visible //= categories or 1
    if isinstance(source, str | os.PathLike) and str(source) in NAMED:
        contents, where = NAMED[str(source)].load(), source
    elif isinstance(source, str | os.PathLike):
        contents, where = read(Path(source), choices, width=visible, vocabulary=vocabulary), source
    else:
        rows, own = _table(source, choices, visible)
        contents, where = Contents({"all": rows}, names=own), "The data"
    parts = list(contents.splits.values())
    if parts[0].shape[1] != visible:
        raise UsageError(f"{where} has {parts[0].shape[1]} columns, but the model was trained on {visible}.")
    if choices.given:
        contents, _ = _context_first(contents, where, choices)
    contents = _by_name(contents, names, where)
    parts = list(contents.splits.values())
    if contents.vocabulary is not None and contents.vocabulary != vocabulary:
        raise UsageError(f"{where} counts other words than the model was trained on.")
    if kind == "counts":
        if choices.binarize not in (None, "none"):
            raise UsageError("The model is of word counts, which are not made binary; leave `binarize` out.")
        return stacked([as_counts(part, where) for part in parts])
    if kind == "numbers":
        return stacked([as_numbers(part, where) for part in parts])
    if categories is not None:
        return stacked([one_hot_rows(as_categories(part, where), categories, where) for part in parts])
    choices = _with_defaults(choices, parts)
    if choices.binarize == "stochastic":
        return stacked([plain(as_grey(part, where, choices).fixed(0)) for part in parts])
    return stacked([as_binary(part, where, choices) for part in parts])


def names_of(source: str | os.PathLike[str]) -> dict[str, list[str]]:
    """The names of the cases of every split: the files they come from, or, of a named set, their place and class.

    Nothing for data whose cases have no names.
    """
    if str(source) not in NAMED:
        return case_names(Path(source))
    contents = NAMED[str(source)].load()
    return {
        split: [
            f"{split} {i}" + (f" ({contents.labels[split][i]})" if split in contents.labels else "")
            for i in range(rows.shape[0])
        ]
        for split, rows in contents.splits.items()
    }


def _streamed(source: Stream | str, choices: Choices) -> Dataset:
    """Cases that are seen once: there are no test cases among them."""
    if made := [name for name in choices.of_text() if name != "vocabulary"]:
        raise UsageError(f"The words of a stream are those of `vocabulary`; leave {_listed(made)} out.")
    words = choices.read_vocabulary()
    if choices.drop_columns:
        raise UsageError(
            "A stream's columns cannot be dropped; leave `drop_columns` out, and the columns out of the stream."
        )
    if choices.given:
        raise UsageError("A stream cannot be modelled given some of its columns; leave `given` out.")
    if choices.values in ("numbers", "categories"):
        raise UsageError(f'A stream is of bits or counts; `values="{choices.values}"` needs a file.')
    stream = from_lines(_standard_input(), choices, words) if isinstance(source, str) else source
    if stream.kind == "numbers":
        raise UsageError(
            "A data set holds bits or counts; a stream of other numbers is for a model of your own and nvil.fit."
        )
    choices = dataclasses.replace(
        choices, values=stream.kind, binarize=choices.binarize or "none", stop_words=choices.stop_words or "none"
    )
    image = None if stream.kind == "counts" else _square(stream.width)
    note = "a stream, every case seen once"
    return Dataset("stream", stream, None, stream.kind, image=image, choices=choices, vocabulary=words, note=note)


def _listed(names: Iterable[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def _standard_input() -> Iterable[str]:
    """Lines of UTF-8, whatever the locale; other bytes are replaced, as in files."""
    if sys.stdin is None:
        raise UsageError("There is no standard input to read cases from.")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    return sys.stdin


def _dataset(contents: Contents, where: Path | str, choices: Choices) -> Dataset:
    """Decide what the values are, make them binary where asked to, and split."""
    if not contents.text and (made := choices.of_text()):
        raise UsageError(f"{where} is not text, so there are no words to choose; leave {_listed(made)} out.")
    choices = dataclasses.replace(choices, **contents.decided)
    kind = kind_of(contents, where, choices)
    width = next(iter(contents.splits.values())).shape[1]
    whole = contents.image or (_square(width) if named_by_number(contents.names) else None)
    names, places = contents.names, list(range(width))
    if choices.given:
        contents, places = _context_first(contents, where, choices)
        whole = whole if places == sorted(places) else None
    parts = contents.splits
    note = contents.note
    categories = None
    if kind == "counts":
        ready: dict[str, Any] = {name: as_counts(rows, where) for name, rows in parts.items()}
        note = note or "word counts"
    elif kind == "numbers":
        ready = {name: as_numbers(rows, where) for name, rows in parts.items()}
        note = note or "real numbers, as they are"
    elif kind == "categories":
        numbered = {name: as_categories(rows, where) for name, rows in parts.items()}
        categories = count_categories(list(numbered.values()), where, names, places)
        if not choices.given:
            check_columns(list(numbered.values()), contents, where, choices)
        ready = {name: one_hot_rows(rows, categories, where) for name, rows in numbered.items()}
        contents = dataclasses.replace(contents, context=contents.context * categories)
        note = f"each variable one of {categories} categories"
    elif choices.binarize == "stochastic":
        check_columns(list(parts.values()), contents, where, choices)
        choices = _with_defaults(choices, parts.values())
        ready = {name: as_grey(rows, where, choices) for name, rows in parts.items()}
        note = f"grey levels up to {choices.white:g}; minibatches are binarized anew, validation and test cases once"
    else:
        given = choices.threshold is not None
        if choices.binarize == "threshold":
            check_columns(list(parts.values()), contents, where, choices)
            choices = _with_defaults(choices, parts.values())
            note = f"on where the value is at least {choices.threshold:g}"
        ready = {name: as_binary(rows, where, choices) for name, rows in parts.items()}
        if choices.binarize == "threshold":
            check_varied(list(ready.values()), where, choices, given=given)
        note = note or "binary: every value is 0 or 1"
    labels = contents.labels or None
    if "test" in ready:
        train, test = ready["train"], ready["test"]
    elif ready["all"].shape[0] < 2:
        raise UsageError(f"{where} holds a single case; at least two are needed, to train on and to test on.")
    else:
        count = held_out_cases(ready["all"].shape[0])
        train, test = map(plain, as_rows(ready["all"]).hold_out(count, seed=0))
        labels = labels and hold_out_labels(labels["all"], count)
    if kind == "numbers":
        check_deviations(train, where, names, places)
    if kind == "counts" and not as_rows(train).column_sums()[contents.context :].any():
        raise UsageError(f"Every training document of {where} is empty.")
    named = telling(contents.names)
    return Dataset(
        name=Path(where).name,
        train=train,
        test=plain(as_rows(test).fixed(0)),
        kind=kind,
        validation=plain(as_rows(ready["validation"]).fixed(1)) if "validation" in ready else None,
        # Where the whole case is no picture, what it is without its context may be one.
        image=None
        if kind != "binary" or isinstance(train, SparseRows)
        else whole or (_square(train.shape[1] - contents.context) if _picture_after(contents) else None),
        context=contents.context,
        categories=categories,
        choices=dataclasses.replace(
            choices, values=kind, binarize=choices.binarize or "none", stop_words=choices.stop_words or "none"
        ),
        vocabulary=contents.vocabulary or (named if kind == "counts" else None),
        names=named,
        note=note,
        labels=labels,
    )


def _picture_after(contents: Contents) -> bool:
    """Whether the columns after the context may be those of a picture."""
    return bool(contents.context) and named_by_number(contents.names and contents.names[contents.context :])


def _context_first(contents: Contents, where: Any, choices: Choices) -> tuple[Contents, list[int]]:
    """The columns to condition on before the others, and the places where the columns were."""
    if contents.vocabulary is not None:
        raise UsageError(f"The columns of {where} are words, and none of them can be `given`; give a table.")
    width = next(iter(contents.splits.values())).shape[1]
    order, context = context_first(width, contents.names, choices.given, where)
    if order == list(range(width)):
        return dataclasses.replace(contents, context=context), order
    return dataclasses.replace(_columns(contents, order), context=context), order


def _by_name(contents: Contents, names: tuple[str, ...] | None, where: Any) -> Contents:
    """The columns in the order of `names`, where both have names; else as they are."""
    if names is None or telling(contents.names) in (None, names):
        return contents
    return _columns(contents, in_order(contents.names or (), names, where))


def _columns(contents: Contents, order: list[int]) -> Contents:
    """The columns in another order."""
    names = None if contents.names is None else tuple(contents.names[place] for place in order)
    splits = {
        name: sparse_rows(rows.matrix()[:, order]) if isinstance(rows, SparseRows) else rows[:, order]
        for name, rows in contents.splits.items()
    }
    return dataclasses.replace(contents, splits=splits, names=names)


def _with_defaults(choices: Choices, parts: Any) -> Choices:
    """The threshold or the grey level that is white, from the values where they were not said."""
    if choices.binarize == "threshold" and choices.threshold is None:
        return dataclasses.replace(choices, threshold=_middle(parts))
    if choices.binarize == "stochastic" and choices.white is None:
        return dataclasses.replace(choices, white=_white(parts))
    return choices


def _middle(parts: Any) -> float:
    """Halfway between the smallest and the largest value."""
    ranges = [value_range(part) for part in parts]
    return (min(low for low, _ in ranges) + max(high for _, high in ranges)) / 2


def _white(parts: Any) -> float:
    """The grey level that is certainly on: 1 for values up to 1, 255 for bytes, else the largest."""
    highest = max(value_range(part)[1] for part in parts)
    return next((white for white in (1.0, 255.0) if highest <= white), highest)


def _square(width: int) -> tuple[int, int] | None:
    side = round(width**0.5)
    return (side, side) if side * side == width and side > 2 else None
