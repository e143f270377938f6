"""A live table of runs side by side: which is where, and when it will be done."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from nvil.runs.jobs import Job

stderr = Console(stderr=True, highlight=False)
PLAIN_SECONDS = 60.0
MOST_ROWS = 40
"""Of the live table; of more runs, those that are not just waiting or done."""


@contextlib.contextmanager
def shown() -> Iterator[Callable[[Sequence[Job]], None]]:
    """What to call with the jobs at every look: a table on a terminal, elsewhere now and then a line for each.

    At the end, those that failed.
    """
    seen: Sequence[Job] = ()
    told = time.monotonic()
    with contextlib.ExitStack() as ends:
        live = ends.enter_context(Live(console=stderr, refresh_per_second=2)) if stderr.is_terminal else None

        def watch(jobs: Sequence[Job]) -> None:
            nonlocal seen, told
            seen = jobs
            if live is not None:
                live.update(_table(jobs))
            elif time.monotonic() - told > PLAIN_SECONDS:
                told = time.monotonic()
                for job in jobs:
                    if job.state == "running":
                        stderr.print(_line(job), soft_wrap=True)

        try:
            yield watch
        finally:
            ends.close()
            for job in seen:
                if job.state == "failed":
                    stderr.print(f"nvil: {job.name} failed: {job.message.removeprefix('nvil: ')}", soft_wrap=True)


def _table(jobs: Sequence[Job]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("run", "state", "updates", "bound", "validation", "time left"):
        table.add_column(name, justify="left" if name in ("run", "state") else "right")
    fits = len(jobs) <= MOST_ROWS
    for job in jobs if fits else [job for job in jobs if job.state not in ("waiting", "done")]:
        report = job.look()
        numbers = [report.get(name) for name in ("bound", "validation_bound")]
        table.add_row(
            job.name,
            job.state,
            f"{report.get('updates', 0):,} of {job.updates:,}",
            *("" if number is None else f"{number:.2f}" for number in numbers),
            _left(job),
        )
    if not fits:
        done, waiting = (sum(job.state == state for job in jobs) for state in ("done", "waiting"))
        table.add_row("others", f"{done} done, {waiting} waiting")
    return table


def _line(job: Job) -> str:
    report = job.look()
    bound = report.get("validation_bound")
    validation = "" if bound is None else f"  validation {bound:.2f}"
    done = f"update {report.get('updates', 0)} of {job.updates}"
    return f"{job.name}  {done}{validation}  {_left(job) or 'time left not known yet'}"


def _left(job: Job) -> str:
    seconds = job.seconds_left()
    if seconds is None:
        return ""
    return f"{seconds / 60:.0f} min" if seconds >= 60 else "under 1 min"
