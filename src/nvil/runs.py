"""The run directory: what was asked for, what happened, and the trained model.

config.toml        every choice, defaults written out
metrics.jsonl      one report a line
checkpoint/        complete training states, the last two
best.safetensors   the parameters with the best validation bound
samples.png        a picture of samples, where cases are pictures (samples.txt for documents)
vocabulary.txt     the words of a document model, one a line
"""

import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

import nvil
from nvil import optimisers, storage, training
from nvil.contracts import Pair
from nvil.data import NAMED, Cases, Choices, Dataset, load
from nvil.errors import UsageError, choose
from nvil.estimators import nvil as nvil_estimator
from nvil.estimators import reinforce, wake_sleep
from nvil.models import WITHIN, darn, fdarn, sbn
from nvil.rows import mean_row

MODELS = {"sbn": sbn, "fdarn": fdarn, "darn": darn}
ESTIMATORS = {"nvil": nvil_estimator, "wake-sleep": wake_sleep, "reinforce": reinforce}
OPTIMISERS = {"adam": optimisers.adam, "sgd": optimisers.sgd}
CHECKPOINT_SECONDS = 60
LARGEST = 2**31 - 1
DEFAULT_RATES = {"adam": (3e-3, 1.0), "sgd": (3e-4, 0.2)}


@dataclasses.dataclass(frozen=True)
class Config:
    """What defines a run; with these, on the same machine, it gives the same bits."""

    data: str = "digits"
    """A named set (see: nvil data list), a file with one case a row (.npy, .npz, .csv, .tsv, .amat, idx, .svmlight,
    .mtx, docword.*.txt), or text: a folder of files, a .tar of them, or a .txt with a document a line."""
    model: str = "sbn"
    """sbn (sigmoid belief network), fdarn (autoregressive latents) or darn (autoregressive latents and visibles)."""
    hidden: tuple[int, ...] = (100, 50)
    """Latent variables in each layer, from the data up."""
    inference: str = "factorial"
    """Within its layers, the inference network is factorial or autoregressive."""
    estimator: str = "nvil"
    """nvil, its rival wake-sleep, or reinforce (nvil without variance reduction)."""
    optimiser: str = "adam"
    """adam, or sgd on summed gradients as in the paper."""
    updates: int = 30_000
    """Parameter updates in all."""
    batch_size: int = 50
    """Cases in a minibatch; 20 in the paper."""
    learning_rate: float | None = None
    """Of the model; without it 3e-3 for adam, 3e-4 (the paper's) for sgd, and for wake-sleep a third of these."""
    inference_ratio: float | None = None
    """The inference network's learning rate over the model's; without it 1 for adam, 0.2 (the paper's) for sgd."""
    samples: int = 1
    """Samples from the inference network for every case of a minibatch."""
    validation: int = 100
    """Training cases held out to keep the best parameters by; 0 keeps the last. Some data sets bring their own."""
    report_every: int = 1000
    """Updates between reports and looks at the validation bound."""
    seed: int = 0
    """Of weights, minibatches, samples and the validation split."""
    values: str = "auto"
    """What the data's values are: binary, counts (of words), or auto, which takes what is unambiguous."""
    binarize: str | None = None
    """How grey levels become binary: threshold; stochastic, each draw anew with the grey level as probability; or none,
    which refuses them. Without it, stochastic for named sets with grey levels and none for files."""
    threshold: float | None = None
    """On from this value up, in the data's own units; without it, halfway between the smallest and the largest."""
    white: float | None = None
    """For stochastic: the value that is certainly on; without it, 1 for values up to 1, 255 for values up to 255."""
    words: int = 10_000
    """Of text: how many words to count, the most frequent."""
    stop_words: str = "none"
    """Of text: english leaves its most common words out."""
    first_index: int = 1
    """Of svmlight files: the index of the first column, 1 or 0."""

    def resolved(self) -> "Config":
        """Check every choice and fill in what depends on others."""
        choose("model", self.model, MODELS)
        choose("estimator", self.estimator, ESTIMATORS)
        choose("optimiser", self.optimiser, OPTIMISERS)
        choose("inference network", self.inference, WITHIN)
        self.choices().checked()
        for name, least in (
            ("updates", 1),
            ("batch_size", 1),
            ("samples", 1),
            ("validation", 0),
            ("report_every", 1),
            ("seed", 0),
        ):
            if getattr(self, name) < least:
                option = name.replace("_", "-")
                raise UsageError(f"--{option} must be at least {least}, not {getattr(self, name)}.")
            if getattr(self, name) > LARGEST:
                raise UsageError(f"--{name.replace('_', '-')} {getattr(self, name)} is too large.")
        if not self.hidden:
            raise UsageError("--hidden needs the size of at least one layer.")
        for size in self.hidden:
            if size < 1:
                raise UsageError(f"--hidden {size} cannot be: every layer needs at least one unit.")
        rate, ratio = DEFAULT_RATES[self.optimiser]
        rate = rate / 3 if self.estimator == "wake-sleep" else rate  # as the paper has it: 1e-4 for 3e-4
        rate = rate if self.learning_rate is None else self.learning_rate
        ratio = ratio if self.inference_ratio is None else self.inference_ratio
        for name, value in (("learning-rate", rate), ("inference-ratio", ratio)):
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"--{name} must be a positive number, not {value}.")
        return dataclasses.replace(self, learning_rate=rate, inference_ratio=ratio)

    def choices(self) -> Choices:
        """What was said about the data."""
        return Choices(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Choices)})

    def load_data(self) -> Dataset:
        return load(self.data, self.choices())

    def settings(self) -> dict[str, Any]:
        """The arguments of `training.fit` and `training.start`."""
        assert self.learning_rate is not None
        assert self.inference_ratio is not None
        return {
            "estimator": ESTIMATORS[self.estimator](samples=self.samples),
            "optimiser": OPTIMISERS[self.optimiser](self.learning_rate, inference_ratio=self.inference_ratio),
            "batch_size": self.batch_size,
            "seed": self.seed,
        }

    def build(self, visible: int, mean: Any = None, lengths: Sequence[int] | None = None) -> Pair:
        """The untrained pair."""
        make = MODELS[self.model]
        return make(visible, self.hidden, inference=self.inference, lengths=lengths, mean=mean, seed=self.seed)


@dataclasses.dataclass(frozen=True)
class Run:
    """A run directory with its config and what the data looked like."""

    folder: Path
    config: Config
    visible: int
    image: tuple[int, int] | None
    lengths: tuple[int, ...] | None
    fingerprint: str

    @property
    def documents(self) -> bool:
        return self.lengths is not None

    def build(self, mean: Any = None) -> Pair:
        """The untrained pair."""
        return self.config.build(self.visible, mean, self.lengths)

    @staticmethod
    def create(folder: Path, config: Config, dataset: Dataset) -> "Run":
        """Make the folder of a new run, or open it again to go on with the run it holds."""
        # The whole path, so that the run can be evaluated from any folder.
        source = config.data if config.data in NAMED else str(Path(config.data).resolve())
        config = dataclasses.replace(config.resolved(), data=source, **dataclasses.asdict(dataset.choices))
        if dataset.validation is None:
            training.split_validation(dataset.train, config.validation, seed=config.seed)  # refused here if impossible
        run = Run(folder, config, dataset.train.shape[1], dataset.image, dataset.lengths, dataset.fingerprint)
        run._check_size()
        if (folder / "config.toml").exists():
            Run.open(folder)._check_same(run)
        storage.writable_folder(folder)
        return run

    def _check_size(self) -> None:
        """Refuse, before anything is allocated or written, what cannot be built or fit in this machine's memory."""
        shapes = eqx.filter_eval_shape(self.build)
        needed = 16 * sum(leaf.size for leaf in jax.tree.leaves(shapes))  # parameters, gradients and Adam's two moments
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if needed > memory:
            raise UsageError(
                f"This model needs about {needed / 1e9:.0f} GB to train, and the machine has {memory / 1e9:.0f}; "
                "make --hidden smaller."
            )

    def write_config(self, vocabulary: tuple[str, ...] | None) -> None:
        facts = {name: getattr(self, name) for name in ("visible", "image", "lengths", "fingerprint")}
        facts["version"] = nvil.__version__
        text = storage.to_toml(
            {**dataclasses.asdict(self.config), **facts}, comment="nvil run; layer sizes from the data up"
        )
        if vocabulary is not None:
            storage.save_text(self.folder / "vocabulary.txt", "".join(f"{word}\n" for word in vocabulary))
        storage.save_text(self.folder / "config.toml", text)

    def _check_same(self, other: "Run") -> None:
        """Refuse to go on with another config than this run began with; only `updates` may grow."""
        old, new = (dataclasses.asdict(run.config) | {"fingerprint": run.fingerprint} for run in (self, other))
        if new["updates"] < old["updates"]:
            raise UsageError(f"{self.folder} was asked for {old['updates']} updates already; --updates can only grow.")
        changed = [f"{name} {old[name]} -> {new[name]}" for name in old if name != "updates" and old[name] != new[name]]
        if changed:
            raise UsageError(
                f"{self.folder} holds a run with another config ({'; '.join(changed)}); "
                "give the old values to go on with it, or another --out."
            )

    @staticmethod
    def open(folder: Path) -> "Run":
        """Open a run for evaluation, sampling or encoding."""
        if not folder.is_dir():
            raise UsageError(f"There is no run {folder}; make one with: nvil train --out {folder}")
        path = folder / "config.toml"
        values = storage.read_toml(path)
        try:
            image, lengths = (tuple(values[name]) if name in values else None for name in ("image", "lengths"))
            names = [field.name for field in dataclasses.fields(Config)]
            chosen = {name: values[name] for name in names if name in values}
            config = Config(**{**chosen, "hidden": tuple(chosen["hidden"])}).resolved()
            return Run(folder, config, int(values["visible"]), image, lengths, str(values["fingerprint"]))
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{path} does not describe a run ({error}).") from error

    def load_best(self) -> Pair:
        """The parameters with the best validation bound."""
        return storage.load_tree(self.folder / "best.safetensors", self.build())[0]

    def fit(self, dataset: Dataset) -> Iterator[training.Report]:
        """Train as configured, from the newest checkpoint on, and keep metrics, checkpoints and the best parameters."""
        settings = self.config.settings()
        pair = self.build(mean_row(dataset.train))
        found = self.load_checkpoint(training.start(pair, dataset.train, **settings))
        state, best = found or (None, None)
        reports = training.fit(
            pair,
            dataset.train,
            **settings,
            updates=self.config.updates,
            validation=self.config.validation if dataset.validation is None else dataset.validation,
            report_every=self.config.report_every,
            state=state,
            best=best,
        )
        report, saved, saved_at = None, None, time.monotonic()
        try:
            for report in reports:
                if saved is None:  # nothing is written before it is known that training works at all
                    self.write_config(dataset.vocabulary)
                    saved = 0
                self.add_metrics(report)
                if time.monotonic() - saved_at > CHECKPOINT_SECONDS:
                    self.save_checkpoint(report.state, report.best)
                    saved, saved_at = report.updates, time.monotonic()
                yield report
        except training.DivergedError as error:
            self.write_config(dataset.vocabulary)
            self.save_checkpoint(error.state, error.best)
            raise
        finally:  # the end, Ctrl-C, or the caller had enough
            if report is not None and saved != report.updates:
                self.save_checkpoint(report.state, report.best)

    def save_best(self, best: training.Best) -> None:
        metadata = {"updates": str(best.step), "bound": repr(best.bound), "version": nvil.__version__}
        storage.save_tree(self.folder / "best.safetensors", best.pair, metadata)

    def save_checkpoint(self, state: training.TrainState, best: training.Best) -> None:
        """Keep the complete training state, the one before it, and the best parameters."""
        folder = storage.writable_folder(self.folder / "checkpoint")
        metadata = {"best_bound": repr(best.bound), "best_step": str(best.step)}
        path = folder / f"{int(state.step):012d}.safetensors"
        storage.save_tree(path, {"state": state, "best": best.pair}, metadata)
        self.save_best(best)
        for old in sorted(folder.glob("*.safetensors"))[:-2]:
            old.unlink()

    def load_checkpoint(self, like: training.TrainState) -> tuple[training.TrainState, training.Best] | None:
        """The newest training state that can be read, or None where there is none yet."""
        paths = sorted((self.folder / "checkpoint").glob("*.safetensors"), reverse=True)
        for i, path in enumerate(paths):
            try:
                tree, metadata = storage.load_tree(path, {"state": like, "best": like.params.pair})
            except UsageError as error:
                if i + 1 == len(paths):
                    raise
                print(f"nvil: {error} Going on from the checkpoint before it.", file=sys.stderr)
                continue
            state = tree["state"]
            self._truncate_metrics(int(state.step))
            return state, training.Best(tree["best"], float(metadata["best_bound"]), int(metadata["best_step"]))
        self._truncate_metrics(0)
        return None

    def _truncate_metrics(self, updates: int) -> None:
        """Drop reports of updates that will be done again, and a line that was cut off."""
        path = self.folder / "metrics.jsonl"
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            storage.save_text(path, "".join(f"{line}\n" for line in lines if 0 < _updates(line) <= updates))

    def add_metrics(self, report: training.Report) -> None:
        line: dict[str, Any] = {name: getattr(report, name) for name in ("updates", "bound", "validation_bound")}
        line["signal"] = report.signal and {k: v.tolist() for k, v in report.signal._asdict().items()}
        line["gradient_norms"] = dict(zip(("model", "inference", "baselines"), report.gradient_norms, strict=True))
        line["updates_per_second"] = round(report.updates_per_second, 1)
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def updates(self) -> int:
        """How many updates the newest checkpoint has behind it."""
        return max((int(path.stem) for path in (self.folder / "checkpoint").glob("*.safetensors")), default=0)

    def vocabulary(self) -> tuple[str, ...] | None:
        """The words of a document model, where its data names them."""
        path = self.folder / "vocabulary.txt"
        return tuple(path.read_text(encoding="utf-8").split("\n")[:-1]) if path.exists() else None

    def split(self, name: str) -> Cases:
        """The training or test cases of the run's data."""
        choose("split", name, ("train", "test"))
        dataset = self.config.load_data()
        if dataset.fingerprint != self.fingerprint:
            raise UsageError(
                f"The data {self.config.data!r} is not what {self.folder} was trained on; its contents changed."
            )
        return dataset.test if name == "test" else dataset.train


def _updates(line: str) -> int:
    """The update that a line of metrics is about; 0 for a line that was cut off."""
    try:
        return int(json.loads(line)["updates"])
    except (ValueError, KeyError, TypeError):
        return 0
