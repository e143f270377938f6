"""What the estimators have in common: everything but the kind of data."""

import abc
import math
from pathlib import Path
from typing import Any, Literal, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted

from nvil import apply, training
from nvil.contracts import Pair
from nvil.errors import UsageError, choose
from nvil.rows import Rows, Source
from nvil.runs.config import LARGEST, Config
from nvil.runs.metrics import metrics_of
from nvil.runs.progress import progress
from nvil.sklearn import saving
from nvil.sklearn.minibatches import AtRandom, InTurn
from nvil.sklearn.scores import case_scores

CODES = ("probabilities", "bits")
MADE_BY = ("model", "inference", "gradient_estimator", "weight_decay")
"""Parameters that what is trained has the form of, beside `hidden`."""
Own = TypeVar("Own", bound="BeliefNetworkEstimator")


class BeliefNetworkEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityMixin, BaseEstimator):
    """A model P and its inference network Q behind scikit-learn's methods.

    A subclass says which rows it makes of `X`, and builds the pair for them.
    """

    hidden: Any
    model: str
    inference: str
    latent_bias: Any
    gradient_estimator: str
    learning_rate: float | None
    weight_decay: float
    batch_size: int
    updates: int
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int
    report_every: int
    code: str
    layer: int
    estimate: str
    samples: int
    warm_start: bool
    random_state: Any
    verbose: Any
    _values: Literal["binary", "counts"]
    _lengths: tuple[int, ...] | None = None
    """Of documents: those that samples have."""

    @abc.abstractmethod
    def _rows(self, X: Any, *, reset: bool) -> Rows:  # noqa: N803
        """The cases of `X`, checked; `reset` for those that decide what the columns are."""

    @abc.abstractmethod
    def _build(self, config: Config, rows: Rows) -> Pair:
        """The untrained pair for these cases."""

    def _trainable(self, pair: Pair) -> Pair:
        """A pair as it is trained."""
        return pair

    def _public(self, pair: Pair) -> Pair:
        """A pair as users are to have it."""
        return pair

    # Learning

    def fit(self: Own, X: Any, y: Any = None) -> Own:  # noqa: N803
        """Train for `updates` updates on minibatches drawn from `X`; with `warm_start`, from where it is."""
        going_on = bool(self.warm_start) and hasattr(self, "pair_")
        if going_on:
            self._same_networks()
        rows = self._rows(X, reset=not going_on)
        config = self._config(self._seed if going_on else self._new_seed())
        held_out = self._held_out(rows.shape[0])
        return self._train(config, AtRandom(rows, config.seed), int(self.updates), held_out, going_on=going_on)

    def partial_fit(self: Own, X: Any, y: Any = None) -> Own:  # noqa: N803
        """Go once over the rows of `X`, in their order, and forget them: learning online (Section 2).

        Every minibatch is an update; the last one is filled up with cases of `X` drawn at random. The cases of the
        first call give the mean that centres the input and the start of the visible biases.
        """
        going_on = hasattr(self, "pair_")
        if going_on:
            self._same_networks()
        rows = self._rows(X, reset=not going_on)
        config = self._config(self._seed if going_on else self._new_seed())
        updates = -(-rows.shape[0] // config.batch_size)
        return self._train(config, InTurn(rows, config.seed), updates, 0, going_on=going_on)

    def _train(self: Own, config: Config, source: Source, updates: int, validation: int, *, going_on: bool) -> Own:
        source, held_out = source.hold_out(validation, config.seed)
        done, history, resumed = 0, [], None
        if going_on:
            state, tally, best = self._checkpoint
            pair, done, history = best.pair, int(state.step), self.history_
            # Patience and the best parameters are those of this call.
            resumed = training.Checkpoint(state, tally, training.Best(pair, -math.inf, done))
        else:
            pair = self._build(config, source.first())
        checkpoint: Any = resumed
        with progress(done + updates, done, quiet=not self.verbose) as show:
            for checkpoint, report in training.chunks(
                pair,
                source,
                held_out,
                config.build_learner(),
                updates=done + updates,
                report_every=config.report_every,
                patience=self.n_iter_no_change if validation else None,
                seed=config.seed,
                checkpoint=resumed,
            ):
                show.updates(int(checkpoint.state.step))
                if report is not None:
                    show.report(report)
                    history = [*history, metrics_of(report)]
        return self._learned(config.seed, checkpoint, history)

    def _learned(self: Own, seed: int, checkpoint: training.Checkpoint, history: list[dict[str, Any]]) -> Own:
        self._seed, self._checkpoint, self.history_ = seed, checkpoint, history
        self._made = self._made_by()
        self.pair_ = self._public(checkpoint.best.pair)
        self.n_updates_ = int(checkpoint.state.step)
        return self

    def _config(self, seed: int) -> Config:
        """The parameters as the library's recipe, checked."""
        hidden, biases = _listed(self.hidden), _listed(self.latent_bias)
        choose("code", self.code, CODES)
        for name in ("updates", "batch_size", "report_every", "samples", "n_iter_no_change"):
            self._count(name)
        self._layer(len(hidden))
        return Config(
            data="-",
            model=self.model,
            hidden=hidden,
            updates=int(self.updates),
            seed=seed,
            inference=self.inference,
            latent_bias=tuple(map(float, biases)),
            estimator=self.gradient_estimator,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            batch_size=int(self.batch_size),
            values=self._values,
            binarize="none",
            stop_words="none",
            validation=0,
            report_every=int(self.report_every),
        ).resolved()

    def _same_networks(self) -> None:
        """Refuse to go on learning with parameters that the networks were not made by."""
        for name, now in self._made_by().items():
            if now != (before := self._made[name]):
                raise UsageError(f"`{name}` was {before!r} when it was fitted and is {now!r} now; fit it anew.")

    def _made_by(self) -> dict[str, Any]:
        return {"hidden": _listed(self.hidden), **{name: getattr(self, name) for name in MADE_BY}}

    def _count(self, name: str) -> int:
        value = getattr(self, name)
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise UsageError(f"`{name}` must be a whole number of at least 1, got {value!r}.")
        return int(value)

    def _layer(self, layers: int) -> int:
        """The place, from 0, of the layer that is the code."""
        if not isinstance(self.layer, int | np.integer) or not (1 <= self.layer <= layers or self.layer == -1):
            raise UsageError(f"`layer` must be from 1 to {layers}, or -1 for the deepest, got {self.layer!r}.")
        return int(self.layer) % (layers + 1) - 1

    def _sizes(self) -> tuple[int, ...]:
        return tuple(layer.units for layer in self.pair_.inference.layers)

    def _new_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(LARGEST))

    def _held_out(self, cases: int) -> int:
        if not self.early_stopping:
            return 0
        if not 0 < self.validation_fraction < 1:
            raise UsageError(f"`validation_fraction` must be above 0 and below 1, got {self.validation_fraction}.")
        return max(1, round(self.validation_fraction * cases))

    # What it has learned

    def transform(self, X: Any) -> Float[np.ndarray, "cases units"] | np.ndarray:  # noqa: N803
        """The codes of cases: Q's probability that each latent of `layer` is on, or, with `code="bits"`, 0 or 1."""
        check_is_fitted(self)
        choose("code", self.code, CODES)
        layer = self._layer(len(self._sizes()))
        codes = apply.encode(self._checkpoint.best.pair, self._rows(X, reset=False), seed=self._seed)[layer]
        return (codes >= 0.5).astype(np.uint8) if self.code == "bits" else codes

    def inverse_transform(self, X: Any) -> Float[np.ndarray, "cases visible"]:  # noqa: N803
        """What codes stand for: the probability that each variable is on; of documents, of each word.

        Codes go down the layers as means, so that it is exact for bits of the first layer; of autoregressive layers
        the mean is an average over samples, always the same.
        """
        check_is_fitted(self)
        codes: Any = check_array(X, dtype="float32")
        layer = self._layer(len(self._sizes())) + 1
        if codes.shape[1] != self._sizes()[layer - 1]:
            raise UsageError(f"Codes of `layer={layer}` have {self._sizes()[layer - 1]} columns, got {codes.shape[1]}.")
        value: Array = jnp.asarray(codes)
        for below in reversed(self._checkpoint.best.pair.model.layers[:layer]):
            value = below.mean(value)
        return np.asarray(value)

    def score_samples(self, X: Any) -> Float[np.ndarray, " cases"]:  # noqa: N803
        """The log-probability of every case in nats, by `estimate`: a lower bound unless that is "exact"."""
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        samples = self._count("samples")
        return case_scores(self._checkpoint.best.pair, rows, self.estimate, samples=samples, seed=self._seed)

    def score(self, X: Any, y: Any = None) -> Any:  # noqa: N803
        """The mean of `score_samples`: the bound per case, in nats."""
        return float(np.mean(self.score_samples(X), dtype=float))

    def sample(self, n_samples: int = 1, *, random_state: Any = None) -> Any:
        """Draw cases from the model; without a `random_state` of their own, always the same ones."""
        check_is_fitted(self)
        seed = self._seed if random_state is None else int(check_random_state(random_state).randint(LARGEST))
        return apply.sample(self.pair_, n_samples, means=False, seed=seed).x

    @property
    def _n_features_out(self) -> int:
        return self._sizes()[self._layer(len(self._sizes()))]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float32"]  # what the networks compute in
        return tags

    # Keeping it

    def save(self, folder: Path | str) -> Path:
        """Write the estimator to a folder, without pickles: a run's, which the command line reads too."""
        check_is_fitted(self)
        self._same_networks()
        return saving.save(self, Path(folder))

    @classmethod
    def load(cls: type[Own], folder: Path | str) -> Own:
        """The estimator that `save` wrote; it goes on learning as if it had never been away."""
        return saving.load(cls, Path(folder))


def _listed(value: Any) -> tuple[Any, ...]:
    """One value per layer, or one for all, as a tuple of Python numbers."""
    return tuple(np.asarray(value).ravel().tolist())
