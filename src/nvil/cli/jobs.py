"""Runs side by side: one process and one core each, with a live table of which is where and when it will be done."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

stderr = Console(stderr=True, highlight=False)
LOOK_SECONDS = 2.0
PLAIN_SECONDS = 60.0


@dataclasses.dataclass
class Job:
    """A command in a process of its own that trains in a run folder."""

    name: str
    words: list[str]
    """Of the command, after `nvil`."""
    folder: Path
    updates: int
    state: str = "waiting"
    process: Any = None
    """While it runs."""
    log: Any = None
    core: int = 0
    began: float = 0.0
    before: int = 0
    message: str = ""
    """The last line that the process wrote to standard error."""

    def look(self) -> dict[str, Any]:
        """The last report of the run."""
        try:
            with (self.folder / "metrics.jsonl").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 20_000))
                return json.loads(file.read().splitlines()[-1])
        except (OSError, ValueError, IndexError):
            return {}


def run_jobs(jobs: Sequence[Job], *, side_by_side: int, budget: float | None = None) -> bool:
    """Run all jobs, so many at a time, each pinned to a core; true if all of them ended well.

    After `budget` seconds those that are running are asked to save and stop, and no other is started. A job that fails
    does not stop the others.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    free = [cores[i % len(cores)] for i in range(side_by_side)][::-1]
    began, told = time.monotonic(), 0.0
    waiting = list(jobs)
    with _stopping() as stopping, _table(jobs) as show:
        while waiting or any(job.process for job in jobs):
            over = stopping() or (budget is not None and time.monotonic() - began > budget)
            if over:
                waiting.clear()
                for job in jobs:
                    if job.state == "running":
                        job.process.send_signal(signal.SIGTERM)
                        job.state = "stopping"
            while waiting and free:
                _start(waiting.pop(0), free.pop())
            for job in jobs:
                if job.process and job.process.poll() is not None:
                    free.append(job.core)
                    _end(job)
            if show is not None:
                show.update(_rows(jobs))
            elif time.monotonic() - told > PLAIN_SECONDS:
                told = time.monotonic()
                for job in jobs:
                    if job.state == "running":
                        stderr.print(_line(job), soft_wrap=True)
            time.sleep(0.2 if over else LOOK_SECONDS)
    for job in jobs:
        if job.state == "failed":
            stderr.print(f"nvil: {job.name} failed: {job.message}", soft_wrap=True)
    return all(job.state == "done" for job in jobs)


def _start(job: Job, core: int) -> None:
    job.log = tempfile.TemporaryFile()  # noqa: SIM115 (read when the process has ended)
    job.before = job.look().get("updates", 0)
    command = [sys.executable, "-m", "nvil", *job.words]
    job.process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=job.log, stdin=subprocess.DEVNULL, start_new_session=True
    )
    if hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(job.process.pid, {core})
    job.state, job.core, job.began = "running", core, time.monotonic()


def _end(job: Job) -> None:
    code = job.process.returncode
    with job.log as log:
        log.seek(0)
        job.message = (log.read().decode(errors="replace").strip().splitlines() or ["no message"])[-1]
    stopped = code in (128 + signal.SIGTERM, 128 + signal.SIGINT, -signal.SIGTERM)
    job.state = "done" if code == 0 else "stopped" if stopped else "failed"
    job.process = None


@contextlib.contextmanager
def _stopping() -> Iterator[Any]:
    """Whether Ctrl-C or SIGTERM has asked for an end; a second one ends at once."""
    asked: list[int] = []

    def note(number: int, _: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        os.write(2, b"\nnvil: Saving, then stopping; Ctrl-C again stops at once.\n")

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _table(jobs: Sequence[Job]) -> Iterator[Live | None]:
    if not stderr.is_terminal:
        yield None
        return
    with Live(_rows(jobs), console=stderr, refresh_per_second=2) as live:
        yield live


def _rows(jobs: Sequence[Job]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("cell", "state", "updates", "bound", "validation", "time left"):
        table.add_column(name, justify="left" if name in ("cell", "state") else "right")
    for job in jobs:
        report = job.look()
        done = report.get("updates", 0)
        numbers = [report.get(name) for name in ("bound", "validation_bound")]
        table.add_row(
            job.name,
            job.state,
            f"{done:,} of {job.updates:,}",
            *("" if number is None else f"{number:.2f}" for number in numbers),
            _left(job, done),
        )
    return table


def _line(job: Job) -> str:
    report = job.look()
    done = report.get("updates", 0)
    bound = report.get("validation_bound")
    shown = "" if bound is None else f"  validation {bound:.2f}"
    return f"{job.name}  update {done} of {job.updates}{shown}  {_left(job, done) or 'time left not known yet'}"


def _left(job: Job, done: int) -> str:
    new = done - job.before
    if job.state != "running" or new <= 0:
        return ""
    minutes = (time.monotonic() - job.began) / new * (job.updates - done) / 60
    return f"{minutes:.0f} min" if minutes >= 1 else "under 1 min"
