"""The exact tests over every combination of model, inference network and estimator.

A new model or estimator is covered by putting it in `MODELS` or `ESTIMATORS`.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvil
from helpers import SLOW, assert_trees_close, nvil_with, randomised, started
from nvil import exact
from nvil.runs.config import ESTIMATORS as NAMED_ESTIMATORS
from nvil.runs.config import MODELS as NAMED_MODELS
from nvil.runs.config import Config

pytestmark = pytest.mark.usefixtures("float64")

INFERENCE = ("factorial", "autoregressive")
MODELS = {
    **{name: (getattr(nvil, name), {}) for name in NAMED_MODELS},
    "sbn of documents": (nvil.sbn, {"lengths": (2,)}),
    "fdarn of documents": (nvil.fdarn, {"lengths": (2,)}),
    "sbn with layers between": (nvil.sbn, {"between": (2, 3)}),
    "fdarn of categories": (nvil.fdarn, {"latents": "categorical", "categories": 3}),
}
HIDDEN = {"one layer": (2,), "two layers": (2, 1)}
OFTEN = ("sbn", "nvil")
"""The model that `make test` puts through every estimator, and the estimator it puts every model through."""


@eqx.filter_jit
def bound_gradient(pair, x):
    return exact.bound_gradient(pair, x, pair.inference.support())


@eqx.filter_jit
def two_sample_gradient(pair, x):
    return exact.bound_gradient(pair, x, pair.inference.support(), samples=2)


@eqx.filter_jit
def reweighted_gradient(pair, x):
    """Theta climbs the bound of two samples. Phi follows sum_k v_k grad log Q(h_k | x), summed here over all h_1, h_2.

    By symmetry that is 2 sum_ij Q(i) Q(j) w_i / (w_i + w_j) grad log Q(i): grad Q of a fixed function of the state.
    """
    latents = pair.inference.support()
    log_w = exact.model_log_prob(pair.model, x, latents) - exact.inference_log_prob(pair.inference, x, latents)
    share = jax.nn.sigmoid(log_w[:, :, None] - log_w[:, None, :])  # w_i / (w_i + w_j)
    q = jnp.exp(exact.inference_log_prob(pair.inference, x, latents))
    fixed = 2 * jnp.sum(share * q[:, None, :], axis=-1)

    def climbed(inference):
        return jnp.sum(fixed * jnp.exp(exact.inference_log_prob(inference, x, latents)))

    return nvil.Pair(two_sample_gradient(pair, x).model, eqx.filter_grad(climbed)(pair.inference))


@eqx.filter_jit
def sleep_gradient(pair, x):
    """The wake phase climbs the bound; the sleep phase E_P[log Q(h | x)], for as many dreams as cases (Eq. 13)."""
    every_x = jnp.asarray(pair.model.visible_support())
    latents = pair.model.support()
    probability = jnp.exp(exact.model_log_prob(pair.model, every_x, latents))

    def dreams(inference):
        return len(x) * jnp.sum(probability * exact.inference_log_prob(inference, every_x, latents))

    return nvil.Pair(bound_gradient(pair, x).model, eqx.filter_grad(dreams)(pair.inference))


# each named estimator, in a form whose expectation is known exactly, and that expectation
ESTIMATORS = {
    "nvil": (nvil_with(order="strict", normalisation=False, units=3), bound_gradient),
    "reinforce": (nvil.estimators.reinforce(), bound_gradient),
    "wake-sleep": (nvil.estimators.wake_sleep(), sleep_gradient),
    "rloo": (nvil.estimators.rloo(samples=2), bound_gradient),
    "vimco": (nvil.estimators.vimco(samples=2), two_sample_gradient),
    "ovis": (nvil.estimators.ovis(samples=2), two_sample_gradient),
    "reweighted-wake-sleep": (nvil.estimators.reweighted_wake_sleep(samples=2, sleep=0.0), reweighted_gradient),
}


# for factorial inference networks, and proven there
IN_TEST_BERNOULLI_ESTIMATORS = (
    "disarm",
    "arm",
    "double-control-variates",
    "muprop",
    "rebar",
    "straight-through",
    "concrete",
)


def make_pair(model, inference, hidden, seed=0):
    make, more = MODELS[model]
    return randomised(make(3, HIDDEN[hidden], inference=inference, mean=np.array([0.2, 0.5, 0.7]), **more), seed)


def test_every_named_estimator_is_tested():
    assert sorted(NAMED_ESTIMATORS) == sorted((*ESTIMATORS, *IN_TEST_BERNOULLI_ESTIMATORS))


@pytest.mark.parametrize("name", NAMED_ESTIMATORS)
def test_every_named_estimator_can_be_had_by_its_name(name):
    made = Config(estimator=name).resolved().build_learner().estimator
    assert made == getattr(nvil.estimators, name.replace("-", "_"))()


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("inference", INFERENCE)
@pytest.mark.parametrize("model", MODELS)
def test_distributions_sum_to_one_and_the_bound_is_below_the_log_likelihood(model, inference, hidden):
    pair = make_pair(model, inference, hidden)
    x, latents = jnp.asarray(pair.model.visible_support()), pair.model.support()

    @eqx.filter_jit
    def quantities(pair):
        return (
            exact.log_likelihood(pair.model, x, latents),
            exact.inference_log_prob(pair.inference, x, latents),
            exact.bound(pair, x, latents),
        )

    log_likelihood, log_q, bound = quantities(pair)
    np.testing.assert_allclose(jnp.sum(jnp.exp(log_likelihood)), 1, rtol=1e-12)
    np.testing.assert_allclose(jnp.sum(jnp.exp(log_q), axis=1), 1, rtol=1e-12)
    assert np.all(bound < log_likelihood)


@pytest.mark.parametrize(
    ("model", "inference", "estimator"),
    [
        pytest.param(*each, marks=() if set(OFTEN) & set(each) else SLOW)
        for each in itertools.product(MODELS, INFERENCE, ESTIMATORS)
    ],
)
def test_the_expected_gradient_is_exact(model, inference, estimator):
    one = inference == "factorial" and model in ("sbn with layers between", "fdarn of categories")
    pair = make_pair(model, inference, "one layer" if one else "two layers")
    x = jnp.asarray(pair.model.visible_support()[[5]])
    estimate, expectation = ESTIMATORS[estimator]
    params, state = started(estimate, pair, x)
    result = exact.gradient_moments(estimate, params, x, state)
    assert_trees_close((result.mean.model, result.mean.inference), expectation(pair, x))


@pytest.mark.parametrize(("make", "estimator"), [(nvil.sbn, "nvil"), (nvil.darn, "wake-sleep")])
def test_categorical_visibles(make, estimator):
    """Two variables of three categories each: nine cases, whose probabilities sum to one, and exact gradients."""
    mean = np.array([0.2, 0.5, 0.3, 0.6, 0.0, 0.4])
    started_pair = make(6, (1,), visibles="categorical", visible_categories=3, mean=mean)
    rates = jax.nn.softmax(started_pair.model.layers[0].logits.bias.reshape(2, 3))
    np.testing.assert_allclose(rates, [[0.2, 0.5, 0.3], np.array([0.6, 0.1, 0.4]) / 1.1], rtol=1e-12)
    pair = randomised(started_pair, 0)
    every, latents = jnp.asarray(pair.model.visible_support()), pair.model.support()
    assert every.shape == (9, 6)
    log_likelihood = eqx.filter_jit(exact.log_likelihood)(pair.model, every, latents)
    np.testing.assert_allclose(jnp.sum(jnp.exp(log_likelihood)), 1, rtol=1e-12)
    estimate, expectation = ESTIMATORS[estimator]
    x = every[5:6]
    params, state = started(estimate, pair, x)
    result = exact.gradient_moments(estimate, params, x, state)
    assert_trees_close((result.mean.model, result.mean.inference), expectation(pair, x))


@pytest.mark.parametrize(("cases", "samples"), [(2, 1), (1, 2)])
def test_wake_sleep_with_more_cases_and_samples(cases, samples):
    pair = randomised(nvil.sbn(2, (1,), mean=np.array([0.2, 0.5])), 0)
    x = jnp.asarray(pair.model.visible_support()[1 : 1 + cases])
    params, state = started(nvil.estimators.wake_sleep(samples=samples), pair, x)
    result = exact.gradient_moments(nvil.estimators.wake_sleep(samples=samples), params, x, state)
    assert_trees_close((result.mean.model, result.mean.inference), sleep_gradient(pair, x))


@pytest.mark.parametrize(
    ("model", "inference", "estimator"),
    [
        ("sbn", "autoregressive", "reinforce"),
        ("fdarn", "factorial", "nvil"),
        ("darn", "autoregressive", "wake-sleep"),
        ("sbn of documents", "factorial", "wake-sleep"),
        ("fdarn of documents", "autoregressive", "nvil"),
    ],
)
def test_the_family_learns(model, inference, estimator):
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        make, more = MODELS[model]
        data = np.array([[2, 0, 0], [0, 1, 1]] * 30) if more else np.array([[1, 1, 0], [0, 1, 1]] * 30)
        pair = make(3, (3,), inference=inference, mean=data.mean(0), **more)
        *_, report = nvil.fit(
            pair,
            data,
            nvil.Learner(
                Config(estimator=estimator).resolved().build_learner().estimator,
                nvil.optimisers.adam(0.02),
                batch_size=20,
            ),
            updates=600,
            report_every=600,
            validation=10,
        )
        before = nvil.evaluate(pair, data).bound
        assert report.validation_bound > before + 0.3
