"""The options that train, sweep and compare share: in groups, and read all at once."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from nvil.cli.hints import check_words
from nvil.cli.options import MANNER, argument, option
from nvil.errors import UsageError, at_least, count_of
from nvil.runs.config import CHECKPOINT_SECONDS, OWN_OPTIONS, Config, config_file, estimators_own

GROUPS = {
    "what": "What to train, and for how long. Enough for a first run.",
    "model": "The networks.",
    "learning": "How they learn.",
    "data": "What the data's values are, where it does not say so itself.",
    "run": "The run's folder and its reports.",
    "devices": "One run on several devices and machines (docs/scaling.md).",
}
TITLES = {"what": "main", "devices": "device"}
"""Of groups, in the help: their options are under "main options"; the others go by their names."""


def group(name: str, *more: tuple[str, Any, Any], refused: Sequence[str] = ()) -> type:
    """A dataclass of the choices in one group, as tyro shows it; those `refused` by the command are not in its help."""
    fields = [
        option(field.name, field.type, field.default, field.metadata["help"], shown=field.name not in refused)
        for field in dataclasses.fields(Config)
        if field.metadata["group"] == name
    ]
    return dataclasses.make_dataclass(name, [*fields, *more], frozen=True, namespace={"__doc__": GROUPS[name]})


TAKEN = (
    option("source", Path | None, None, "Take the choices of this run's folder; options given here win.", "from"),
    option("config", Path | None, None, "Take the choices of this TOML file; options given here win."),
)
CLASSES = {
    "what": group(
        "what", option("out", Path | None, None, "The run's folder; by default runs/ and a name of its own.")
    ),
    "model": group("model"),
    "learning": group("learning"),
    "data": group("data"),
    "run": group(
        "run",
        *TAKEN,
        option("quiet", bool, False, "No progress on standard error."),
        option("checkpoint_seconds", float, CHECKPOINT_SECONDS, "How old the last checkpoint may get."),
        option("checkpoint_updates", int | None, None, "Also write one every this many updates."),
        option("tensorboard", bool, False, "Write reports for TensorBoard to the run's folder too."),
    ),
}


def parse_choices(
    command: Callable[..., None], classes: dict[str, type], words: list[str], given: dict[str, Any] | None = None
) -> tuple[Any, Config]:
    """What was said to a command in the groups of options `classes`, and the choices among that.

    `given` are choices from elsewhere; those of --from and --config win over them, and options over all.
    """
    fields = [field for kind in classes.values() for field in dataclasses.fields(kind)]
    check_words(command.__name__, words, dict(argument(field.name, field.type) for field in fields))
    known = (given or {}) | _given(words)
    arguments = dataclasses.make_dataclass(
        command.__name__,
        [
            (name, Annotated[kind, tyro.conf.arg(name=TITLES.get(name, name))], kind(**_of(kind, known)))
            for name, kind in classes.items()
        ],
        frozen=True,
    )
    parsed = tyro.cli(
        arguments,
        prog=f"nvil {command.__name__}",
        description=inspect.cleandoc(command.__doc__ or ""),
        args=words,
        config=MANNER,
    )
    config = Config(
        **{
            field.name: getattr(getattr(parsed, field.metadata["group"]), field.name)
            for field in dataclasses.fields(Config)
        }
    )
    return parsed, config


def _given(words: list[str]) -> dict[str, Any]:
    """The choices of the run or file that --from and --config name, before the other options are read."""
    values: dict[str, Any] = {}
    run: dict[str, Any] = {}
    estimator = None
    for i, word in enumerate(words):
        flag, separator, value = word.partition("=")
        value = value if separator or i + 1 == len(words) else words[i + 1]
        if flag == "--estimator":
            estimator = value
        if flag in ("--from", "--config") and value:
            path = Path(value)
            if not path.exists():
                raise UsageError(f"There is no {'run' if flag == '--from' else 'file'} {path}.")
            if flag == "--from" and not path.is_dir():
                raise UsageError(f"{path} is not the folder of a run; for a file of choices, take --config.")
            found = config_file(path)
            run = found if flag == "--from" else run
            values |= found
    estimator = estimator or values.get("estimator")
    if not run or estimator == run["estimator"]:
        return values
    # A run's choices for its own estimator are not for another.
    own = {name for name, owners in OWN_OPTIONS.items() if estimator not in owners} | estimators_own(Config(**run))
    return {name: value for name, value in values.items() if name not in own or value != run.get(name)}


def _of(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    return {field.name: values[field.name] for field in dataclasses.fields(kind) if field.name in values}


def how_to_fit(options: Any) -> dict[str, Any]:
    """What `fit_run` takes of the group "run", if checkpoints can be as often as it says."""
    at_least(0, checkpoint_seconds=options.checkpoint_seconds)
    count_of(1, checkpoint_updates=options.checkpoint_updates)
    names = ("quiet", "checkpoint_seconds", "checkpoint_updates", "tensorboard")
    return {name: getattr(options, name) for name in names}


def folder_of(out: Path | None, config: Config, *prefix: str) -> Path:
    """Where to write to: as asked, or a folder named for what is trained."""
    source = "stream" if config.data == "-" else Path(config.data).stem
    return Path("runs", "-".join((*prefix, source, config.model, *map(str, config.hidden)))) if out is None else out
