"""What the latents of a document model stand for, in words, and how good these words are as topics.

A latent h_k adds its row of weights W_k to the logits of all words. All else as usual,

    P(w | h_k = 1) ~ usual_w exp((1 - m_k) W_kw),   P(w | h_k = 0) ~ usual_w exp(-m_k W_kw),

where usual is the share of w in a document, on average over documents, and m_k the share of the documents that have h_k
on: on average the two are usual, to first order in W_k. The words of a topic are those whose share grows most from the
second to the first.
"""

import csv
import dataclasses
import io
from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from nvil import apply
from nvil.contracts import Pair
from nvil.diagnostics import unit_kl
from nvil.errors import UsageError, count_of
from nvil.evaluation import as_float
from nvil.layers import Affine, AutoregressiveBernoulli, Bernoulli, Multinomial
from nvil.networks import BeliefNetwork, InferenceNetwork
from nvil.random import seeded_key
from nvil.rows import Rows, as_rows, explained

MEASURED = 500
"""Documents whose latents' nats are averaged."""
COUNTED_AT_ONCE = 1000


@dataclasses.dataclass(frozen=True)
class Topic:
    """A latent of the first layer.

    - `unit`: which one.
    - `words`, `lowered`: whose share grows and falls most when it is on, most first.
    - `nats`: what it tells about a document, on average.
    - `prevalence`: the share of the documents that have it on.
    - `coherence`: the mean NPMI of the pairs of its words.
    - `documents`: those that turn it on most, as their rows.

    The last four are of the documents given, and None without any.
    """

    unit: int
    words: tuple[str, ...]
    lowered: tuple[str, ...]
    nats: float | None = None
    prevalence: float | None = None
    coherence: float | None = None
    documents: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Topics:
    """The topics of a model, those that tell most first.

    - `coherence`: the mean of those of the topics; None without documents.
    - `diversity`: the share of different words among the words of all topics (Dieng, Ruiz & Blei, 2020).
    """

    topics: tuple[Topic, ...]
    coherence: float | None
    diversity: float

    def __len__(self) -> int:
        return len(self.topics)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.topics)

    def __getitem__(self, place: int) -> Topic:
        return self.topics[place]

    def frame(self) -> Any:
        """The topics as a pandas data frame, one a row; pandas is not a dependency."""
        try:
            import pandas as pd
        except ImportError as error:
            raise UsageError("A data frame needs pandas: pip install pandas") from error
        return pd.DataFrame([dataclasses.asdict(topic) for topic in self]).set_index("unit")

    def csv(self, names: Sequence[str] | None = None) -> str:
        """The topics as a .csv file; `names` are those of the documents."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(field.name for field in dataclasses.fields(Topic))
        for topic in self:
            documents = [str(i) if names is None else names[i] for i in topic.documents or ()]
            numbers = [
                "" if value is None else f"{value:.4f}" for value in (topic.nats, topic.prevalence, topic.coherence)
            ]
            lists = (" ".join(each) for each in (topic.words, topic.lowered))
            table.writerow([topic.unit, *lists, *numbers, " ".join(documents)])
        return text.getvalue()

    def __str__(self) -> str:
        lines = ["unit  nats     on   NPMI  words"]
        for topic in self:
            numbers = "".ljust(20)
            if topic.nats is not None:
                numbers = f"{topic.nats:6.2f} {topic.prevalence:6.1%} {topic.coherence:6.2f}"
            lines.append(f"{topic.unit:4}{numbers}  {' '.join(topic.words)}")
        mean = "" if self.coherence is None else f"mean NPMI {self.coherence:.3f}, "
        return "\n".join([*lines, f"{len(self)} topics, {mean}{self.diversity:.1%} of their words different"])


def topics(pair: Pair, vocabulary: Sequence[str], documents: Any = None, *, words: int = 10, shown: int = 5) -> Topics:
    """What each latent of the first layer of a document model stands for.

    **Arguments:**

    - `pair`: a trained `document_model`, or that of a run, `Run.load_best()`.
    - `vocabulary`: the words that columns count.
    - `documents`: word counts, held out from training, to measure prevalence and coherence on.
    - `words`: of each topic.
    - `shown`: how many of the documents that turn a topic on most are listed.

    !!! example

        >>> from nvil import document_model
        >>> counts = np.array([[2, 0, 1], [0, 3, 1]])
        >>> found = topics(document_model(counts, (2,)), ["red", "green", "blue"], counts, words=2)
        >>> len(found), len(found[0].words)
        (2, 2)
    """
    weights = _weights(pair)
    units, width = weights.shape
    if len(vocabulary) != width:
        raise UsageError(f"`vocabulary` has {len(vocabulary)} words, and the model counts {width}.")
    count_of(2, words=words)
    if documents is None:
        prevalence, order = np.zeros(units), np.argsort(-np.linalg.norm(weights, axis=1), kind="stable")
        on, rows, nats, usual = None, None, None, usual_shares(pair)
    else:
        rows = explained(pair, as_rows(documents))
        usual = document_shares(rows)
        exact = isinstance(pair.inference.layers[0], Bernoulli)
        on = apply.encode(pair, rows, samples=1 if exact else 10)[0]
        prevalence = on.mean(axis=0, dtype=float)
        some = rows.select(np.sort(np.random.default_rng(0).permutation(rows.shape[0])[:MEASURED]))
        nats = np.asarray(_unit_kl(pair, as_float(some.dense()), seeded_key(0, "units"))[0], float)
        order = np.argsort(-nats, kind="stable")
    grown = [raised(*_shares(usual, weights[k], float(prevalence[k]))).tolist() for k in order]
    best = np.array([each[:words] for each in grown])
    coherences = None if rows is None else npmi(best, rows)
    found = [
        Topic(
            int(k),
            tuple(str(vocabulary[i]) for i in grown[place][:words]),
            tuple(str(vocabulary[i]) for i in grown[place][::-1][:words]),
            None if nats is None else float(nats[k]),
            None if on is None else float(prevalence[k]),
            None if coherences is None else float(coherences[place]),
            None if on is None else tuple(np.argsort(-on[:, k], kind="stable")[:shown].tolist()),
        )
        for place, k in enumerate(order)
    ]
    return Topics(tuple(found), None if coherences is None else float(coherences.mean()), diversity(best))


def _shares(
    usual: Float[np.ndarray, " words"], weights: Float[np.ndarray, " words"], prevalence: float
) -> tuple[Float[np.ndarray, " words"], Float[np.ndarray, " words"]]:
    """The share of every word with a unit off and with it on."""
    tilted = [np.log(usual) + change * weights for change in (-prevalence, 1 - prevalence)]
    shares = [np.exp(logits - logits.max()) for logits in tilted]
    return shares[0] / shares[0].sum(), shares[1] / shares[1].sum()


def raised(before: Float[np.ndarray, " words"], share: Float[np.ndarray, " words"]) -> Int[np.ndarray, " words"]:
    """The words, by how much `share` raises them over the share `before`.

    The difference of the square roots is between that of the shares, which only sees frequent words, and that of
    their logarithms, which only sees rare ones.
    """
    return np.argsort(np.sqrt(before) - np.sqrt(share), kind="stable")


def usual_shares(pair: Pair) -> Float[np.ndarray, " words"]:
    """The share of every word in the training documents; at least a little, so that it has a logarithm.

    An inference network of one's own may not know it: all words are then alike.
    """
    if not isinstance(pair.inference, InferenceNetwork):
        return np.full(pair.model.layers[0].units, 1 / pair.model.layers[0].units)
    mean = np.maximum(np.asarray(pair.inference.center.value, float)[pair.inference.given :], 1e-9)
    return mean / mean.sum()


def document_shares(documents: Rows) -> Float[np.ndarray, " words"]:
    """The share of every word in a document, on average: one document that repeats a word a thousand times is one."""
    total = np.full(documents.shape[1], 1e-9)  # so that each has a logarithm
    for block in documents.blocks(COUNTED_AT_ONCE):
        counts = block.dense().astype(float)
        lengths = counts.sum(axis=1)
        total += (counts[lengths > 0] / lengths[lengths > 0, None]).sum(axis=0)
    return total / total.sum()


def npmi(topics: Int[np.ndarray, "topics words"], documents: Any) -> Float[np.ndarray, " topics"]:
    """The mean normalised pointwise mutual information of the pairs of words of each topic (Lau et al., 2014).

    log(P(a, b) / P(a) P(b)) / -log P(a, b), where P is the share of the documents that hold a word, or both: from -1
    (never together) through 0 (independent) to 1 (always together).
    """
    topics = np.asarray(topics)
    rows: Rows = as_rows(documents)
    columns, places = np.unique(topics, return_inverse=True)
    together = np.zeros((len(columns), len(columns)))
    for block in rows.blocks(COUNTED_AT_ONCE):
        there = (block.dense()[:, columns] > 0).astype(np.float32)
        together += there.T @ there
    together /= rows.shape[0]
    single = np.diag(together)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.log(together / np.outer(single, single)) / -np.log(together)
    values = np.where(together > 0, np.where(together < 1, values, 1.0), -1.0)
    places = places.reshape(topics.shape)
    first, second = np.triu_indices(topics.shape[1], 1)
    if not len(first):  # a single word goes with no other
        return np.full(len(topics), np.nan)
    return values[places[:, first], places[:, second]].mean(axis=1)


def diversity(topics: Int[np.ndarray, "topics words"]) -> float:
    """The share of different words among the words of all topics: 1 where no two topics share any."""
    return len(np.unique(topics)) / np.size(topics)


@eqx.filter_jit
def _unit_kl(pair: Pair, x: Any, key: Any) -> Any:
    return unit_kl(pair, x, key)


def has_topics(pair: Pair) -> bool:
    """Whether the words of a document depend on binary latents as the paper's do: by weights added to their logits."""
    if not (isinstance(pair.model, BeliefNetwork) and isinstance(pair.inference, InferenceNetwork)):
        return False
    words, latents = pair.model.layers[:2]
    binary = isinstance(latents, Bernoulli | AutoregressiveBernoulli)
    plain = isinstance(words, Multinomial) and isinstance(words.logits, Affine) and not pair.inference.given
    return plain and binary


def _weights(pair: Pair) -> Float[np.ndarray, "units words"]:
    """What each latent of the first layer adds to the logits of the words."""
    if not has_topics(pair):
        raise UsageError(
            "Topics are those of a document model with binary latents, such as nvil.document_model gives, and not of "
            "this model."
        )
    return np.asarray(pair.model.layers[0].logits.weights, float)
