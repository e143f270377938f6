"""An estimator as the folder of a run: its parameters, and all that it needs to go on learning. Nothing is pickled.

What a run has (`nvil.runs.run`), and estimator.toml: the class, its parameters, and the columns of the data. `nvil
sample`, `nvil encode`, `nvil report` and the like take such a folder too.
"""

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from nvil.data.columns import telling
from nvil.errors import UsageError
from nvil.rows import DenseRows
from nvil.runs import checkpoints, metrics, storage
from nvil.runs.lock import locked
from nvil.runs.run import FROM_SKLEARN, DataFacts, Plan, Run

FILE = "estimator.toml"


def save(estimator: Any, folder: Path) -> Path:
    """Write the fitted `estimator`; a folder with a run that is not an estimator's is left alone."""
    if (folder / "config.toml").exists() and not (folder / FILE).exists():
        raise UsageError(f"{folder} holds a run; choose another `folder` for the estimator.")
    params = estimator.get_params(deep=False)
    if not isinstance(params["random_state"], int | np.integer):
        params["random_state"] = None  # what it gave is kept: the seed
    names = getattr(estimator, "feature_names_in_", None)
    names = None if names is None else tuple(map(str, names))
    config = estimator._config(estimator._seed)
    facts = DataFacts(
        estimator.n_features_in_,
        FROM_SKLEARN,
        lengths=estimator._lengths,
        names=None if estimator._lengths else telling(names),
    )
    plan = Plan(config.updates, 0, config.report_every, seed=config.seed)
    said = {
        "format": storage.FORMAT,
        "kind": type(estimator).__name__,
        "names": names,
        **{f"with_{name}": _plain(value) for name, value in params.items()},
    }
    with locked(storage.writable_folder(folder)):
        Run(folder, plan, facts, config, vocabulary=names if estimator._lengths else None).write_config()
        lines = "".join(f"{json.dumps(line)}\n" for line in estimator.history_)
        storage.save_text(folder / "metrics.jsonl", lines)
        checkpoints.save_checkpoint(folder, estimator._checkpoint, importlib.metadata.version("nvil"))
        storage.save_text(folder / FILE, storage.to_toml(said, "an estimator of nvil.sklearn; what is missing is None"))
    return folder


def load(kind: type, folder: Path) -> Any:
    """The estimator that `save` wrote."""
    path = folder / FILE
    if not path.exists():
        raise UsageError(f"{folder} does not hold an estimator that `save` wrote.")
    said = storage.read_toml(path)
    storage.check_format(path, said.get("format"))
    if said.get("kind") != kind.__name__:
        raise UsageError(f"{folder} holds a {said.get('kind')}, not a {kind.__name__}.")
    given = {name: _param(said.get(f"with_{name}")) for name in kind._get_param_names()}
    run = Run.open(folder)
    assert run.config is not None
    estimator = kind(**given)
    estimator.n_features_in_, estimator._lengths = run.facts.visible, run.facts.lengths
    if isinstance(names := said.get("names"), list):
        estimator.feature_names_in_ = np.array(names, object)
    config = estimator._config(run.config.seed)
    zeros = DenseRows(jnp.zeros((1, run.facts.visible), jnp.float32))  # for the shapes of a state
    checkpoint = checkpoints.load_checkpoint(
        folder, estimator._trainable(run.load_best()), config.build_learner(), zeros
    )
    if checkpoint is None:
        raise UsageError(f"{folder} has no checkpoint to load the estimator from.")
    history = [values for _, values in metrics.read_reports(folder / "metrics.jsonl")]
    return estimator._learned(config.seed, checkpoint, history)


def _plain(value: Any) -> Any:
    """A parameter as TOML has it."""
    value = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
    return list(value) if isinstance(value, tuple) else value


def _param(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
