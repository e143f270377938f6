"""Checkpoints: complete training states, the last two of a run, and the best parameters."""

import logging
import math
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from nvil.contracts import Pair
from nvil.devices import agreed, first_process, from_first
from nvil.errors import UsageError
from nvil.learning import Learner
from nvil.rows import Rows
from nvil.runs import storage
from nvil.training import Best, Checkpoint, empty_tally

log = logging.getLogger("nvil")
BEST = "best.safetensors"


def checkpoint_paths(folder: Path) -> list[Path]:
    """Oldest first."""
    paths = (folder / "checkpoint").glob("*.safetensors")
    return sorted(path for path in paths if path.stem.isdecimal() and path.stem.isascii())


def last_update(folder: Path) -> int:
    """How many updates the newest checkpoint has behind it."""
    return max((_step(path) for path in checkpoint_paths(folder)), default=0)


def save_checkpoint(folder: Path, checkpoint: Checkpoint, version: str) -> None:
    """Keep all that is needed to go on, the checkpoint before it, and the best parameters."""
    state, tally, best = checkpoint
    metadata = {"best_bound": repr(best.bound), "best_step": str(best.step)}
    path = storage.writable_folder(folder / "checkpoint") / f"{int(state.step):012d}.safetensors"
    storage.save_tree(path, {"state": state, "tally": tally, "best": best.pair}, metadata)
    save_best(folder, best, version)
    for later in checkpoint_paths(folder):  # on the way to where parameters stopped being finite
        if _step(later) > int(state.step):
            later.unlink()
    for old in checkpoint_paths(folder)[:-2]:
        old.unlink()


def save_best(folder: Path, best: Best, version: str) -> None:
    metadata = {"updates": str(best.step), "bound": repr(best.bound), "version": version}
    storage.save_tree(folder / BEST, best.pair, metadata)


def load_best(folder: Path, like: Pair) -> Pair:
    return storage.load_tree(folder / BEST, like)[0]


def best_update(folder: Path) -> int | None:
    """The update of the best parameters; None where the file does not say."""
    updates = storage.read_metadata(folder / BEST).get("updates", "")
    return int(updates) if updates.isdecimal() and len(updates) < 20 else None


def load_checkpoint(folder: Path, pair: Pair, learner: Learner, rows: Rows) -> Checkpoint | None:
    """The newest checkpoint that can be read, or None where there is none yet; `rows` are on the device."""
    paths = checkpoint_paths(folder)[::-1]
    shapes = _shapes(pair, learner, rows) if paths else None
    for i, path in enumerate(paths):
        try:
            checkpoint = _load(path, shapes)
        except storage.OtherFormatError:
            raise
        except UsageError as error:
            if i + 1 == len(paths):
                raise UsageError(
                    f"{error} There is no other checkpoint; choose another `folder`, or remove {folder} to start again."
                ) from error
            log.warning("%s Going on from the checkpoint before it.", error)
            continue
        for damaged in paths[:i]:  # kept, but out of the way of the last two
            damaged.rename(damaged.with_suffix(".damaged"))
        return checkpoint
    return None


def shared(checkpoint: Checkpoint | None, pair: Pair, learner: Learner, rows: Rows) -> Checkpoint:
    """The checkpoint that the first process found, in every process; the best parameters stay with the first."""
    if checkpoint is None:
        shapes = _shapes(pair, learner, rows)
        zeros = jax.tree.map(
            lambda leaf: storage.zeros_like(leaf) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf, shapes
        )
        checkpoint = Checkpoint(zeros["state"], zeros["tally"], Best(pair, -math.inf, 0))
    best = checkpoint.best
    known, step = agreed(math.isfinite(best.bound)), agreed(best.step)
    if not first_process():
        best = Best(pair, 0.0 if known else -math.inf, step)
    state, tally = from_first((checkpoint.state, checkpoint.tally))
    return Checkpoint(state, tally, best)


def _shapes(pair: Pair, learner: Learner, rows: Rows) -> Any:
    def like() -> Any:
        state = learner.init(pair, rows)
        return {"state": state, "tally": empty_tally(learner, state, rows), "best": pair}

    return eqx.filter_eval_shape(like)


def _load(path: Path, shapes: Any) -> Checkpoint:
    tree, metadata = storage.load_tree(path, shapes)
    try:
        best = Best(tree["best"], float(metadata["best_bound"]), int(metadata["best_step"]))
    except (KeyError, ValueError) as error:
        raise UsageError(f"{path} is damaged: its metadata is not what nvil writes.") from error
    return Checkpoint(tree["state"], tree["tally"], best)


def _step(path: Path) -> int:
    return int(path.stem)
