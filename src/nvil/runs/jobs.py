"""Runs side by side: `nvil` commands, each in a process and on a core of its own."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nvil.errors import StoppedJobs
from nvil.runs.lock import is_locked

LOOK_SECONDS = 2.0
PARENT = "NVIL_PARENT"
"""In the environment of a job: the process that started it, without which it saves and stops."""


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
    error: str = ""
    """What the process wrote to standard error, when it has ended."""

    @property
    def message(self) -> str:
        """The last line of `error`."""
        return (self.error.strip().splitlines() or ["no message"])[-1]

    def look(self) -> dict[str, Any]:
        """The last report of the run."""
        try:
            with (self.folder / "metrics.jsonl").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 20_000))
                return json.loads(file.read().splitlines()[-1])
        except (OSError, ValueError, IndexError):
            return {}

    def seconds_left(self) -> float | None:
        """By the speed so far; None while that is not known."""
        done = self.look().get("updates", 0)
        new = done - self.before
        if self.state != "running" or new <= 0:
            return None
        return (time.monotonic() - self.began) / new * (self.updates - done)


def cores() -> list[int]:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def run_jobs(
    jobs: Sequence[Job],
    *,
    side_by_side: int | None = None,
    budget: float | None = None,
    watch: Callable[[Sequence[Job]], None] = lambda _: None,
    ended: Callable[[Job], None] = lambda _: None,
) -> bool:
    """Run all jobs, so many at a time (one per core), each pinned to a core; true if all of them ended well.

    After `budget` seconds those that are running are asked to save and stop, and no other is started. A job that fails
    does not stop the others. One whose folder another process trains in waits for that, as for what is left of a call
    that was killed. `watch` is called at every look, `ended` with every job that has. Ctrl-C or SIGTERM stops them in
    the same way, and then raises `StoppedJobs`; a second one ends at once.
    """
    there = cores()
    free = [there[i % len(there)] for i in range(side_by_side or len(there))][::-1]
    began = time.monotonic()
    waiting = list(jobs)
    with _signals() as asked:
        while waiting or any(job.process for job in jobs):
            over = bool(asked) or (budget is not None and time.monotonic() - began > budget)
            if over:
                waiting.clear()
                for job in jobs:
                    if job.state == "running":
                        job.process.send_signal(signal.SIGTERM)
                        job.state = "stopping"
            for job in list(waiting) if free else ():
                if free and not is_locked(job.folder):
                    waiting.remove(job)
                    _start(job, free.pop())
            for job in jobs:
                if job.process and job.process.poll() is not None:
                    free.append(job.core)
                    _end(job)
                    ended(job)
            watch(jobs)
            if waiting or any(job.process for job in jobs):
                time.sleep(0.2 if over else LOOK_SECONDS)
    done = all(job.state == "done" for job in jobs)
    if asked and not done:
        raise StoppedJobs(asked[0])
    return done


def parent_gone() -> bool:
    """Whether this process was started as a job by one that has ended since."""
    parent = os.environ.get(PARENT, "")
    return parent.isdecimal() and int(parent) != os.getppid()


def _start(job: Job, core: int) -> None:
    job.log = tempfile.TemporaryFile()  # noqa: SIM115 (read when the process has ended)
    job.before = job.look().get("updates", 0)
    command = [sys.executable, "-m", "nvil", *job.words]
    job.process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=job.log,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ | {PARENT: str(os.getpid())},
    )
    if hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(job.process.pid, {core})
    job.state, job.core, job.began = "running", core, time.monotonic()


def _end(job: Job) -> None:
    code = job.process.returncode
    with job.log as log:
        log.seek(0)
        job.error = log.read().decode(errors="replace")
    stopped = code in (128 + signal.SIGTERM, 128 + signal.SIGINT, -signal.SIGTERM)
    job.state = "done" if code == 0 else "stopped" if stopped else "failed"
    job.process = None


@contextlib.contextmanager
def _signals() -> Iterator[Sequence[int]]:
    """The signals that have asked for an end so far, Ctrl-C or SIGTERM; a second one ends at once."""
    asked: list[int] = []

    def note(number: int, _: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        os.write(2, b"\nnvil: Saving, then stopping; Ctrl-C again stops at once.\n")

    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield asked
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
