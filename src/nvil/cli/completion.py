"""What a shell needs to complete commands and their options, as tyro writes it."""

import dataclasses
from typing import Any

import tyro

from nvil.cli import COMMANDS, commands
from nvil.cli.compare import COMPARED, compare
from nvil.cli.sweep import SWEPT, sweep
from nvil.errors import UsageError, choose

SHELLS = ("bash", "zsh", "fish")


def print_completion(words: list[str]) -> None:
    """Print the script for the shell that `words` name."""
    if len(words) != 1:
        raise UsageError(f"Say which shell: nvil --print-completion {'|'.join(SHELLS)}")
    shell = choose("shell", words[0], SHELLS)
    every = {name: _options(name) for name in COMMANDS}
    how = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)
    tyro.extras.subcommand_cli_from_dict(every, prog="nvil", args=["--tyro-print-completion", shell], config=how)


def _options(name: str) -> Any:
    """What tyro reads the options of a command from: a function, or groups of options as a dataclass."""
    trained = {**commands.CLASSES, "devices": commands.DeviceChoices}
    grouped = {"train": (commands.train, trained), "sweep": (sweep, SWEPT), "compare": (compare, COMPARED)}
    if name not in grouped:
        return getattr(commands, name)
    command, groups = grouped[name]
    fields = [(group, kind, dataclasses.field(default_factory=kind)) for group, kind in groups.items()]
    made = dataclasses.make_dataclass(name, fields, frozen=True)
    made.__doc__ = command.__doc__
    return made
