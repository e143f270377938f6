"""The run folder: what was asked for, what happened, and the trained pair.

config.toml        every choice, defaults written out; what the data looked like; and package versions
metrics.jsonl      one report per line; bit-identical however often the run was stopped
timing.jsonl       the speed and the time of every report
checkpoint/        complete training states, the last two
best.safetensors   the parameters with the best validation bound
samples.png        a picture of samples, where cases are pictures (samples.txt for documents)
report.html        a page on all this
vocabulary.txt     the words of a document model, one per line
lock               the PID of the process that trains here, while it does

At every instant the folder is whole: files are written beside, synced and renamed, a checkpoint only after the metrics
up to it, and what lies beyond the newest checkpoint is dropped and done again on resuming.
"""

import contextlib
import dataclasses
import importlib.metadata
import logging
import math
import platform
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh

from nvil import training
from nvil.compiling import compiling
from nvil.contracts import Constant, Pair, Unset
from nvil.data.columns import telling
from nvil.data.dataset import Cases, Dataset, Kind, column_deviations, fingerprint
from nvil.data.readers import physical_memory
from nvil.data.registry import NAMED
from nvil.devices import SpreadRows, agreed, any_process, first_process, here, reaching_all, spread
from nvil.errors import UsageError, choose, count_of
from nvil.learning import Learner, default_validation
from nvil.models import categories_of, has_numbers, lengths_of
from nvil.rows import Rows, Source, as_source, check_hold_out, plain
from nvil.runs import checkpoints, metrics, storage
from nvil.runs.config import CHECKPOINT_SECONDS, FROM_PYTHON, LARGEST, Config, config_from, typed_fields
from nvil.runs.lock import is_locked, locked

FROM_SKLEARN = "sklearn"
"""In the place of a fingerprint, of what an estimator of `nvil.sklearn` was fitted to."""
PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy")
MADE_WITH = ("version", *PACKAGES, "python", "platform", "device")
PATHS = ("data", "vocabulary")
"""Choices that say where the data is: its fingerprint says what it is."""
BEFORE_CONFIG = ("lock", "vocabulary.txt", "tensorboard")
"""What a run that was killed early may have written before its config.toml."""
MOST_DIAGNOSED = 5000
"""Cases to diagnose on, where no process has all of them on its devices."""
log = logging.getLogger("nvil")


@dataclasses.dataclass(frozen=True)
class Plan:
    """How long a run trains and how it is judged."""

    updates: int = 30_000
    validation: int | None = None
    """Cases held out; None where the data brings validation cases of its own."""
    report_every: int = 1000
    patience: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("updates", 1), ("validation", 0), ("report_every", 1), ("patience", 1), ("seed", 0)):
            value = getattr(self, name)
            count_of(least, **{name: value})
            if value is not None and value > LARGEST:
                raise UsageError(f"`{name}` must be at most {LARGEST}, got {value}.")


@dataclasses.dataclass(frozen=True)
class DataFacts:
    """What a run remembers of its data."""

    visible: int
    fingerprint: str
    image: tuple[int, int] | None = None
    """The (height, width) of a case, or of all but its context, where it is a picture."""
    lengths: tuple[int, ...] | None = None
    """A hundred quantiles of the lengths of documents; None for other data."""
    context: int | None = None
    """How many columns, the first ones, the others are modelled given; None for a model of all columns."""
    visible_categories: int | None = None
    """How many columns every variable has, where they are one-hot; None for other data."""
    numbers: bool | None = None
    """True where the values are real numbers; None for other data."""
    names: tuple[str, ...] | None = None
    """Of the variables of a table, in their order here; None where it has none. Words are the vocabulary."""


@dataclasses.dataclass(frozen=True)
class Own:
    """What a run remembers of a pair and a learner that came from Python, to know them again."""

    batch_size: int
    estimator: str
    parameters: tuple[str, ...]
    average: float | None = None


class Experiment(NamedTuple):
    """What is trained: any pair, by any learner, on any rows, judged on others."""

    pair: Pair
    learner: Learner
    train: Source
    validation: Rows


@dataclasses.dataclass(frozen=True)
class Run:
    """A run folder: it trains anything, survives being killed at any instant, and resumes with bit-identical results.

    From Python, any pair, learner and data; running the same lines again resumes where the run stopped:

    !!! example

        run = nvil.Run.create("runs/mine", pair, x, nvil.Learner(batch_size=100), updates=50_000)
        for report in run.fit():
            print(report)
        pair = run.load_best()                # the model and its inference network
        run.metrics()["validation_bound"]     # an array, one number per report

    What the command line trained opens by its folder alone: `nvil.Run.open("runs/demo")`. A pair of your own must be
    built again and given with it: `nvil.Run.open("runs/mine", pair)`.
    """

    folder: Path
    plan: Plan
    facts: DataFacts
    config: Config | None = None
    """The recipe, where the run was made from one."""
    own: Own | None = None
    """What is known of the pair and the learner, where they came from Python."""
    made_with: Mapping[str, str] = dataclasses.field(default_factory=lambda: made_with(), compare=False)
    """The package versions and the machine that the run was last trained with."""
    vocabulary: tuple[str, ...] | None = dataclasses.field(default=None, compare=False, repr=False)
    pair: Pair | None = dataclasses.field(default=None, compare=False, repr=False)
    """The untrained pair, or its shapes; None where only the user's code can build it."""
    prepare: Callable[[], Experiment] | None = dataclasses.field(default=None, compare=False, repr=False)

    # Making and opening

    @staticmethod
    def create(
        folder: Path | str,
        pair: Pair,
        data: Any,
        learner: Learner | None = None,
        *,
        updates: int = 30_000,
        validation: int | Any | None = None,
        report_every: int = 1000,
        patience: int | None = None,
        seed: int = 0,
        image: tuple[int, int] | None = None,
        vocabulary: Sequence[str] | None = None,
    ) -> "Run":
        """A run of any pair in a new folder, or the run that the folder holds, to go on with.

        **Arguments:**

        - `folder`: the run's folder. What it holds must have been made by the same call; only `updates` may grow.
        - `pair`, `data`, `learner`, `updates`, `validation`, `report_every`, `patience`, `seed`: as in `nvil.fit`.
        - `image`: the (height, width) of a case, for the page to show cases as pictures.
        - `vocabulary`: the words that columns count, for documents.

        The optimiser cannot be compared with the one the run began with: give the same again.
        """
        learner = learner or Learner()
        learner.estimator.check(pair)
        source, validation = training.checked(pair, data, validation)
        counted = isinstance(validation, int)
        plan = Plan(updates, validation if counted else None, report_every, patience, seed)
        shape = source.first().shape
        words = None if vocabulary is None else tuple(vocabulary)
        facts = DataFacts(
            math.prod(shape[1:]),
            fingerprint(source, None if counted else validation, vocabulary=words),
            image,
            lengths_of(pair.model),
            getattr(pair.model, "given", 0) or None,
            categories_of(pair.model),
            numbers=has_numbers(pair.model) or None,
            names=None if lengths_of(pair.model) or not hasattr(data, "iloc") else telling([*map(str, data.columns)]),
        )
        if not _pictured(facts):
            raise UsageError(f"`image` {image} does not have {facts.visible} pixels.")
        own = Own(learner.batch_size, _description(learner.estimator), _parameters(pair), learner.average)

        def prepare() -> Experiment:
            train, held_out = training.hold_out(source, validation, seed)
            return Experiment(training.centred(pair, train), learner, train, held_out)

        run = Run(Path(folder), plan, facts, own=own, vocabulary=words, pair=_shapes(lambda: pair), prepare=prepare)
        return run._known()._ready()

    @staticmethod
    def from_config(folder: Path | str, config: Config, dataset: Dataset | None = None) -> "Run":
        """A run of the command line's recipe in a new folder, or the run that the folder holds, to go on with.

        Where a `dataset` is given, the folder says where that was loaded from, or that it was made in Python: then what
        needs the data again must be given it.
        """
        return Run.described(folder, config, config.load_data() if dataset is None else dataset)._ready()

    @staticmethod
    def described(folder: Path | str, config: Config, dataset: Dataset) -> "Run":
        """A run of the command line's recipe, checked as far as it can be without writing anything."""
        train = as_source(dataset.train)
        streamed = config.data == "-" and not isinstance(train, Rows)
        source = dataset.source or ("-" if streamed else FROM_PYTHON)
        config = dataclasses.replace(config, data=source, **dataclasses.asdict(dataset.choices)).resolved()
        if config.vocabulary is not None:
            config = dataclasses.replace(config, vocabulary=str(Path(config.vocabulary).resolve()))
        _check_path(config.data)
        _check_path(config.vocabulary)
        cases = train.first().shape[0]
        if config.validation is not None and dataset.validation is not None:
            log.warning("%s brings validation cases of its own: `validation` is not used.", dataset.name)
            config = dataclasses.replace(config, validation=None)
        if config.validation is None and dataset.validation is None:
            config = dataclasses.replace(config, validation=default_validation(cases))
        if dataset.validation is None and isinstance(train, Rows):
            check_hold_out(config.validation or 0, cases)
        facts = DataFacts(
            train.first().shape[1],
            dataset.fingerprint,
            dataset.image,
            dataset.lengths,
            dataset.context or None,
            dataset.categories,
            numbers=config.values == "numbers" or None,
            names=None if dataset.documents else dataset.names,
        )
        shapes = _shapes(lambda: _built(config, facts))
        _check_memory(shapes)
        config.build_learner().estimator.check(shapes)

        def prepare() -> Experiment:
            kept, held_out = _hold_out(config, dataset)
            # Of all cases: `check_deviations` saw to it that these vary, and those kept may not.
            deviation = column_deviations(train.first()) if config.values == "numbers" else None
            pair = _built(config, facts, kept.first().mean(), deviation)
            return Experiment(pair, config.build_learner(), kept, held_out)

        run = Run(
            Path(folder), _plan(config), facts, config, vocabulary=dataset.vocabulary, pair=shapes, prepare=prepare
        )
        return run._known()

    def _known(self) -> "Run":
        """Check what the folder holds already."""
        if (self.folder / "config.toml").exists():
            Run.open(self.folder)._check_same(self)
        return self

    def _ready(self) -> "Run":
        """Check that the folder can be written to, and holds nothing that a run would write over."""
        storage.writable_folder(self.folder)
        if not (self.folder / "config.toml").exists() and (other := storage.foreign_file(self.folder, BEFORE_CONFIG)):
            raise UsageError(f"{self.folder} is not a run, but holds {other.name}; choose another `folder`.")
        return self

    @staticmethod
    def open(folder: Path | str, pair: Pair | None = None) -> "Run":
        """Open a run that is there: to look at it, to use what it trained, or to go on with it.

        `pair` is the untrained pair of a run that was made from Python, built again by your code.
        """
        folder = Path(folder)
        if not folder.is_dir():
            if folder.exists():
                raise UsageError(f"{folder} is a file, and a run is a folder, as `nvil train` makes it.")
            raise UsageError(f"There is no run {folder}; make one with: nvil train --out {shlex.quote(str(folder))}")
        path = folder / "config.toml"
        if not path.exists() and is_locked(folder):
            raise UsageError(f"The run {folder} has only just begun; {_first_checkpoint(CHECKPOINT_SECONDS)}")
        values = storage.read_config(path)
        try:
            run = _described(folder, values)
        except UsageError as error:
            raise UsageError(f"{path} does not describe a run ({str(error).rstrip('.')}).") from error
        made = {name: value for name in MADE_WITH if isinstance(value := values.get(name), str)}
        words = _read_vocabulary(folder / "vocabulary.txt")
        config, facts = run.config, run.facts
        if config is not None:
            shapes = _shapes(lambda: _built(config, facts))
        else:
            shapes = None if pair is None else _shapes(lambda: pair)
            if shapes is not None:
                _check_parameters(folder, run.own, shapes)
        return dataclasses.replace(run, made_with=made, vocabulary=words, pair=shapes)

    def _check_same(self, other: "Run") -> None:
        """Refuse to go on with anything else than this run began with; `updates` may grow, and the data may move."""
        if (self.config is None) != (other.config is None):
            made = "from Python, with a pair of its own" if self.config is None else "by the command line's recipe"
            raise UsageError(f"{self.folder} holds a run that was made {made}; choose another `folder`.")
        old, new = self.choices(), other.choices()
        same_data = old.get("data") == new.get("data")
        if same_data and old["fingerprint"] != new["fingerprint"]:
            raise UsageError(
                f"The data {new.get('data', 'given')!r} is not what {self.folder} was trained on; its contents "
                "changed. Choose another `folder` to train on what it is now."
            )
        if other.own is not None and old["parameters"] != new["parameters"]:
            _check_parameters(self.folder, self.own, other.pair)
        free = {"updates", *(PATHS if old["fingerprint"] == new["fingerprint"] else ())}
        changed = [f"{name} {old[name]} -> {new[name]}" for name in old if name not in free and old[name] != new[name]]
        go_on = "" if self.config is None else f", or go on with: {' '.join(self.command())}"
        if changed:
            raise UsageError(
                f"{self.folder} holds a run with another config ({'; '.join(changed)}); choose another `folder`{go_on}"
            )
        if new["updates"] < old["updates"]:
            hint = "" if self.config is None else f" To go on: {' '.join(self.command())}"
            raise UsageError(
                f"{self.folder} was asked for {old['updates']} updates already, not {new['updates']}; "
                f"`updates` can only grow.{hint}"
            )
        if self.config is not None and self.config.schedule != "constant" and new["updates"] != old["updates"]:
            raise UsageError(
                f"The learning rate of {self.folder} falls over {old['updates']} updates, which cannot be changed "
                "later; choose another `folder` for a longer schedule."
            )

    def choices(self) -> dict[str, Any]:
        """Every choice, and what the data looked like: what must be the same for a run to go on (`_check_same`)."""
        what = {**dataclasses.asdict(self.plan), **({} if self.own is None else dataclasses.asdict(self.own))}
        if self.config is not None:
            what = dataclasses.asdict(self.config)
        return what | {"visible": self.facts.visible, "fingerprint": self.facts.fingerprint}

    # What it is

    @property
    def documents(self) -> bool:
        return self.facts.lengths is not None

    @property
    def numbers(self) -> bool:
        """Whether the cases are of real numbers."""
        return self.kind == "numbers"

    @property
    def kind(self) -> Kind:
        """What the values of its data are."""
        if self.documents:
            return "counts"
        if self.facts.visible_categories is not None:
            return "categories"
        return "numbers" if self.facts.numbers else "binary"

    def command(self, *, all: bool = False) -> list[str]:
        """The command that trains this run: `nvil train`, then each option with its values.

        With `all` every choice is spelt out, without the folder; otherwise those that are not the default, with it.
        """
        options = [] if self.config is None else list(self.config.options(all=all))
        options = [(name, ["FILE"] if values == [FROM_PYTHON] else values) for name, values in options]
        options += [] if all else [("out", [str(self.folder)])]
        return ["nvil train", *(f"--{name.replace('_', '-')} {shlex.join(values)}" for name, values in options)]

    def like(self) -> Pair:
        """The shapes of the pair; a run of a pair of one's own needs the code that builds it."""
        if self.pair is None:
            raise UsageError(
                f"{self.folder} was trained from Python on a pair of its own, which only the code that made it can "
                f'build again: build the pair there, and open the run with nvil.Run.open("{self.folder}", pair).'
            )
        return self.pair

    def write_config(self, made: Mapping[str, str] | None = None) -> None:
        """Write config.toml; `made` holds the versions to write, by default those in use now."""
        what = dataclasses.asdict(self.config) if self.config is not None else {}
        if self.own is not None:
            what = {"made_from": "python", **dataclasses.asdict(self.plan), **dataclasses.asdict(self.own)}
        text = storage.to_toml(
            {
                "format": storage.FORMAT,
                **what,
                **dataclasses.asdict(self.facts),
                **(made_with() if made is None else made),
            },
            comment="nvil run; layer sizes from the data up",
        )
        if self.vocabulary is not None:
            storage.save_text(self.folder / "vocabulary.txt", "".join(f"{word}\n" for word in self.vocabulary))
        storage.save_text(self.folder / "config.toml", text)

    # What it learned

    def load_best(self) -> Pair:
        """The model and its inference network, with the parameters of the best validation bound."""
        if not (self.folder / checkpoints.BEST).exists() and is_locked(self.folder):
            due = (self.folder / "config.toml").stat().st_mtime + CHECKPOINT_SECONDS - time.time()
            raise UsageError(
                f"The run {self.folder} is in training and has no checkpoint yet; {_first_checkpoint(due)}"
            )
        return checkpoints.load_best(self.folder, self.like())

    def best_update(self) -> int | None:
        """The update of `load_best`'s parameters; None where the file does not say."""
        return checkpoints.best_update(self.folder)

    def updates(self) -> int:
        """How many updates the newest checkpoint has behind it."""
        return checkpoints.last_update(self.folder)

    def metrics(self) -> dict[str, np.ndarray]:
        """Every number of metrics.jsonl as an array with a row per report, such as `bound` or `diagnostics.kl`."""
        return metrics.read_arrays(self.folder / "metrics.jsonl")

    def timing(self) -> dict[str, np.ndarray]:
        """Like `metrics`, for timing.jsonl.

        `updates_per_second` counts training alone, `seconds` is the wall time since the previous report (or since the
        process began), and `time` is when the report was made, in seconds since 1970.
        """
        return metrics.read_arrays(self.folder / "timing.jsonl")

    # Its data

    def split(self, name: str) -> Cases:
        """Cases of the run's data: "train" (what it learned from), "validation" (what was held out) or "test"."""
        choose("split", name, ("train", "validation", "test"))
        dataset = self.dataset()
        if name == "test":
            return dataset.test
        assert self.config is not None
        kept, held_out = _hold_out(self.config, dataset)
        if name == "validation" and not held_out.shape[0]:
            raise UsageError(f"{self.folder} was trained without validation cases; choose another `split`.")
        return plain(held_out if name == "validation" else kept.first())

    def place(self) -> str:
        """The name of the run's data, or the path to it; data that is not there is refused in a sentence."""
        if self.config is None:
            raise UsageError(f"{self.folder} was trained on data from Python, which is not kept; give the cases again.")
        where = self.config.data
        if where in ("-", FROM_PYTHON):
            what = "a stream" if where == "-" and self.facts.fingerprint != FROM_SKLEARN else FROM_PYTHON
            raise UsageError(f"{self.folder} was trained on {what}, which is not kept; give cases with `data` instead.")
        if where not in NAMED and not Path(where).exists():
            raise UsageError(
                f"There is no file {where} any more, which {self.folder} was trained on; if it has moved, say where to "
                f"with: nvil resume {shlex.quote(str(self.folder))} --data PATH"
            )
        return where

    def dataset(self, data: Path | str | None = None) -> Dataset:
        """The data that the run was trained on, where it is on this machine as it was; `data` says where it is now."""
        where = self.place() if data is None or self.config is None else str(data)
        assert self.config is not None
        if Path(where).exists() and not (Path(where).is_file() or Path(where).is_dir()):
            raise UsageError(f"The data {where!r} is neither a file nor a folder.")
        config = dataclasses.replace(self.config, data=where)
        if config.vocabulary is not None and not Path(config.vocabulary).exists():  # then the run's copy will do
            config = dataclasses.replace(config, vocabulary=str(self.folder / "vocabulary.txt"))
        dataset = config.load_data()
        chosen = config.max_df is not None and config.vocabulary is None  # as those of text are
        if chosen and self.vocabulary not in (None, dataset.vocabulary):  # by another version
            own = dataclasses.replace(config, vocabulary=str(self.folder / "vocabulary.txt"))
            counted = dataclasses.replace(own.load_data(), choices=dataset.choices)
            dataset = counted.loaded_from(dataset.source or where)
        if dataset.fingerprint != self.facts.fingerprint:
            how = "changed" if where == self.config.data else "are others"
            raise UsageError(f"The data {where!r} is not what {self.folder} was trained on; its contents {how}.")
        return dataset

    # Training

    def resume(self, updates: int | None = None, *, data: Path | str | None = None) -> Iterator[training.Report]:
        """Resume training from the newest checkpoint, up to `updates` in all; `data` says where the data is now."""
        yield from self.resumed(updates, data=data)[0].fit()

    def resumed(self, updates: int | None = None, *, data: Path | str | None = None) -> tuple["Run", Dataset]:
        """The same run, ready to go on up to `updates` in all, and its data, read from `data` if it has moved."""
        if self.config is None:
            raise UsageError(
                f"{self.folder} was trained from Python on a pair of its own; to go on, call nvil.Run.create again as "
                "before, with more updates."
            )
        if self.config.data == "-":
            raise UsageError(
                f"{self.folder} was trained on a stream; to go on, give more cases to the same nvil train as before."
            )
        if self.config.data == FROM_PYTHON and data is None:
            raise UsageError(
                f"{self.folder} was trained on data from Python, which is not kept; to go on, give it again to "
                "nvil.Run.from_config, or a file of the same cases with `data`."
            )
        config = dataclasses.replace(
            self.config,
            updates=self.config.updates if updates is None else updates,
            data=self.config.data if data is None else str(data),
        )
        dataset = self.dataset(data)
        return Run.from_config(self.folder, config, dataset), dataset

    def fit(
        self,
        *,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        checkpoint_updates: int | None = None,
        after_chunk: Callable[[int], bool] | None = None,
        mesh: Mesh | None = None,
    ) -> Iterator[training.Report]:
        """Train from the newest checkpoint on, and keep metrics, checkpoints and the best parameters.

        **Arguments:**

        - `checkpoint_seconds`: a checkpoint is written when the last is this old, and at the end, whatever the end.
        - `checkpoint_updates`: one is written at every multiple of this many updates as well.
        - `after_chunk`: called about every second with the number of updates done; if it returns true, training stops
          there.
        - `mesh`: the devices to train on, from `nvil.devices.connect`; by default one. Of several processes, each
          calls this, and the first alone writes the folder.
        """
        if self.prepare is None:
            yield from self.resumed()[0].fit(
                checkpoint_seconds=checkpoint_seconds,
                checkpoint_updates=checkpoint_updates,
                after_chunk=after_chunk,
                mesh=mesh,
            )
            return
        after_chunk = after_chunk or (lambda _: False)
        if not first_process():
            yield from self._fit(self.prepare(), math.inf, checkpoint_updates, after_chunk, mesh)
            return
        with locked(storage.writable_folder(self.folder)):
            if (self.folder / "config.toml").exists():
                before = Run.open(self.folder)
                before._check_same(self)  # it may have been made since this run was created
                _say_if_changed(before.made_with, made_with())
                self._record_places(before)
            for folder in (self.folder, self.folder / "checkpoint"):
                storage.remove_unfinished(folder)
            yield from self._fit(self.prepare(), checkpoint_seconds, checkpoint_updates, after_chunk, mesh)

    def _record_places(self, before: "Run") -> None:
        """Write down where the data is now, also where nothing is left to train."""
        if self.config is None or before.config is None:
            return
        now = dataclasses.replace(before.config, **{name: getattr(self.config, name) for name in PATHS})
        if now != before.config:
            dataclasses.replace(before, config=now).write_config(before.made_with)

    def _fit(
        self,
        experiment: Experiment,
        checkpoint_seconds: float,
        checkpoint_updates: int | None,
        after_chunk: Callable[[int], bool],
        mesh: Mesh | None,
    ) -> Iterator[training.Report]:
        reported_at = time.monotonic()
        pair, learner, train, held_out = experiment
        writes = first_process()
        source = spread(train, mesh, learner.batch_size)
        source = source.on_device() if isinstance(source, Rows) else source
        known = _to_diagnose(train, source)
        found = checkpoints.load_checkpoint(self.folder, pair, learner, known) if writes else None
        version = self.made_with["version"]
        if writes:
            metrics.drop_reports_after(self.folder, 0 if found is None else int(found.state.step))
        if found is not None:  # the last process may have died between its checkpoint and this
            checkpoints.save_best(self.folder, found.best, version)
        if agreed(found is not None):
            found = checkpoints.shared(found, pair, learner, known)
        plan = self.plan
        chunks = training.chunks(
            pair,
            source,
            held_out,
            learner,
            updates=plan.updates,
            report_every=plan.report_every,
            patience=plan.patience,
            seed=plan.seed,
            checkpoint=found,
            cut_every=checkpoint_updates,
        )
        reached: training.Checkpoint | None = None  # the newest whose metrics are written
        saved, saved_at, reported = -1, time.monotonic(), False

        def save(checkpoint: training.Checkpoint) -> None:
            if writes:
                checkpoints.save_checkpoint(self.folder, checkpoint, version)

        try:
            with reaching_all():
                for checkpoint, report in chunks:
                    done = int(checkpoint.state.step)
                    if reached is None and writes:  # nothing is written before it is known that training works at all
                        self.write_config()
                    if report is not None and writes:
                        with contextlib.nullcontext() if reported else compiling("the diagnostics"):
                            report = dataclasses.replace(
                                report, diagnostics=learner.diagnose(here(report.state), known)
                            )
                        reported = True
                        metrics.add_report(self.folder, report, time.monotonic() - reported_at)
                        reported_at = time.monotonic()
                    reached = checkpoint
                    if time.monotonic() - saved_at >= checkpoint_seconds or (
                        checkpoint_updates and done % checkpoint_updates == 0
                    ):
                        save(checkpoint)
                        saved, saved_at = done, time.monotonic()
                    if report is not None:
                        yield report
                    if any_process(after_chunk(done)):
                        break
        except UsageError as error:  # a bad case of a stream
            if reached is None:
                raise
            at = int(reached.state.step)
            raise UsageError(f"{error} What came before it is trained on and saved, at update {at}.") from error
        except training.DivergedError as error:
            if reached is not None or int(error.checkpoint.state.step):
                save(error.checkpoint)
            reached = None
            raise
        finally:  # the end, an exception, or the caller had enough
            if reached is not None and saved != int(reached.state.step):
                save(reached)


def _hold_out(config: Config, dataset: Dataset) -> tuple[Source, Rows]:
    """`(training cases, validation cases)` of a run; some data brings the latter."""
    validation = config.validation if dataset.validation is None else dataset.validation
    return training.hold_out(as_source(dataset.train), validation, config.seed)


def _to_diagnose(train: Source, source: Source) -> Rows:
    """Cases on this process's first device, to diagnose on: all or, where devices have parts, some at random."""
    if not isinstance(source, SpreadRows):
        return source.first().on_device()
    if not source.parts:
        return here(source.rows)
    rows = train.first()
    most = MOST_DIAGNOSED if first_process() else 1  # the others need only the shapes
    chosen = np.random.default_rng(0).permutation(rows.shape[0])[:most]
    return rows.select(np.sort(chosen)).compact().on_device()


def _first_checkpoint(seconds: float) -> str:
    due = max(1, round(seconds))
    return f"its first checkpoint is due in about {due} seconds, unless its `checkpoint_seconds` says otherwise."


def made_with() -> dict[str, str]:
    """What a run's results depend on, to the bit, besides its config."""
    facts = (platform.python_version(), platform.platform(), jax.devices()[0].device_kind)
    packages = (importlib.metadata.version(name) for name in ("nvil", *PACKAGES))
    return dict(zip(MADE_WITH, (*packages, *facts), strict=True))


def _say_if_changed(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    changed = [f"{name} {before[name]} -> {now[name]}" for name in before if before[name] != now[name]]
    if changed:
        log.warning(
            "This run began with other versions (%s); it resumes, but its results may not be bit-identical.",
            "; ".join(changed),
        )


def _described(folder: Path, values: Mapping[str, Any]) -> Run:
    """The run that a config.toml describes, which anyone may have written."""
    facts = DataFacts(**typed_fields(DataFacts, values, [field.name for field in dataclasses.fields(DataFacts)]))
    if not 1 <= facts.visible <= LARGEST:
        raise UsageError(f"visible must be at least 1 and at most {LARGEST}, got {facts.visible}")
    if facts.context is not None and not 1 <= facts.context < facts.visible:
        raise UsageError(f"context must be at least 1 and less than {facts.visible}, got {facts.context}")
    if not _pictured(facts):
        raise UsageError(f"a picture of {list(facts.image or ())} does not have {facts.visible} pixels")
    if facts.lengths is not None and not (facts.lengths and all(1 <= each <= LARGEST for each in facts.lengths)):
        raise UsageError("lengths must be at least 1")
    if values.get("made_from") == "python":
        own = Own(**typed_fields(Own, values, [field.name for field in dataclasses.fields(Own)]))
        return Run(folder, Plan(**typed_fields(Plan, values)), facts, own=own)
    config = config_from(values).resolved()
    if (facts.lengths is None) == (config.values == "counts"):
        raise UsageError("lengths are those of documents, whose values must be counts")
    if (facts.visible_categories is None) == (config.values == "categories"):
        raise UsageError("visible_categories are those of data whose values must be categories")
    facts = dataclasses.replace(facts, numbers=config.values == "numbers" or None)
    return Run(folder, _plan(config), facts, config)


def _built(config: Config, facts: DataFacts, mean: Any = None, deviation: Any = None) -> Pair:
    """The pair that a config builds for the data, before training."""
    return config.build_pair(
        facts.visible, mean, facts.lengths, facts.context or 0, deviation, facts.visible_categories
    )


def _pictured(facts: DataFacts) -> bool:
    """Whether cases, with or without their context, have as many values as their picture, if any, has pixels."""
    sizes = (facts.visible, facts.visible - (facts.context or 0))
    return facts.image is None or (math.prod(facts.image) in sizes and min(facts.image) >= 1)


def _plan(config: Config) -> Plan:
    assert config.updates is not None
    return Plan(config.updates, config.validation, config.report_every, config.patience, config.seed)


def _read_vocabulary(path: Path) -> tuple[str, ...] | None:
    if not path.exists():
        return None
    try:
        return tuple(path.read_text(encoding="utf-8").split("\n")[:-1])
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({' '.join(str(error).split())}).") from error


def _shapes(build: Callable[[], Pair]) -> Pair:
    """The shapes of a pair; once trained, it has a centre."""

    def with_centre() -> Pair:
        return jax.tree.map(
            lambda node: Constant(node.value) if isinstance(node, Unset) else node,
            build(),
            is_leaf=lambda node: isinstance(node, Unset),
        )

    return eqx.filter_eval_shape(with_centre)


def _check_path(path: str | None) -> None:
    """Refuse a path that config.toml, which is UTF-8, cannot hold."""
    try:
        (path or "").encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"The path {path!r} is not UTF-8, which a run needs; rename it.") from error


def _check_memory(shapes: Pair) -> None:
    """Refuse, before anything is allocated or written, what cannot fit in this machine's memory."""
    needed = 16 * sum(leaf.size for leaf in jax.tree.leaves(shapes))  # parameters, gradients and Adam's two moments
    memory = physical_memory()
    if needed > memory:
        raise UsageError(
            f"This model needs about {needed / 1e9:.0f} GB to train, and the machine has {memory / 1e9:.0f}; "
            "make `hidden` smaller."
        )


def _parameters(pair: Pair) -> tuple[str, ...]:
    """The arrays of a pair, each as its name, shape and type."""
    return tuple(
        f"{name} {'x'.join(map(str, leaf.shape)) or 'scalar'} {leaf.dtype}" for name, leaf in storage.named_leaves(pair)
    )


def _check_parameters(folder: Path, own: Own | None, pair: Pair | None) -> None:
    """Refuse a pair of another shape than the run's."""
    assert own is not None
    assert pair is not None
    kept, given = own.parameters, _parameters(pair)
    if kept == given:
        return
    old, new = (next(iter(sorted(set(ours) - set(theirs))), None) for ours, theirs in ((kept, given), (given, kept)))
    has = f"the run has {old}" if old else "the run has fewer arrays"
    gives = f"the pair given has {new}" if new else "the pair given has fewer arrays"
    raise UsageError(f"{folder} was trained on a pair of another shape: {has}, {gives}. Choose another `folder`.")


def _description(estimator: Any) -> str:
    return " ".join(eqx.tree_pformat(estimator, width=10_000).split())
