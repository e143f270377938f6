"""What is wrong with the words of a command, in a sentence, before tyro reads them."""

import difflib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from nvil.errors import UsageError, choose

OTHER_TOOLS = {
    "batch": "batch_size",
    "batchsize": "batch_size",
    "bs": "batch_size",
    "checkpoint_every": "checkpoint_updates",
    "clip_norm": "clip",
    "dataset": "data",
    "early_stopping": "patience",
    "ema": "average",
    "epoch": "updates",
    "epochs": "updates",
    "eval_every": "report_every",
    "grad_clip": "clip",
    "hidden_dim": "hidden",
    "hidden_size": "hidden",
    "input": "data",
    "iterations": "updates",
    "layers": "hidden",
    "log_every": "report_every",
    "lr": "learning_rate",
    "lr_decay": "schedule",
    "lr_schedule": "schedule",
    "lr_scheduler": "schedule",
    "max_features": "words",
    "max_grad_norm": "clip",
    "max_steps": "updates",
    "n": "count",
    "num_epochs": "updates",
    "num_samples": "samples",
    "output": "out",
    "output_dir": "out",
    "random_state": "seed",
    "rate": "learning_rate",
    "save_dir": "out",
    "scheduler": "schedule",
    "steps": "updates",
    "units": "hidden",
    "val": "validation",
    "val_size": "validation",
    "vocab": "vocabulary",
    "vocab_size": "words",
    "wd": "weight_decay",
}
"""What other tools call our options, where the names are too far apart to be taken for a slip."""


class Argument(NamedTuple):
    """An option, or an argument that goes by its place, as a command's signature has it."""

    kind: Any
    required: bool = False
    by_place: bool = False
    shown: bool = True
    """In the help; those that are not are refused by the command."""


def check_words(command: str, words: Sequence[str], arguments: Mapping[str, Argument]) -> None:
    """Refuse options that there are not, values of the wrong kind, and what is missing or too much."""
    if any(word in ("-h", "--help") for word in words):
        return
    options = {name: each for name, each in arguments.items() if not each.by_place}
    places = {name: each for name, each in arguments.items() if each.by_place}
    loose, given = [], set()
    for name, values in _in_parts(words):
        if name is None:
            loose += values
            continue
        if name not in options:
            raise UsageError(f"Unknown option '--{name.replace('_', '-')}'; {_instead(command, name, options)}")
        given.add(name)
        loose += _check(name, values, options[name].kind)
    for name, each in places.items():
        taken, loose = (loose, []) if _is_many(each.kind) else (loose[:1], loose[1:])
        if taken:
            _check(name, taken, each.kind)
        elif each.required and not _is_many(each.kind):
            raise UsageError(f"{name.upper()} is missing: nvil {command} {name.upper()} [OPTIONS].")
    if loose:
        meant = "."
        if "query" in places:
            meant = "; put quotes around a text."
        elif "data" in options and "data" not in given and not places:
            meant = f"; did you mean `data` {loose[0]}?"
        raise UsageError(f"nvil {command} takes no further argument, got {loose[0]!r}{meant}")
    for name, each in options.items():
        if each.required and name not in given:
            raise UsageError(f"`{name}` is missing; nvil {command} --help says what it is.")


def _in_parts(words: Sequence[str]) -> Iterator[tuple[str | None, list[str]]]:
    """Every option with the words after it, up to the next; None for words before any option."""
    name, values = None, []
    for word in words:
        if word.startswith("-") and word != "-" and not _is_number(word):
            yield name, values
            flag, equals, value = word.partition("=")
            name, values = flag.lstrip("-").replace("-", "_"), [value] if equals else []
        else:
            values.append(word)
    yield name, values


def _check(name: str, values: list[str], kind: Any) -> list[str]:
    """Refuse values that are not of this kind; those beyond what it takes are returned."""
    kinds = [each for each in _members(kind) if each is not type(None)]
    if bool in kinds:
        return values
    many = _is_many(kind)
    if not values:
        if many:
            return []
        raise UsageError(f"`{name}` needs a value.")
    inner = typing.get_args(kinds[0])[0] if many else kinds[0]
    taken = values if many else values[:1]
    for value in taken:
        if inner is int and not _is_number(value, int):
            raise UsageError(f"`{name}` must be a whole number, got {value!r}.")
        if inner is float and not _is_number(value):
            raise UsageError(f"`{name}` must be a number, got {value!r}.")
        if typing.get_origin(inner) is Literal:
            choose(name, value, typing.get_args(inner))
        if inner is Path and not value:
            raise UsageError(f"`{name}` must not be empty.")
    return values[len(taken) :]


def _instead(command: str, name: str, options: Mapping[str, Argument]) -> str:
    shown = [option for option, each in options.items() if each.shown]
    ours = OTHER_TOOLS.get(name)
    if ours in shown:
        return f"did you mean `{ours}`{', counted in minibatches' if 'epoch' in name else ''}?"
    near = difflib.get_close_matches(name, shown, n=1)
    return f"did you mean `{near[0]}`?" if near else f"nvil {command} --help lists those there are."


def _members(kind: Any) -> tuple[Any, ...]:
    if typing.get_origin(kind) is Annotated:
        return _members(typing.get_args(kind)[0])
    return typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)


def _is_many(kind: Any) -> bool:
    return any(typing.get_origin(each) is tuple for each in _members(kind))


def _is_number(word: str, kind: type = float) -> bool:
    try:
        kind(word)
    except ValueError:
        return False
    return True
