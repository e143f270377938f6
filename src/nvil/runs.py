"""The run directory: what was asked for, what happened, and the trained model.

config.toml        every choice, defaults written out; what the data looked like; what it was made with
metrics.jsonl      one report a line; the same bits however often the run was stopped
timing.jsonl       how fast it went and when, for every report
checkpoint/        complete training states, the last two
best.safetensors   the parameters with the best validation bound
samples.png        a picture of samples, where cases are pictures (samples.txt for documents)
report.html        a page on all this
vocabulary.txt     the words of a document model, one a line
lock               the number of the process that trains here, while it does

At every instant the folder is whole: files are written beside, synced and renamed, a checkpoint only after the metrics
up to it, and what lies beyond the newest checkpoint is dropped and done again on resuming.
"""

import dataclasses
import importlib.metadata
import itertools
import json
import math
import platform
import shlex
import sys
import time
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from nvil import optimisers, storage, training
from nvil.contracts import Pair
from nvil.data import NAMED, Cases, Choices, Dataset, load
from nvil.data.readers import physical_memory
from nvil.diagnostics import diagnose
from nvil.errors import UsageError, choose
from nvil.estimators import nvil as nvil_estimator
from nvil.estimators import reinforce, wake_sleep
from nvil.models import WITHIN, darn, fdarn, sbn
from nvil.rows import mean_row, on_device
from nvil.streams import Stream

MODELS = {"sbn": sbn, "fdarn": fdarn, "darn": darn}
ESTIMATORS = {"nvil": nvil_estimator, "wake-sleep": wake_sleep, "reinforce": reinforce}
OPTIMISERS = {"adam": optimisers.adam, "sgd": optimisers.sgd}
CHECKPOINT_SECONDS = 60.0
LARGEST = 2**31 - 1
MOST_LAYERS = 100
VERSION = importlib.metadata.version("nvil")
FACTS = ("visible", "image", "lengths", "fingerprint")
PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy")
MADE_WITH = ("version", *PACKAGES, "python", "platform", "device")
DEFAULT_RATES = {"adam": (3e-3, 1.0), "sgd": (3e-4, 0.2)}


@dataclasses.dataclass(frozen=True)
class Config:
    """What defines a run; with these, on the same machine, it gives the same bits."""

    data: str = "digits"
    """A named set (see: nvil data list), a file of one case a row, text (a folder, .tar or .txt), or - for a stream."""
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
    updates: int | None = None
    """Parameter updates in all; without it 30,000, or all that a stream has cases for."""
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
    values: str = Choices.values
    """What the data's values are: binary, counts (of words), or auto, which takes what is unambiguous."""
    binarize: str | None = None
    """How grey levels become binary: threshold, stochastic (each draw anew; mnist's default) or none (refused)."""
    threshold: float | None = None
    """On from this value up, in the data's own units; without it, halfway between the smallest and the largest."""
    white: float | None = None
    """For stochastic: the value that is certainly on; without it, 1 for values up to 1, 255 for values up to 255."""
    words: int = Choices.words
    """Of text: how many words to count, the most frequent."""
    stop_words: str = Choices.stop_words
    """Of text: english leaves its most common words out."""
    vocabulary: str | None = None
    """Of text: a file with the words to count, one a line, instead."""
    first_index: int = Choices.first_index
    """Of svmlight files: the index of the first column, 1 or 0."""
    columns: int | None = None
    """Of a stream of column:count lines: how many columns there are."""

    def resolved(self) -> "Config":
        """Check every choice and fill in what depends on others."""
        choose("model", self.model, MODELS)
        choose("estimator", self.estimator, ESTIMATORS)
        choose("optimiser", self.optimiser, OPTIMISERS)
        choose("inference network", self.inference, WITHIN)
        self.choices().checked()
        updates = self.updates if self.updates is not None else LARGEST if self.data == "-" else 30_000
        for option, value, least in (
            ("updates", updates, 1),
            ("batch-size", self.batch_size, 1),
            ("samples", self.samples, 1),
            ("validation", self.validation, 0),
            ("report-every", self.report_every, 1),
            ("seed", self.seed, 0),
        ):
            if value < least:
                raise UsageError(f"--{option} must be at least {least}, not {value}.")
            if value > LARGEST:
                raise UsageError(f"--{option} {value} is too large.")
        if not self.hidden:
            raise UsageError("--hidden needs the size of at least one layer.")
        if len(self.hidden) > MOST_LAYERS:
            raise UsageError(f"--hidden has {len(self.hidden)} layers; more than {MOST_LAYERS} are not supported.")
        for size in self.hidden:
            if size < 1:
                raise UsageError(f"--hidden {size} cannot be: every layer needs at least one unit.")
            if size > LARGEST:
                raise UsageError(f"--hidden {size} is too large.")
        rate, ratio = DEFAULT_RATES[self.optimiser]
        rate = rate / 3 if self.estimator == "wake-sleep" else rate  # as the paper has it: 1e-4 for 3e-4
        rate = rate if self.learning_rate is None else self.learning_rate
        ratio = ratio if self.inference_ratio is None else self.inference_ratio
        for name, value in (("learning-rate", rate), ("inference-ratio", ratio)):
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"--{name} must be a positive number, not {value}.")
        return dataclasses.replace(self, updates=updates, learning_rate=rate, inference_ratio=ratio)

    def choices(self) -> Choices:
        """What was said about the data."""
        return Choices(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Choices)})

    def options(self) -> Iterator[tuple[str, list[str]]]:
        """Every choice that is made, with its values as they are typed."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                yield field.name, [str(each) for each in (value if isinstance(value, tuple) else (value,))]

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
    """A run directory with its config and what the data looked like.

    !!! example

        run = nvil.Run.open("runs/demo")
        run.metrics()["validation_bound"]     # an array, a number for every report
        pair = run.load_best()                # the model and its inference network
        for report in run.resume(updates=50_000):
            print(report)
    """

    folder: Path
    config: Config
    visible: int
    image: tuple[int, int] | None
    lengths: tuple[int, ...] | None
    fingerprint: str
    made_with: Mapping[str, str] = dataclasses.field(default_factory=lambda: made_with(), compare=False)
    """Versions of what the run was last trained with, and the machine."""

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
        source = config.data if config.data in (*NAMED, "-") else str(Path(config.data).resolve())
        config = dataclasses.replace(config.resolved(), data=source, **dataclasses.asdict(dataset.choices))
        if config.vocabulary is not None:
            config = dataclasses.replace(config, vocabulary=str(Path(config.vocabulary).resolve()))
        if dataset.validation is None and not isinstance(dataset.train, Stream):
            training.check_validation(dataset.train.shape[0], config.validation)
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
        memory = physical_memory()
        if needed > memory:
            raise UsageError(
                f"This model needs about {needed / 1e9:.0f} GB to train, and the machine has {memory / 1e9:.0f}; "
                "make --hidden smaller."
            )

    def write_config(self, vocabulary: tuple[str, ...] | None) -> None:
        facts = {name: getattr(self, name) for name in FACTS}
        text = storage.to_toml(
            {"format": storage.FORMAT, **dataclasses.asdict(self.config), **facts, **made_with()},
            comment="nvil run; layer sizes from the data up",
        )
        if vocabulary is not None:
            storage.save_text(self.folder / "vocabulary.txt", "".join(f"{word}\n" for word in vocabulary))
        storage.save_text(self.folder / "config.toml", text)

    def _check_same(self, other: "Run") -> None:
        """Refuse to go on with another config than this run began with; only `updates` may grow."""
        old, new = (dataclasses.asdict(run.config) | {"fingerprint": run.fingerprint} for run in (self, other))
        if old["data"] == new["data"] and old["fingerprint"] != new["fingerprint"]:
            raise UsageError(
                f"The data {new['data']!r} is not what {self.folder} was trained on; its contents changed. "
                "Choose another --out to train on what it is now."
            )
        changed = [f"{name} {old[name]} -> {new[name]}" for name in old if name != "updates" and old[name] != new[name]]
        if changed:
            raise UsageError(
                f"{self.folder} holds a run with another config ({'; '.join(changed)}); "
                f"choose another --out, or go on with: {self.command()}"
            )
        if new["updates"] < old["updates"]:
            raise UsageError(
                f"{self.folder} was asked for {old['updates']} updates already, not {new['updates']}; "
                f"--updates can only grow. To go on: {self.command()}"
            )

    @staticmethod
    def open(folder: Path | str) -> "Run":
        """Open a run that is there: to look at it, to use what it trained, or to go on with it."""
        folder = Path(folder)
        if not folder.is_dir():
            raise UsageError(f"There is no run {folder}; make one with: nvil train --out {folder}")
        path = folder / "config.toml"
        if (folder / "lock").exists() and not path.exists():
            raise UsageError(f"The run {folder} has only just begun, and has nothing to show yet.")
        values = storage.read_toml(path)
        storage.check_format(path, values.get("format"))
        try:
            config = Config(**_typed(Config, values)).resolved()
            facts = _typed(Run, values, FACTS)
            if not 1 <= facts["visible"] <= LARGEST:
                raise UsageError(f"visible = {facts['visible']} cannot be")
            if (image := facts.get("image")) and (math.prod(image) != facts["visible"] or min(image) < 1):
                raise UsageError(f"a picture of {list(facts['image'])} does not have {facts['visible']} pixels")
            lengths = facts.get("lengths")
            if lengths is not None and not (lengths and all(1 <= length <= LARGEST for length in lengths)):
                raise UsageError("lengths must be from 1 up")
            if (lengths is None) == (config.values == "counts"):
                raise UsageError("lengths are those of documents, and values must be counts then")
        except UsageError as error:
            raise UsageError(f"{path} does not describe a run ({str(error).rstrip('.')}).") from error
        made = {name: value for name in MADE_WITH if isinstance(value := values.get(name), str)}
        return Run(
            folder, config, facts["visible"], facts.get("image"), facts.get("lengths"), facts["fingerprint"], made
        )

    def load_best(self) -> Pair:
        """The model and its inference network, with the parameters of the best validation bound."""
        return storage.load_tree(self.folder / "best.safetensors", eqx.filter_eval_shape(self.build))[0]

    def command(self) -> str:
        """What goes on with this run: every choice that is not the default."""
        default, words = Config().resolved(), ["nvil", "train"]
        for name, values in self.config.options():
            if getattr(self.config, name) != getattr(default, name):
                words += [f"--{name.replace('_', '-')}", *values]
        return shlex.join([*words, "--out", str(self.folder)])

    def best_update(self) -> int | None:
        """The update of `load_best`'s parameters; None where the file does not say."""
        updates = storage.read_metadata(self.folder / "best.safetensors").get("updates", "")
        return int(updates) if updates.isdecimal() and len(updates) < 20 else None

    def resume(self, updates: int | None = None) -> Iterator[training.Report]:
        """Go on training from the newest checkpoint, up to `updates` in all."""
        config = dataclasses.replace(self.config, updates=self.config.updates if updates is None else updates)
        dataset = self.dataset()
        yield from Run.create(self.folder, config, dataset).fit(dataset)

    def fit(
        self,
        dataset: Dataset,
        *,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        checkpoint_updates: int | None = None,
        after_chunk: Callable[[int], bool] | None = None,
    ) -> Iterator[training.Report]:
        """Train as configured, from the newest checkpoint on, and keep metrics, checkpoints and the best parameters.

        **Arguments:**

        - `checkpoint_seconds`: a checkpoint is written when the last is this old, and at the end, whatever the end.
        - `checkpoint_updates`: one is written at every multiple of this many updates as well.
        - `after_chunk`: called about every second with the number of updates done; if it returns true, training stops
          there.
        """
        with storage.locked(storage.writable_folder(self.folder)):
            if (self.folder / "config.toml").exists():
                before = Run.open(self.folder)
                before._check_same(self)  # it may have been made since this run was created
                _say_if_changed(before.made_with, made_with())
            for folder in (self.folder, self.folder / "checkpoint"):
                storage.remove_unfinished(folder)
            yield from self._fit(dataset, checkpoint_seconds, checkpoint_updates, after_chunk or (lambda _: False))

    def _fit(
        self,
        dataset: Dataset,
        checkpoint_seconds: float,
        checkpoint_updates: int | None,
        after_chunk: Callable[[int], bool],
    ) -> Iterator[training.Report]:
        settings = self.config.settings()
        validation = self.config.validation if dataset.validation is None else dataset.validation
        train, held_out = training.split_validation(dataset.train, validation, seed=self.config.seed)
        if isinstance(train, Stream):  # its first cases stand for all of them
            known = on_device(train.first())
            pair = self.build(mean_row(known))
        else:
            known = train = on_device(train)
            pair = self.build(mean_row(dataset.train))
        found = self.load_checkpoint(pair, known)
        if found is not None:
            self.save_best(found.best)  # the last process may have died between its checkpoint and this
        assert self.config.updates is not None
        chunks = training.chunks(
            pair,
            train,
            **settings,
            updates=self.config.updates,
            validation=held_out,
            report_every=self.config.report_every,
            cut_every=checkpoint_updates,
            **({} if found is None else found._asdict()),
        )
        reached: training.Checkpoint | None = None  # the newest whose metrics are written
        saved, saved_at = -1, time.monotonic()
        try:
            for checkpoint, report in chunks:
                done = int(checkpoint.state.step)
                if reached is None:  # nothing is written before it is known that training works at all
                    self.write_config(dataset.vocabulary)
                if report is not None:
                    found = diagnose(report.state, known, **_subset(settings))
                    report = dataclasses.replace(report, diagnostics=found)
                    self.add_metrics(report)
                reached = checkpoint
                if time.monotonic() - saved_at >= checkpoint_seconds or (
                    checkpoint_updates and done % checkpoint_updates == 0
                ):
                    self.save_checkpoint(checkpoint)
                    saved, saved_at = done, time.monotonic()
                if report is not None:
                    yield report
                if after_chunk(done):
                    break
        except training.DivergedError as error:
            self.write_config(dataset.vocabulary)
            self.save_checkpoint(error.checkpoint)
            reached = None
            raise
        finally:  # the end, an exception, or the caller had enough
            if reached is not None and saved != int(reached.state.step):
                self.save_checkpoint(reached)

    def save_best(self, best: training.Best) -> None:
        metadata = {"updates": str(best.step), "bound": repr(best.bound), "version": VERSION}
        storage.save_tree(self.folder / "best.safetensors", best.pair, metadata)

    def save_checkpoint(self, checkpoint: training.Checkpoint) -> None:
        """Keep all that is needed to go on, the checkpoint before it, and the best parameters."""
        folder = storage.writable_folder(self.folder / "checkpoint")
        state, tally, best = checkpoint
        metadata = {"best_bound": repr(best.bound), "best_step": str(best.step)}
        path = folder / f"{int(state.step):012d}.safetensors"
        storage.save_tree(path, {"state": state, "tally": tally, "best": best.pair}, metadata)
        self.save_best(best)
        for later in self._checkpoints():  # on the way to where parameters stopped being finite
            if _step(later) > int(state.step):
                later.unlink()
        for old in self._checkpoints()[:-2]:
            old.unlink()

    def _checkpoints(self) -> list[Path]:
        """Oldest first."""
        paths = (self.folder / "checkpoint").glob("*.safetensors")
        return sorted(path for path in paths if path.stem.isdecimal() and path.stem.isascii())

    def load_checkpoint(self, pair: Pair, data: Any) -> training.Checkpoint | None:
        """The newest checkpoint that can be read, or None where there is none yet; `data` is as in `diagnose`."""

        def like() -> Any:
            settings = self.config.settings()
            state = training.start(pair, data, **settings)
            return {
                "state": state,
                "tally": training.empty_tally(state, data, **_subset(settings, "optimiser")),
                "best": pair,
            }

        paths = self._checkpoints()[::-1]
        shapes = eqx.filter_eval_shape(like) if paths else None
        for i, path in enumerate(paths):
            try:
                tree, metadata = storage.load_tree(path, shapes)
                try:
                    best = training.Best(tree["best"], float(metadata["best_bound"]), int(metadata["best_step"]))
                except (KeyError, ValueError) as error:
                    raise UsageError(f"{path} is damaged: its metadata is not what nvil writes.") from error
            except storage.NewerFormatError:
                raise
            except UsageError as error:
                if i + 1 == len(paths):
                    raise UsageError(
                        f"{error} There is no other checkpoint; choose another --out, "
                        f"or remove {self.folder} to start again."
                    ) from error
                print(f"nvil: {error} Going on from the checkpoint before it.", file=sys.stderr)
                continue
            for damaged in paths[:i]:  # kept, but out of the way of the last two
                damaged.rename(damaged.with_suffix(".damaged"))
            self._truncate_metrics(int(tree["state"].step))
            return training.Checkpoint(tree["state"], tree["tally"], best)
        self._truncate_metrics(0)
        return None

    def _truncate_metrics(self, updates: int) -> None:
        """Drop reports of updates that will be done again, and a line that was cut off."""
        for name in ("metrics.jsonl", "timing.jsonl"):
            path = self.folder / name
            if path.exists():
                kept = [line for line, values in _reports(path) if values["updates"] <= updates]
                text = "".join(f"{line}\n" for line in kept).encode()
                if path.read_bytes() != text:
                    storage.save_text(path, text.decode())

    def add_metrics(self, report: training.Report) -> None:
        """Add a line to the metrics, the same in every run of this config, and one to the times, which are not."""
        timing = {
            "updates": report.updates,
            "updates_per_second": round(report.updates_per_second, 1),
            "time": round(time.time(), 1),
        }
        storage.append_line(self.folder / "timing.jsonl", json.dumps(timing))
        storage.append_line(self.folder / "metrics.jsonl", json.dumps(metrics_of(report)))

    def metrics(self) -> dict[str, np.ndarray]:
        """Every number of metrics.jsonl as an array with a row for every report, such as `bound` or `diagnostics.kl`.

        Names of nested values are joined by dots. What a report does not have, or not as a number, is NaN.
        """
        return _as_arrays([values for _, values in _reports(self.folder / "metrics.jsonl")])

    def timing(self) -> dict[str, np.ndarray]:
        """The same of timing.jsonl: `updates_per_second` and the `time` of every report in seconds since 1970."""
        return _as_arrays([values for _, values in _reports(self.folder / "timing.jsonl")])

    def updates(self) -> int:
        """How many updates the newest checkpoint has behind it."""
        return max((_step(path) for path in self._checkpoints()), default=0)

    def vocabulary(self) -> tuple[str, ...] | None:
        """The words of a document model, where its data names them."""
        path = self.folder / "vocabulary.txt"
        return tuple(path.read_text(encoding="utf-8").split("\n")[:-1]) if path.exists() else None

    def split(self, name: str) -> Cases:
        """The training or test cases of the run's data."""
        choose("split", name, ("train", "test"))
        dataset = self.dataset()
        return dataset.test if name == "test" else dataset.train

    def dataset(self) -> Dataset:
        """The data that the run was trained on, where it is on this machine as it was."""
        if self.config.data == "-":
            raise UsageError(f"{self.folder} was trained on a stream, which is gone; give the cases with --data.")
        path = Path(self.config.data)
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UsageError(f"The data {self.config.data!r} is neither a file nor a folder.")
        dataset = self.config.load_data()
        if dataset.fingerprint != self.fingerprint:
            raise UsageError(
                f"The data {self.config.data!r} is not what {self.folder} was trained on; its contents changed."
            )
        return dataset


def metrics_of(report: training.Report) -> dict[str, Any]:
    """A report as a line of metrics.jsonl."""
    line: dict[str, Any] = {name: getattr(report, name) for name in ("updates", "bound", "validation_bound")}
    line["best_bound"] = report.best.bound
    line["signal"] = report.signal and {k: v.tolist() for k, v in report.signal._asdict().items()}
    line["gradient_norms"] = dict(zip(("model", "inference", "baselines"), report.gradient_norms, strict=True))
    line["diagnostics"] = report.diagnostics and report.diagnostics._asdict()
    return _finite(line)


def made_with() -> dict[str, str]:
    """What a run's bits depend on beside its config."""
    facts = (platform.python_version(), platform.platform(), jax.devices()[0].device_kind)
    packages = (importlib.metadata.version(name) for name in ("nvil", *PACKAGES))
    return dict(zip(MADE_WITH, (*packages, *facts), strict=True))


def _say_if_changed(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    changed = [f"{name} {before[name]} -> {now[name]}" for name in before if before[name] != now[name]]
    if changed:
        print(
            f"nvil: This run began with other versions ({'; '.join(changed)}); it goes on, but perhaps not to the same "
            "bits as without the change.",
            file=sys.stderr,
        )


def _step(path: Path) -> int:
    return int(path.stem)


def _subset(settings: Mapping[str, Any], *more: str) -> dict[str, Any]:
    return {name: settings[name] for name in ("estimator", "batch_size", *more)}


def _typed(owner: type, values: Mapping[str, Any], names: Sequence[str] | None = None) -> dict[str, Any]:
    """The fields of a dataclass that `values` has, each of the type it is declared with."""
    hints = typing.get_type_hints(owner)
    typed = {}
    for field in dataclasses.fields(owner):
        if names is not None and field.name not in names:
            continue
        optional = types.NoneType in typing.get_args(hints[field.name])
        if field.name in values:
            typed[field.name] = _of_type(field.name, values[field.name], hints[field.name])
        elif not optional and names is not None:
            raise UsageError(f"{field.name} is missing")
    return typed


def _of_type(name: str, value: Any, hint: Any) -> Any:
    plain = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (hint,) = plain
    if typing.get_origin(hint) is tuple:
        kinds = typing.get_args(hint)
        fits = isinstance(value, list) and (kinds[-1] is Ellipsis or len(kinds) == len(value))
        if not fits or not all(type(item) is int for item in value):
            raise UsageError(f"{name} should be a list of whole numbers")
        return tuple(value)
    if hint is float and type(value) is int:
        value = float(value) if abs(value) <= LARGEST else math.inf
    if type(value) is not hint:
        kinds = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
        raise UsageError(f"{name} should be {kinds.get(hint, hint)}")
    return value


def _finite(value: Any) -> Any:
    """Numbers that JSON has no word for become null."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _reports(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The lines of a .jsonl file that are reports, in the order of their updates; says how many are not."""
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
        print(
            f"nvil: {path} has {odd} {'line' if odd == 1 else 'lines'} that are no reports; left out.", file=sys.stderr
        )


def _report(line: str) -> dict[str, Any] | None:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    updates = values.get("updates") if isinstance(values, dict) else None
    return values if type(updates) is int and 0 < updates <= LARGEST else None


MOST_NAMES = 200
"""Of numbers in a report; a report has some twenty."""


def _as_arrays(reports: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    rows = [dict(_numbers(values)) for values in reports]
    shapes = {name: value.shape for row in reversed(rows) for name, value in row.items() if value.size <= MOST_LAYERS}
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
            if all(_is_number(item) for item in value):
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
