"""What a run has to show, as numbers: the parts that the page and the figures are made from.

Files of a run may come from anywhere. What is not what it should be is left out and counted, never believed.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from nvil import apply, data
from nvil.codes import nearest, pack
from nvil.contracts import Constant, Pair
from nvil.diagnostics import has_known_layers, unit_kl
from nvil.errors import UsageError
from nvil.evaluation import DocumentEvaluation, Evaluation, as_float, evaluate, evaluate_documents
from nvil.layers import Affine, Gaussian, Nonlinear
from nvil.models import chain
from nvil.networks import BeliefNetwork
from nvil.random import seeded_key
from nvil.rows import as_rows
from nvil.runs.index import probabilities
from nvil.runs.run import Run
from nvil.topic_words import Topics, has_topics, raised, topics, usual_shares

DRAWABLE = 1e30
"""Larger numbers are left out of figures."""
SHOWN_CASES = 500
SEARCHED = 5000
"""Training cases among which the nearest are looked for."""
NEAREST = 9
LEAST_MAPPED = 20
"""Fewer codes make no map."""
MOST_CLASSES = 20
"""More cannot be told apart on a map."""
NETWORKS = ("model", "inference", "baselines")


class Neighbours(NamedTuple):
    """The training cases whose codes differ from those of test cases in the fewest bits.

    - `distances`: of the nearest, in bits, for each of `Summary.cases`.
    - `cases`, `labels`: the nearest themselves, for the first ten of these, and their classes where known.
    - `bits`, `searched`: the length of a code, and how many training cases were searched.
    - `usual`: the mean distance to any of them.
    - `same_class`: the share of the nearest that are of the test case's class, and that of any; None without classes.
    """

    distances: Int[np.ndarray, "cases count"]
    cases: Float[np.ndarray, "some count visible"]
    labels: np.ndarray | None
    bits: int
    searched: int
    usual: float
    same_class: tuple[float, float] | None


class Summary:
    """Everything worth showing of a run, each part worked out when it is first asked for.

    A part is None where it cannot be had; `why_no_data` and `why_no_parameters` then say why.

    **Arguments:**

    - `dataset`, `result`: spare the work where they are at hand, as at the end of training.
    - `test`: cases to evaluate on and to show, for a run whose data came from Python.
    - `labels`: the classes of the test cases, where the data does not say.
    """

    def __init__(
        self,
        run: Run,
        *,
        dataset: data.Dataset | None = None,
        result: Evaluation | DocumentEvaluation | None = None,
        test: Any = None,
        labels: Sequence[Any] | None = None,
    ):
        self.run = run
        self.name = printable(run.folder.resolve().name)
        self._given = dataset, result
        self._test = test if test is None else as_rows(test)
        self._labels = None if labels is None else tuple(map(str, labels))

    @property
    def layers(self) -> str:
        """The layer sizes from the data up, where the networks are chains of layers."""
        model = None if self.run.pair is None else self.run.pair.model
        return chain(self.run.pair) if isinstance(model, BeliefNetwork) and self.run.pair else "not known"

    # The reports of the run

    @cached_property
    def metrics(self) -> dict[str, np.ndarray]:
        """`Run.metrics`, without numbers that are too large to be drawn."""
        metrics = self.run.metrics()
        return {name: np.where(np.abs(values) < DRAWABLE, values, np.nan) for name, values in metrics.items()}

    @property
    def updates(self) -> Float[np.ndarray, " reports"]:
        """The updates that had been done at every report."""
        return self.metrics.get("updates", np.zeros(0))

    @property
    def updates_done(self) -> int:
        return int(self.updates[-1]) if len(self.updates) else 0

    def series(self, name: str) -> Float[np.ndarray, " reports"]:
        """One number of every report, such as "bound" or "gradient_norms.model"; NaN where there is none."""
        values = self.metrics.get(name)
        return values if values is not None and values.ndim == 1 else np.full(len(self.updates), np.nan)

    @cached_property
    def timing(self) -> dict[str, np.ndarray]:
        """`Run.timing`, of the reports that say how fast they came: "updates", "updates_per_second" and "seconds"."""
        names = ("updates", "updates_per_second", "seconds")
        found = self.run.timing()
        if not all(found.get(name, np.zeros(())).ndim == 1 for name in names):
            return {name: np.zeros(0) for name in names}
        known = np.all([(found[name] > 0) & (found[name] < DRAWABLE) for name in names], axis=0)
        return {name: found[name][known] for name in names}

    def layer_series(self, name: str) -> Float[np.ndarray, "reports signals"]:
        """As `series`, for a number of each learning signal or layer of latents."""
        values = self.metrics.get(name)
        return values if values is not None and values.ndim == 2 else np.full((len(self.updates), 1), np.nan)

    def network_series(self, name: str) -> Float[np.ndarray, "reports 3"]:
        """As `series`, for a number of each of the model, the inference network and the baselines."""
        return np.stack([self.series(f"{name}.{network}") for network in NETWORKS], axis=-1)

    @cached_property
    def unusable_lines(self) -> int:
        """How many lines of metrics.jsonl are not reports."""
        try:
            lines = (self.run.folder / "metrics.jsonl").read_bytes().count(b"\n")
        except OSError:
            return 0
        return lines - len(self.updates)

    @cached_property
    def best(self) -> tuple[int, float] | None:
        """The update with the best validation bound, and that bound."""
        bounds = self.series("validation_bound")
        if not np.any(np.isfinite(bounds)):
            return None
        place = int(np.nanargmax(bounds))
        return int(self.updates[place]), float(bounds[place])

    @property
    def best_se(self) -> float | None:
        """The standard error of the best validation bound, as an estimate for other cases."""
        if self.best is None:
            return None
        error = self.series("validation_se")[self.updates == self.best[0]]
        return float(error[0]) if np.isfinite(error[0]) else None

    @cached_property
    def kept(self) -> int | None:
        """The update of the parameters in best.safetensors, which a run in training may be ahead of."""
        return self.run.best_update()

    @property
    def updates_asked(self) -> int | None:
        """How many updates the run was asked for; None where a stream decides."""
        streamed = self.run.config is not None and self.run.config.data == "-"
        return None if streamed else self.run.plan.updates

    # Data and the test bound

    @cached_property
    def _dataset(self) -> tuple[data.Dataset | None, str]:
        if self._given[0] is not None:
            return self._given[0], ""
        name = "" if self.run.config is None else self.run.config.data
        if name in data.NAMED and not data.NAMED[name].here():  # a page should not start a download
            return None, f"The data set {name!r} is not on this machine; get it with: nvil data fetch {name}"
        try:
            return self.run.dataset(), ""
        except UsageError as error:
            return None, str(error)

    @property
    def dataset(self) -> data.Dataset | None:
        return self._dataset[0]

    @property
    def test(self) -> Any:
        """The cases to evaluate on and to show."""
        return self._test if self._test is not None or self.dataset is None else as_rows(self.dataset.test)

    @property
    def why_no_data(self) -> str:
        return "" if self.test is not None else self._dataset[1]

    @cached_property
    def _result(self) -> tuple[Evaluation | DocumentEvaluation | None, str]:
        if self._given[1] is not None:
            return self._given[1], ""
        if self.pair is None or self.test is None:
            return None, self.why_no_parameters or self.why_no_data
        try:
            return (evaluate_documents if self.run.documents else evaluate)(self.pair, self.test), ""
        except UsageError as error:
            return None, str(error)

    @property
    def perplexities(self) -> DocumentEvaluation | None:
        """Of the test documents; None for other data."""
        return self._result[0] if isinstance(self._result[0], DocumentEvaluation) else None

    @property
    def result(self) -> Evaluation | None:
        """The bound of the best parameters on the test cases."""
        result = self._result[0]
        return result.evaluation if isinstance(result, DocumentEvaluation) else result

    @property
    def why_no_result(self) -> str:
        return self._result[1]

    @cached_property
    def without_latents(self) -> float | tuple[float, float] | None:
        """The best bound of a factorial model on the test cases; for documents, the unigram model's perplexities.

        For real numbers, that of independent Gaussians.
        """
        if self.test is None or (self.run.documents and self.dataset is None):
            return None
        if self.run.documents:
            return data.unigram_bound(self.dataset.train, self.test, self.context) if self.dataset else None
        if self.run.numbers:
            return data.gaussian_bound(self.dataset.train, self.test, self.context) if self.dataset else None
        return data.factorial_bound(self.test, self.context, self.run.facts.visible_categories)

    @cached_property
    def cases(self) -> Float[np.ndarray, "cases visible"] | None:
        """Some test cases drawn at random (a file may have them in order), always the same."""
        if self.test is None:
            return None
        cases = np.asarray(self.test.select(self._order).fixed().dense(), float)
        return cases.reshape(len(cases), -1)

    @property
    def _order(self) -> Int[np.ndarray, " cases"]:
        return np.random.default_rng(0).permutation(self.test.shape[0])[:SHOWN_CASES]

    @cached_property
    def labels(self) -> tuple[str, ...] | None:
        """The classes of `cases`, where they are known."""
        if self.test is None:
            return None
        every = self._labels
        if every is None and self._test is None and self.dataset is not None and self.dataset.labels:
            every = self.dataset.labels["test"]
        if every is None:
            return None
        if len(every) != self.test.shape[0]:
            raise UsageError(f"There are {len(every)} `labels` for {self.test.shape[0]} test cases; give one for each.")
        return tuple(printable(every[i]) for i in self._order)

    # The best parameters and what they do

    @cached_property
    def _pair(self) -> tuple[Pair | None, str]:
        try:
            return self.run.load_best(), ""
        except UsageError as error:
            return None, str(error)

    @property
    def pair(self) -> Pair | None:
        return self._pair[0]

    @property
    def why_no_parameters(self) -> str:
        return self._pair[1]

    @property
    def as_drawn(self) -> bool:
        """Whether samples are shown as drawn, not as means given the latents, given which DARN's pixels still vary."""
        config = self.run.config
        return config is not None and config.model == "darn" and self.run.facts.image is not None

    @cached_property
    def samples(self) -> tuple[Float[np.ndarray, "cases visible"], Float[np.ndarray, "cases visible"]] | None:
        """A hundred samples `(x, E[x | h])`; `(x, x)` for those shown as drawn."""
        if self.pair is None or not (hasattr(self.pair.model, "sample") and hasattr(self.pair.model, "mean")):
            return None
        given = None
        if self.context:  # those of test cases
            if self.cases is None:
                return None
            given = np.resize(self.cases[:, : self.context], (100, self.context))
        drawn = apply.sample(self.pair, 100, given=given, means=not self.as_drawn)
        x = np.asarray(drawn.x, float)
        return x, x if drawn.mean is None else np.asarray(drawn.mean, float)

    @cached_property
    def reconstructions(self) -> Float[np.ndarray, "cases visible"] | None:
        """E[x | h] for one h ~ Q(h | x) of each of the first fifty `cases`."""
        if self.pair is None or self.cases is None or not hasattr(self.pair.model, "mean"):
            return None
        return np.asarray(apply.reconstruct(self.pair, self.cases[:50]), float)

    @cached_property
    def codes(self) -> Float[np.ndarray, "cases units"] | None:
        """Q's probability that each unit of the first layer is on (its mean, if Gaussian), for each of `cases`."""
        if self.pair is None or self.cases is None or not has_known_layers(self.pair):
            return None
        return np.asarray(probabilities(self.run, self.pair, self.cases, 1), float)

    @cached_property
    def neighbours(self) -> Neighbours | None:
        """The training cases nearest to `cases` by Hamming distance, their bits cut at their medians as in `Index`.

        None for Gaussian latents, whose codes are no bits.
        """
        if self.codes is None or self.dataset is None or self.pair is None or self.gaussian:
            return None
        train = as_rows(self.dataset.train)
        order = np.random.default_rng(0).permutation(train.shape[0])[:SEARCHED]
        searched = train.select(order).fixed()
        codes = np.asarray(probabilities(self.run, self.pair, searched, 1), float)
        middle = np.median(codes, axis=0)
        bits, asked = codes > middle, self.codes > middle
        rows, distances = nearest(pack(bits), pack(asked), NEAREST)
        some = rows[:10]
        cases = np.asarray(searched.select(some.ravel()).dense(), float).reshape(*some.shape, -1)
        on, asked_on = bits.mean(axis=0), asked.mean(axis=0)
        usual = float(np.sum(on * (1 - asked_on) + (1 - on) * asked_on))
        labels = same_class = None
        if self.labels is not None and self.dataset.labels:
            labels = np.array([printable(self.dataset.labels["train"][i]) for i in order])
            own = np.array(self.labels)[:, None]
            same_class = float(np.mean(labels[rows] == own)), float(np.mean(labels == own))
            labels = labels[some]
        return Neighbours(distances, cases, labels, bits.shape[1], len(order), usual, same_class)

    @cached_property
    def code_map(self) -> Float[np.ndarray, "cases 2"] | None:
        """A place on the plane for each of `cases`, by t-SNE (van der Maaten & Hinton, 2008) of their `codes`."""
        codes = self.codes
        if codes is None or len(codes) < LEAST_MAPPED or codes.shape[1] < 2 or np.ptp(codes, axis=0).max() < 1e-6:
            return None
        from sklearn.manifold import TSNE  # here, as it takes a second

        perplexity = min(30.0, (len(codes) - 1) / 3)
        return TSNE(init="pca", perplexity=perplexity, max_iter=350, random_state=0).fit_transform(codes)

    @cached_property
    def unit_kl(self) -> tuple[Float[np.ndarray, " units"], ...] | None:
        """How many nats each latent unit carries about a case, layer by layer."""
        if self.pair is None or self.cases is None or not has_known_layers(self.pair):
            return None
        kl = eqx.filter_jit(unit_kl)(self.pair, as_float(self.cases), seeded_key(0, "units"))
        return tuple(np.asarray(layer, float) for layer in kl)

    @cached_property
    def weights(self) -> Float[np.ndarray, "units visible"] | None:
        """`_down`, the units that carry most first; for a category over its variable's mean, which softmax ignores."""
        if self._down is None:
            return None
        rows = self._down[self.unit_order]
        if (each := self.run.facts.visible_categories) is None:
            return rows
        by_variable = rows.reshape(len(rows), -1, each)
        return (by_variable - by_variable.mean(axis=-1, keepdims=True)).reshape(rows.shape)

    @cached_property
    def _down(self) -> Float[np.ndarray, "units visible"] | None:
        """What each unit of the first layer adds to the visible logits when it is on; None for other models.

        Those are the generative weights of a Bernoulli unit; for a category, what it adds to the usual mix of its
        latent. Where layers between make the logits a nonlinear function of the latents, it is the difference that the
        unit makes with all other latents at their mean in samples.
        """
        model = None if self.pair is None else self.pair.model
        logits = getattr(model.layers[0], "logits", None) if isinstance(model, BeliefNetwork) else None
        if isinstance(logits, Affine) and self.categories == 1:
            return np.asarray(logits.weights, float)[: logits.weights.shape[0] - self.context]
        if not isinstance(logits, Affine | Nonlinear) or (self.context and self.center is None):
            return None
        assert self.pair is not None
        context = np.zeros(0) if self.center is None else self.center[: self.context]
        given = context if self.context else None
        usual = apply.sample(self.pair, 500, given=given, means=False).h[0].mean(axis=0)
        latent = np.arange(len(usual)) // self.categories
        own = latent[:, None] == latent
        on, off = np.where(own, np.eye(len(usual)), usual), np.where(own & (self.categories == 1), 0, usual)
        if self.gaussian:  # one up, from its mean
            on, off = usual + np.eye(len(usual)), np.tile(usual, (len(usual), 1))
        on, off = (as_float(np.hstack([each, np.tile(context, (len(usual), 1))])) for each in (on, off))
        return np.asarray(logits(on) - logits(off), float)

    @property
    def gaussian(self) -> bool:
        """Whether the first layer's latents are real numbers."""
        model = None if self.pair is None else self.pair.model
        return isinstance(model, BeliefNetwork) and isinstance(model.layers[1], Gaussian)

    @property
    def center(self) -> Float[np.ndarray, " visible"] | None:
        """The mean of the training data, where the inference network is centred by it."""
        center = getattr(self.pair.inference, "center", None) if self.pair is not None else None
        return np.asarray(center.value, float) if isinstance(center, Constant) else None

    @property
    def context(self) -> int:
        """How many columns, the first ones, the others are modelled given."""
        return self.run.facts.context or 0

    @property
    def categories(self) -> int:
        """Units per latent of the first layer: 1, or the categories of a categorical one."""
        model = None if self.pair is None else self.pair.model
        return getattr(model.layers[1], "categories", 1) if isinstance(model, BeliefNetwork) else 1

    @cached_property
    def unit_order(self) -> np.ndarray:
        """The units of the first layer, those that carry most nats first; without data, those with largest weights.

        The categories of a latent stay together.
        """
        if self.unit_kl is not None:
            latents = np.argsort(-self.unit_kl[0], kind="stable")
            return (latents[:, None] * self.categories + np.arange(self.categories)).ravel()
        assert self._down is not None
        return np.argsort(-np.linalg.norm(self._down, axis=1), kind="stable")

    @cached_property
    def topics(self) -> Topics | None:
        """Of a document model: what its latents stand for, measured on the test documents where they are here."""
        if self.pair is None or not has_topics(self.pair):
            return None
        return topics(self.pair, self.vocabulary, self.test)

    @cached_property
    def usual(self) -> Float[np.ndarray, " words"]:
        """The share of every word in the training documents; at least a little, so that it has a logarithm."""
        assert self.pair is not None
        return usual_shares(self.pair)

    @cached_property
    def names(self) -> tuple[str, ...] | None:
        """Of the variables, those that others are modelled given first, where the data is a table that has them."""
        names = self.run.facts.names
        if names is None and self.dataset is not None:
            names = self.dataset.names
        variables = self.run.facts.visible // (self.run.facts.visible_categories or 1)
        return tuple(map(printable, names)) if names is not None and len(names) == variables else None

    def header(self, columns: int) -> list[str]:
        """Names of the first variables, or x0, x1, ..."""
        return [*self.names[:columns]] if self.names is not None else [f"x{i}" for i in range(columns)]

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """The words, without the columns that they are modelled given."""
        words = tuple(printable(word) for word in self.run.vocabulary or ())
        if len(words) != self.run.facts.visible:
            words = tuple(f"word{i}" for i in range(self.run.facts.visible))
        return words[self.context :]

    def raised_order(self, share: Float[np.ndarray, " words"]) -> np.ndarray:
        """The words, by how much `share` raises them over their usual one."""
        return raised(self.usual, share)


def printable(text: str) -> str:
    """Text that any page can hold: undecodable bytes and control characters as a replacement character."""
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
