"""What a person sees of training: a live bar on a terminal, a line for every report elsewhere."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

stderr = Console(stderr=True, highlight=False)
PLAIN_SECONDS = 60.0
"""Between two lines on progress where there is no terminal."""


@dataclasses.dataclass
class Show:
    """Progress on standard error: a live bar on a terminal, a line for every report elsewhere."""

    bar: Progress | None
    quiet: bool
    reports: int = 0

    def text(self, line: str) -> None:
        if not self.quiet:
            (self.bar.console if self.bar else stderr).print(line, soft_wrap=True)

    def updates(self, done: int) -> None:
        if self.bar:
            first = self.bar.tasks[0].description == "compiling"
            self.bar.update(self.bar.task_ids[0], completed=done, description="training" if first else None)

    def report(self, report: Any) -> None:
        if self.bar:
            text = f"bound {report.bound:.2f}"
            if report.validation_bound is not None:
                text += f"  validation {report.validation_bound:.2f}  best {report.best.bound:.2f}"
            text += f"  {report.updates_per_second:.0f} updates/s"
            self.bar.update(self.bar.task_ids[0], description=text)
            if not self.reports:  # the time left is not to be told from the seconds that compiling took
                self.bar.reset(self.bar.task_ids[0], completed=report.updates)
            self.reports += 1
        else:
            self.text(str(report))


@contextlib.contextmanager
def progress(total: int | None, done: int, quiet: bool) -> Iterator[Show]:
    """`total` updates, of which some are `done`."""
    if quiet or not stderr.is_terminal:
        yield Show(None, quiet)
        return
    columns = (
        *([BarColumn(bar_width=None)] if stderr.width >= 100 else []),  # in what room the rest leaves
        TextColumn("{task.percentage:3.0f}%"),
        TextColumn("{task.description}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
    )
    with Progress(*columns, console=stderr, expand=stderr.width >= 100) as bar:
        bar.add_task("compiling", total=total, completed=done)
        yield Show(bar, quiet)


@contextlib.contextmanager
def share_done() -> Iterator[Callable[[float], None]]:
    """Tell on standard error which share of the work is done: a bar on a terminal, a line now and then elsewhere."""
    if stderr.is_terminal:
        columns = (
            BarColumn(),
            TextColumn("{task.percentage:3.0f}%"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
        )
        with Progress(*columns, console=stderr) as bar:
            task = bar.add_task("", total=1.0)
            yield lambda share: bar.update(task, completed=share)
        return
    began = told = time.monotonic()

    def tell(share: float) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told > PLAIN_SECONDS:
            told = now
            stderr.print(f"{share:.0%} done, about {(now - began) * (1 / share - 1) / 60:.0f} min left")

    yield tell
