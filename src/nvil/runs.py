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
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nvil
from nvil import optimisers, storage, training
from nvil.contracts import Pair
from nvil.data import Cases, Dataset, load
from nvil.errors import UsageError, choose
from nvil.estimators import nvil as nvil_estimator
from nvil.estimators import reinforce, wake_sleep
from nvil.models import WITHIN, darn, fdarn, sbn
from nvil.sparse import mean_row

MODELS = {"sbn": sbn, "fdarn": fdarn, "darn": darn}
ESTIMATORS = {"nvil": nvil_estimator, "wake-sleep": wake_sleep, "reinforce": reinforce}
OPTIMISERS = {"adam": optimisers.adam, "sgd": optimisers.sgd}
CHECKPOINT_SECONDS = 60
DEFAULT_RATES = {"adam": (3e-3, 1.0), "sgd": (3e-4, 0.2)}


@dataclasses.dataclass(frozen=True)
class Config:
    """What defines a run; with these, on the same machine, it gives the same bits."""

    data: str = "digits"
    """A named set (digits) or a file (.npy, .npz, .csv) with one case a row."""
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
    """Training cases held out to keep the best parameters by; 0 keeps the last."""
    report_every: int = 1000
    """Updates between reports and looks at the validation bound."""
    seed: int = 0
    """Of weights, minibatches, samples and the validation split."""
    binarize: str = "none"
    """How values other than 0 and 1 become binary: none refuses them; threshold: on from --threshold up."""
    threshold: float | None = None
    """In the data's own units; without it, halfway between the smallest and the largest value."""

    def resolved(self) -> "Config":
        """Check every choice and fill in what depends on others."""
        choose("model", self.model, MODELS)
        choose("estimator", self.estimator, ESTIMATORS)
        choose("optimiser", self.optimiser, OPTIMISERS)
        choose("inference network", self.inference, WITHIN)
        choose("binarization", self.binarize, ("none", "threshold"))
        for name, least in (("updates", 1), ("batch_size", 1), ("samples", 1), ("validation", 0), ("report_every", 1)):
            if getattr(self, name) < least:
                option = name.replace("_", "-")
                raise UsageError(f"--{option} must be at least {least}, not {getattr(self, name)}.")
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

    def load_data(self) -> Dataset:
        return load(self.data, binarize=self.binarize, threshold=self.threshold)

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
        """Make the folder and write its config, or open it again to go on with the run it holds."""
        config = dataclasses.replace(config.resolved(), threshold=dataset.threshold)
        training.split_validation(dataset.train, config.validation, seed=config.seed)  # refused here if impossible
        run = Run(folder, config, dataset.train.shape[1], dataset.image, dataset.lengths, dataset.fingerprint)
        if config.model == "darn" and run.documents:
            run.build()  # says why not, before anything is written
        storage.writable_folder(folder)
        if (folder / "config.toml").exists():
            Run.open(folder)._check_same(run)
        facts = {name: getattr(run, name) for name in ("visible", "image", "lengths", "fingerprint")}
        facts["version"] = nvil.__version__
        text = storage.to_toml(
            {**dataclasses.asdict(run.config), **facts}, comment="nvil run; layer sizes from the data up"
        )
        if dataset.vocabulary is not None:
            storage.save_text(folder / "vocabulary.txt", "".join(f"{word}\n" for word in dataset.vocabulary))
        storage.save_text(folder / "config.toml", text)
        return run

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
        config = self.config
        saved_at = time.monotonic()
        reports = training.fit(
            pair,
            dataset.train,
            **settings,
            updates=config.updates,
            validation=config.validation,
            report_every=config.report_every,
            state=state,
            best=best,
        )
        report = None
        try:
            for report in reports:
                self.add_metrics(report)
                if report.updates == config.updates or time.monotonic() - saved_at > CHECKPOINT_SECONDS:
                    self.save_checkpoint(report)
                    saved_at = time.monotonic()
                yield report
        except training.DivergedError:
            if report is not None:
                self.save_checkpoint(report)
            raise

    def save_best(self, best: training.Best) -> None:
        metadata = {"updates": str(best.step), "bound": repr(best.bound), "version": nvil.__version__}
        storage.save_tree(self.folder / "best.safetensors", best.pair, metadata)

    def save_checkpoint(self, report: training.Report) -> None:
        """Keep the complete training state, the one before it, and the best parameters."""
        folder = storage.writable_folder(self.folder / "checkpoint")
        metadata = {"best_bound": repr(report.best.bound), "best_step": str(report.best.step)}
        tree = {"state": report.state, "best": report.best.pair}
        storage.save_tree(folder / f"{report.updates:012d}.safetensors", tree, metadata)
        self.save_best(report.best)
        for old in sorted(folder.glob("*.safetensors"))[:-2]:
            old.unlink()

    def load_checkpoint(self, like: training.TrainState) -> tuple[training.TrainState, training.Best] | None:
        """The newest training state, or None where there is none yet."""
        paths = sorted((self.folder / "checkpoint").glob("*.safetensors"))
        if not paths:
            return None
        tree, metadata = storage.load_tree(paths[-1], {"state": like, "best": like.params.pair})
        state = tree["state"]
        self._truncate_metrics(int(state.step))
        return state, training.Best(tree["best"], float(metadata["best_bound"]), int(metadata["best_step"]))

    def _truncate_metrics(self, updates: int) -> None:
        """Drop reports of updates that will be done again."""
        path = self.folder / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        kept = [line for line in lines if json.loads(line)["updates"] <= updates]
        storage.save_text(path, "".join(line + "\n" for line in kept))

    def add_metrics(self, report: training.Report) -> None:
        line: dict[str, Any] = {name: getattr(report, name) for name in ("updates", "bound", "validation_bound")}
        line["signal"] = report.signal and report.signal._asdict()
        line["gradient_norms"] = dict(zip(("model", "inference", "baselines"), report.gradient_norms, strict=True))
        line["updates_per_second"] = round(report.updates_per_second, 1)
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def vocabulary(self) -> tuple[str, ...] | None:
        """The words of a document model, where its data names them."""
        path = self.folder / "vocabulary.txt"
        return tuple(path.read_text(encoding="utf-8").splitlines()) if path.exists() else None

    def split(self, name: str) -> Cases:
        """The training or test cases of the run's data."""
        choose("split", name, ("train", "test"))
        dataset = self.config.load_data()
        if dataset.fingerprint != self.fingerprint:
            raise UsageError(
                f"The data {self.config.data!r} is not what {self.folder} was trained on; its contents changed."
            )
        return dataset.test if name == "test" else dataset.train
