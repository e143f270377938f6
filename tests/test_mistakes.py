"""What a Python user gets wrong is refused in a sentence, before anything compiles.

All are tried in one process without the type checks of the other tests, as users run it.
"""

import json
import subprocess
import sys

import numpy as np
import pytest

import nvil
from nvil.domains import NUMBERS
from nvil.layers import Bernoulli
from nvil.rows import as_rows, explained

SETUP = """
import json, sys
import equinox as eqx, jax, numpy as np, scipy.sparse
import nvil

draw = np.random.default_rng(0)
bits, counts = draw.integers(0, 2, (200, 16)), draw.integers(0, 4, (200, 16))
missing = np.where(np.arange(200 * 16).reshape(200, 16) == 7 * 16 + 3, np.nan, bits)
pair, documents = nvil.sbn(16, (4,)), nvil.document_model(counts, (4,))
mlp = eqx.tree_at(lambda model: model.layers[0].logits, pair.model, eqx.nn.MLP(4, 16, 8, 1, key=jax.random.key(0)))

class Own(eqx.Module):  # an inference network with other contexts
    q: nvil.networks.InferenceNetwork
    change: callable

    def sample(self, key, x):
        return self.q.sample(key, x)

    def log_prob(self, h, x):
        return self.q.log_prob(h, x)

    def contexts(self, x, h):
        return self.change(self.q.contexts(x, h))


class Tuple(eqx.Module):  # a model that gives its terms as a tuple
    p: nvil.networks.BeliefNetwork

    def log_prob(self, x, h):
        return tuple(self.p.log_prob(x, h).T)


def fit(pair, data, learner=None, **more):
    return list(nvil.fit(pair, data, learner, updates=1, **more))

(report,) = fit(pair, bits)
"""
NOT_BITS = "where 0 and 1 are needed; for grey levels see `binarize` of nvil.data.load; for word counts"
MISTAKES = {
    # values that the visible layer cannot explain, in every place that takes data
    "fit(pair, 255 * bits[:, ::-1])": f"Case 0 (from 0) holds 255, {NOT_BITS}",
    "fit(pair, 1 - 2 * bits)": f"Case 0 (from 0) holds -1, {NOT_BITS}",
    "fit(pair, bits / 2)": f"Case 0 (from 0) holds 0.5, {NOT_BITS}",
    "fit(pair, counts)": NOT_BITS,
    "fit(pair, scipy.sparse.csr_array(counts))": NOT_BITS,
    "fit(pair, scipy.sparse.coo_matrix(counts))": NOT_BITS,
    "fit(pair, bits, validation=counts)": NOT_BITS,
    "fit(pair, iter(counts))": 'of the stream holds 2; 0 and 1 are needed (for others: Stream(cases, "counts") or ',
    'fit(pair, nvil.Stream(counts, "counts"))': "The stream is of counts, and the model explains only 0 and 1.",
    'fit(documents, nvil.Stream(counts / 2, "numbers"))': "The stream is of numbers, and the model explains only whole",
    'nvil.Stream(counts, "words")': "Unknown kind of stream 'words'",
    'nvil.data.load(nvil.Stream(counts, "numbers"))': "A data set holds bits or counts",
    "nvil.Run.create(sys.argv[1], pair, counts)": NOT_BITS,
    "nvil.evaluate(pair, counts)": NOT_BITS,
    "nvil.encode(pair, counts)": NOT_BITS,
    "nvil.reconstruct(pair, counts)": NOT_BITS,
    "fit(pair, missing)": "Case 7 (from 0) holds nan, where 0 and 1 are needed.",
    "nvil.evaluate(pair, missing)": "Case 7 (from 0) holds nan",
    "nvil.encode(pair, missing)": "Case 7 (from 0) holds nan",
    "fit(documents, counts - 1)": "holds -1, where whole numbers from 0 up to 16777215 are needed.",
    "nvil.evaluate(documents, counts + 0.5)": ".5, where whole numbers from 0 up to 16777215 are needed.",
    "nvil.evaluate(documents, counts + 2**24)": "where whole numbers from 0 up to 16777215 are needed.",
    "nvil.document_model(counts - 1, (4,))": "where whole numbers from 0 up to 16777215 are needed.",
    # shapes and kinds of data
    "fit(pair, bits[:, :5])": "The model has 16 visible units, so each case must have 16 values, not 5.",
    "nvil.evaluate(pair, bits[:, :5])": "so each case must have 16 values, not 5.",
    "nvil.encode(pair, bits.reshape(200, 4, 4))": "so each case must have 16 values, not the shape (4, 4).",
    "nvil.evaluate(pair, bits[0])": "so each case must have 16 values, not the shape ().",
    'fit(pair, np.array([["a", "b"]]))': "The data holds <U1 values; numbers are needed.",
    "fit(pair, bits * 1j)": "The data holds complex128 values; numbers are needed.",
    "fit(pair, [[1, 0], [1]])": "The data is not a table",
    "fit(pair, 3)": "The data is not a table",
    "fit(pair, bits[:0])": "There are no cases to train on.",
    "fit(pair, bits[:0], validation=bits)": "There are no cases to train on.",
    "nvil.evaluate(pair, nvil.Stream(bits))": "A stream is only for training; here the cases must be there all at once",
    "nvil.encode(pair, iter(bits))": "A stream is only for training",
    'fit(pair, nvil.data.load("digits"))': "The data set 'digits' has several parts: give one of them, its `train` or",
    "nvil.evaluate(pair, bits[:0])": "There are no cases to evaluate.",
    # perplexity of what is not a document model
    "nvil.evaluate_documents(pair, counts)": "it has no perplexity; build a document model with nvil.document_model",
    "nvil.evaluate_documents(pair, bits)": "sbn(..., lengths=...)",
    "nvil.document_model(0 * counts, (4,))": "all empty",
    'nvil.document_model(counts, (4,), model="darn")': "Unknown document model 'darn'; did you mean 'fdarn'?",
    "nvil.document_model(counts[0], (4,))": "`counts` must have one document per row, got the shape (16,).",
    "nvil.document_model(counts, (4,), given=3.0)": "`given` must be a number of columns from 0 to 15, got 3.0.",
    # building
    "nvil.sbn(16, None)": "`hidden` lists the sizes of layers, from the data up, such as (200,); got None.",
    "nvil.sbn(16, (4,), inference=None)": "Unknown inference network None; choose one of: autoregressive, factorial.",
    "nvil.sbn(16, (4,), mean=np.full(16, 128.0))": "The mean of binary data must be from 0 to 1, got 128;",
    "nvil.document_model(counts, (4,), mean=np.full(16, -1.0))": "The mean must not be negative for documents, got -1;",
    "nvil.sbn(16, (4,), deviation=np.ones(16))": '`deviation` is for `visibles="gaussian"`.',
    "nvil.sbn(16, 4)": "`hidden` lists the sizes of layers, from the data up: write (4,), not 4.",
    "nvil.sbn(16, (4,), between=5)": "`between` lists the sizes of layers, from the data up: write (5,), not 5.",
    "nvil.sbn(16, (4,), between=(0,))": "The sizes of layers `between` must be at least 1, got 0.",
    'nvil.sbn(16, (4,), latents="binary")': "Unknown kind of latents 'binary'; choose one of: bernoulli, categorical",
    'nvil.sbn(16, (4,), latents=("bernoulli",) * 2)': "`latents` must be one kind, or one per layer (1), got 2.",
    'nvil.sbn(16, (4,), latents="categorical", categories=1)': "`categories` must be at least 2, got 1.",
    "nvil.sbn(16, (4.5,))": "Layer sizes must be whole numbers, got 4.5.",
    'nvil.sbn(16, "200")': "Layer sizes must be whole numbers, got '2'.",
    "nvil.sbn(16, ())": "A model needs at least one hidden layer",
    "nvil.sbn(16, (0,))": "Layer sizes must be at least 1, got 0.",
    "nvil.sbn(16, (4,), lengths=np.array([], int))": "`lengths` must list at least one length",
    "nvil.sbn(16, (4,), lengths=5)": "`lengths` must list at least one length",
    "nvil.sbn(16, (4,), lengths=np.array([0, 3]))": "The lengths of documents must be at least 1, got 0.",
    "nvil.sbn(16, (4,), mean=np.zeros(5))": "The mean has shape (5,), but there are 16 visible units.",
    "nvil.sbn(16, (4,), mean=np.full(16, np.nan))": "`mean` must hold finite numbers.",
    # training
    "fit(nvil.Pair(mlp, pair.inference), bits)": "must be wrapped in jax.vmap",
    "fit(nvil.Pair(pair.inference, pair.model), bits)": "BeliefNetwork has no contexts(), which nvil.contracts",
    "fit(nvil.Pair(pair.model, None), bits)": "NoneType has no sample(), which nvil.contracts asks for.",
    "fit(pair.model, bits)": "A Pair(model, inference) is needed, such as nvil.sbn gives, not BeliefNetwork.",
    "nvil.evaluate(None, bits)": "not NoneType.",
    'fit(pair, bits, "nvil")': "`learner` must be an nvil.Learner, got str.",
    # numbers of the wrong kind; nothing trains before they are refused
    "nvil.fit(pair, bits, updates=35.4)": "`updates` must be a whole number (an int), got 35.4.",
    "nvil.fit(pair, bits, report_every=12.5)": "`report_every` must be a whole number (an int), got 12.5.",
    "nvil.fit(pair, bits, validation=0.1)": "`validation` must be a whole number (an int), got 0.1.",
    "nvil.fit(pair, nvil.Stream(bits), validation=-5)": "`validation` must be at least 0, got -5.",
    "nvil.fit(pair, bits, validation_samples=0)": "`validation_samples` must be at least 1, got 0.",
    "nvil.fit(pair, bits, validation=0, patience=3)": "`patience` is for a better validation bound",
    "nvil.fit(pair, bits, seed=-1)": "`seed` must be at least 0, got -1.",
    "nvil.Run.create(sys.argv[1], pair, bits, updates=35.4)": "`updates` must be a whole number (an int), got 35.4.",
    # estimators, however they are made
    "nvil.estimators.NVIL(nvil.signals.chain(), samples=0)": "`samples` must be at least 1, got 0.",
    "nvil.estimators.NVIL(nvil.signals.chain(), warm_up=-1)": "`warm_up` must be at least 0, got -1.",
    "nvil.estimators.NVIL(nvil.signals.chain(nvil.signals.leave_one_out()))": "needs at least 2 samples per case",
    "nvil.estimators.VIMCO(samples=1)": "`samples` must be at least 2, got 1.",
    'nvil.estimators.VIMCO(mean="harmonic")': "Unknown mean 'harmonic'; choose one of: arithmetic, geometric.",
    "nvil.estimators.OVIS(samples=1)": "`samples` must be at least 2, got 1.",
    "nvil.estimators.OVIS(gamma=2.0)": "`gamma` must be at least 0 and at most 1, got 2.0.",
    "nvil.estimators.ReweightedWakeSleep(sleep=-1.0)": "`sleep` must be at least 0 and at most 1, got -1.0.",
    "nvil.estimators.ReweightedWakeSleep(samples=0)": "`samples` must be at least 1, got 0.",
    "nvil.estimators.DoubleControlVariates(samples=1)": "`samples` must be at least 2, got 1.",
    "nvil.estimators.Concrete(temperature=0.0)": "`temperature` must be a positive number, got 0.0.",
    "nvil.estimators.REBAR(temperature=-1.0)": "`temperature` must be a positive number, got -1.0.",
    **{
        f"nvil.estimators.{name}(samples=1.5)": "`samples` must be a whole number (an int), got 1.5."
        for name in ("ARM", "DisARM", "Concrete", "MuProp", "REBAR", "StraightThrough", "WakeSleep")
    },
    "nvil.Learner(batch_size=20.0)": "`batch_size` must be a whole number (an int), got 20.0.",
    'nvil.Learner(batch_size="20")': "`batch_size` must be a whole number (an int), got '20'.",
    "nvil.evaluate(pair, bits, samples=2.0)": "`samples` must be a whole number (an int), got 2.0.",
    "nvil.sample(pair, 3.0)": "`count` must be a whole number (an int), got 3.0.",
    'nvil.optimisers.schedule("cosine", 1e-3, 100, final_rate="0")': "`final_rate` must be a number, got '0'.",
    "nvil.Config(updates=35.4).resolved()": "`updates` must be a whole number (an int), got 35.4.",
    'nvil.Config(hidden=("10",)).resolved()': "The sizes of `hidden` layers must be whole numbers, got '10'.",
    'nvil.Config(learning_rate="fast").resolved()': "`learning_rate` must be a positive number, got 'fast'.",
    "nvil.data.load(bits, value='counts')": "Unknown keyword argument 'value'; did you mean 'values'?",
    "nvil.Run.open(__import__('os').__file__)": "os.py is a file, and a run is a folder, as `nvil train` makes it.",
    # what is not a pair, and what is not a report of this one
    "nvil.encode(nvil.Learner(), bits)": "A Pair(model, inference) is needed, such as nvil.sbn gives, not Learner.",
    "nvil.sample(pair.model, 3)": "A Pair(model, inference) is needed",
    "nvil.reconstruct(pair.model, bits)": "A Pair(model, inference) is needed",
    "nvil.likelihood.exact(pair.model, bits)": "A Pair(model, inference) is needed",
    "nvil.annealing.annealed(pair.model, bits)": "A Pair(model, inference) is needed",
    "nvil.fit(pair, bits, resume=report.checkpoint)": "`resume` must be a report of nvil.fit, got Checkpoint.",
    "nvil.fit(nvil.sbn(16, (9,)), bits, resume=report)": "`resume` is a report of another pair or learner;",
    "nvil.fit(pair, bits, nvil.Learner(nvil.estimators.vimco()), resume=report)": "of another pair or learner;",
    "nvil.fit(pair, bits, nvil.Learner(optimiser=nvil.optimisers.sgd()), resume=report)": "of another pair or learner;",
    # an estimator that cannot train the pair
    'nvil.fit(nvil.sbn(16, (4,), inference="autoregressive"), bits, nvil.Learner(nvil.estimators.arm()))': "ARM",
    # contexts that do not belong to the terms of log Q
    "fit(nvil.Pair(pair.model, Own(pair.inference, lambda contexts: contexts[0])), bits)": (
        "Own.contexts must give a tuple of one array per term of its log_prob, 1 here, got ShapeDtypeStruct."
    ),
    "fit(nvil.Pair(pair.model, Own(pair.inference, lambda contexts: contexts * 2)), bits)": (
        "Own.contexts must give a tuple of one array per term of its log_prob, 1 here, got 2."
    ),
    "fit(nvil.Pair(Tuple(pair.model), pair.inference), bits)": "log_prob must give an array with a row of",
    'nvil.Learner("nvil")': "'nvil' is not an estimator",
    'nvil.Learner(optimiser="adam")': "'adam' is not an optimiser",
}
TRY = """
found = {}
for mistake in json.load(sys.stdin):
    try:
        eval(mistake)
        found[mistake] = ["nothing", ""]
    except Exception as error:
        found[mistake] = [type(error).__name__, str(error)]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes") / "run"
    command = [sys.executable, "-c", SETUP + TRY, str(folder)]
    done = subprocess.run(command, input=json.dumps(list(MISTAKES)), capture_output=True, text=True, check=True)
    assert not folder.exists()
    return json.loads(done.stdout)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_a_sentence(found, mistake):
    kind, message = found[mistake]
    assert kind == "UsageError"
    assert MISTAKES[mistake] in message
    assert "\n" not in message
    assert message[-1] in ".?"


class Intensities(Bernoulli):
    """Takes grey levels for probabilities, as many variational autoencoders do."""

    domain = NUMBERS


def test_a_layer_of_ones_own_says_what_it_explains():
    grey = np.random.default_rng(0).random((30, 3))
    pair = nvil.sbn(3, (2,))
    visible = Intensities(pair.model.layers[0].logits, 3)
    own = nvil.Pair(nvil.networks.BeliefNetwork((visible, *pair.model.layers[1:])), pair.inference)
    assert np.isfinite(nvil.evaluate(own, grey).bound)
    with pytest.raises(nvil.UsageError, match="0 and 1 are needed"):
        nvil.evaluate(pair, grey)
    grey[3, 1] = np.inf
    with pytest.raises(nvil.UsageError, match=r"Case 3 .* holds inf, where finite numbers are needed"):
        nvil.evaluate(own, grey)


class Anything:
    """A model that is no chain of layers, with a check of its own."""

    def log_prob(self, x, h):
        return np.zeros((len(x), 1)) + np.nan_to_num(x).sum()

    def check(self, source):
        pass


def test_a_model_of_ones_own_checks_for_itself():
    pair = nvil.Pair(Anything(), nvil.sbn(3, (2,)).inference)
    missing = as_rows(np.array([[np.nan, 0, 1]]))
    assert explained(pair, missing) is missing
    del Anything.check
    with pytest.raises(nvil.UsageError, match="holds nan, where finite numbers are needed"):
        explained(pair, missing)


def test_a_pair_without_a_mean_takes_that_of_its_training_cases(tmp_path):
    """Section 4.2 calls centring essential; a mean that was given stays, even one of zeros."""
    x = np.random.default_rng(0).integers(0, 2, (40, 3))
    for mean, wanted in ((None, None), (np.zeros(3), np.zeros(3)), (np.full(3, 0.25), np.full(3, 0.25))):
        pair = nvil.sbn(3, (2,), mean=mean)
        (report,) = nvil.fit(pair, x, updates=1, validation=10, seed=3)
        train, _ = as_rows(x).hold_out(10, 3)
        expected = train.mean() if wanted is None else wanted
        np.testing.assert_allclose(report.best.pair.inference.center.value, expected, rtol=1e-6)
    run = nvil.Run.create(tmp_path / "run", nvil.sbn(3, (2,)), x, updates=1, validation=10, seed=3)
    list(run.fit())
    again = nvil.Run.open(tmp_path / "run", nvil.sbn(3, (2,))).load_best()
    np.testing.assert_allclose(again.inference.center.value, train.mean(), rtol=1e-6)
    # what was learned keeps its centre when it is trained further, on other data
    (report,) = nvil.fit(again, 1 - x, updates=1, validation=10)
    np.testing.assert_allclose(report.best.pair.inference.center.value, train.mean(), rtol=1e-6)
