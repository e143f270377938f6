"""The models whose figures the paper quotes from others, trained and measured on the same cases as ours.

They are the paper's company, not its subject: they train in one go, without a run folder.
"""

import dataclasses
import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nvil.data.dataset import Dataset
from nvil.data.sparse import as_matrix
from nvil.reproduce import presets
from nvil.reproduce.results import FORMAT, commit, save
from nvil.rivals import Estimate, perplexities, perplexity_errors
from nvil.rows import as_rows
from nvil.runs.config import Config
from nvil.runs.run import made_with

VALIDATION = 1000
"""Training cases held out, as by the recipe `best`; at most a fifth of them."""


def measure(
    rival: presets.Quoted,
    *,
    results: Path,
    data: str | None = None,
    settings: dict[str, Any] | None = None,
    evaluation: dict[str, Any] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Path:
    """Train a rival, keep the best by validation, measure it on the test cases, and write its result.

    `settings` and `evaluation` take the place of some of the preset's.
    """
    config = Config(data=data or rival.data)
    dataset = config.load_data()
    module = importlib.import_module(f"nvil.rivals.{rival.rival}")
    chosen = module.Settings(**{**rival.settings, **(settings or {})})
    how = {**rival.evaluation, **(evaluation or {})}
    train, validation = as_rows(dataset.train).hold_out(min(VALIDATION, dataset.train.shape[0] // 5), seed=0)
    curve: dict[str, list[float | None]] = {"updates": [], "seconds": [], "bound": [], "validation_bound": []}
    began = time.monotonic()

    def report(epoch: int, score: float) -> None:
        for name, value in zip(curve, (epoch, round(time.monotonic() - began, 1), None, round(score, 4)), strict=True):
            curve[name].append(value)
        say(f"epoch {epoch}  validation {score:.4f}  {curve['seconds'][-1]:.0f} s")

    parameters = module.fit(
        _plain(train.fixed(), dataset), chosen, validation=_plain(validation, dataset), report=report
    )
    say("evaluating")
    test = _plain(as_rows(dataset.test).fixed(), dataset)
    by = how.pop("by", "log_prob")
    found = getattr(module, by)(parameters, test, **how)
    estimate = found if isinstance(found, Estimate) else None
    log_probs = np.asarray(found if estimate is None else estimate.log_prob, float)
    rows = np.arange(test.shape[0]) if estimate is None else estimate.rows
    figure, perplexity = -float(np.mean(log_probs)), None
    if dataset.documents:
        lengths = as_rows(dataset.test).row_sums()[rows]
        errors = {f"{name}_se": error for name, error in perplexity_errors(log_probs, lengths)._asdict().items()}
        perplexity = {**perplexities(log_probs, lengths)._asdict(), **errors}
        figure = perplexity["per_document"]
    result = {
        "format": FORMAT,
        "table": rival.table,
        "row": rival.row,
        "recipe": "rival",
        "rival": rival.rival,
        "figure": figure,
        "paper": rival.value,
        "bound": float(np.mean(log_probs)),
        "bound_se": float(np.std(log_probs, ddof=1) / len(rows) ** 0.5),
        "estimate_error": None if estimate is None else float(np.mean(estimate.standard_error)),
        "cases": len(rows),
        "perplexity": perplexity,
        "protocol": {
            "split": {"train": train.shape[0], "validation": validation.shape[0], "test": test.shape[0]},
            "evaluation": {"by": by, **how},
        },
        "data": {"name": Path(config.data).name, "fingerprint": dataset.fingerprint, "note": dataset.note},
        "config": dataclasses.asdict(chosen),
        "seed": 0,
        "updates": curve["updates"][-1] if curve["updates"] else 0,
        "curve": curve,
        "made_with": {**made_with(), "commit": commit()},
    }
    return save(result, results)


def _plain(rows: Any, dataset: Dataset) -> Any:
    """Rows as the rivals take them: an array of bits, or a sparse matrix of counts."""
    return as_matrix(rows) if dataset.documents else np.asarray(rows.dense(), np.uint8)
