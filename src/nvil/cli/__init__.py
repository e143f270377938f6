"""The command line: a thin client of the package. Results go to standard output, everything else to standard error.

Nothing heavy is imported until a command that needs it has been understood.
"""

import difflib
import errno
import importlib
import io
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable
from typing import Any

from nvil.cli.cache import kept_programs
from nvil.errors import DownloadError, StoppedJobs, TrainingError, UsageError

COMMANDS = {
    "train": "Train a model together with its inference network.",
    "resume": "Resume a run without repeating its options.",
    "evaluate": "Estimate the bound of a trained model, or its log-likelihood.",
    "sample": "Draw samples from a trained model.",
    "encode": "Encode cases with the inference network.",
    "sweep": "Train every combination of some choices, side by side.",
    "topics": "Show what the latents of a document model stand for.",
    "index": "Index cases by their binary codes, for search.",
    "search": "Find the cases whose codes are nearest to a query's.",
    "report": "Write a page on a run, or on several compared.",
    "compare": "Compare estimators on the same model, data, seed and time.",
    "reproduce": "Reproduce the paper's tables and its figure.",
    "bench": "Measure the speed of updates, beside other libraries.",
    "data": "List the named data sets, or fetch one.",
}
FULL = (errno.ENOSPC, errno.EDQUOT)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit with 2 for a mistake in what was asked, 1 for a failure."""
    words = sys.argv[1:] if arguments is None else arguments
    # XLA's own products of small networks are fastest on one thread; ours (`kernels.c`) take several where that pays.
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    handler = _ToStandardError()
    handler.setFormatter(logging.Formatter("nvil: %(message)s"))
    handler.addFilter(_in_flags)
    logger = logging.getLogger("nvil")
    logger.addHandler(handler)
    propagate, logger.propagate = logger.propagate, False
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        _run(words)
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        logger.setLevel(level)


class _ToStandardError(logging.StreamHandler):
    """To what standard error is at the time: while a bar is shown, above the bar."""

    @property
    def stream(self) -> Any:
        return sys.stderr

    @stream.setter
    def stream(self, _: Any) -> None: ...


def _run(words: list[str]) -> None:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # a file's name goes out as it came in, UTF-8 or not
        unicode = sys.stdout.encoding.lower().startswith("utf")
        sys.stdout.reconfigure(errors="surrogateescape" if unicode else "backslashreplace")
    try:
        try:
            command = _command(words)
            if command is not None:
                with kept_programs():
                    command(words[1:])
        finally:  # also where help ends in SystemExit
            sys.stdout.flush()
    except UsageError as error:
        _exit(2, in_flags(str(error)))
    except (TrainingError, DownloadError) as error:
        _exit(1, in_flags(str(error)))
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        full = " What was saved before is kept; make room and give the same command to go on."
        _exit(1, f"{error.strerror or error}{where}.{full if error.errno in FULL else ''}")
    except (MemoryError, RuntimeError) as error:
        said = ("RESOURCE_EXHAUSTED", "Out of memory")
        if not isinstance(error, MemoryError) and not any(text in str(error) for text in said):
            raise
        _exit(1, "There is not enough memory for this; make --hidden or --batch-size smaller.")
    except Stopped as stopped:
        command_line = shlex.join(["nvil", *words])
        saved = f" and saved at update {stopped.updates}" if stopped.updates else " before the first update"
        _exit(128 + stopped.signal, f"Stopped{saved}; to go on: {command_line}")
    except StoppedJobs as stopped:
        _exit(128 + stopped.signal, f"Stopped; what was running is saved. To go on: {shlex.join(['nvil', *words])}")
    except KeyboardInterrupt:
        print("nvil: Stopped.", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)  # at once: XLA's threads may be in the midst of compiling


class Stopped(Exception):  # noqa: N818 (not an error)
    """Training was asked to stop by a signal, and did."""

    def __init__(self, signal: int, updates: int):
        super().__init__(signal, updates)
        self.signal, self.updates = signal, updates


def _command(words: list[str]) -> Callable[[list[str]], None] | None:
    """The command that the first word names; None if it asked for help or the like, which is then printed."""
    first = words[0] if words else "--help"
    if first in ("-h", "--help"):
        print(_help())
        return None
    if first == "--version":
        from importlib.metadata import version

        print(f"nvil {version('nvil')}")
        return None
    if first == "--print-completion":
        from nvil.cli.completion import print_completion

        print_completion(words[1:])
        return None
    if first not in COMMANDS:
        near = difflib.get_close_matches(first, COMMANDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of: {', '.join(COMMANDS)}."
        kind = "option" if first.startswith("-") else "command"
        raise UsageError(f"Unknown {kind} {first!r}; {hint}")
    return named(first)


def named(command: str) -> Callable[[list[str]], None]:
    """A command by its name, which is also that of its module."""
    return getattr(importlib.import_module(f"nvil.cli.{command}"), command)


def _help() -> str:
    lines = [
        "usage: nvil COMMAND [OPTIONS]",
        "",
        "Directed latent variable models with discrete latents, trained with an inference network.",
        "",
        *(f"  {name:10} {text}" for name, text in COMMANDS.items()),
        "",
        "Start with `nvil train`: it trains a small model on the digits that ship with scikit-learn.",
        "`nvil COMMAND --help` shows the options of a command, `nvil --version` the version,",
        "`nvil --print-completion bash` a completion script for bash (or zsh, fish).",
    ]
    return "\n".join(lines)


FLAGS = {"folder": "out"}
"""Python arguments whose flag has another name."""


def in_flags(message: str) -> str:
    """Messages of the library name Python arguments in backquotes, `like="this"`; here they become --like this."""

    def flag(found: re.Match[str]) -> str:
        name, value = found.groups()
        text = f"--{FLAGS.get(name, name).replace('_', '-')}"
        return text if value is None else f"{text} {value}"

    return re.sub(r"`([a-z]\w*)(?:=\"?([^`\"]*)\"?)?`", flag, message)


def _in_flags(record: logging.LogRecord) -> bool:
    record.msg, record.args = in_flags(record.getMessage()), ()
    return True


def _exit(code: int, message: str) -> None:
    print(f"nvil: {message}", file=sys.stderr)
    if "jax" in sys.modules and sys.modules["jax"].distributed.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # an orderly end would wait for the other processes, which may wait for this one
    sys.exit(code)
