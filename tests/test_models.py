"""Layers, networks and exact quantities: distributions sum to one, and the bound is a bound."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nvil
from helpers import random_cases, random_pair, randomised, scaled
from nvil import exact
from nvil.layers import Bernoulli, affine, bernoulli_log_prob, binary_vectors
from nvil.random import threefry, uniform

pytestmark = pytest.mark.usefixtures("float64")


def all_cases():
    return jax.device_put(binary_vectors(3))


@eqx.filter_jit  # of the module, so that it compiles once for each number of layers
def quantities(pair):
    """log Q(h | x), log P(x), P(h | x) and the bound, of all cases."""
    latents, x = pair.inference.support(), jnp.asarray(binary_vectors(3))
    return (
        exact.inference_log_prob(pair.inference, x, latents),
        exact.log_likelihood(pair.model, x, latents),
        exact.posterior(pair.model, x, latents),
        exact.bound(pair, x, latents),
    )


@pytest.mark.parametrize("inputs", [0, 2])
def test_a_layer_sums_to_one_and_has_its_mean(inputs):
    layer = Bernoulli(randomised(affine(jax.random.key(0), inputs, 4), 1), 4)
    context = jnp.asarray(np.random.default_rng(0).normal(size=(5, inputs)))
    states = jnp.asarray(layer.support())

    @eqx.filter_jit
    def both(layer):
        log_prob = jax.vmap(layer.log_prob, in_axes=(0, None))(jnp.broadcast_to(states[:, None], (16, 5, 4)), context)
        return jnp.exp(log_prob), layer.mean(context)

    probability, mean = map(np.asarray, both(layer))
    np.testing.assert_allclose(probability.sum(axis=0), 1, rtol=1e-12)
    np.testing.assert_allclose(probability.T @ layer.support(), mean, rtol=1e-12)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_networks_sum_to_one(layers):
    log_q, log_likelihood, posterior, _ = map(np.asarray, quantities(random_pair(layers)))
    np.testing.assert_allclose(np.exp(log_q).sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.exp(log_likelihood).sum(), 1, rtol=1e-12)
    np.testing.assert_allclose(posterior.sum(axis=1), 1, rtol=1e-12)


@settings(deadline=None, max_examples=30)
@given(layers=st.sampled_from([1, 2, 3]), seed=st.integers(0, 2**31 - 1), scale=st.floats(0, 8))
def test_the_bound_is_below_the_log_likelihood(layers, seed, scale):
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        _, log_likelihood, _, bound = quantities(scaled(random_pair(layers, seed), scale))
        assert np.all(np.asarray(log_likelihood) - np.asarray(bound) >= -1e-10)


class PosteriorInference:
    """Q(h | x) = P(h | x), by enumeration."""

    def __init__(self, model):
        self.model, self.latents = model, model.support()

    def sample(self, key, x):
        index = jax.random.categorical(key, exact.model_log_prob(self.model, x, self.latents))
        return jax.tree.map(lambda values: jnp.asarray(values)[index], self.latents)

    def contexts(self, x, h):
        return (x,)

    def log_prob(self, h, x):
        joint = exact.model_log_prob(self.model, x, self.latents)
        return jnp.sum(self.model.log_prob(x, h), -1, keepdims=True) - jax.nn.logsumexp(joint, -1, keepdims=True)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_bound_is_the_log_likelihood_when_q_is_the_posterior(layers):
    pair = random_pair(layers)
    latents = pair.model.support()
    ideal = nvil.Pair(pair.model, PosteriorInference(pair.model))
    _, desired, _, bound = map(np.asarray, quantities(pair))
    np.testing.assert_allclose(jax.jit(lambda x: exact.bound(ideal, x, latents))(all_cases()), desired, rtol=1e-12)
    assert np.all(bound < desired - 1e-3)  # and Q as it was is not the posterior


def test_ancestral_samples_follow_the_enumerated_distribution():
    """Frequencies of x within 5 standard errors of P(x)."""
    pair, cases = random_pair(2), 40_000
    x, h = eqx.filter_jit(pair.model.sample)(jax.random.key(1), cases)
    assert [leaf.shape for leaf in h] == [(cases, 2), (cases, 1)]
    probability = np.exp(quantities(pair)[1])
    frequency = np.bincount((np.asarray(x) @ [4, 2, 1]).astype(int), minlength=8) / cases
    assert np.all(np.abs(frequency - probability) < 5 * np.sqrt(probability * (1 - probability) / cases))


def test_inference_samples_follow_the_enumerated_distribution():
    pair, cases = random_pair(1), 40_000
    case = np.asarray(random_cases(1))
    (h,) = eqx.filter_jit(pair.inference.sample)(jax.random.key(1), jax.device_put(np.repeat(case, cases, axis=0)))
    probability = np.exp(quantities(pair)[0])[int((case @ [4, 2, 1])[0])]
    frequency = np.bincount((np.asarray(h) @ [2, 1]).astype(int), minlength=4) / cases
    assert np.all(np.abs(frequency - probability) < 5 * np.sqrt(probability * (1 - probability) / cases))


def test_only_the_inference_network_centres_its_input():
    pair = random_pair(1)
    x = random_cases(2)
    center = pair.inference.center.value
    (context,) = pair.inference.contexts(x, (jnp.zeros((2, 2)),))
    np.testing.assert_array_equal(context, x - center)
    gradient = eqx.filter_jit(exact.bound_gradient)(pair, x, pair.inference.support())
    np.testing.assert_array_equal(gradient.inference.center.value, 0)


def test_log_prob_is_finite_and_right_for_extreme_logits():
    logits = jnp.asarray([-1e30, -800.0, -1.0, 0.0, 1.0, 800.0, 1e30])
    for value in (0.0, 1.0):
        expected = value * logits - np.logaddexp(0, logits)
        found, slope = jax.vmap(lambda a, v=value: jax.value_and_grad(bernoulli_log_prob, 1)(jnp.array([v]), a[None]))(
            logits
        )
        np.testing.assert_allclose(found, expected, rtol=1e-15)
        np.testing.assert_allclose(slope[:, 0], value - jax.nn.sigmoid(logits), rtol=1e-15)


@pytest.mark.parametrize("units", [1, 16, 37])
def test_log_prob_of_units_that_share_logarithms(units):
    """In single precision, at the logits of a trained model and beyond."""
    random = np.random.default_rng(0)
    logits = 20 * random.standard_normal((5, units))
    value = (random.random((5, units)) < 0.5).astype(float)
    expected = np.sum(value * logits - np.logaddexp(0, logits), axis=-1)
    found = bernoulli_log_prob(jnp.asarray(value, jnp.float32), jnp.asarray(logits, jnp.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=units * 1e-7)  # as 1 - s is exact to 6e-8
    by_value = jax.grad(lambda v: jnp.sum(bernoulli_log_prob(v, jnp.asarray(logits))))(jnp.asarray(value))
    np.testing.assert_allclose(by_value, logits, rtol=1e-12)


def test_layer_sizes_go_from_the_data_up():
    assert nvil.chain(nvil.sbn(7, (5, 3))) == "x 7 <- h1 5 <- h2 3"
    deep = nvil.sbn(7, (5, 3), between=(4, 6), activation="relu")
    assert nvil.chain(deep) == "x 7 <- relu 4 <- relu 6 <- h1 5 <- relu 4 <- relu 6 <- h2 3"
    up = deep.inference.layers[0].logits
    assert [each.weights.shape for each in (*up.between, up.last)] == [(7, 4), (4, 6), (6, 5)]


def test_latent_biases_start_where_they_are_told_to():
    for bias, wanted in ((np.float32(-2), [-2, -2]), (np.array([-1.0, -3.0]), [-1, -3]), ((-1.0, -3.0), [-1, -3])):
        layers = nvil.sbn(4, (2, 2), latent_bias=bias).inference.layers
        assert [float(layer.logits.bias[0]) for layer in layers] == wanted


def test_visible_biases_start_at_the_logit_of_the_mean():
    pair = nvil.sbn(3, (2,), mean=np.array([0.0, 0.25, 1.0]))
    np.testing.assert_allclose(jax.nn.sigmoid(pair.model.layers[0].logits.bias), [0.01, 0.25, 0.99], rtol=1e-12)


def test_documents_without_a_single_word_start_with_all_words_alike():
    pair = nvil.sbn(3, (2,), lengths=(4,), mean=np.zeros(3))
    np.testing.assert_array_equal(pair.model.layers[0].logits.bias, 0)


@pytest.mark.parametrize(
    ("visible", "hidden", "message"),
    [
        (3, (), "at least one hidden layer"),
        (3, (0,), "at least 1, got 0"),
        (3, (2, -1), "at least 1, got -1"),
        (0, (2,), "at least 1, got 0"),
    ],
)
def test_impossible_sizes_are_refused(visible, hidden, message):
    with pytest.raises(nvil.UsageError, match=message):
        nvil.sbn(visible, hidden)


def test_a_misspelt_argument_is_named():
    with pytest.raises(nvil.UsageError, match="Unknown keyword argument 'latent'; did you mean 'latents'"):
        nvil.fdarn(3, (2,), latent="gaussian")


def test_a_mean_of_the_wrong_size_is_refused():
    with pytest.raises(nvil.UsageError, match="3 visible"):
        nvil.sbn(3, (2,), mean=np.zeros(4))


def test_our_threefry_is_that_of_jax():
    from jax.extend.random import threefry_2x32

    key = jax.random.key_data(jax.random.key(5))
    counters = jnp.arange(100, dtype=jnp.uint32)
    ours = jnp.concatenate(threefry(key, counters, jnp.zeros_like(counters)))
    np.testing.assert_array_equal(ours, threefry_2x32(key, jnp.concatenate([counters, jnp.zeros_like(counters)])))


@pytest.mark.parametrize("x64", [True, False])
def test_uniform_is_uniform(x64):
    with jax.enable_x64(x64):
        draws = np.asarray(uniform(jax.random.key(0), (301, 333)))
        assert draws.dtype == (np.float64 if x64 else np.float32)
        assert 0 <= draws.min() < 1e-4 < 1 - 1e-4 < draws.max() < 1
        counts, _ = np.histogram(draws, bins=64, range=(0, 1))
        expected = draws.size / 64
        assert np.sum((counts - expected) ** 2 / expected) < 63 + 5 * np.sqrt(2 * 63)
        assert len(np.unique(draws[0])) == 333


@pytest.mark.parametrize("shape", [(7,), (5, 4), (6, 7), (3, 5, 8), (2, 3, 4, 5)])
def test_uniform_numbers_of_a_row_are_its_own(shape, float64):
    """No row needs another's, wherever that is, and no number comes twice; in double precision they have 32 bits."""
    draws = np.asarray(uniform(jax.random.key(2), shape))
    assert draws.shape == shape
    assert len(np.unique(draws)) == draws.size
    if len(shape) > 1:
        np.testing.assert_array_equal(draws[:2], uniform(jax.random.key(2), (2, *shape[1:])))
