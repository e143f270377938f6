"""Sides timed in alternation on one core, each in a round of about a third of a second; ratios within each round."""

import importlib
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from nvil.bench.cases import Case, make_data
from nvil.errors import TrainingError

SIDES = {
    "products": ("products", "prepare", "numpy"),
    "optimiser": ("ours", "prepare_optimiser", "jax"),
    "nvil": ("ours", "prepare", "jax"),
    "plain": ("ours", "prepare_plain", "numpyro"),  # for the sake of which it is measured
    "PyTorch": ("torch_peer", "prepare", "torch"),
    "torch.compile": ("torch_peer", "prepare_compiled", "torch"),
    "Pyro": ("pyro_peer", "prepare", "pyro"),
    "NumPyro": ("numpyro_peer", "prepare", "numpyro"),
}
"""Each side's module, function and the package it needs."""
OURS = ("products", "optimiser", "nvil", "plain")
WARM_UP, ROUND_SECONDS = 200, 0.3
ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}


def installed() -> list[str]:
    """The sides that can be measured here."""
    return [side for side, (_, _, package) in SIDES.items() if importlib.util.find_spec(package)]


def measure_apart(case: Case, sides: Sequence[str], rounds: int) -> dict[str, Any]:
    """`measure` in a process of its own on one core, so that no case finds what another left behind."""
    question = json.dumps({"case": [case.name, case.batch, case.optimiser], "sides": list(sides), "rounds": rounds})
    command = [sys.executable, "-m", "nvil.bench", question]
    # Windows and macOS have no affinity; there, one thread must do.
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    try:
        if cores:
            os.sched_setaffinity(0, {min(cores)})  # the child inherits it, before any library counts cores
        done = subprocess.run(command, env=os.environ | ONE_THREAD, capture_output=True, text=True)
    finally:
        if cores:
            os.sched_setaffinity(0, cores)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        errors = [line for line in lines if re.match(r"[\w.]+Error\b", line)]  # its message may have more lines
        raise TrainingError(f"The benchmark of {case.name} at batch {case.batch} failed: {(errors or lines)[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(case: Case, sides: Sequence[str], rounds: int) -> dict[str, Any]:
    """Microseconds per update of every side in every round, and the bound after the same number of updates."""
    data = make_data(case.model)
    jobs: dict[str, Callable[[int], Any]] = {}
    bounds, numbers = {}, {}
    for side in sides:
        module, function, _ = SIDES[side]
        jobs[side] = getattr(importlib.import_module(f"nvil.bench.{module}"), function)(case, data)
        jobs[side](WARM_UP // 2)  # compiles
        began = time.perf_counter()
        bounds[side] = jobs[side](WARM_UP // 2)
        numbers[side] = max(3, round(ROUND_SECONDS / (time.perf_counter() - began) * WARM_UP / 2))
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, job in jobs.items():
            began = time.perf_counter()
            job(numbers[side])
            times[side].append((time.perf_counter() - began) / numbers[side] * 1e6)
    return {
        "model": case.name,
        "batch": case.batch,
        "optimiser": case.optimiser,
        "microseconds": times,
        "bounds": {side: bound for side, bound in bounds.items() if bound is not None},
    }


def columns(sides: Sequence[str]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """What the table compares, by its head: a side, and those whose times together it is divided by.

    NumPyro has no baselines and no normalisation, so it stands beside our updates without them too.
    """
    peers = {f"{side} / nvil": (side, ("nvil",)) for side in sides if side not in OURS}
    alike = {"NumPyro / plain nvil": ("NumPyro", ("plain",))} if {"NumPyro", "plain"} <= {*sides} else {}
    return {"nvil / bare": ("nvil", ("products", "optimiser"))} | peers | alike


def ratios(result: dict[str, Any]) -> dict[str, list[float]]:
    """The columns of the table, for every round."""
    times = result["microseconds"]
    rounds = range(len(times["nvil"]))
    return {
        name: [times[side][i] / sum(times[other][i] for other in others) for i in rounds]
        for name, (side, others) in columns(list(times)).items()
    }


def head(sides: Sequence[str]) -> str:
    """The head of the table."""
    names = ["model", "batch", "optimiser", "nvil", *columns(sides)]
    return _line(names) + "\n" + _line(["---"] * 3 + ["---:"] * (len(names) - 3))


def row(result: dict[str, Any]) -> str:
    """A row of the table: medians over rounds, with their range."""
    ours = f"{statistics.median(result['microseconds']['nvil']):.0f} us"
    cells = [_spread(values, 2 if name == "nvil / bare" else 1) for name, values in ratios(result).items()]
    return _line([result["model"], str(result["batch"]), result["optimiser"], ours, *cells])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"
