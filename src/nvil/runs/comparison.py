"""Every estimator on the same model, data, seed and wall time: what `nvil compare` trains and measures.

Fair means that an update costs the same: an estimator with K samples of the latents per case has minibatches of
batch_size / K cases, so that all compute log P for as many latents. All have the same learning rate, but for
wake-sleep's (`Config`). Each has as many updates as fit in the time by its speed in a probe, so that a schedule of the
learning rate ends where the time does. All are judged by the bound of one sample, whichever objective they climb.
"""

import dataclasses
import json
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from nvil import training
from nvil.contracts import Pair
from nvil.data.dataset import Dataset
from nvil.diagnostics import gradient_noise
from nvil.errors import TrainingError, UsageError, above_zero, choose
from nvil.evaluation import evaluate
from nvil.likelihood import importance
from nvil.rows import as_source
from nvil.runs import metrics
from nvil.runs.config import ESTIMATORS, OWN_OPTIONS, Config
from nvil.runs.run import Experiment, Run
from nvil.runs.storage import append_line, save_text

REPORTS = 25
"""Points of each curve."""
PROBE, LEAST_PROBE = 0.05, 1.0
"""The share of the time that a probe of the speed takes, beside it, and the least in seconds."""
ONE_SAMPLE = "one_sample.jsonl"
"""Where a run that climbs another objective keeps its bound of one sample."""
SAMPLES, CASES = 1000, 1000
"""Of the last estimate of log P(x): samples for every case, and validation cases at most."""
log = logging.getLogger("nvil")
Train = Callable[[Run, Dataset, Callable[[training.Report], None]], None]
"""Trains a run, and shows it each report."""


def compare(
    config: Config,
    folder: Path,
    train: Train,
    *,
    seconds: float,
    estimators: Sequence[str] = (),
) -> dict[str, Any]:
    """Train with each of the `estimators`, by default all that apply, for so many `seconds`, and measure them.

    Each has a run folder of its own in `folder`. The same call again goes on where this one stopped.
    """
    above_zero(seconds=seconds)
    if config.data == "-":
        raise UsageError("A stream is gone after the first estimator has seen it; compare on a file.")
    if config.validation == 0:
        raise UsageError("Estimators are compared on validation cases; `validation` must be at least 1, got 0.")
    dataset = config.load_data()
    chosen, left_out = candidates(config, dataset, estimators)
    _same_time(folder / "time.json", seconds)
    done = []
    for name, own in chosen.items():
        try:
            done.append(_trained(folder / name, own, dataset, seconds, train))
        except TrainingError as error:
            log.warning("%s is left out: %s", name, error)
            left_out[name] = str(error)
    if not done:
        raise TrainingError("No estimator could be trained; a smaller learning rate usually helps.")
    reference, experiment = done[0]
    fixed = reference.load_best()
    return {
        "data": config.data,
        "model": config.model,
        "hidden": list(config.hidden),
        "seconds": seconds,
        "latents_per_update": config.batch_size,
        "validation_cases": experiment.validation.shape[0],
        "likelihood_samples": SAMPLES,
        "likelihood_cases": min(CASES, experiment.validation.shape[0]),
        "fixed_point": reference.folder.name,
        "estimators": [_measured(run, experiment, fixed) for run, experiment in done],
        "left_out": left_out,
    }


def candidates(config: Config, dataset: Dataset, names: Sequence[str]) -> tuple[dict[str, Config], dict[str, str]]:
    """The config of every estimator that applies, and why others do not; those that are named must."""
    config = dataclasses.replace(config, **dataclasses.asdict(dataset.choices))  # defaults depend on what the data is
    visible = as_source(dataset.train).first().shape[1]
    pair = eqx.filter_eval_shape(
        lambda: config.build_pair(
            visible, lengths=dataset.lengths, given=dataset.context, categories=dataset.categories
        )
    )
    chosen, left_out = {}, {}
    for name in names or ESTIMATORS:
        choose("estimator", name, ESTIMATORS)
        others = {
            option: Config.__dataclass_fields__[option].default
            for option, owners in OWN_OPTIONS.items()
            if name not in owners
        }
        own = dataclasses.replace(config, estimator=name, **others)
        try:
            resolved = own.resolved()
            resolved.build_learner().estimator.check(pair)
        except UsageError as error:
            if names:
                raise
            left_out[name] = str(error)
            continue
        size = max(1, round(config.batch_size / latents_per_case(resolved)))
        chosen[name] = dataclasses.replace(own, batch_size=size)
    return chosen, left_out


def latents_per_case(config: Config) -> int:
    """How many samples of the latents log P is computed for, for every case of a minibatch."""
    samples = config.samples or 1
    return samples * (1 + len(config.hidden)) if config.estimator in ("arm", "disarm") else samples


def _same_time(path: Path, seconds: float) -> None:
    """Refuse to go on with a comparison of another time."""
    try:
        before = json.loads(path.read_text())["seconds"]
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_text(path, json.dumps({"seconds": seconds}) + "\n")
        return
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is not that of a comparison; choose another `folder`.") from error
    if before != seconds:
        raise UsageError(
            f"{path.parent} holds a comparison of {before:g} seconds each, not {seconds:g}; choose another `folder`."
        )


def _trained(folder: Path, config: Config, dataset: Dataset, seconds: float, train: Train) -> tuple[Run, Experiment]:
    """The run of one estimator, trained for its time."""
    if (folder / "config.toml").exists():
        before = Run.open(folder).plan
        updates, every = before.updates, before.report_every
    else:
        probed = Run.from_config(folder, dataclasses.replace(config, updates=1000), dataset)
        assert probed.prepare is not None
        updates = max(1, round(seconds * speed(probed.prepare(), max(LEAST_PROBE, PROBE * seconds))))
        every = max(1, updates // REPORTS)
    run = Run.from_config(folder, dataclasses.replace(config, updates=updates, report_every=every), dataset)
    assert run.prepare is not None
    experiment = run.prepare()
    assert run.config is not None
    many = run.config.objective_samples > 1

    def judge(report: training.Report) -> None:
        if many:
            learned = experiment.learner.learned(report.state)
            bound = evaluate(learned, experiment.validation, seed=report.updates).bound
            append_line(folder / ONE_SAMPLE, json.dumps({"updates": report.updates, "bound": bound}))

    if run.updates() < updates:
        if many and folder.exists():
            metrics.drop_reports_after(folder, run.updates(), (ONE_SAMPLE,))
        train(run, dataset, judge)
    return run, experiment


def speed(experiment: Experiment, seconds: float) -> float:
    """Updates per second, compiling left out, in chunks that take half of the time and more."""
    pair, learner, train, _ = experiment
    rows = train.first().on_device()
    state = learner.init(pair, rows)
    tally = training.empty_tally(learner, state, rows)
    size, count, spent = 1, 0, 0.0
    jax.block_until_ready(training.train_chunk(learner, state, rows, 0, tally))
    while True:
        began = time.perf_counter()
        state, chunk = jax.block_until_ready(training.train_chunk(learner, state, rows, size, tally))
        took = time.perf_counter() - began
        count, spent = count + size, spent + took
        if spent > seconds or not chunk.finite:
            return count / spent
        size *= 2


def _measured(run: Run, experiment: Experiment, fixed: Pair) -> dict[str, Any]:
    """What the run came to, in numbers."""
    config = run.config
    assert config is not None
    reports, timing = run.metrics(), run.timing()
    updates = reports["updates"]
    paces = dict(zip(timing["updates"].tolist(), timing["updates_per_second"].tolist(), strict=True))
    seconds = np.cumsum(np.diff(updates, prepend=0) / [paces.get(int(each), np.nan) for each in updates])
    bounds = reports["validation_bound"]
    if config.objective_samples > 1:
        kept = metrics.read_arrays(run.folder / ONE_SAMPLE)
        known = dict(zip(kept["updates"].tolist(), kept["bound"].tolist(), strict=True))
        bounds = np.array([known.get(int(each), np.nan) for each in updates])
    pair = run.load_best()
    cases = next(experiment.validation.blocks(CASES))
    likelihood = importance(pair, cases, samples=SAMPLES)
    bound = evaluate(pair, cases, samples=100)
    noise = gradient_noise(experiment.learner.estimator, config.batch_size, fixed, experiment.train.first().on_device())
    return metrics.finite(
        {
            "name": config.estimator,
            "samples": config.samples,
            "batch_size": config.batch_size,
            "learning_rate": config.learning_rate,
            "updates": int(updates[-1]),
            "seconds": float(seconds[-1]),
            "bound": bound.bound,
            "bound_se": bound.bound_se,
            "log_likelihood": likelihood.log_likelihood,
            "effective_samples": likelihood.effective_samples,
            "gradient": noise._asdict(),
            "curve": {"updates": updates.tolist(), "seconds": seconds.tolist(), "bound": bounds.tolist()},
        }
    )
