"""What is measured: the paper's models at several sizes of minibatch, on made-up data of the right shape."""

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse

CASES, DISTINCT_WORDS = 2000, 75


@dataclasses.dataclass(frozen=True)
class Model:
    """One of the paper's models, in the few words that every side needs to build it."""

    visible: int
    hidden: tuple[int, ...]
    prior: str = "factorial"
    inference: str = "factorial"
    documents: bool = False


MODELS = {
    "sbn-200": Model(784, (200,)),
    "sbn-200-200": Model(784, (200, 200)),
    "sbn-200-200-200": Model(784, (200, 200, 200)),
    "sbn-200-autoregressive": Model(784, (200,), inference="autoregressive"),
    "fdarn-200": Model(784, (200,), prior="autoregressive"),
    "fdarn-500": Model(784, (500,), prior="autoregressive"),
    "documents-sbn-50-2k": Model(2000, (50,), documents=True),
    "documents-fdarn-50-2k": Model(2000, (50,), prior="autoregressive", documents=True),
    "documents-sbn-50-10k": Model(10_000, (50,), documents=True),
    "documents-fdarn-50-10k": Model(10_000, (50,), prior="autoregressive", documents=True),
}
"""By the names that `nvil bench --models` takes; 2k and 10k are words."""

RATES = {"sgd": {False: 3e-4, True: 3e-5}, "adam": {False: 1e-3, True: 1e-3}}
"""Learning rates by optimiser, for pixels and for documents; Q's is 0.2 of them for SGD, as in the paper."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, the size of a minibatch and the optimiser."""

    name: str
    batch: int
    optimiser: str

    @property
    def model(self) -> Model:
        return MODELS[self.name]

    @property
    def rates(self) -> tuple[float, float]:
        """The learning rates of P and its like, and of Q."""
        rate = RATES[self.optimiser][self.model.documents]
        return rate, rate * (0.2 if self.optimiser == "sgd" else 1.0)


def make_data(model: Model) -> Any:
    """Noisy copies of twenty prototypes as a dense uint8 array, or Zipfian word counts as a CSR matrix."""
    random = np.random.default_rng(0)
    if not model.documents:
        prototypes = random.random((20, model.visible)) < 0.2
        noise = random.random((CASES, model.visible)) < 0.05
        return (prototypes[random.integers(20, size=CASES)] ^ noise).astype(np.uint8)
    rate = 1 / np.arange(1, model.visible + 1)
    words = [random.choice(model.visible, DISTINCT_WORDS, replace=False, p=rate / rate.sum()) for _ in range(CASES)]
    indptr = np.arange(0, CASES * DISTINCT_WORDS + 1, DISTINCT_WORDS)
    ones = np.ones(CASES * DISTINCT_WORDS, np.float32)
    return scipy.sparse.csr_array((ones, np.concatenate(words), indptr), shape=(CASES, model.visible))


def dense(data: Any) -> np.ndarray:
    """The data as peers take it: in float32 for documents, in bytes for pixels."""
    return data.toarray() if scipy.sparse.issparse(data) else data
