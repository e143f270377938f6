"""Estimators of the bound of many samples, over *every* draw they could make."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvil
from helpers import assert_trees_close, random_cases, random_pair, randomised, started
from nvil import estimators, exact
from nvil.cli.fitting import of_samples
from nvil.estimators.samples import sample_latents
from nvil.rows import as_rows
from nvil.runs.config import Config

pytestmark = pytest.mark.usefixtures("float64")


MANY = {
    "vimco": estimators.vimco(samples=2),
    "reweighted wake-sleep": estimators.reweighted_wake_sleep(samples=2, sleep=0.0),
}


def mean_gradient(estimator, pair, x):
    params, state = started(estimator, pair, x)
    return exact.gradient_moments(estimator, params, x, state).mean


@eqx.filter_jit
def bounds(pair, x, samples):
    return exact.bound(pair, x, pair.inference.support(), samples)


def test_the_bound_of_many_samples_rises_from_the_bound_to_the_log_likelihood():
    pair, x = random_pair(2), random_cases(3)
    latents = pair.inference.support()
    log_p = np.asarray(exact.model_log_prob(pair.model, x, latents))
    log_q = np.asarray(exact.inference_log_prob(pair.inference, x, latents))
    one, two, three = (np.asarray(bounds(pair, x, samples)) for samples in (1, 2, 3))
    np.testing.assert_allclose(one, np.sum(np.exp(log_q) * (log_p - log_q), axis=1), rtol=1e-12)
    for case, (p, q) in enumerate(zip(log_p, log_q, strict=True)):
        w = np.exp(p - q)
        by_hand = sum(np.exp(q[i] + q[j]) * np.log((w[i] + w[j]) / 2) for i in range(len(w)) for j in range(len(w)))
        np.testing.assert_allclose(two[case], by_hand, rtol=1e-12)
    assert np.all(one < two)
    assert np.all(two < three)
    assert np.all(three < exact.log_likelihood(pair.model, x, latents))


@pytest.mark.parametrize(("layers", "cases", "samples"), [(1, 2, 2), (1, 1, 3), (2, 1, 3)])
@pytest.mark.parametrize("mean", ["geometric", "arithmetic"])
def test_vimco_is_unbiased_for_the_bound_of_its_samples(mean, layers, cases, samples):
    pair, x = random_pair(layers), random_cases(cases)
    result = mean_gradient(estimators.vimco(samples=samples, mean=mean), pair, x)
    desired = eqx.filter_jit(exact.bound_gradient)(pair, x, pair.inference.support(), samples)
    assert_trees_close((result.model, result.inference), desired)


def test_ovis_of_gamma_0_is_unbiased_and_gamma_1_is_not():
    """With K = 3 on two layers: what gamma takes from c_k is a share of v_k, whose part in the gradient is the bias."""
    pair, x = random_pair(2), random_cases(1)
    none, some, all_ = (mean_gradient(estimators.ovis(samples=3, gamma=gamma), pair, x) for gamma in (0.0, 0.3, 1.0))
    desired = eqx.filter_jit(exact.bound_gradient)(pair, x, pair.inference.support(), 3)
    assert_trees_close((none.model, none.inference), desired)
    assert_trees_close(all_.model, desired.model)
    assert_trees_close(some.inference, jax.tree.map(lambda a, b: 0.7 * a + 0.3 * b, none.inference, all_.inference))
    wake = mean_gradient(estimators.reweighted_wake_sleep(samples=3, sleep=0.0), pair, x)
    assert_trees_close(all_.inference, jax.tree.map(jnp.add, desired.inference, wake.inference))


@pytest.mark.parametrize("mean", ["geometric", "arithmetic"])
def test_vimcos_left_out_bounds_are_those_of_the_paper(mean):
    """Also where one weight is far above all others, where a sum less that weight has no digits left."""
    log_weights = np.array([[-3.0, 0.0], [-1.0, -200.0], [-2.5, -201.0]])
    means = {
        "geometric": lambda others: np.mean(others),
        "arithmetic": lambda others: np.logaddexp(*others) - np.log(2),
    }
    found = estimators.vimco(samples=3, mean=mean).without_each(jnp.asarray(log_weights))
    for k in range(3):
        others = np.delete(log_weights, k, axis=0)
        for case in range(2):
            terms = [*others[:, case], means[mean](others[:, case])]
            np.testing.assert_allclose(found[k, case], np.logaddexp.reduce(terms) - np.log(3), rtol=1e-12)


def test_reweighted_wake_sleep_of_one_sample_asleep_is_wake_sleep():
    pair, x = randomised(nvil.sbn(2, (1,), mean=np.array([0.2, 0.5])), 0), jnp.asarray([[0.0, 1.0]])
    one = mean_gradient(estimators.reweighted_wake_sleep(samples=1, sleep=1.0), pair, x)
    assert_trees_close(one, mean_gradient(estimators.wake_sleep(), pair, x))


def test_the_phases_of_reweighted_wake_sleep_mix():
    pair, x = randomised(nvil.sbn(2, (1,), mean=np.array([0.2, 0.5])), 0), jnp.asarray([[0.0, 1.0]])
    wake, sleep, mixed = (
        mean_gradient(estimators.reweighted_wake_sleep(samples=2, sleep=share), pair, x) for share in (0.0, 1.0, 0.3)
    )
    assert_trees_close(mixed.model, wake.model)
    assert_trees_close(mixed.inference, jax.tree.map(lambda a, b: 0.7 * a + 0.3 * b, wake.inference, sleep.inference))


def test_wake_phi_tends_to_the_fit_of_the_posterior():
    """Its bias is of the order of 1/K: it falls with every sample, to a bit more than half when K doubles."""
    pair, x = random_pair(1), random_cases(1)
    latents = pair.inference.support()
    posterior = exact.posterior(pair.model, x, latents)

    def fit(inference):
        return jnp.sum(posterior * exact.inference_log_prob(inference, x, latents))

    limit = jax.tree.leaves(eqx.filter_jit(eqx.filter_grad(fit))(pair.inference))

    def bias(samples):
        mean = mean_gradient(estimators.reweighted_wake_sleep(samples=samples, sleep=0.0), pair, x).inference
        return sum(float(jnp.sum((a - b) ** 2)) for a, b in zip(jax.tree.leaves(mean), limit, strict=True)) ** 0.5

    one, two, four = bias(1), bias(2), bias(4)
    assert 0.4 * one < two < 0.8 * one
    assert 0.4 * two < four < 0.8 * two


def test_the_sleep_phase_needs_a_model_that_can_sample():
    class Mute(eqx.Module):
        def log_prob(self, x, h):
            raise AssertionError("nothing may be computed")

    pair = nvil.Pair(Mute(), random_pair(1).inference)
    for asleep in (estimators.wake_sleep(), estimators.reweighted_wake_sleep()):
        with pytest.raises(nvil.UsageError, match=r"Mute has no sample\(\), which this needs"):
            nvil.Learner(asleep).init(pair, as_rows(np.zeros((4, 3))))
    estimators.reweighted_wake_sleep(sleep=0.0).check(pair)


@pytest.mark.parametrize("estimator", MANY)
def test_what_is_reported_and_validated_is_the_bound_of_the_samples(estimator):
    pair, x = random_pair(1), random_cases(1)
    estimator = MANY[estimator]
    params = nvil.Parameters(*pair)

    def reported(draw):
        return estimator.gradients_from(draw, params, x, None)[2].bound

    draws, log_prob = estimator.enumerate_draws(pair, x)
    values = jax.jit(jax.vmap(reported))(draws)
    np.testing.assert_allclose(jnp.exp(log_prob) @ values, bounds(pair, x, 2)[0], rtol=1e-12)
    key = jax.random.key(0)
    h = sample_latents(key, pair, x, 2)
    draw = h if jax.tree.structure(h) == jax.tree.structure(draws) else (h, None)
    np.testing.assert_allclose(jax.jit(estimator.objective)(key, pair, x)[0], jax.jit(reported)(draw), rtol=1e-12)


def test_validation_follows_the_bound_of_many_samples():
    pair, x = random_pair(2), random_cases(200)
    learner = nvil.Learner(estimators.vimco(samples=3))
    found = learner.validate(pair, x, samples=200)
    exactly = np.mean(bounds(pair, x, 3))
    assert abs(found.bound - exactly) < 4.5 * found.monte_carlo_se  # false alarms: 1 seed in 100,000; this one is fixed
    assert abs(found.bound - np.mean(bounds(pair, x, 1))) > 20 * found.monte_carlo_se


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: estimators.vimco(samples=1), "`samples` must be at least 2, got 1"),
        (lambda: estimators.vimco(mean="harmonic"), "Unknown mean 'harmonic'"),
        (lambda: estimators.reweighted_wake_sleep(samples=0), "`samples` must be at least 1, got 0"),
        (lambda: estimators.reweighted_wake_sleep(sleep=1.5), "`sleep` must be at least 0 and at most 1, got 1.5"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(nvil.UsageError, match=message):
        make()


def test_a_bound_of_many_samples_is_named_so():
    for choices, samples, said in (
        ({}, 1, ""),
        ({"estimator": "rloo"}, 1, ""),
        ({"estimator": "vimco"}, 5, ", of 5 samples (above the bound of one, which nvil evaluate has)"),
        ({"estimator": "ovis", "samples": 3}, 3, ", of 3 samples (above the bound of one, which nvil evaluate has)"),
    ):
        config = Config(**choices).resolved()
        assert config.objective_samples == samples
        assert of_samples(SimpleNamespace(config=config)) == said
