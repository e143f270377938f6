"""Autoregressive and multinomial layers: masks, sampling, sparse rows and perplexity."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.stats

import nvil
from helpers import assert_trees_close, drawn_in_order, first, nvil_with, randomised, started
from nvil import estimators, exact, optimisers, signals
from nvil.layers import (
    AutoregressiveBernoulli,
    AutoregressiveCategorical,
    Categorical,
    Multinomial,
    affine,
    nonlinear,
    sample_in_blocks,
)
from nvil.rows import as_rows
from nvil.sparse import SparseCases, repeated, takes_sparse

pytestmark = pytest.mark.usefixtures("float64")
LEVEL = 1e-4  # chi-square tests fail by chance once in ten thousand seeds; the seeds are fixed


@pytest.mark.parametrize("units", [1, 31, 32, 33, 64, 150])
def test_sampling_in_blocks_is_the_plain_loop(units):
    random = np.random.default_rng(units)
    margin = random.logistic(size=(40, units))
    within = np.triu(random.normal(size=(units, units)), 1)
    np.testing.assert_array_equal(jax.jit(sample_in_blocks)(margin, within), drawn_in_order(margin, within))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_nonlinear_map_goes_through_its_layers(activation):
    logits = randomised(nonlinear(jax.random.key(0), 3, 2, (4, 5), activation), 0)
    function = {"tanh": np.tanh, "relu": lambda values: np.maximum(values, 0)}[activation]
    context = expected = np.random.default_rng(0).normal(size=(6, 3))
    for each in logits.between:
        expected = function(expected @ np.asarray(each.weights) + np.asarray(each.bias))
    expected = expected @ np.asarray(logits.last.weights) + np.asarray(logits.last.bias)
    np.testing.assert_allclose(logits(jnp.asarray(context)), expected, rtol=1e-12)


def autoregressive(units, inputs=2, seed=0):
    layer = AutoregressiveBernoulli(affine(jax.random.key(0), inputs, units), jnp.zeros((units, units)), units)
    return randomised(layer, seed)


def test_a_unit_depends_only_on_those_before_it():
    """Zeros of the Jacobian, although the stored weights are full."""
    layer = autoregressive(6)
    assert np.all(np.asarray(layer.within) != 0)
    context = jnp.ones(2)
    jacobian = jax.jit(jax.jacobian(lambda value: layer.conditional_logits(value, context)))(np.full(6, 0.5))
    np.testing.assert_array_equal(np.triu(jacobian), 0)  # logit j by value k: nothing for k >= j
    assert np.all(jacobian[np.tril_indices(6, -1)] != 0)
    gradient = jax.jit(jax.grad(lambda layer: layer.log_prob(jnp.ones(6), jnp.ones(2))))(layer)
    np.testing.assert_array_equal(np.tril(gradient.within), 0)


def categorical(variables, categories, *, autoregressive, seed=0):
    units = variables * categories
    logits = affine(jax.random.key(0), 2, units)
    if not autoregressive:
        return randomised(Categorical(logits, units, categories), seed)
    return randomised(AutoregressiveCategorical(logits, units, categories, jnp.zeros((units, units))), seed)


@pytest.mark.parametrize("autoregressive", [False, True])
def test_a_categorical_layer_samples_its_distribution(autoregressive):
    """One-hot, and each of the nine states as often as it should be: a chi-square test at `LEVEL`."""
    layer, cases = categorical(2, 3, autoregressive=autoregressive), 20_000
    context = np.broadcast_to([0.3, -0.8], (cases, 2))
    states = layer.support()

    @eqx.filter_jit
    def found(layer, context):
        log_prob = layer.log_prob(jnp.asarray(states), context[: len(states)])
        return layer.sample(jax.random.key(0), context), jnp.exp(log_prob), layer.mean(context[:1])[0]

    draws, probability, mean = map(np.asarray, found(layer, jax.device_put(context)))
    np.testing.assert_allclose(probability.sum(), 1, rtol=1e-12)
    np.testing.assert_array_equal(draws.reshape(cases, 2, 3).sum(axis=-1), 1)
    observed = np.bincount((draws @ [0, 3, 6, 0, 1, 2]).astype(int), minlength=9)
    assert scipy.stats.chisquare(observed, probability * cases).pvalue > LEVEL
    assert np.all(np.abs(mean - probability @ states) < (5 * 0.5 / np.sqrt(64) if autoregressive else 1e-12))


def test_a_category_depends_only_on_the_variables_before():
    layer = categorical(3, 2, autoregressive=True)
    jacobian = jax.jit(jax.jacobian(lambda value: layer.log_rates(value, jnp.ones(2)).reshape(6)))(np.full(6, 0.5))
    variable = np.arange(6) // 2
    np.testing.assert_array_equal(np.asarray(jacobian != 0), variable[:, None] > variable)


def test_a_categorical_layer_of_data_takes_one_hot_rows_only():
    layer = categorical(2, 3, autoregressive=False)
    layer.check(as_rows(layer.support()))
    wrong = np.array([[1, 0, 0, 0, 0, 1], [1, 0, 0, 1, 0, 1]])
    with pytest.raises(nvil.UsageError, match=r"Case 1 \(from 0\) holds 1, where a single 1 among every 3 columns"):
        layer.check(as_rows(wrong))


def test_an_autoregressive_layer_samples_its_distribution():
    layer, cases = autoregressive(4), 20_000
    context = np.broadcast_to([0.3, -0.8], (cases, 2))
    states = layer.support()

    @eqx.filter_jit
    def found(layer, context):
        log_prob = layer.log_prob(jnp.asarray(states), context[:16])
        return layer.sample(jax.random.key(0), context), jnp.exp(log_prob), layer.mean(context[:1])[0]

    draws, probability, mean = map(np.asarray, found(layer, jax.device_put(context)))
    observed = np.bincount((draws @ [8, 4, 2, 1]).astype(int), minlength=16)
    assert scipy.stats.chisquare(observed, probability * cases).pvalue > LEVEL
    true_mean = probability @ states
    assert np.all(np.abs(mean - true_mean) < 5 * 0.5 / np.sqrt(64))


def test_samples_of_a_small_fdarn_match_its_enumerated_distribution():
    pair, cases = randomised(nvil.fdarn(3, (3, 2), mean=np.full(3, 0.5)), 4), 20_000
    x, _ = eqx.filter_jit(pair.model.sample)(jax.random.key(1), cases)
    observed = np.bincount((np.asarray(x) @ [4, 2, 1]).astype(int), minlength=8)
    every_x = jnp.asarray(pair.model.visible_support())
    probability = np.exp(eqx.filter_jit(exact.log_likelihood)(pair.model, every_x, pair.model.support()))
    assert scipy.stats.chisquare(observed, probability * cases).pvalue > LEVEL


def test_an_untrained_autoregressive_layer_is_the_factorial_one():
    factorial, autoregressive = (
        nvil.sbn(5, (4,), inference=kind).inference for kind in ("factorial", "autoregressive")
    )
    x, h = jnp.ones((2, 5)), (jnp.asarray([[0.0, 1, 1, 0], [1, 0, 0, 1]]),)
    one, other = (eqx.filter_jit(inference.log_prob)(h, x) for inference in (factorial, autoregressive))
    np.testing.assert_allclose(one, other, rtol=1e-12)


def test_multinomial_samples_have_the_right_lengths_and_frequencies():
    layer = Multinomial(randomised(affine(jax.random.key(0), 2, 5), 1), 5, (3, 3, 8))
    context = jnp.broadcast_to(jnp.asarray([0.5, -1.0]), (6000, 2))
    counts = np.asarray(eqx.filter_jit(layer.sample)(jax.random.key(0), context))
    lengths = counts.sum(axis=1)
    assert set(lengths) == {3, 8}
    assert scipy.stats.chisquare([np.sum(lengths == 3), np.sum(lengths == 8)], [4000, 2000]).pvalue > LEVEL
    rate = np.asarray(jax.nn.softmax(layer.logits(context[0])))
    assert scipy.stats.chisquare(counts.sum(axis=0), rate * counts.sum()).pvalue > LEVEL
    np.testing.assert_allclose(layer.mean(context[0]), rate * 14 / 3, rtol=1e-12)


def test_multinomial_log_prob_leaves_the_coefficient_out():
    layer = Multinomial(randomised(affine(jax.random.key(0), 0, 3), 1), 3, (4,))
    log_rate = np.asarray(jax.nn.log_softmax(layer.logits.bias))
    np.testing.assert_allclose(
        layer.log_prob(jnp.asarray([2.0, 0, 1]), jnp.zeros(0)), 2 * log_rate[0] + log_rate[2], rtol=1e-12
    )
    assert layer.log_prob(jnp.zeros(3), jnp.zeros(0)) == 0  # an empty document is certain, given its length


@pytest.mark.parametrize("density", [0.0, 0.3])
def test_sparse_rows_are_the_dense_ones(density):
    matrix = scipy.sparse.random_array((20, 7), density=density, rng=np.random.default_rng(0)).tocsr()
    rows = as_rows(matrix).on_device()
    assert rows.shape == (20, 7)
    picked = jnp.asarray([3, 19, 0, 3])
    np.testing.assert_array_equal(rows.take(picked, jax.random.key(0)), matrix.toarray()[np.asarray(picked)])
    few = as_rows(matrix).select(np.arange(5, 9)).compact()
    np.testing.assert_array_equal(few.dense(), matrix.toarray()[5:9])
    assert len(few.values) == max(1, matrix[5:9].nnz)


def documents():
    """60 documents of about two out of 100 words, but one of none and one of 60."""
    counts = np.random.default_rng(0).poisson(0.02, (60, 100)).astype(float)
    counts[0], counts[1, :60] = 0, 2
    return counts


def test_training_on_sparse_counts_is_training_on_dense_ones():
    counts = documents()
    trained = []
    for data in (counts, scipy.sparse.csr_matrix(counts), scipy.sparse.csr_array(counts)):
        pair = nvil.sbn(100, (3,), lengths=(4,), mean=counts.mean(0))
        with jax.numpy_dtype_promotion("standard"):  # optax
            *_, report = nvil.fit(pair, data, updates=30, validation=10)
        trained.append((report.validation_bound, report.state.params.pair))
    assert_trees_close(trained[1], trained[0], 1e-10)
    assert_trees_close(trained[2], trained[1], 0)


@pytest.mark.parametrize(("samples", "hidden", "chunk"), [(1, (3,), 2048), (2, (3, 2), 2048), (1, (3,), 4)])
def test_gradients_from_sparse_cases_are_those_from_dense_ones(samples, hidden, chunk, monkeypatch):
    monkeypatch.setattr("nvil.sparse.CHUNK", chunk)
    picked = np.array([1, 0, 1, 7, 59])  # more words than a minibatch usually has, and none
    dense = jnp.asarray(documents()[picked])
    rows = as_rows(scipy.sparse.csr_array(documents())).on_device()
    sparse = rows.sparse().take(jnp.asarray(picked), jax.random.key(0))
    np.testing.assert_array_equal(sparse.dense(), dense)
    twice = repeated(sparse, 2)
    assert twice.shape == (10, 100)
    np.testing.assert_array_equal(twice.dense(), repeated(dense, 2))
    np.testing.assert_allclose(twice @ jnp.eye(100), jnp.tile(dense, (2, 1)), rtol=1e-12)
    assert int(jnp.sum(sparse.end - sparse.begin)) > 2 * sparse.piece > 2 * 4
    pair = randomised(nvil.sbn(100, hidden, lengths=(4,), mean=np.ones(100)), 0)
    estimator = nvil_with(samples=samples)
    assert takes_sparse(estimator, *pair)
    params, state = started(estimator, pair, dense)

    @eqx.filter_jit
    def gradients(x):
        return estimator.gradients(jax.random.key(3), params, x, state)

    assert_trees_close(gradients(sparse), gradients(dense), 1e-11)


@pytest.mark.parametrize("name", first(2, ["vimco", "wake_sleep", "disarm", "rebar"]))
def test_other_estimators_take_sparse_cases(name):
    rows = as_rows(scipy.sparse.csr_array(documents())).on_device()
    estimator, pair = getattr(estimators, name)(), nvil.sbn(100, (2, 2), lengths=(4,))
    assert takes_sparse(estimator, *pair)
    baselines, state = eqx.filter_eval_shape(estimator.init, jax.random.key(0), pair, jnp.zeros((5, 100)))
    params = nvil.Parameters(*pair, baselines)
    found, there = (
        eqx.filter_eval_shape(estimator.gradients, jax.random.key(0), params, x, state)
        for x in (rows.sparse().minibatch(jax.random.key(0), 5), jnp.zeros((5, 100)))
    )
    assert jax.tree.map(lambda leaf: leaf.shape, found) == jax.tree.map(lambda leaf: leaf.shape, there)


def test_whoever_does_not_take_sparse_cases_gets_dense_ones():
    class Doubled(signals.Transformation):
        def init(self, key, signal, contexts):
            return None, None

        def update(self, signal, contexts, psi, state):
            return signal + 2 * contexts[0].sum(axis=-1)[:, None], 0.0, None

    counts = scipy.sparse.csr_array(documents())
    words, bits = nvil.sbn(100, (2,), lengths=(4,)), nvil.sbn(100, (2,))
    assert not takes_sparse(bits.model)
    assert not takes_sparse(type("Derived", (type(words.model),), {})(words.model.layers))
    for pair, data in ((words, counts), (bits, counts > 0)):
        learner = nvil.Learner(estimators.nvil(Doubled()), optimisers.sgd())
        rows = as_rows(data.astype(float)).on_device()
        assert isinstance(rows.sparse().minibatch(jax.random.key(0), 2), SparseCases)
        eqx.filter_eval_shape(learner.step, learner.init(pair, rows), rows)
    crowded = as_rows(scipy.sparse.csr_array(np.ones((4, 10)))).on_device()
    assert crowded.sparse() is crowded


class Fixed:
    """log P(x, h) - log Q(h | x) = -(2 words + 1) without any latents, to compute perplexities by hand."""

    def sample(self, key, x):
        return x[:, :1]

    def contexts(self, x, h):
        return (x,)

    def log_prob(self, first, second):
        return jnp.zeros((len(first), 1)) if first.shape[1] == 1 else -(2 * jnp.sum(first, -1, keepdims=True) + 1)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array])
def test_perplexities_by_hand(kind):
    documents = kind(np.array([[1.0, 0], [0, 0], [2, 2]]))
    result = nvil.evaluate_documents(nvil.Pair(Fixed(), Fixed()), documents, samples=1)
    np.testing.assert_allclose(result.perplexity, np.exp((3 / 1 + 9 / 4) / 2))  # mean over documents
    np.testing.assert_allclose(result.corpus_perplexity, np.exp((3 + 9) / 5))  # mean over words
    assert result.empty_documents == 1
    np.testing.assert_allclose(result.evaluation.bound, -(3 + 1 + 9) / 3)


def test_nothing_but_empty_documents_is_refused():
    with pytest.raises(nvil.UsageError, match="every document is empty"):
        nvil.evaluate_documents(nvil.Pair(Fixed(), Fixed()), np.zeros((3, 2)))


@pytest.mark.parametrize("lengths", [(), (0, 3)])
def test_impossible_lengths_are_refused(lengths):
    with pytest.raises(nvil.UsageError, match="lengths"):
        nvil.sbn(3, (2,), lengths=lengths)


def test_darn_of_documents_says_why_not():
    with pytest.raises(nvil.UsageError, match="take fdarn"):
        nvil.darn(3, (2,), lengths=(2,))
