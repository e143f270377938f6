"""The command line's recipe: every choice by name, and what it builds. Imports nothing heavy, for `nvil --help`."""

import dataclasses
import math
import numbers
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nvil.data.choices import Choices
from nvil.errors import UsageError, choose, count_of

if TYPE_CHECKING:
    from nvil.contracts import Pair
    from nvil.data.dataset import Dataset
    from nvil.learning import Learner

MODELS = ("sbn", "fdarn", "darn")
WITHIN = ("factorial", "autoregressive")
LATENTS = ("bernoulli", "categorical", "gaussian")
ACTIVATIONS = ("tanh", "relu")
ESTIMATORS = (
    "nvil",
    "wake-sleep",
    "reinforce",
    "rloo",
    "vimco",
    "ovis",
    "reweighted-wake-sleep",
    "disarm",
    "arm",
    "double-control-variates",
    "muprop",
    "rebar",
    "straight-through",
    "concrete",
)
DEFAULT_SAMPLES = {"double-control-variates": 4, "vimco": 5, "ovis": 5, "reweighted-wake-sleep": 5, "rloo": 4}
"""Of estimators that need, or are made for, more than one."""
MANY_SAMPLES = ("vimco", "ovis", "reweighted-wake-sleep")
"""Estimators whose objective, in minibatches and in validation, is the bound of all their samples."""
OWN_OPTIONS = {
    "without": ("nvil",),
    "order": ("nvil",),
    "decay": ("nvil",),
    "baseline_units": ("nvil",),
    "warm_up": ("nvil", "reinforce", "rloo"),
    "mean": ("vimco",),
    "gamma": ("ovis",),
    "sleep": ("reweighted-wake-sleep",),
    "temperature": ("rebar", "concrete"),
}
"""Options that only some estimators have."""
OPTIMISERS = ("adam", "sgd")
SCHEDULES = ("constant", "cosine", "linear")
BASELINES = ("input-dependent", "leave-one-out")
MEANS = ("geometric", "arithmetic")
TECHNIQUES = ("baseline", "running-mean", "normalisation", "local-signals")
DEFAULT_RATES = {"adam": (3e-3, 1.0), "sgd": (3e-4, 0.2)}
DOCUMENT_RATES = {"adam": 3e-3, "sgd": 3e-5}
"""Gradients are summed over the words of a document, so that sgd needs a smaller rate there (Section 4.3)."""
UPDATES = 30_000
LARGEST = 2**31 - 1
"""Of whole numbers here: what a 32-bit counter holds."""
MOST_LAYERS = 100
FROM_PYTHON = "data from Python"
"""In the place of a name or path, in the config of a run whose data was made in Python."""
CHECKPOINT_SECONDS = 60.0
"""How old the last checkpoint of a run may get: what a crash can cost."""


def option(default: Any, group: str, text: str) -> Any:
    """A field that the command line shows in `group` with the help `text`."""
    return dataclasses.field(default=default, metadata={"group": group, "help": text})


@dataclasses.dataclass(frozen=True)
class Config:
    """What defines a run: on the same machine, these choices give bit-identical results.

    `nvil train --help` says what each choice means.
    """

    data: str = option(
        "digits",
        "what",
        "A named set (see: nvil data list), a file with one case per row, text (a folder, .tar or .txt), a folder of "
        "pictures, or - for a stream.",
    )
    model: str = option(
        "sbn",
        "what",
        "sbn (sigmoid belief network), fdarn (autoregressive latents) or darn (autoregressive latents and visibles).",
    )
    hidden: tuple[int, ...] = option(
        (100, 50), "what", "Latent variables in each layer, from the data up (the paper lists the deepest first)."
    )
    updates: int | None = option(
        None, "what", "Parameter updates in all; by default 30,000, or all that a stream has cases for."
    )
    seed: int = option(0, "what", "The seed of weights, minibatches, samples and the validation split.")

    inference: str = option(
        "factorial", "model", "Within its layers, the inference network is factorial or autoregressive."
    )
    latents: tuple[str, ...] = option(
        ("bernoulli",),
        "model",
        "What the latents are: bernoulli (on or off), categorical (each one of several categories, one-hot) or "
        "gaussian (real numbers, with reparameterised gradients); one word, or one per layer.",
    )
    categories: int = option(10, "model", "Categories of each categorical latent; --hidden counts the latents.")
    between: tuple[int, ...] = option(
        (),
        "model",
        "Units of deterministic layers between any two stochastic ones, in both networks, from the data up, such as "
        "200 200: they make the conditionals nonlinear. By default none, as in the paper.",
    )
    activation: str = option("tanh", "model", "Activation of the layers of --between: tanh or relu.")
    latent_bias: tuple[float, ...] = option(
        (-2.0,),
        "model",
        "Where the biases of Bernoulli latents start, in P and in Q: one number, or one per layer. Below zero they "
        "start sparse, which helps a factorial inference network most.",
    )

    estimator: str = option(
        "nvil",
        "learning",
        "nvil; reinforce (nvil without techniques) or rloo (with a leave-one-out baseline); wake-sleep, its rival; of "
        "the bound of many samples: vimco, ovis, reweighted-wake-sleep; for factorial inference networks: disarm, arm, "
        "double-control-variates, muprop, rebar, and, biased: straight-through, concrete (Gumbel-softmax).",
    )
    without: tuple[str, ...] = option(
        (), "learning", "Techniques of nvil to leave out: baseline, running-mean, normalisation, local-signals."
    )
    order: str = option(
        "paper",
        "learning",
        "paper uses the running mean and variance after their update, strict before it, which removes a small bias of "
        "the gradient. Normalisation scales the gradient in either order.",
    )
    decay: float = option(0.8, "learning", "The smoothing factor of the running mean and variance.")
    baseline: str | None = option(
        None,
        "learning",
        "input-dependent (a network, the paper's), or leave-one-out: the mean signal of the case's other samples, of "
        "which there must be at least 2. By default leave-one-out for documents by adam, else input-dependent.",
    )
    baseline_units: int = option(100, "learning", "Units of each input-dependent baseline.")
    samples: int | None = option(
        None,
        "learning",
        "Samples from the inference network for every case of a minibatch (of arm and disarm: antithetic pairs); by "
        "default 1, but 2 for leave-one-out, 4 for rloo and double-control-variates, 5 for vimco, ovis and "
        "reweighted-wake-sleep.",
    )
    warm_up: int = option(
        0,
        "learning",
        "For nvil, reinforce and rloo: updates over which the layers above the first reach full weight in the bound, "
        "so that fewer of their units are lost. With three layers a fifth of all updates is a good start; by default "
        "none, as in the paper.",
    )
    mean: str = option(
        "geometric", "learning", "For vimco: the mean that stands for a left-out weight, geometric or arithmetic."
    )
    gamma: float = option(
        0.0, "learning", "For ovis: 0 is unbiased; towards 1, biased but less noisy where samples have similar weights."
    )
    sleep: float = option(
        0.5,
        "learning",
        "For reweighted-wake-sleep: the share of the sleep phase in the inference network's gradient, from 0 (wake "
        "alone) to 1.",
    )
    temperature: float = option(
        0.5,
        "learning",
        "For concrete: the temperature of the relaxation; for rebar: where it starts, as it is learned.",
    )
    batch_size: int = option(50, "learning", "Cases in a minibatch; 20 in the paper.")
    optimiser: str = option("adam", "learning", "adam, or sgd on summed gradients as in the paper.")
    learning_rate: float | None = option(
        None,
        "learning",
        "Learning rate of the model; by default 3e-3 for adam, 3e-4 for sgd (the paper's; 3e-5 for documents, whose "
        "gradients are sums over words), and for wake-sleep a third of these.",
    )
    inference_ratio: float | None = option(
        None,
        "learning",
        "The inference network's learning rate over the model's; by default 1 for adam, 0.2 (the paper's) for sgd.",
    )
    schedule: str = option(
        "constant", "learning", "How the learning rate falls over the updates: constant (the paper's), cosine, linear."
    )
    final_rate: float = option(0.0, "learning", "For cosine and linear schedules: the learning rate at the end.")
    momentum: float = option(0.0, "learning", "Momentum of sgd.")
    epsilon: float = option(
        1e-8,
        "learning",
        "Epsilon of adam: with more, such as 1e-2, the weights of what is rarely on take smaller steps, and overfit "
        "less.",
    )
    weight_decay: float = option(
        0.0, "learning", "Decay of the weights in each update, times the learning rate; biases do not decay."
    )
    within_decay: float | None = option(
        None,
        "learning",
        "That of the connections within autoregressive layers, in the place of --weight-decay; by default the same.",
    )
    clip: float | None = option(None, "learning", "The largest norm of a gradient, summed over the minibatch.")
    average: float | None = option(
        None,
        "learning",
        "Use parameters averaged over the last share of the updates, such as 0.1; by default off.",
    )

    values: str = option(
        Choices.values,
        "data",
        "What the values are: binary, counts (of words), numbers (real ones), categories (numbered from "
        "0), or auto: binary or counts, where that is unambiguous.",
    )
    binarize: str | None = option(
        None,
        "data",
        "How grey levels become binary: threshold, stochastic (redrawn each time; mnist's default) or none (reject).",
    )
    threshold: float | None = option(
        None, "data", "On from this value up, in the data's own units; by default halfway between the extremes."
    )
    white: float | None = option(
        None, "data", "For stochastic: the value that is certainly on; by default 1 for values up to 1, else 255."
    )
    words: int = option(
        Choices.words, "data", "For text: how many words to count, those that occur in the most documents."
    )
    stop_words: str | None = option(
        None, "data", "For text: english (the default) leaves out the most common English words; none keeps them."
    )
    max_df: float | None = option(
        None,
        "data",
        "For text: words in a larger share of the documents are left out; by default 0.5 from 100 documents up.",
    )
    vocabulary: str | None = option(None, "data", "For text: a file with the words to count, one per line, instead.")
    first_index: int = option(Choices.first_index, "data", "For svmlight files: the index of the first column, 1 or 0.")
    drop_columns: tuple[str, ...] = option(
        (),
        "data",
        "For tables: columns that are not data, such as a label, by their names in the header or places from 0 (-1 is "
        "the last).",
    )
    given: tuple[str, ...] = option(
        (),
        "data",
        "Model the other columns given these, which both networks then see: names in the header, places from 0, or a "
        "range of places such as 0-391.",
    )
    columns: int | None = option(None, "data", "For a stream of column:count lines: how many columns there are.")

    validation: int | None = option(
        None,
        "run",
        "Training cases held out to pick the best parameters; 0 keeps the last. By default a twentieth, from 100 to "
        "1000, but at most a fifth; 100 in the paper. Some data sets bring their own.",
    )
    report_every: int = option(1000, "run", "Updates between reports, each with a validation bound.")
    patience: int | None = option(
        None, "run", "Stop after this many reports without a better validation bound; by default never."
    )

    def resolved(self) -> "Config":
        """Check every choice and fill in what depends on others."""
        choose("model", self.model, MODELS)
        choose("estimator", self.estimator, ESTIMATORS)
        choose("optimiser", self.optimiser, OPTIMISERS)
        choose("inference network", self.inference, WITHIN)
        choose("activation", self.activation, ACTIVATIONS)
        choose("schedule", self.schedule, SCHEDULES)
        choose("order", self.order, ("paper", "strict"))
        choose("baseline", self.baseline or BASELINES[0], BASELINES)
        choose("mean", self.mean, MEANS)
        for technique in self.without:
            choose("technique", technique, TECHNIQUES)
        for name, owners in OWN_OPTIONS.items():
            if self.estimator not in owners and getattr(self, name) != Config.__dataclass_fields__[name].default:
                who = f"s {', '.join(owners[:-1])} and" if owners[1:] else ""
                raise UsageError(f"`{name}` is for the estimator{who} {owners[-1]}, not for {self.estimator}.")
        baseline, samples = self._baseline_and_samples()
        self.choices().checked()
        updates = self.updates if self.updates is not None else LARGEST if self.data == "-" else UPDATES
        self._check_sizes(updates)
        rate, ratio = DEFAULT_RATES[self.optimiser]
        rate = DOCUMENT_RATES[self.optimiser] if self.values == "counts" else rate
        rate = rate / 3 if self.estimator == "wake-sleep" else rate  # as the paper has it: 1e-4 for 3e-4
        rate = rate if self.learning_rate is None else self.learning_rate
        ratio = ratio if self.inference_ratio is None else self.inference_ratio
        self._check_rates(rate, ratio)
        return dataclasses.replace(
            self,
            updates=updates,
            baseline=baseline,
            samples=samples,
            learning_rate=rate,
            inference_ratio=ratio,
        )

    def _baseline_and_samples(self) -> tuple[str, int]:
        """Documents have the baseline that learns them best (results/search.md), but by sgd, as in the paper."""
        baseline, samples = self.baseline, self.samples
        if baseline is None:
            better = self.values == "counts" and (self.estimator, self.optimiser) == ("nvil", "adam")
            better = better and samples != 1 and "baseline" not in self.without
            baseline = "leave-one-out" if better else "input-dependent"
        many = self.estimator == "nvil" and baseline == "leave-one-out"
        if samples is None:
            samples = 2 if many else DEFAULT_SAMPLES.get(self.estimator, 1)
        if many and samples < 2:
            raise UsageError('`baseline="leave-one-out"` needs `samples` of at least 2, got 1.')
        return baseline, samples

    def _check_sizes(self, updates: int) -> None:
        for name, value, least in (
            ("updates", updates, 1),
            ("batch_size", self.batch_size, 1),
            ("categories", self.categories, 2),
            ("samples", self.samples, 1),
            ("warm_up", self.warm_up, 0),
            ("baseline_units", self.baseline_units, 1),
            ("validation", self.validation, 0),
            ("report_every", self.report_every, 1),
            ("patience", self.patience, 1),
            ("seed", self.seed, 0),
        ):
            count_of(least, **{name: value})
            if value is not None and value > LARGEST:
                raise UsageError(f"`{name}` must be at most {LARGEST}, got {value}.")
        if self.warm_up > updates:
            raise UsageError(f"`warm_up` must be at most `updates` ({updates}), got {self.warm_up}.")
        if self.warm_up and len(self.hidden) == 1:
            raise UsageError("`warm_up` is for layers above the first, and `hidden` has only one layer.")
        if self.patience is not None and self.validation == 0:
            raise UsageError("`patience` is for a better validation bound, so `validation` must be at least 1, got 0.")
        if not self.hidden:
            raise UsageError("`hidden` needs the size of at least one layer.")
        for name in ("hidden", "between"):
            sizes = getattr(self, name)
            if not isinstance(sizes, tuple | list):
                raise UsageError(f"`{name}` lists the sizes of layers: write ({sizes},), not {sizes}.")
            if len(sizes) > MOST_LAYERS:
                raise UsageError(f"`{name}` has {len(sizes)} layers; more than {MOST_LAYERS} are not supported.")
            for size in sizes:
                if not hasattr(size, "__index__"):
                    raise UsageError(f"The sizes of `{name}` layers must be whole numbers, got {size!r}.")
                if not 1 <= size <= LARGEST:
                    raise UsageError(
                        f"The sizes of `{name}` layers must be at least 1 and at most {LARGEST}, got {size}."
                    )
        for kind in self.latents:
            if kind.isdigit():
                raise UsageError(f"`latents` says what the latents are, such as {LATENTS[0]}; {kind} is for `hidden`.")
            choose("kind of latents", kind, LATENTS)
        if len(self.latents) not in (1, len(self.hidden)):
            raise UsageError(
                f"`latents` must be one word, or one per layer ({len(self.hidden)}), got {len(self.latents)}."
            )
        if self.categories != Config.categories and "categorical" not in self.latents:
            raise UsageError('`categories` is for `latents="categorical"`.')
        if self.activation != Config.activation and not self.between:
            raise UsageError("`activation` is for deterministic layers; give their sizes with `between`.")
        if len(self.latent_bias) not in (1, len(self.hidden)):
            raise UsageError(
                f"`latent_bias` must be one number, or one per layer ({len(self.hidden)}), got {len(self.latent_bias)}."
            )
        if not all(math.isfinite(bias) for bias in self.latent_bias):
            raise UsageError("`latent_bias` must be finite.")

    def _check_rates(self, rate: float, ratio: float) -> None:
        for name, value in (
            ("learning_rate", rate),
            ("inference_ratio", ratio),
            ("clip", self.clip),
            ("epsilon", self.epsilon),
            ("temperature", self.temperature),
        ):
            if value is not None and not (isinstance(value, numbers.Real) and math.isfinite(value) and value > 0):
                raise UsageError(f"`{name}` must be a positive number, got {value!r}.")
        for name in ("weight_decay", "within_decay", "final_rate"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise UsageError(f"`{name}` must be at least 0, got {value}.")
        for name, value in (("decay", self.decay), ("momentum", self.momentum)):
            if not 0 <= value < 1:
                raise UsageError(f"`{name}` must be at least 0 and less than 1, got {value}.")
        for name, value in (("sleep", self.sleep), ("gamma", self.gamma)):
            if not 0 <= value <= 1:
                raise UsageError(f"`{name}` must be at least 0 and at most 1, got {value}.")
        if self.average is not None and not 0 < self.average <= 1:
            raise UsageError(f"`average` must be above 0 and at most 1, got {self.average}.")
        if self.momentum and self.optimiser != "sgd":
            raise UsageError('`momentum` is for `optimiser="sgd"`; adam has its own.')
        if self.epsilon != type(self).epsilon and self.optimiser != "adam":
            raise UsageError('`epsilon` is for `optimiser="adam"`; sgd has none.')
        if self.final_rate and self.schedule == "constant":
            raise UsageError('`final_rate` needs `schedule="cosine"` or `schedule="linear"`.')
        if self.schedule != "constant" and self.data == "-" and self.updates is None:
            raise UsageError("A schedule must know how many updates there will be; give `updates`.")

    @property
    def objective_samples(self) -> int:
        """Of how many samples the bound is that is trained and validated."""
        return (self.samples or 1) if self.estimator in MANY_SAMPLES else 1

    def choices(self) -> Choices:
        """What was said about the data."""
        return Choices(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Choices)})

    def options(self, *, all: bool = True) -> Iterator[tuple[str, list[str]]]:
        """Every choice that is made, or that differs from the default, with its values as they are typed."""
        default = Config().resolved()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and value != () and (all or value != getattr(default, field.name)):
                yield field.name, [str(each) for each in (value if isinstance(value, tuple) else (value,))]

    def load_data(self) -> "Dataset":
        from nvil.data.loading import load

        if self.data == FROM_PYTHON:
            raise UsageError("The data that these choices were for came from Python, and is not kept; give `data`.")
        return load(self.data, self.choices())

    def build_pair(
        self,
        visible: int,
        mean: Any = None,
        lengths: Sequence[int] | None = None,
        given: int = 0,
        deviation: Any = None,
        categories: int | None = None,
    ) -> "Pair":
        """The untrained model and inference network; `categories` are those of the data."""
        from nvil import models

        visibles = {"numbers": "gaussian", "categories": "categorical"}.get(self.values, "bernoulli")
        more: Any = {} if categories is None else {"visible_categories": categories}
        make = {"sbn": models.sbn, "fdarn": models.fdarn, "darn": models.darn}[self.model]
        return make(
            visible,
            self.hidden,
            visibles=visibles,
            inference=self.inference,
            latents=self.latents,
            categories=self.categories,
            between=self.between,
            activation=self.activation,
            given=given,
            lengths=lengths,
            mean=mean,
            deviation=deviation,
            latent_bias=self.latent_bias,
            seed=self.seed,
            **more,
        )

    def build_learner(self) -> "Learner":
        """The estimator, the optimiser and the size of minibatches, of a resolved config."""
        from nvil import optimisers
        from nvil.learning import Learner

        assert self.learning_rate is not None
        assert self.inference_ratio is not None
        assert self.updates is not None
        rate = optimisers.schedule(self.schedule, self.learning_rate, self.updates, final_rate=self.final_rate)
        common = {
            "inference_ratio": self.inference_ratio,
            "weight_decay": self.weight_decay,
            "within_decay": self.within_decay,
            "clip": self.clip,
        }
        optimiser = (
            optimisers.adam(rate, eps=self.epsilon, **common)
            if self.optimiser == "adam"
            else optimisers.sgd(rate, momentum=self.momentum, **common)
        )
        return Learner(self._estimator(), optimiser, batch_size=self.batch_size, average=self.average)

    def _estimator(self) -> Any:
        from nvil import estimators, signals

        assert self.samples is not None
        samples = self.samples
        others: dict[str, Any] = {
            "arm": lambda: estimators.arm(samples=samples),
            "concrete": lambda: estimators.concrete(samples=samples, temperature=self.temperature),
            "disarm": lambda: estimators.disarm(samples=samples),
            "double-control-variates": lambda: estimators.double_control_variates(samples=samples),
            "muprop": lambda: estimators.muprop(samples=samples),
            "ovis": lambda: estimators.ovis(samples=samples, gamma=self.gamma),
            "rebar": lambda: estimators.rebar(samples=samples, temperature=self.temperature),
            "reinforce": lambda: estimators.reinforce(samples=samples, warm_up=self.warm_up),
            "reweighted-wake-sleep": lambda: estimators.reweighted_wake_sleep(samples=samples, sleep=self.sleep),
            "rloo": lambda: estimators.rloo(samples=samples, warm_up=self.warm_up),
            "straight-through": lambda: estimators.straight_through(samples=samples),
            "vimco": lambda: estimators.vimco(samples=samples, mean=self.mean),
            "wake-sleep": lambda: estimators.wake_sleep(samples=samples),
        }
        if self.estimator in others:
            return others[self.estimator]()
        local = "local-signals" not in self.without
        order: Any = self.order
        techniques = {
            "baseline": signals.input_dependent_baseline(self.baseline_units)
            if self.baseline == "input-dependent"
            else signals.leave_one_out(),
            "running-mean": signals.running_mean(self.decay, order),
            "normalisation": signals.variance_normalisation(self.decay, order),
        }
        used = [technique for name, technique in techniques.items() if name not in self.without]
        if not used:
            return estimators.reinforce(samples=samples, local=local, warm_up=self.warm_up)
        return estimators.nvil(*used, samples=samples, local=local, warm_up=self.warm_up)


def estimators_own(config: Config) -> set[str]:
    """The choices that are only its estimator's defaults, such as one sample per case: a run's config spells them out.

    Another estimator is to decide them for itself.
    """
    names = ("samples", "baseline", "learning_rate", "inference_ratio")
    defaults = dataclasses.replace(config, **dict.fromkeys(names)).resolved()
    return {name for name in names if getattr(config, name) == getattr(defaults, name)}


def config_from(values: Mapping[str, Any]) -> Config:
    """A config from the values of a TOML file; names that are not choices are left out."""
    return Config(**typed_fields(Config, values))


def config_file(path: Path) -> dict[str, Any]:
    """The choices of a TOML file, or of the config.toml of a run's folder, as arguments of `Config`."""
    from nvil.runs.storage import read_config, read_toml

    if path.is_dir():
        folder, path = path, path / "config.toml"
        values = read_config(path)
        if "model" not in values:
            raise UsageError(f"{folder} was trained from Python on a pair of its own: it has no choices to take.")
        values = {name: value for name, value in values.items() if name in Config.__dataclass_fields__}
    else:
        values = read_toml(path)
        for name in values:
            choose(f"choice in {path}", name, Config.__dataclass_fields__)
    try:
        return typed_fields(Config, values)
    except UsageError as error:
        raise UsageError(f"{path} cannot be used: {error}") from error


def typed_fields(owner: type, values: Mapping[str, Any], names: Sequence[str] | None = None) -> dict[str, Any]:
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
            raise UsageError(f"{field.name} is missing.")
    return typed


_KINDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
_LISTS = {int: "a list of whole numbers", float: "a list of numbers", str: "a list of texts"}


def _of_type(name: str, value: Any, hint: Any) -> Any:
    plain = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (hint,) = plain
    if typing.get_origin(hint) is tuple:
        kinds = typing.get_args(hint)
        fits = isinstance(value, list) and (kinds[-1] is Ellipsis or len(kinds) == len(value))
        if fits and kinds[0] is float:
            value = [_as_float(item) for item in value]
        if not fits or not all(type(item) is kinds[0] for item in value):
            raise UsageError(f"{name} must be {_LISTS[kinds[0]]}.")
        return tuple(value)
    if hint is float:
        value = _as_float(value)
    if type(value) is not hint:
        raise UsageError(f"{name} must be {_KINDS.get(hint, hint)}.")
    return value


def _as_float(value: Any) -> Any:
    if type(value) is not int:
        return value
    return float(value) if abs(value) <= LARGEST else math.inf
