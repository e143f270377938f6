"""`nvil resume`: on with a run, without repeating its options."""

from pathlib import Path

from tyro.conf import Positional

from nvil.cli.options import command
from nvil.cli.train import train_run


@command
def resume(run: Positional[Path], updates: int | None = None, quiet: bool = False) -> None:
    """Resume a run without repeating its options.

    Args:
        run: The run's folder.
        updates: How many in all, those already done included; by default as many as were asked for before.
        quiet: No progress on standard error.

    """
    from nvil.runs.run import Run

    train_run(*Run.open(run).resumed(updates), quiet=quiet)
