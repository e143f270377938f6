"""Binary data: sigmoid belief networks, fDARN and DARN."""

from typing import Any

import scipy.sparse
from sklearn.preprocessing import binarize
from sklearn.utils.validation import validate_data

from nvil.contracts import Pair
from nvil.data.sparse import sparse_rows
from nvil.domains import BINARY
from nvil.models import LATENT_BIAS
from nvil.rows import DenseRows, Rows
from nvil.runs.config import Config
from nvil.sklearn.base import BeliefNetworkEstimator


class SigmoidBeliefNetwork(BeliefNetworkEstimator):
    """Binary codes, densities and samples of binary data, dense or sparse.

    **Arguments:**

    - `hidden`: latents in each layer, from the data up; a number for one layer.
    - `model`: "sbn", "fdarn" (autoregressive latents) or "darn" (autoregressive latents and visibles).
    - `binarize`: values above it are on, others off, as in scikit-learn's `BernoulliNB`; None refuses all but 0 and 1.
    - `inference`: "factorial" or "autoregressive" within the layers of Q.
    - `latent_bias`: where the biases of the latents start.
    - `gradient_estimator`: "nvil", or another of `nvil train --help`.
    - `learning_rate`: of Adam; None for the estimator's own default.
    - `weight_decay`, `batch_size`: as in `nvil train`.
    - `updates`: of `fit`, each on a minibatch.
    - `early_stopping`, `validation_fraction`, `n_iter_no_change`: keep the parameters with the best bound on cases held
      out, and stop after this many looks at it, one every `report_every` updates, without a better one.
    - `code`: what `transform` gives, "probabilities" or "bits", of this `layer` (-1 for the deepest).
    - `estimate`: of the log-probability in `score_samples`: "bound", "importance" (nearer to it, and still below) or,
      for at most 16 latents, "exact"; from `samples` samples for every case.
    - `warm_start`: `fit` goes on from where it is.
    - `random_state`: of weights, minibatches and samples.
    - `verbose`: a bar, or a line for every report away from a terminal.

    **Attributes:** `pair_` is the trained `nvil.Pair`, `n_updates_` the updates so far, `history_` a report every
    `report_every` updates and at the end of every `fit` and `partial_fit`.

    !!! example

        >>> from sklearn.datasets import load_digits
        >>> pixels = load_digits(as_frame=True).data
        >>> network = SigmoidBeliefNetwork(hidden=32, binarize=7, updates=300, random_state=0)
        >>> network.fit_transform(pixels).shape
        (1797, 32)
        >>> -30 < network.score(pixels) < -20
        True
    """

    _values = "binary"

    def __init__(
        self,
        hidden: Any = (100,),
        *,
        model: Any = "sbn",
        binarize: Any = 0.5,
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
        self.binarize = binarize
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

    def _rows(self, X: Any, *, reset: bool) -> Rows:  # noqa: N803
        x: Any = validate_data(self, X, accept_sparse="csr", reset=reset)
        if self.binarize is not None:
            x = binarize(x, threshold=self.binarize)
        rows = sparse_rows(x) if scipy.sparse.issparse(x) else DenseRows(x)
        rows.check(BINARY)
        return rows

    def _build(self, config: Config, rows: Rows) -> Pair:
        return config.build_pair(rows.shape[1], rows.mean())
