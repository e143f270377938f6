"""Estimators for Bernoulli layers of Q, over *every* draw, or by quadrature where noise is continuous."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvil
from helpers import assert_trees_close, first, random_cases, randomised, scaled, started
from nvil import estimators, exact
from nvil.estimators.rebar import noise_given
from nvil.rows import as_rows

pytestmark = pytest.mark.usefixtures("float64")


def moments(estimator, pair, x):
    params, state = started(estimator, pair, x)
    return exact.gradient_moments(estimator, params, x, state)


def exact_gradient(pair, x):
    return eqx.filter_jit(exact.bound_gradient)(pair, x, pair.inference.support())


def total(tree):
    return sum(float(jnp.sum(leaf)) for leaf in jax.tree.leaves(tree))


def small_pair(*hidden, **choices):
    return randomised(nvil.sbn(2, hidden, mean=np.array([0.2, 0.6]), **choices), 0)


@pytest.mark.parametrize(
    ("make", "hidden", "cases", "samples"),
    first(
        4,
        [
            (estimators.disarm, (2,), 2, 1),
            (estimators.arm, (1,), 1, 2),
            (estimators.disarm, (1, 1, 1), 1, 1),
            (estimators.arm, (2, 1), 1, 1),
            (estimators.disarm, (2,), 1, 2),
            (estimators.disarm, (2, 2), 1, 1),
            (estimators.arm, (2,), 2, 1),
        ],
    ),
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


@pytest.mark.parametrize(("hidden", "cases", "samples"), [((2,), 2, 1), ((2, 1), 1, 2), ((1, 1, 1), 1, 1)])
def test_muprop_is_unbiased(hidden, cases, samples):
    pair, x = small_pair(*hidden), random_cases(cases)[:, :2]
    result = moments(estimators.muprop(samples=samples), pair, x).mean
    assert_trees_close((result.model, result.inference), exact_gradient(pair, x))


@pytest.mark.parametrize("name", ["disarm", "arm", "muprop"])
def test_unbiased_with_layers_between(name):
    """Conditionals that are nonlinear in their context, in P and in Q."""
    pair, x = small_pair(2, 1, between=(2,)), random_cases(1)[:, :2]
    result = moments(getattr(estimators, name)(), pair, x).mean
    assert_trees_close((result.model, result.inference), exact_gradient(pair, x))


@pytest.mark.parametrize(("hidden", "cases", "samples"), [((2,), 2, 2), ((2,), 1, 3), ((2, 1), 1, 2)])
def test_double_control_variates_are_unbiased(hidden, cases, samples):
    """`started` has drawn alpha, one for every layer."""
    pair, x = small_pair(*hidden), random_cases(cases)[:, :2]
    result = moments(estimators.double_control_variates(samples=samples), pair, x).mean
    assert_trees_close((result.model, result.inference), exact_gradient(pair, x))


def test_double_control_variates_are_rloo_until_alpha_learns():
    pair, x = small_pair(2, 1), random_cases(1)[:, :2]
    estimator = estimators.double_control_variates(samples=2)

    def at(alpha):
        return exact.gradient_moments(estimator, nvil.Parameters(*pair, jnp.full(2, alpha)), x, None)

    none, half = at(0.0), at(0.5)
    rloo = moments(estimators.rloo(samples=2), pair, x)
    assert_trees_close(none.variance.inference, rloo.variance.inference)
    assert_trees_close(none.variance.model, rloo.variance.model)
    assert np.all(none.mean.baselines > 0)  # towards less noise, which is there
    assert total(half.variance.inference) < 0.9 * total(none.variance.inference)


def mild_pair(*hidden):
    """No logit is large, for the sake of quadrature."""
    return scaled(small_pair(*hidden), 0.4)


def rebar_moments(pair, x, eta, temperature):
    layers = len(pair.inference.layers)
    psi = jnp.full(layers, eta), jnp.full(layers, np.log(temperature))
    return exact.gradient_moments(estimators.rebar(), nvil.Parameters(*pair, psi), x, None)


@pytest.mark.parametrize(("hidden", "eta", "temperature"), [((2,), 0.7, 0.5), ((1, 1), 0.7, 0.5), ((1,), 2.0, 1.0)])
def test_rebar_is_unbiased(hidden, eta, temperature):
    """To 1e-6: its noise is continuous, and the expectation is by quadrature."""
    pair, x = mild_pair(*hidden), random_cases(1)[:, :2]
    result = rebar_moments(pair, x, eta, temperature).mean
    assert_trees_close((result.model, result.inference), exact_gradient(pair, x), tolerance=1e-6)


def test_rebars_noise_given_the_latents_is_exact_for_units_that_are_nearly_certain():
    """In single precision, where 1 - p would round to 1; v' in double precision is that of the docstring."""
    a, v = np.meshgrid([-12.0, -1.0, 0.5, 12.0], [1e-3, 0.4, 0.999])
    p = 1 / (1 + np.exp(-a))
    for h, own in ((0.0, v * (1 - p)), (1.0, v * p + 1 - p)):
        found = noise_given(*(jnp.asarray(each, jnp.float32) for each in (a, np.full_like(a, h), v)))
        np.testing.assert_allclose(found, a + np.log(own) - np.log1p(-own), rtol=1e-4)
    saturated = noise_given(jnp.float32([-40.0, 40.0]), jnp.float32([1.0, 0.0]), jnp.float32([0.5, 0.5]))
    np.testing.assert_allclose(saturated, [np.log(2), -np.log(2)], rtol=1e-6)


def test_rebars_control_variate_removes_variance_and_learns_to():
    """Without it, at eta = 0, this is REINFORCE with local signals; eta climbs from there."""
    pair, x = mild_pair(1), random_cases(1)[:, :2]
    without, with_one = rebar_moments(pair, x, 0.0, 0.5), rebar_moments(pair, x, 0.5, 0.5)
    reinforce = moments(estimators.reinforce(), pair, x)
    assert_trees_close(without.variance.inference, reinforce.variance.inference, tolerance=1e-6)
    assert total(with_one.variance.inference) < 0.8 * total(without.variance.inference)
    assert_trees_close(with_one.variance.model, without.variance.model, tolerance=1e-6)
    slope = without.mean.baselines[0][0]  # of minus the mean square of the logit's gradient, which is that of the bias
    squares = [_bias_square(each) for each in (rebar_moments(pair, x, 1e-4, 0.5), rebar_moments(pair, x, -1e-4, 0.5))]
    np.testing.assert_allclose(slope, -(squares[0] - squares[1]) / 2e-4, rtol=1e-5)
    assert slope > 0


def _bias_square(moments):
    (layer,) = moments.mean.inference.layers
    (variance,) = moments.variance.inference.layers
    return float((variance.logits.bias + layer.logits.bias**2)[0])


@pytest.mark.parametrize("hidden", [(2,), (2, 1)])
def test_straight_through_is_right_for_the_model_and_biased_for_q(hidden):
    pair, x = small_pair(*hidden), random_cases(1)[:, :2]
    result, desired = moments(estimators.straight_through(), pair, x).mean, exact_gradient(pair, x)
    assert_trees_close(result.model, desired.model)
    assert bias(result.inference, desired.inference) > 0.005


def test_straight_through_is_unbiased_where_the_signal_is_linear():
    """With a model of independent x and h and one unit, log P - log Q is linear in h."""
    pair, x = small_pair(1), random_cases(1)[:, :2]
    pair = eqx.tree_at(lambda pair: pair.model.layers[0].logits.weights, pair, jnp.zeros((1, 2)))
    result, desired = moments(estimators.straight_through(), pair, x).mean, exact_gradient(pair, x)
    assert_trees_close(result.inference, desired.inference)


def test_the_bias_of_the_concrete_relaxation_falls_with_its_temperature():
    pair, x = mild_pair(1), random_cases(1)[:, :2]
    desired = exact_gradient(pair, x)
    means = [moments(estimators.concrete(temperature=t), pair, x).mean for t in (1.0, 0.5, 0.25)]
    biases = [bias(mean.inference, desired.inference) for mean in means]
    assert 1e-4 < biases[2] < biases[1] < biases[0], biases


def bias(mean, desired):
    return total(jax.tree.map(lambda a, b: (a - b) ** 2, mean, desired)) ** 0.5


def test_the_bound_reported_is_that_of_the_binary_latents():
    pair, x = small_pair(1, 1), random_cases(1)[:, :2]
    desired = exact.bound(pair, x, pair.inference.support())[0]
    for make in (estimators.arm, estimators.muprop, estimators.straight_through):
        np.testing.assert_allclose(reported(make(), pair, x), desired, rtol=1e-10)


@eqx.filter_jit
def reported(estimator, pair, x):
    """The expectation of the bound that updates report."""
    draws, log_prob = estimator.enumerate_draws(pair, x)
    params = nvil.Parameters(*pair)
    values = jax.vmap(lambda draw: estimator.gradients_from(draw, params, x, None)[2].bound)(draws)
    return jnp.exp(log_prob) @ values


def test_rloo_is_nvil_with_a_leave_one_out_baseline():
    assert estimators.rloo(samples=3) == estimators.nvil(nvil.signals.leave_one_out(), samples=3)
    with pytest.raises(nvil.UsageError, match="`samples` must be at least 2, got 1"):
        estimators.rloo(samples=1)


BERNOULLI = ("arm", "disarm", "muprop", "rebar", "straight_through", "concrete")


@pytest.mark.parametrize("name", BERNOULLI)
def test_other_layers_are_refused_before_anything_is_computed(name):
    estimator = getattr(estimators, name)()
    for choices in (
        {"inference": "autoregressive"},
        {"latents": ("bernoulli", "categorical")},
        {"latents": "gaussian"},
    ):
        pair = eqx.filter_eval_shape(lambda choices=choices: nvil.sbn(3, (2, 2), **choices))
        with pytest.raises(nvil.UsageError, match="needs an inference network of factorial Bernoulli layers"):
            nvil.Learner(estimator).init(pair, as_rows(np.zeros((4, 3))))
    estimator.check(nvil.darn(3, (2,)))  # P may have any layers


@pytest.mark.parametrize("name", ["rebar", "concrete"])
def test_a_temperature_is_positive(name):
    with pytest.raises(nvil.UsageError, match="`temperature` must be a positive number, got 0"):
        getattr(estimators, name)(temperature=0.0)
