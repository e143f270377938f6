"""Estimators for Bernoulli layers of Q, over *every* draw, or by quadrature where noise is continuous."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvil
from helpers import assert_trees_close, random_cases, randomised, started
from nvil import estimators, exact
from nvil.rows import as_rows

pytestmark = pytest.mark.usefixtures("float64")


def moments(estimator, pair, x):
    params, state = started(estimator, pair, x)
    return exact.gradient_moments(estimator, params, x, state)


def exact_gradient(pair, x):
    return eqx.filter_jit(exact.bound_gradient)(pair, x, pair.inference.support())


def total(tree):
    return sum(float(jnp.sum(leaf)) for leaf in jax.tree.leaves(tree))


def small_pair(*hidden):
    return randomised(nvil.sbn(2, hidden, mean=np.array([0.2, 0.6])), 0)


@pytest.mark.parametrize(
    ("make", "hidden", "cases", "samples"),
    [
        (estimators.disarm, (2,), 2, 1),
        (estimators.disarm, (2,), 1, 2),
        (estimators.disarm, (2, 2), 1, 1),
        (estimators.disarm, (1, 1, 1), 1, 1),
        (estimators.arm, (2,), 2, 1),
        (estimators.arm, (1,), 1, 2),
        (estimators.arm, (2, 1), 1, 1),
    ],
)
def test_antithetic_pairs_are_unbiased(make, hidden, cases, samples):
    pair, x = small_pair(*hidden), random_cases(cases)[:, :2]
    result = moments(make(samples=samples), pair, x).mean
    assert_trees_close((result.model, result.inference), exact_gradient(pair, x))


def test_disarm_is_arm_given_what_it_sampled():
    """The same expectation, and by Jensen's inequality less variance in every entry of Q."""
    pair, x = small_pair(2, 1), random_cases(1)[:, :2]
    noisy, calm = moments(estimators.arm(), pair, x), moments(estimators.disarm(), pair, x)
    assert_trees_close(noisy.mean, calm.mean)
    assert_trees_close(noisy.variance.model, calm.variance.model)
    for one, other in zip(
        jax.tree.leaves(noisy.variance.inference), jax.tree.leaves(calm.variance.inference), strict=True
    ):
        assert np.all(one >= other - 1e-12)
    assert total(noisy.variance.inference) > 1.1 * total(calm.variance.inference)


@pytest.mark.parametrize("estimator", ["arm", "disarm"])
def test_what_is_sampled_is_what_is_enumerated(estimator):
    """Every sampled pair is one of the list, as often as it should be; 8 cells, a false alarm in 10,000 seeds."""
    pair, x = small_pair(1, 1), random_cases(1)[:, :2]
    estimator = getattr(estimators, estimator)()
    listed, log_prob = eqx.filter_jit(estimator.enumerate_draws)(pair, x)
    sampled = eqx.filter_jit(jax.vmap(lambda key: estimator.sample(key, pair, x)))(
        jax.random.split(jax.random.key(0), 4000)
    )

    def names(draws):
        h, others, _ = draws
        bits = [np.asarray(leaf).reshape(len(leaf), -1) for leaf in jax.tree.leaves((h, others))]
        return np.concatenate(bits, axis=1) @ 2 ** np.arange(sum(each.shape[1] for each in bits))

    expected: dict[float, float] = {}
    for name, probability in zip(names(listed), np.exp(log_prob), strict=True):
        expected[name] = expected.get(name, 0) + probability
    np.testing.assert_allclose(sum(expected.values()), 1, rtol=1e-12)
    found = {name: np.mean(names(sampled) == name) for name in np.unique(names(sampled))}
    assert found.keys() <= {name for name, probability in expected.items() if probability > 0}
    for name, probability in expected.items():
        assert abs(found.get(name, 0) - probability) <= 4.5 * np.sqrt(probability * (1 - probability) / 4000)


@pytest.mark.parametrize("make", [estimators.arm, estimators.disarm])
def test_other_layers_are_refused_before_anything_is_computed(make):
    pair = nvil.sbn(3, (2,), inference="autoregressive")
    with pytest.raises(nvil.UsageError, match="needs an inference network of factorial Bernoulli layers"):
        nvil.Learner(make()).init(pair, as_rows(np.zeros((4, 3))))
    make().check(nvil.darn(3, (2,)))  # P may have any layers
