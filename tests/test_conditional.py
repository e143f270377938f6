"""Conditional models P(x | y): the first columns of a case are its context, which every layer sees."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import nvil
from helpers import assert_trees_close, nvil_with, randomised, started
from nvil import estimators, exact
from nvil.layers import binary_vectors
from nvil.networks import BeliefNetwork, InferenceNetwork
from nvil.rows import as_rows

GIVEN = 2


def conditional(visible=2, hidden=(1, 1), seed=0, **choices):
    pair = nvil.sbn(GIVEN + visible, hidden, given=GIVEN, mean=np.full(GIVEN + visible, 0.3), **choices)
    return randomised(pair, seed)


def for_context(pair, y):
    """The plain pair that a conditional one is for one context: y is a constant, and its part of every map a bias."""

    def folded(layer, y):
        weights = layer.logits.weights
        inner = weights.shape[0] - GIVEN
        bias = layer.logits.bias + y @ weights[inner:]
        return eqx.tree_at(lambda each: (each.logits.weights, each.logits.bias), layer, (weights[:inner], bias))

    def first(layer, y):  # Q's first layer sees (y, x), and y comes first there
        weights = layer.logits.weights
        bias = layer.logits.bias + y @ weights[:GIVEN]
        return eqx.tree_at(lambda each: (each.logits.weights, each.logits.bias), layer, (weights[GIVEN:], bias))

    centre = pair.inference.center.value
    bottom, *others = pair.inference.layers
    centred = y - centre[:GIVEN]
    return nvil.Pair(
        BeliefNetwork(tuple(folded(layer, y) for layer in pair.model.layers)),
        InferenceNetwork(
            (first(bottom, centred), *(folded(layer, centred) for layer in others)), nvil.Constant(centre[GIVEN:])
        ),
    )


@pytest.mark.parametrize("choices", [{}, {"lengths": (2,)}], ids=["bits", "documents"])
def test_a_conditional_model_is_one_model_for_every_context(choices, float64):
    """For every y a distribution over x: that of a plain model with y folded into its biases; Q likewise."""
    pair = conditional(hidden=(2, 1), **choices)
    latents = pair.model.support()

    @eqx.filter_jit
    def quantities(pair, x):
        return (
            exact.log_likelihood(pair.model, x, latents),
            exact.inference_log_prob(pair.inference, x, latents),
            exact.bound(pair, x, latents),
        )

    found = []
    for y in (jnp.asarray(state) for state in binary_vectors(GIVEN)):
        got = quantities(pair, pair.model.visible_support(y))
        np.testing.assert_allclose(jnp.sum(jnp.exp(got[0])), 1, rtol=1e-12)
        plain = for_context(pair, y)
        assert_trees_close(got, quantities(plain, jnp.asarray(plain.model.visible_support())), tolerance=1e-12)
        found.append(got[0])
    assert np.ptp(np.stack(found), axis=0).min() > 0.01  # and y matters


@pytest.mark.parametrize(
    ("estimator", "hidden"),
    [
        (nvil_with(order="strict", normalisation=False, units=3), (2, 1)),
        (estimators.rloo(samples=2), (1, 1)),
        (estimators.disarm(), (1, 1)),
        (estimators.muprop(), (1, 1)),
        (estimators.rebar(), (1, 1)),
    ],
    ids=["nvil", "rloo", "disarm", "muprop", "rebar"],
)
def test_the_expected_gradient_is_exact(estimator, hidden, float64):
    """Both cases have a context of their own. REBAR's expectation is by quadrature, to 1e-6."""
    by_quadrature = isinstance(estimator, estimators.REBAR)
    pair = conditional(hidden=hidden)
    pair = jax.tree.map(lambda leaf: 0.4 * leaf, pair) if by_quadrature else pair
    x = jnp.asarray([[1.0, 0.0, 1.0, 1.0], [0.0, 1.0, 1.0, 0.0]])[: 1 if by_quadrature else 2]
    params, state = started(estimator, pair, x)
    if by_quadrature:
        params = params._replace(baselines=(jnp.full(2, 0.7), jnp.full(2, np.log(0.5))))
    result = exact.gradient_moments(estimator, params, x, state).mean
    gradient = eqx.filter_jit(exact.bound_gradient)(pair, x, pair.inference.support())
    assert_trees_close((result.model, result.inference), gradient, tolerance=1e-6 if by_quadrature else 1e-8)


def test_wake_sleep_dreams_given_the_context_of_the_minibatch(float64):
    pair, estimator = conditional(visible=1, hidden=(1,)), estimators.wake_sleep()
    x = jnp.asarray([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    params, state = started(estimator, pair, x)
    result = exact.gradient_moments(estimator, params, x, state).mean
    latents = pair.model.support()

    @eqx.filter_jit
    def dreams(inference):
        total = 0.0
        for case in x:
            every = pair.model.visible_support(case[:GIVEN])
            probability = jnp.exp(exact.model_log_prob(pair.model, every, latents))
            total = total + jnp.sum(probability * exact.inference_log_prob(inference, every, latents))
        return total

    assert_trees_close(result.inference, eqx.filter_grad(dreams)(pair.inference))
    drawn, _ = estimator.sample(jax.random.key(0), pair, x)[1]
    np.testing.assert_array_equal(drawn[:, :GIVEN], x[:, :GIVEN])


def test_samples_codes_and_reconstructions_keep_their_context():
    pair = conditional(visible=3)
    y = np.array([[1, 0], [0, 1], [0, 0]])
    drawn = nvil.sample(pair, 3, given=y)
    np.testing.assert_array_equal(drawn.x[:, :GIVEN], y)
    np.testing.assert_array_equal(drawn.mean[:, :GIVEN], y)
    np.testing.assert_array_equal(nvil.sample(pair, 3, given=y[0]).x[:, :GIVEN], [[1, 0]] * 3)
    np.testing.assert_array_equal(nvil.reconstruct(pair, drawn.x)[:, :GIVEN], y)
    assert nvil.encode(pair, drawn.x)[0].shape == (3, 1)


def test_mistakes_with_a_context_get_one_clear_sentence():
    pair = conditional(visible=3)
    for mistake, sentence in (
        (lambda: nvil.sample(pair, 3), "The model is conditional: give the 2 columns of its context as `given`."),
        (lambda: nvil.sample(pair, 3, given=np.ones(4)), r"of the shape \(2,\) or \(3, 2\), got \(4,\)."),
        (lambda: nvil.sample(nvil.sbn(3, (2,)), 3, given=np.ones(2)), "not a conditional one; leave `given` out."),
        (lambda: nvil.sbn(3, (2,), given=3), "`given` must be a number of columns from 0 to 2, got 3."),
        (lambda: nvil.evaluate(pair, np.ones((2, 3))), "3 visible units, and 2 units of context, so each case must"),
        (lambda: nvil.evaluate(pair, np.full((2, 5), 0.5)), r"Case 0 \(from 0\) holds 0.5, where 0 and 1 are needed"),
    ):
        with pytest.raises(nvil.UsageError, match=sentence):
            mistake()
    pair.model.check(as_rows(np.array([[0.5, -3.0, 1.0, 0.0, 1.0]])))  # a context may hold any finite numbers


def test_columns_to_condition_on_come_first():
    """And a case is a picture where all of it was one, and its context comes first anyway, or where the rest is one."""
    halves = nvil.data.load("digits", given="0-31")
    assert (halves.context, halves.image) == (32, (8, 8))
    np.testing.assert_array_equal(halves.train, nvil.data.load("digits").train)
    table = np.random.default_rng(0).integers(0, 2, (20, 18))
    classes = nvil.data.load(table, test=table, given=(-1, "3"))
    assert (classes.context, classes.image) == (2, (4, 4))
    np.testing.assert_array_equal(classes.test[:, :2], table[:, [17, 3]])
    np.testing.assert_array_equal(classes.test[:, 2:], np.delete(table, [3, 17], axis=1))


def test_the_context_of_a_document_is_no_part_of_its_words(tmp_path):
    """Neither in lengths, nor in perplexities; columns of sparse tables move like others."""
    counts = np.random.default_rng(0).poisson(2.0, (30, 5))
    counts[:, 3] = np.arange(30) % 7
    words = np.delete(counts, 3, axis=1)
    for table in (counts, scipy.sparse.csr_array(counts)):
        data = nvil.data.load(table, test=table, values="counts", given="3")
        np.testing.assert_array_equal(as_rows(data.test).dense(), np.column_stack([counts[:, 3], words]))
        plain = nvil.data.load(words, test=words, values="counts")
        assert data.lengths == plain.lengths
        assert data.lengths == nvil.document_model(data.train, (2,), given=1).model.layers[0].lengths
        found, wanted = (nvil.data.unigram_bound(each.train, each.test, each.context) for each in (data, plain))
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
        pair = nvil.document_model(data.train, (2,), given=1)
        np.testing.assert_array_equal(nvil.evaluation.word_counts(pair, data.test), words.sum(axis=1))
    pair.model.check(as_rows(scipy.sparse.csr_array([[0.5, 1.0, 1.0, 1.0, 2.0]] * 2)))
    with pytest.raises(nvil.UsageError, match=r"Case 0 \(from 0\) holds 0.5, where whole numbers from 0 up to "):
        pair.model.check(as_rows(scipy.sparse.csr_array([[0.0, 0.5, 1.0, 1.0, 2.0]])))
    real = np.column_stack([np.linspace(-1, 1, 30), words])
    assert nvil.document_model(real, (2,), given=1).model.layers[0].lengths == plain.lengths
    assert nvil.document_model(0 * words, (2,), lengths=[3, 4]).model.layers[0].lengths == (3, 4)
    (tmp_path / "texts.txt").write_text("planet orbit rocket\nplanet engine\n" * 10)
    with pytest.raises(nvil.UsageError, match=r"The columns of .*texts.txt are words, and none of them can be `given`"):
        nvil.data.load(tmp_path / "texts.txt", given="0")
