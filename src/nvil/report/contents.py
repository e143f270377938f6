"""What a run has to show, as numbers: the parts that the page and the figures are made from.

Files of a run may come from anywhere. What is not what it should be is left out and counted, never believed.
"""

from functools import cached_property

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key

from nvil import data
from nvil.contracts import Pair
from nvil.diagnostics import unit_kl
from nvil.errors import UsageError
from nvil.evaluation import DocumentEvaluation, Evaluation, as_float, evaluate, evaluate_documents
from nvil.rows import dense_blocks, select
from nvil.runs import Run

LARGEST = 1e30
SHOWN_CASES = 500
NETWORKS = ("model", "inference", "baselines")


class Contents:
    """Everything worth showing of a run, each part worked out when it is first asked for.

    A part is None where it cannot be had; `why_no_data` and `why_no_parameters` then say why. `dataset` and `result`
    spare the work where they are at hand, as at the end of training.
    """

    def __init__(
        self,
        run: Run,
        *,
        dataset: data.Dataset | None = None,
        result: Evaluation | DocumentEvaluation | None = None,
    ):
        self.run = run
        self.name = printable(run.folder.resolve().name)
        self._given = dataset, result

    @property
    def chain(self) -> str:
        """The layer sizes from the data up; as `nvil.chain`, but nothing needs to be built."""
        names = ["x", *(f"h{i}" for i in range(1, 1 + len(self.run.config.hidden)))]
        sizes = (self.run.visible, *self.run.config.hidden)
        return " <- ".join(f"{name} {size}" for name, size in zip(names, sizes, strict=True))

    # The reports of the run

    @cached_property
    def metrics(self) -> dict[str, np.ndarray]:
        """`Run.metrics`, without numbers that are too large to be drawn."""
        metrics = self.run.metrics()
        return {name: np.where(np.abs(values) < LARGEST, values, np.nan) for name, values in metrics.items()}

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

    def layer_series(self, name: str) -> Float[np.ndarray, "reports layers"]:
        """As `series`, for a number of each layer of latents."""
        shape = len(self.updates), len(self.run.config.hidden)
        values = self.metrics.get(name)
        return values if values is not None and values.shape == shape else np.full(shape, np.nan)

    def network_series(self, name: str) -> Float[np.ndarray, "reports 3"]:
        """As `series`, for a number of each of the model, the inference network and the baselines."""
        return np.stack([self.series(f"{name}.{network}") for network in NETWORKS], axis=-1)

    @cached_property
    def unusable_lines(self) -> int:
        """How many lines of metrics.jsonl are no reports."""
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

    @cached_property
    def kept(self) -> int | None:
        """The update of the parameters in best.safetensors, which a run in training may be ahead of."""
        return self.run.best_update()

    @property
    def updates_asked(self) -> int | None:
        """How many updates the run was asked for; None where a stream decides."""
        return None if self.run.config.data == "-" else self.run.config.updates

    # Data and the test bound

    @cached_property
    def _dataset(self) -> tuple[data.Dataset | None, str]:
        if self._given[0] is not None:
            return self._given[0], ""
        name = self.run.config.data
        if name in data.NAMED and not data.NAMED[name].here():  # a page is no reason to download
            return None, f"The data set {name!r} is not on this machine; get it with: nvil data fetch {name}"
        try:
            return self.run.dataset(), ""
        except UsageError as error:
            return None, str(error)

    @property
    def dataset(self) -> data.Dataset | None:
        return self._dataset[0]

    @property
    def why_no_data(self) -> str:
        return self._dataset[1]

    @cached_property
    def _result(self) -> tuple[Evaluation | DocumentEvaluation | None, str]:
        if self._given[1] is not None:
            return self._given[1], ""
        if self.pair is None or self.dataset is None:
            return None, self.why_no_parameters or self.why_no_data
        try:
            return (evaluate_documents if self.run.documents else evaluate)(self.pair, self.dataset.test), ""
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
        """The best bound of a factorial model on the test cases; for documents, the unigram model's perplexities."""
        if self.dataset is None:
            return None
        if self.run.documents:
            return data.unigram_bound(self.dataset.train, self.dataset.test)
        return data.factorial_bound(self.dataset.test)

    @cached_property
    def cases(self) -> Float[np.ndarray, "cases visible"] | None:
        """Some test cases drawn at random (a file may have them in order), always the same."""
        if self.dataset is None:
            return None
        test = self.dataset.test
        order = np.random.default_rng(0).permutation(test.shape[0])[:SHOWN_CASES]
        return np.asarray(next(dense_blocks(select(test, order), len(order))), float)

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
        return self.run.config.model == "darn" and self.run.image is not None

    @cached_property
    def samples(self) -> tuple[Float[np.ndarray, "cases visible"], Float[np.ndarray, "cases visible"]] | None:
        """A hundred samples `(x, E[x | h])`; `(x, x)` for those shown as drawn."""
        if self.pair is None:
            return None
        x, mean = _sample(self.pair, jax.random.key(0), 100, self.as_drawn)
        return np.asarray(x, float), np.asarray(mean, float)

    @cached_property
    def reconstructions(self) -> Float[np.ndarray, "cases visible"] | None:
        """E[x | h] for one h ~ Q(h | x) of each of the first fifty `cases`."""
        if self.pair is None or self.cases is None:
            return None
        return np.asarray(_reconstruct(self.pair, jax.random.key(0), as_float(self.cases[:50])), float)

    @cached_property
    def unit_kl(self) -> tuple[Float[np.ndarray, " units"], ...] | None:
        """How many nats each latent unit carries about a case, layer by layer."""
        if self.pair is None or self.cases is None:
            return None
        kl = eqx.filter_jit(unit_kl)(self.pair, as_float(self.cases), jax.random.key(0))
        return tuple(np.asarray(layer, float) for layer in kl)

    @cached_property
    def weights(self) -> Float[np.ndarray, "units visible"] | None:
        """The generative weights of the first layer's units, those that carry most first."""
        if self.pair is None:
            return None
        weights = np.asarray(self.pair.model.layers[0].logits.weights, float)
        return weights[self.unit_order]

    @cached_property
    def unit_order(self) -> np.ndarray:
        """The units of the first layer, those that carry most nats first; without data, those with largest weights."""
        if self.unit_kl is not None:
            return np.argsort(-self.unit_kl[0], kind="stable")
        assert self.pair is not None
        return np.argsort(-np.linalg.norm(self.pair.model.layers[0].logits.weights, axis=1), kind="stable")

    @cached_property
    def usual(self) -> Float[np.ndarray, " words"]:
        """The share of every word in the training documents; at least a little, so that it has a logarithm."""
        assert self.pair is not None
        mean = np.maximum(np.asarray(self.pair.inference.center.value, float), 1e-9)
        return mean / mean.sum()

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        try:
            words = tuple(printable(word) for word in self.run.vocabulary() or ())
        except (OSError, UnicodeDecodeError):
            words = ()
        if len(words) != self.run.visible:
            words = tuple(f"word{i}" for i in range(self.run.visible))
        return words

    def raised_order(self, share: Float[np.ndarray, " words"]) -> np.ndarray:
        """The words, by how much `share` raises them over their usual one.

        The difference of the square roots is between that of the shares, which only sees frequent words, and that of
        their logarithms, which only sees rare ones.
        """
        return np.argsort(np.sqrt(self.usual) - np.sqrt(share), kind="stable")


def printable(text: str) -> str:
    """Text that any page can hold: undecodable bytes and control characters as a replacement character."""
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


@eqx.filter_jit
def _sample(
    pair: Pair, key: Key[Array, ""], cases: int, as_drawn: bool
) -> tuple[Float[Array, "cases _"], Float[Array, "cases _"]]:
    x, h = pair.model.sample(key, cases)
    return x, x if as_drawn else pair.model.mean(h)


@eqx.filter_jit
def _reconstruct(pair: Pair, key: Key[Array, ""], x: Float[Array, "cases _"]) -> Float[Array, "cases _"]:
    return pair.model.mean(pair.inference.sample(key, x))
