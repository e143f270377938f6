"""What share of the training time goes into checkpoints, and into reports, at the default intervals.

    python benchmarks/checkpoint_cost.py

A real run (784 visible units, SBN 200-200, Adam, batch 20, on random bits), stopped after 150 seconds: two checkpoints
by the clock and one at the stop. A report is a look at the validation bound, the diagnostics and a line of metrics.
"""

import timing  # noqa: F401 (pins the process to one core before any library counts them)

# isort: split

import tempfile
import time
from pathlib import Path

import numpy as np

from nvil.learning import Learner
from nvil.runs import checkpoints, metrics
from nvil.runs.config import Config
from nvil.runs.run import Run

SECONDS = 150


def main() -> None:
    spent: dict[str, list[float]] = {"checkpoints": [], "validation": [], "diagnostics": [], "metrics": []}
    clock(checkpoints, "save_checkpoint", spent["checkpoints"])
    clock(Learner, "validate", spent["validation"])
    clock(Learner, "diagnose", spent["diagnostics"])
    clock(metrics, "add_report", spent["metrics"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "cases.npy", np.random.default_rng(0).integers(0, 2, (10_000, 784), np.uint8))
        config = Config(data=str(folder / "cases.npy"), hidden=(200, 200), batch_size=20, updates=10**8)
        run = Run.from_config(folder / "run", config)
        reports = run.fit(after_chunk=lambda _: time.perf_counter() - began > SECONDS)
        began = time.perf_counter()
        for report in reports:
            if report.updates == config.report_every:  # everything is compiled
                began = time.perf_counter()
                for times in spent.values():
                    times.clear()
        whole = time.perf_counter() - began
        size = max(path.stat().st_size for path in (folder / "run/checkpoint").iterdir())
    print(f"{whole:.0f} s of training, {report.updates} updates, checkpoints of {size / 1e6:.1f} MB\n")
    print("| | times | each | share of the time |\n|---|---|---|---|")
    for what, times in spent.items():
        each = sum(times) / max(1, len(times))
        print(f"| {what} | {len(times)} | {each * 1e3:.0f} ms | {sum(times) / whole:.2%} |")


def clock(owner, name: str, times: list[float]) -> None:
    """Note how long every call of `owner.name` takes."""
    function = getattr(owner, name)

    def timed(*args, **settings):
        began = time.perf_counter()
        try:
            return function(*args, **settings)
        finally:
            times.append(time.perf_counter() - began)

    setattr(owner, name, timed)


if __name__ == "__main__":
    main()
