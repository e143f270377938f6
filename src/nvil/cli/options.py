"""Options as tyro reads them, from the arguments of a function or the fields of a dataclass."""

import functools
import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from nvil.cli.hints import Argument, check_words

METAVARS = {str: "TEXT", int: "N", float: "X", Path: "PATH", tuple[str, ...]: "[TEXT ...]"}
MANNER = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)
"""Of flags: none has a --no-flag beside it, or the name of its group before it."""


def command(function: Callable[..., None]) -> Callable[[list[str]], None]:
    """A function of its options as a command, which takes the words after its name."""
    arguments = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = parameter.annotation
        arguments |= [argument(name, kind, required=parameter.default is inspect.Parameter.empty)]
        plain = typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind
        if parameter.default is not inspect.Parameter.empty:
            shown = _in_help(plain, parameter.default)
            if plain is not kind and "metavar" in shown:  # a positional one that may be left out
                shown["metavar"] = f"[{shown['metavar']}]"
            function.__annotations__[name] = Annotated[kind, tyro.conf.arg(**shown)]

    @functools.wraps(function)
    def parse(words: list[str]) -> None:
        check_words(function.__name__, words, arguments)
        tyro.cli(function, prog=f"nvil {function.__name__}", args=words, config=MANNER)

    return parse


def argument(name: str, kind: Any, *, required: bool = False) -> tuple[str, Argument]:
    """An argument as `check_words` knows it, by the name of its flag, from its annotation for tyro."""
    marks = typing.get_args(kind)[1:] if typing.get_origin(kind) is Annotated else ()
    plain = typing.get_args(kind)[0] if marks else kind
    named = next((mark.name for mark in marks if getattr(mark, "name", None)), name)
    return named, Argument(plain, required, tyro.conf.Positional in marks, tyro.conf.Suppress not in marks)


def option(
    name: str, kind: Any, default: Any, text: str, flag: str | None = None, *, shown: bool = True
) -> tuple[str, Any, Any]:
    """A field of a dataclass as tyro takes it."""
    marked = Annotated[kind, tyro.conf.arg(help=text, name=flag, **_in_help(kind, default))]
    return name, marked if shown else tyro.conf.Suppress[marked], default


def _in_help(kind: Any, default: Any) -> dict[str, Any]:
    """How the help shows an option: of those that are off or absent by default, its text says what that means."""
    kinds = [each for each in typing.get_args(kind) or (kind,) if each is not type(None)]
    shown = {"metavar": METAVARS[kinds[0]]} if len(kinds) == 1 and kinds[0] in METAVARS else {}
    if typing.get_origin(kinds[0]) is Literal:
        shown = {"metavar": f"{{{','.join(typing.get_args(kinds[0]))}}}"}
    absent = default is None or default is False or default == ()
    return {**shown, "help_behavior_hint": ""} if absent else shown
