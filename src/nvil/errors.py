"""The ways things end badly: the caller asked for something impossible, training failed, or a download did."""

import difflib
import numbers
import operator
from collections.abc import Iterable
from typing import Any


class UsageError(ValueError):
    """What was asked for cannot be done as asked; the message says what, where and what to do."""


class TrainingError(RuntimeError):
    """Training could not go on (for example because parameters stopped being finite)."""


class StoppedJobs(KeyboardInterrupt):
    """Ctrl-C or SIGTERM came while runs were trained side by side: they have saved and stopped, and none is lost."""

    def __init__(self, signal: int):
        super().__init__(signal)
        self.signal = signal


class DownloadError(RuntimeError):
    """A file could not be had; the message says what was wanted, from where, and where to put it by hand."""


def at_least(least: int | float, **values: Any) -> None:
    """Refuse a number below `least`, or that is not one; None is no number, and passes."""
    for name, value in values.items():
        if value is not None and not _number(name, value) >= least:
            raise UsageError(f"`{name}` must be at least {least:g}, got {value}.")


def count_of(least: int, **values: Any) -> None:
    """Refuse what is not a whole number of at least `least`, such as a number of updates; None passes."""
    for name, value in values.items():
        try:
            if value is not None and operator.index(value) < least:
                raise UsageError(f"`{name}` must be at least {least}, got {value}.")
        except TypeError as error:
            raise UsageError(f"`{name}` must be a whole number (an int), got {value!r}.") from error


def above_zero(**values: Any) -> None:
    """Refuse a number that is 0 or less, or not one; None passes, as in `at_least`."""
    for name, value in values.items():
        if value is not None and not _number(name, value) > 0:
            raise UsageError(f"`{name}` must be above 0, got {value}.")


def _number(name: str, value: Any) -> Any:
    if not isinstance(value, numbers.Real):
        raise UsageError(f"`{name}` must be a number, got {value!r}.")
    return value


def choose(kind: str, name: str, options: Iterable[str]) -> str:
    """Return `name` if it is one of `options`, else raise a `UsageError` that suggests the near miss."""
    options = sorted(options)
    if isinstance(name, str) and name in options:
        return name
    near = difflib.get_close_matches(str(name), options, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of: {', '.join(options)}."
    raise UsageError(f"Unknown {kind} {name!r}; {hint}")
