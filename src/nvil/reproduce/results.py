"""A cell's result: trained or resumed in its own run folder, evaluated by the paper's protocol, kept as one JSON file.

The test set is looked at once, when the run is done.
"""

import dataclasses
import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nvil.errors import UsageError
from nvil.evaluation import evaluate, evaluate_documents
from nvil.likelihood import importance
from nvil.reproduce.presets import Cell, find
from nvil.runs.run import Run, made_with
from nvil.runs.storage import save_text

FORMAT = 1
SAMPLES = 10
"""Of the test bound, as in the paper (Section 4.1)."""
IMPORTANCE_SAMPLES = 1000
"""Of the importance-weighted estimate of log P(x) that later papers quote; only Tables 1 and 2 have it."""
POINTS = 200
"""Of a curve, at most, in the file of a result."""
FIELDS = ("format", "table", "row", "recipe", "figure", "bound", "protocol", "data", "config", "updates", "curve")


def run_of(cell: Cell, runs: Path, data: str | None = None) -> tuple[Run, Any]:
    """The run of a cell, in its folder below `runs`, with its data."""
    config = cell.config if data is None else dataclasses.replace(cell.config, data=data)
    dataset = config.load_data()
    return Run.from_config(runs / cell.name, config, dataset), dataset


def result_of(cell: Cell, run: Run, dataset: Any) -> dict[str, Any]:
    """Evaluate a finished run by the paper's protocol."""
    config = run.config
    assert config is not None
    pair = run.load_best()
    perplexity = None
    if run.documents:
        documents = evaluate_documents(pair, dataset.test, samples=SAMPLES)
        found = documents.evaluation
        perplexity = {
            "per_document": documents.perplexity,
            "per_word": documents.corpus_perplexity,
            "empty_documents": documents.empty_documents,
        }
    else:
        found = evaluate(pair, dataset.test, samples=SAMPLES)
    figure = perplexity["per_document"] if perplexity and cell.metric == "perplexity" else -found.bound
    likelihood = None
    if cell.table in ("table1", "table2"):
        likelihood = importance(pair, dataset.test, samples=IMPORTANCE_SAMPLES)._asdict()
    train, validation, test = dataset.sizes(run.plan.validation or 0)
    return {
        "format": FORMAT,
        "table": cell.table,
        "row": cell.row,
        "recipe": cell.recipe,
        "figure": figure,
        "paper": cell.paper,
        **found._asdict(),
        "perplexity": perplexity,
        "importance": likelihood,
        "protocol": {
            "split": {"train": train, "validation": validation, "test": test},
            "samples": SAMPLES,
            "parameters": f"those of the best validation bound, at update {run.best_update()}",
        },
        "data": {"name": Path(config.data).name, "fingerprint": run.facts.fingerprint, "note": dataset.note},
        "config": _plain(dataclasses.asdict(dataclasses.replace(config, data=Path(config.data).name))),
        "seed": config.seed,
        "updates": run.updates(),
        "curve": curve_of(run),
        "made_with": {**made_with(), "commit": commit()},
    }


def curve_of(run: Run) -> dict[str, list[float | None]]:
    """The validation bound over updates and over wall time on one core, compilation and validation included."""
    metrics, timing = run.metrics(), run.timing()
    updates = metrics["updates"]
    seconds = np.cumsum(np.nan_to_num(timing.get("seconds", np.full(len(updates), np.nan))))
    seconds = np.interp(updates, timing["updates"], seconds)
    shown = np.unique(np.linspace(0, len(updates) - 1, min(POINTS, len(updates))).round().astype(int))
    columns = {
        "updates": updates,
        "seconds": seconds,
        "bound": metrics["bound"],
        "validation_bound": metrics["validation_bound"],
    }
    return {name: [_number(value) for value in values[shown]] for name, values in columns.items()}


def seconds_to_pass(result: dict[str, Any]) -> float | None:
    """Wall time until the validation bound was above the paper's figure for the test set; None if it never was."""
    if result["paper"] is None:
        return None
    curve = result["curve"]
    for seconds, bound in zip(curve["seconds"], curve["validation_bound"], strict=True):
        if bound is not None and -bound < result["paper"]:
            return seconds
    return None


def save(result: dict[str, Any], folder: Path) -> Path:
    path = folder / f"{result['table']}-{result['row']}-{result['recipe']}.json"
    folder.mkdir(parents=True, exist_ok=True)
    save_text(path, json.dumps(result, indent=1) + "\n")
    return path


def load_all(folder: Path) -> list[dict[str, Any]]:
    """Every result in a folder; a file that is damaged or not a result is refused."""
    if not folder.is_dir():
        raise UsageError(f"There is no folder of results {folder}; make one with: nvil reproduce table1")
    return [load(path) for path in sorted(folder.glob("*.json"))]


def load(path: Path) -> dict[str, Any]:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise UsageError(f"{path} is damaged: it cannot be read as JSON. Remove it, or make it again.") from error
    if not isinstance(result, dict) or result.get("format") != FORMAT or any(name not in result for name in FIELDS):
        raise UsageError(f"{path} is not a result of `nvil reproduce`; move it out of the folder.")
    name = f"{result['table']}-{result['row']}-{result['recipe']}.json"
    numbers = (result["figure"], result["bound"])
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
        raise UsageError(f"{path} is damaged: its figure is not a finite number. Remove it, or make it again.")
    if name != path.name:
        raise UsageError(f"{path} holds the result of another cell ({name}); give it that name, or remove it.")
    if "rival" not in result:
        find(result["table"], result["row"], result["recipe"])
    return result


def reproduce(cell: Cell, *, runs: Path, results: Path, data: str | None, train: Callable[[Run, Any], None]) -> Path:
    """Train or resume a cell with `train`, evaluate it, and write its result."""
    run, dataset = run_of(cell, runs, data)
    train(run, dataset)
    return save(result_of(cell, run, dataset), results)


def commit() -> str:
    """Of the source, where it is a git checkout; with a plus where files were changed since."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent.parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return "not known"


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _number(value: Any) -> float | None:
    value = float(value)
    return round(value, 4) if math.isfinite(value) else None
