"""What a run has to show, as numbers: the parts that the page and the figures are made from.

Files of a run may come from anywhere. What is not what it should be is left out and counted, never believed.
"""

import json
import math
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nvil import data, storage
from nvil.contracts import Pair
from nvil.errors import UsageError
from nvil.evaluation import DocumentEvaluation, Evaluation, as_float, evaluate, evaluate_documents
from nvil.layers import AutoregressiveBernoulli
from nvil.runs import Run
from nvil.sparse import dense_rows

LARGEST = 1e30
SHOWN_CASES = 500
NETWORKS = ("model", "inference", "baselines")
IN_USE = 0.01


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
        self._given = dataset, result

    @property
    def name(self) -> str:
        return printable(self.run.folder.resolve().name)

    @property
    def chain(self) -> str:
        """The layer sizes from the data up; as `nvil.chain`, but nothing needs to be built."""
        names = ["x", *(f"h{i}" for i in range(1, 1 + len(self.run.config.hidden)))]
        sizes = (self.run.visible, *self.run.config.hidden)
        return " <- ".join(f"{name} {size}" for name, size in zip(names, sizes, strict=True))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All of config.toml, also what is no choice but a fact."""
        return storage.read_toml(self.run.folder / "config.toml")

    # The reports of the run

    @cached_property
    def _reports(self) -> tuple[list[dict[str, Any]], int]:
        path = self.run.folder / "metrics.jsonl"
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return [], 0
        reports = [report for line in lines if (report := _report(line)) is not None]
        return sorted(reports, key=lambda report: report["updates"]), len(lines) - len(reports)

    @property
    def reports(self) -> list[dict[str, Any]]:
        """The usable lines of metrics.jsonl, by the number of updates."""
        return self._reports[0]

    @property
    def unusable_lines(self) -> int:
        return self._reports[1]

    @cached_property
    def updates(self) -> Float[np.ndarray, " reports"]:
        return np.array([report["updates"] for report in self.reports], float)

    def series(self, *names: str) -> Float[np.ndarray, " reports"]:
        """One number of every report, found by the names that lead to it; not a number where there is none."""
        return np.array([_number(_at(report, names)) for report in self.reports], float)

    def layer_series(self, *names: str) -> Float[np.ndarray, "reports layers"]:
        """As `series`, for a list with a number for each layer of latents."""
        layers = len(self.run.config.hidden)
        rows = []
        for report in self.reports:
            values = _at(report, names)
            fits = isinstance(values, list) and len(values) == layers
            rows.append([_number(value) for value in values] if fits else [math.nan] * layers)
        return np.array(rows, float).reshape(-1, layers)

    def network_series(self, *names: str) -> Float[np.ndarray, "reports 3"]:
        """As `series`, for a number of each of the model, the inference network and the baselines."""
        return np.stack([self.series(*names, network) for network in NETWORKS], axis=-1)

    @cached_property
    def signal_steps(self) -> tuple[str, ...]:
        """What happens to the learning signal: "raw", then the transformations in their order; nothing if not known."""
        found = [_at(report, ("diagnostics", "signal_power")) for report in self.reports]
        steps = next((tuple(powers) for powers in reversed(found) if isinstance(powers, dict)), ())
        return steps if steps[:1] == ("raw",) else ()

    @cached_property
    def best(self) -> tuple[int, float] | None:
        """The update with the best validation bound, and that bound."""
        bounds = self.series("validation_bound")
        if not np.any(np.isfinite(bounds)):
            return None
        place = int(np.nanargmax(bounds))
        return int(self.updates[place]), float(bounds[place])

    # Data and the test bound

    @cached_property
    def _dataset(self) -> tuple[data.Dataset | None, str]:
        if self._given[0] is not None:
            return self._given[0], ""
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
        return np.asarray(dense_rows(test[order]), float)

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

    @cached_property
    def samples(self) -> tuple[Float[np.ndarray, "cases visible"], Float[np.ndarray, "cases visible"]] | None:
        """A hundred samples `(x, E[x | h])`, those of `nvil sample`."""
        if self.pair is None:
            return None
        x, h = self.pair.model.sample(jax.random.key(0), 100)
        return np.asarray(x, float), np.asarray(self.pair.model.mean(h), float)

    @cached_property
    def reconstructions(self) -> Float[np.ndarray, "cases visible"] | None:
        """E[x | h] for one h ~ Q(h | x) of each of the first fifty `cases`."""
        if self.pair is None or self.cases is None:
            return None
        h = self.pair.inference.sample(jax.random.key(0), as_float(self.cases[:50]))
        return np.asarray(self.pair.model.mean(h), float)

    @cached_property
    def unit_kl(self) -> tuple[Float[np.ndarray, " units"], ...] | None:
        """How many nats each latent unit carries about a case, layer by layer."""
        if self.pair is None or self.cases is None:
            return None
        kl = _unit_kl(self.pair, as_float(self.cases), jax.random.key(0))
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


def _report(line: str) -> dict[str, Any] | None:
    """A line of metrics.jsonl, or None if it is not a report with a number of updates and a finite bound."""
    try:
        report = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(report, dict) or not math.isfinite(_number(report.get("bound"))):
        return None
    updates = report.get("updates")
    return report if isinstance(updates, int) and 0 < updates < 2**53 else None


def _at(report: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        report = report.get(name) if isinstance(report, dict) else None
    return report


def _number(value: Any) -> float:
    """A number that can be drawn, else not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return float(value) if abs(value) < LARGEST else math.nan


def _unit_kl(pair: Pair, x: Any, key: Any) -> Any:
    h = pair.inference.sample(key, x)

    def logits(layer: Any, value: Any, context: Any) -> Any:
        own = value @ jnp.triu(layer.within, 1) if isinstance(layer, AutoregressiveBernoulli) else 0.0
        return layer.logits(context) + own

    above = (*h[1:], jnp.zeros((len(x), 0)))
    for q_layer, p_layer, value, below, up in zip(
        pair.inference.layers, pair.model.layers[1:], h, pair.inference.contexts(x, h), above, strict=True
    ):
        a, b = logits(q_layer, value, below), logits(p_layer, value, up)
        q = jax.nn.sigmoid(a)
        yield jnp.mean(q * (a - b) - jax.nn.softplus(a) + jax.nn.softplus(b), axis=0)
