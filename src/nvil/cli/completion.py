"""What a shell needs to complete commands and their options, as tyro writes it."""

import dataclasses
import inspect
from typing import Any

import tyro

from nvil.cli import COMMANDS, named
from nvil.cli.compare import COMPARED
from nvil.cli.options import MANNER
from nvil.cli.sweep import SWEPT
from nvil.cli.train import TRAINED
from nvil.errors import UsageError, choose

SHELLS = ("bash", "zsh", "fish")
GROUPED = {"train": TRAINED, "sweep": SWEPT, "compare": COMPARED}


def print_completion(words: list[str]) -> None:
    """Print the script for the shell that `words` name."""
    if len(words) != 1:
        raise UsageError(f"Say which shell: nvil --print-completion {'|'.join(SHELLS)}")
    shell = choose("shell", words[0], SHELLS)
    every = {name: _options(name) for name in COMMANDS}
    tyro.extras.subcommand_cli_from_dict(every, prog="nvil", args=["--tyro-print-completion", shell], config=MANNER)


def _options(name: str) -> Any:
    """What tyro reads the options of a command from: a function, or groups of options as a dataclass."""
    command = inspect.unwrap(named(name))
    if name not in GROUPED:
        return command
    fields = [(group, kind, dataclasses.field(default_factory=kind)) for group, kind in GROUPED[name].items()]
    made = dataclasses.make_dataclass(name, fields, frozen=True)
    made.__doc__ = command.__doc__
    return made
