"""log P(x) by weighted samples and by enumeration."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvil
from helpers import random_cases, random_pair
from nvil import exact, likelihood
from nvil.contracts import bound_of_one_sample
from nvil.random import seeded_key

pytestmark = pytest.mark.usefixtures("float64")


def test_exact_is_the_sum_over_all_states(monkeypatch):
    monkeypatch.setattr("nvil.evaluation.BLOCK", 4)
    pair, x = random_pair(2), random_cases(7)
    desired = exact.log_likelihood(pair.model, x, pair.model.support())
    np.testing.assert_allclose(likelihood.case_exact(pair, x), desired, rtol=1e-12)
    found = likelihood.exact(pair, x)
    np.testing.assert_allclose(found.log_likelihood, np.mean(desired), rtol=1e-12)
    np.testing.assert_allclose(found.log_likelihood_se, np.std(desired, ddof=1) / 7**0.5, rtol=1e-12)
    assert (found.monte_carlo_se, found.effective_samples, found.samples, found.cases) == (None, None, None, 7)


def test_the_streamed_sum_is_that_of_all_weights_at_once():
    pair, x = random_pair(2), random_cases(3)
    key = jax.random.fold_in(seeded_key(5, "importance"), 0)
    draw = eqx.filter_jit(bound_of_one_sample)
    log_w = np.stack([draw(jax.random.fold_in(key, i), pair, x) for i in range(20)])
    values, effective = likelihood.case_importance(pair, x, samples=20, seed=5)
    np.testing.assert_allclose(values, np.logaddexp.reduce(log_w) - np.log(20), rtol=1e-12)
    weights = np.exp(log_w - log_w.max(0))
    np.testing.assert_allclose(effective, weights.sum(0) ** 2 / (weights**2).sum(0), rtol=1e-12)
    relative = np.var(weights, axis=0, ddof=1) / 20 / weights.mean(0) ** 2  # of the mean weight
    found = likelihood.importance(pair, x, samples=20, seed=5)
    np.testing.assert_allclose(found.monte_carlo_se, np.sqrt(relative.sum()) / 3, rtol=1e-12)
    assert found.least_effective_samples == min(effective)


def test_weights_may_be_far_from_one():
    """A sum of e^-5000 and e^-5002 has no floating point number, and neither has its square."""

    class Far(eqx.Module):
        def log_prob(self, x, h):
            return -5000.0 - 2 * h[0]

    class Certain(eqx.Module):
        def sample(self, key, x):
            return (jnp.zeros((x.shape[0], 1)),)

        def log_prob(self, h, x):
            return jnp.zeros((x.shape[0], 1))

    found = likelihood.importance(nvil.Pair(Far(), Certain()), np.zeros((2, 3)), samples=4)
    np.testing.assert_allclose(found.log_likelihood, -5000)
    np.testing.assert_allclose([found.effective_samples, found.monte_carlo_se], [4, 0])


def test_weights_may_be_zero():
    """The first draws too, before any weight that is not; where all are, log P(x) is estimated as -inf."""

    class Picky(eqx.Module):
        def log_prob(self, x, h):
            return jnp.where((h[0] == 1) & (x[:, :1] == 1), -3.0, -jnp.inf)

    class Even(eqx.Module):
        def sample(self, key, x):
            return (jax.random.bernoulli(key, 0.5, (x.shape[0], 1)).astype(x.dtype),)

        def log_prob(self, h, x):
            return jnp.full((x.shape[0], 1), -jnp.log(2.0))

    x = np.repeat([[1.0], [0.0]], [20, 1], axis=0)
    values, effective = likelihood.case_importance(nvil.Pair(Picky(), Even()), x, samples=8)
    np.testing.assert_allclose(values[:20], np.log(2 * np.exp(-3.0) * effective[:20] / 8))
    assert 0 < min(effective[:20]) < 4 < max(effective[:20])
    assert (values[20], effective[20]) == (-np.inf, 0)
    assert likelihood.summary(values, effective, 8).least_effective_samples == 0


def test_many_samples_come_near_the_exact_value():
    pair, x = random_pair(2), random_cases(50)
    found = likelihood.importance(pair, x, samples=2000)
    exactly = likelihood.exact(pair, x)
    assert abs(found.log_likelihood - exactly.log_likelihood) < 4.5 * found.monte_carlo_se  # 1 false alarm in 100,000
    assert 0 < found.monte_carlo_se < 0.02
    assert nvil.evaluate(pair, x, samples=100).bound < found.log_likelihood


def test_what_cannot_be_is_refused():
    with pytest.raises(nvil.UsageError, match="17 latents, and the states of at most 16"):
        likelihood.exact(nvil.sbn(3, (9, 8)), random_cases(1))
    with pytest.raises(nvil.UsageError, match="`samples` must be at least 1, got 0"):
        likelihood.importance(random_pair(1), random_cases(1), samples=0)
    with pytest.raises(nvil.UsageError, match="no cases"):
        likelihood.exact(random_pair(1), random_cases(0))
