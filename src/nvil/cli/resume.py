"""`nvil resume`: on with a run, without repeating its options."""

from pathlib import Path

from tyro.conf import Positional

from nvil.cli.options import command
from nvil.cli.train import train_run


@command
def resume(run: Positional[Path], updates: int | None = None, data: Path | None = None, quiet: bool = False) -> None:
    """Resume a run without repeating its options.

    Args:
        run: The run's folder.
        updates: How many in all, those already done included; by default as many as were asked for before.
        data: Where the run's data is now, if it has moved; its contents must be the same.
        quiet: No progress on standard error.

    """
    from nvil.runs.run import Run

    train_run(*Run.open(run).resumed(updates, data=data), quiet=quiet)
