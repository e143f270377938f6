"""Documents: models of word counts (Section 4.3)."""

from typing import Any, ClassVar, Literal

import equinox as eqx
import numpy as np
import scipy.sparse
from sklearn.utils.validation import check_is_fitted, validate_data

from nvil.contracts import Pair
from nvil.data.sparse import sparse_rows
from nvil.domains import Domain
from nvil.errors import UsageError, choose
from nvil.evaluation import perplexities
from nvil.layers import Multinomial
from nvil.models import LATENT_BIAS, document_lengths
from nvil.rows import DenseRows, Rows
from nvil.runs.config import Config
from nvil.sklearn.base import BeliefNetworkEstimator

WEIGHTS = Domain("finite numbers from 0 up", lambda values: np.isfinite(values) & (values >= 0))


class WeightedMultinomial(Multinomial):
    """A multinomial layer that takes weights of words, such as tf-idf, for counts: log P = sum_w v_w log p_w."""

    domain: ClassVar[Domain] = WEIGHTS


class DocumentModel(BeliefNetworkEstimator):
    """Topics, codes and perplexities of documents, from their word counts, dense or sparse.

    Each latent that is on makes some words more likely and others less: they multiply, where the topics of
    `LatentDirichletAllocation` mix. Weights that are not whole, such as tf-idf, count as fractions of words.

    **Arguments:** those of `SigmoidBeliefNetwork`, without `binarize`; `model` is "sbn" or "fdarn".

    !!! example

        >>> from sklearn.feature_extraction.text import CountVectorizer
        >>> from sklearn.pipeline import make_pipeline
        >>> texts = ["red green blue", "green blue blue", "one two three", "two three three"] * 10
        >>> model = make_pipeline(CountVectorizer(), DocumentModel(hidden=2, updates=500, random_state=0))
        >>> codes = model.fit_transform(texts)
        >>> codes.shape
        (40, 2)
    """

    _values = "counts"

    def __init__(
        self,
        hidden: Any = (50,),
        *,
        model: Any = "sbn",
        inference: Any = "factorial",
        latent_bias: Any = LATENT_BIAS,
        gradient_estimator: Any = "nvil",
        learning_rate: Any = None,
        weight_decay: Any = 0.0,
        batch_size: Any = 50,
        updates: Any = 10_000,
        early_stopping: Any = False,
        validation_fraction: Any = 0.1,
        n_iter_no_change: Any = 5,
        report_every: Any = 500,
        code: Any = "probabilities",
        layer: Any = 1,
        estimate: Any = "bound",
        samples: Any = 10,
        warm_start: Any = False,
        random_state: Any = None,
        verbose: Any = False,
    ):
        self.hidden = hidden
        self.model = model
        self.inference = inference
        self.latent_bias = latent_bias
        self.gradient_estimator = gradient_estimator
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.updates = updates
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.report_every = report_every
        self.code = code
        self.layer = layer
        self.estimate = estimate
        self.samples = samples
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def perplexity(self, X: Any, y: Any = None, *, per: Literal["document", "word"] = "document") -> float:  # noqa: N803
        """The perplexity, from `score_samples`: of the mean over documents, as in the paper, or over words."""
        choose("perplexity", per, ("document", "word"))
        check_is_fitted(self)
        lengths = self._rows(X, reset=False).row_sums()
        if not np.any(lengths > 0):
            raise UsageError("There are no words to evaluate: every document is empty.")
        per_document, per_word, _ = perplexities(self.score_samples(X).astype(float), lengths)
        return per_document if per == "document" else per_word

    def sample(self, n_samples: int = 1, *, random_state: Any = None) -> Any:
        """Draw documents from the model, as a sparse matrix of counts, of lengths as in training."""
        drawn = super().sample(n_samples, random_state=random_state)
        return scipy.sparse.csr_matrix(np.asarray(drawn, np.int32))

    def _rows(self, X: Any, *, reset: bool) -> Rows:  # noqa: N803
        x: Any = validate_data(self, X, accept_sparse="csr", reset=reset, ensure_non_negative=True)
        return sparse_rows(x) if scipy.sparse.issparse(x) else DenseRows(x.astype(np.float32))

    def _build(self, config: Config, rows: Rows) -> Pair:
        choose("document model", config.model, ("sbn", "fdarn"))
        if not np.any(rows.row_sums() > 0):
            raise UsageError("Every document is empty: there are no words to learn from.")
        self._lengths = document_lengths(rows)
        return self._trainable(config.build_pair(rows.shape[1], rows.mean(), self._lengths))

    def _trainable(self, pair: Pair) -> Pair:
        # The lengths matter to `sample` alone, and are a part of the program: with (1,) all data share one.
        return _with_layer(pair, WeightedMultinomial, (1,))

    def _public(self, pair: Pair) -> Pair:
        assert self._lengths is not None
        return _with_layer(pair, Multinomial, self._lengths)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags


def _with_layer(pair: Pair, kind: type[Multinomial], lengths: tuple[int, ...]) -> Pair:
    """The pair with its visible layer of this kind."""
    old = pair.model.layers[0]
    layer = kind(logits=old.logits, units=old.units, lengths=lengths)
    return eqx.tree_at(lambda pair: pair.model.layers[0], pair, layer, is_leaf=lambda node: node is old)
