"""metrics.jsonl and timing.jsonl: one report per line, written safely and read with suspicion."""

import itertools
import json
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nvil.runs.config import LARGEST, MOST_LAYERS
from nvil.runs.storage import append_line, save_text
from nvil.training import Report

log = logging.getLogger("nvil")
FILES = ("metrics.jsonl", "timing.jsonl")


def add_report(folder: Path, report: Report, seconds: float) -> None:
    """Add a line to the metrics, the same in every run of this config, and one to the times, which are not.

    `seconds` have passed since the last report, or since this process began, validation and all.
    """
    timing = {
        "updates": report.updates,
        "seconds": round(seconds, 3),
        "updates_per_second": round(report.updates_per_second, 1),
        "time": round(time.time(), 1),
    }
    append_line(folder / "timing.jsonl", json.dumps(timing))
    append_line(folder / "metrics.jsonl", json.dumps(metrics_of(report)))


def drop_reports_after(folder: Path, updates: int, files: Sequence[str] = FILES) -> None:
    """Drop reports of updates that will be done again, and a line that was cut off."""
    for name in files:
        path = folder / name
        if path.exists():
            kept = [line for line, values in read_reports(path) if values["updates"] <= updates]
            text = "".join(f"{line}\n" for line in kept).encode()
            if path.read_bytes() != text:
                save_text(path, text.decode())


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Every number of a file of reports as an array with a row per report, such as `bound` or `diagnostics.kl`.

    Names of nested values are joined by dots. What a report does not have, or not as a number, is NaN.
    """
    return as_arrays([values for _, values in read_reports(path)])


def metrics_of(report: Report) -> dict[str, Any]:
    """A report as a line of metrics.jsonl."""
    line: dict[str, Any] = {
        name: getattr(report, name) for name in ("updates", "bound", "validation_bound", "validation_se")
    }
    line["best_bound"] = report.best.bound
    line["signal"] = report.signal and {k: v.tolist() for k, v in report.signal._asdict().items()}
    line["gradient_norms"] = dict(zip(("model", "inference", "baselines"), report.gradient_norms, strict=True))
    line["diagnostics"] = report.diagnostics and report.diagnostics._asdict()
    return finite(line)


def finite(value: Any) -> Any:
    """Numbers that JSON has no word for become null."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_reports(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The valid lines of a .jsonl file of reports, in the order of their updates; logs how many were skipped."""
    try:
        text = path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return
    lines = text.split("\n")[:-1]  # what follows the last line end was cut off
    last = odd = 0
    for line in lines:
        values = _report(line)
        if values is None or values["updates"] <= last:
            odd += 1
            continue
        last = values["updates"]
        yield line, values
    if odd:
        log.warning("%s: %d invalid %s skipped.", path, odd, "line is" if odd == 1 else "lines are")


def _report(line: str) -> dict[str, Any] | None:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    updates = values.get("updates") if isinstance(values, dict) else None
    return values if type(updates) is int and 0 < updates <= LARGEST else None


MOST_NAMES = 200
"""Of numbers in a report; a report has some twenty."""


def as_arrays(reports: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    rows = [dict(_numbers(values)) for values in reports]
    shapes = {name: value.shape for row in reversed(rows) for name, value in row.items()}
    shapes = dict(itertools.islice(shapes.items(), MOST_NAMES))
    arrays = {}
    for name, shape in shapes.items():
        missing = np.full(shape, np.nan)
        fitting = [value if (value := row.get(name, missing)).shape == shape else missing for row in rows]
        arrays[name] = np.stack(fitting)
    if "updates" in arrays:
        arrays["updates"] = arrays["updates"].astype(int)
    return arrays


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, np.ndarray]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            if len(value) <= MOST_LAYERS and all(_is_number(item) for item in value):
                yield prefix + name, np.array([_number(item) for item in value], float)
        elif _is_number(value):
            yield prefix + name, np.asarray(_number(value))


def _is_number(value: Any) -> bool:
    return value is None or type(value) in (int, float)


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
