"""The expectation of an estimator over *every* draw it could make, against the gradient of the exact bound."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvil
from helpers import (
    SLOW,
    assert_trees_close,
    nvil_with,
    random_cases,
    random_pair,
    scaled,
    started,
    weighted_bound_gradient,
)
from nvil import exact, signals
from nvil.estimators.samples import log_probs

pytestmark = pytest.mark.usefixtures("float64")

LAYERS = (1, 2, 3)
# (cases, samples): outcomes are 8, 64 and 512 to the power of their product at most
BATCHES = ((1, 1), (2, 1), (1, 2))
TECHNIQUES = ("local", "baseline", "running_mean", "normalisation")


def sizes(batches):
    """Each number of layers with each batch; `make test` has every layer with the first, two layers with the others."""
    every = itertools.product(LAYERS, batches)
    return [
        pytest.param(layers, *batch, marks=() if layers == 2 or batch == batches[0] else SLOW)
        for layers, batch in every
    ]


def moments(estimator, pair, cases):
    x = random_cases(cases)
    params, state = started(estimator, pair, x)
    return exact.gradient_moments(estimator, params, x, state), state


bound_gradient = eqx.filter_jit(exact.bound_gradient)  # of the module, so that it compiles once for each shape


def exact_gradient(pair, cases):
    return bound_gradient(pair, random_cases(cases), pair.inference.support())


@pytest.mark.parametrize(("layers", "cases", "samples"), sizes([*BATCHES, (3, 1), (2, 2)]))
def test_strict_order_is_unbiased(layers, cases, samples):
    if layers == 3 and cases * samples > 3:
        cases, samples = 1, 3  # 16 states to the power of 3
    pair = random_pair(layers)
    estimator = nvil_with(order="strict", normalisation=False, samples=samples, units=3)
    result, _ = moments(estimator, pair, cases)
    assert_trees_close((result.mean.model, result.mean.inference), exact_gradient(pair, cases))


@pytest.mark.parametrize(
    "off", [(), *itertools.combinations(TECHNIQUES[:3], 1), *itertools.combinations(TECHNIQUES[:3], 2)]
)
def test_each_technique_alone_leaves_the_estimator_unbiased(off):
    pair = random_pair(2)
    estimator = nvil_with(order="strict", units=3, normalisation=False, **dict.fromkeys(off, False))
    result, _ = moments(estimator, pair, cases=2)
    assert_trees_close((result.mean.model, result.mean.inference), exact_gradient(pair, 2))


@pytest.mark.parametrize("layers", LAYERS)
def test_reinforce_is_unbiased(layers):
    pair = random_pair(layers)
    result, _ = moments(nvil.estimators.reinforce(samples=2), pair, cases=1)
    assert_trees_close((result.mean.model, result.mean.inference), exact_gradient(pair, 1))


def test_reinforce_is_nvil_with_every_technique_off():
    off = nvil_with(**dict.fromkeys(TECHNIQUES, False))
    assert nvil.estimators.reinforce() == off
    assert nvil.estimators.reinforce() != nvil.estimators.nvil()
    assert nvil_with() == nvil.estimators.nvil()


@pytest.mark.parametrize(("layers", "cases", "samples"), sizes(BATCHES))
def test_strict_order_with_normalisation_scales_each_layer(layers, cases, samples):
    pair = random_pair(layers)
    estimator = nvil_with(order="strict", samples=samples, units=3)
    result, state = moments(estimator, pair, cases)
    desired = exact_gradient(pair, cases)
    assert_trees_close(result.mean.model, desired.model)
    variance = state[2]
    assert np.all(variance > 1)  # so that the scale is not simply one
    for i, (got, want) in enumerate(zip(result.mean.inference.layers, desired.inference.layers, strict=True)):
        assert_trees_close(got, scaled(want, 1 / jnp.sqrt(variance[i])))


@pytest.mark.parametrize(("layers", "cases", "samples"), sizes([*BATCHES, (3, 1)]))
def test_papers_order_shrinks_the_inference_gradient_by_a_fifth_over_n(layers, cases, samples):
    pair = random_pair(layers)
    estimator = nvil_with(normalisation=False, samples=samples, units=3)
    result, _ = moments(estimator, pair, cases)
    desired = exact_gradient(pair, cases)
    assert_trees_close(result.mean.model, desired.model)
    assert_trees_close(result.mean.inference, scaled(desired.inference, 1 - 0.2 / (cases * samples)))


@pytest.mark.parametrize(("layers", "cases", "samples"), [(1, 2, 2), (2, 1, 2), (2, 1, 3), (3, 1, 2)])
@pytest.mark.parametrize("local", [True, False])
def test_a_leave_one_out_baseline_is_unbiased(layers, cases, samples, local):
    """The other samples of a case are independent of it, in every layer's signal."""
    pair = random_pair(layers)
    estimator = nvil.estimators.nvil(signals.leave_one_out(), samples=samples, local=local)
    result, _ = moments(estimator, pair, cases)
    assert_trees_close((result.mean.model, result.mean.inference), exact_gradient(pair, cases))


@pytest.mark.parametrize(("updates", "above"), [(0, 0.1), (3, 0.1 + 0.9 * 3 / 7), (7, 1.0), (100, 1.0)])
@pytest.mark.parametrize("layers", LAYERS)
def test_a_warm_up_climbs_the_bound_with_its_layers_weighted(layers, updates, above):
    pair, x = random_pair(layers), random_cases(1)
    estimator = nvil.estimators.rloo(samples=2, warm_up=7)
    params, state = started(estimator, pair, x)
    state = state._replace(updates=jnp.asarray(updates, jnp.int32))
    result = exact.gradient_moments(estimator, params, x, state)
    weights = jnp.array([1.0, *[above] * (layers - 1)])
    assert_trees_close((result.mean.model, result.mean.inference), weighted_bound_gradient(pair, x, weights))
    if above == 1:
        assert_trees_close((result.mean.model, result.mean.inference), exact_gradient(pair, 1))


def test_a_warm_up_counts_its_updates_and_tells_of_the_true_bound():
    pair, x = random_pair(3), random_cases(2)
    plain, warm = (nvil.estimators.rloo(samples=2, warm_up=updates) for updates in (0, 5))
    draws = plain.sample(jax.random.key(0), pair, x)
    params, state = started(warm, pair, x)
    state = state._replace(updates=jnp.asarray(2, jnp.int32))
    _, after, told = warm.gradients_from(draws, params, x, state)
    assert int(after.updates) == 3
    assert told.bound == plain.gradients_from(draws, params, x, state.transformation)[2].bound
    assert nvil.Config(warm_up=5).resolved().build_learner().estimator == nvil.estimators.nvil(warm_up=5)


def test_a_warm_up_that_cannot_be():
    with pytest.raises(nvil.UsageError, match="`warm_up` must be at least 0, got -1"):
        nvil.estimators.nvil(warm_up=-1)
    with pytest.raises(nvil.UsageError, match="needs 3 terms from the model's log_prob, but it gave 1"):
        nvil.estimators.nvil(warm_up=1).weighted(jnp.zeros((2, 1)), jnp.zeros((2, 2)), jnp.asarray(0))
    with pytest.raises(
        nvil.UsageError, match="`warm_up` is for the estimators nvil, reinforce and rloo, not for disarm"
    ):
        nvil.Config(estimator="disarm", warm_up=1).resolved()
    with pytest.raises(nvil.UsageError, match=r"`warm_up` must be at most `updates` \(5\), got 6"):
        nvil.Config(updates=5, warm_up=6).resolved()
    with pytest.raises(nvil.UsageError, match="`warm_up` is for layers above the first, and `hidden` has only one"):
        nvil.Config(hidden=(5,), warm_up=6).resolved()


def test_leave_one_out_needs_two_samples():
    with pytest.raises(nvil.UsageError, match="at least 2 samples per case"):
        nvil.estimators.nvil(signals.leave_one_out())


@pytest.mark.parametrize(
    "without",
    [("baseline",), ("running-mean",), ("normalisation",), ("local-signals",), ("baseline", "normalisation")],
)
def test_the_command_line_s_ablations_are_these_estimators(without):
    """`nvil train --without ...` gives just the estimators that are proven here."""
    off = {"baseline": "baseline", "running-mean": "running_mean", "normalisation": "normalisation"}
    off = {**off, "local-signals": "local"}
    for order, decay, units in (("paper", 0.8, 100), ("strict", 0.5, 3)):
        config = nvil.Config(without=without, order=order, decay=decay, baseline_units=units)
        desired = nvil_with(order=order, decay=decay, units=units, **{off[name]: False for name in without})
        assert config.resolved().build_learner().estimator == desired


def test_without_everything_is_reinforce():
    every = ("baseline", "running-mean", "normalisation", "local-signals")
    assert nvil.Config(without=every).resolved().build_learner().estimator == nvil.estimators.reinforce()


def test_the_global_signal_has_one_baseline_on_x_and_one_of_each_statistic():
    pair, x = random_pair(3), random_cases(2)
    estimator = nvil_with(local=False, units=3)
    baselines, state = eqx.filter_eval_shape(estimator.init, jax.random.key(0), pair, x)
    ((hidden, _),), _, _ = baselines
    assert hidden.weights.shape == (x.shape[1], 3)
    assert state[1].shape == state[2].shape == (1,)


@pytest.mark.parametrize("layers", [2, 3])
def test_local_and_global_signals_have_equal_expectation(layers):
    pair = random_pair(layers)
    estimators = (nvil_with(order="strict", normalisation=False, local=local, units=3) for local in (True, False))
    both = [moments(estimator, pair, 1)[0].mean for estimator in estimators]
    assert_trees_close(both[0].inference, both[1].inference)
    assert_trees_close(both[0].model, both[1].model)


def test_baseline_gradient_is_that_of_the_squared_centred_signal():
    """Delta psi = sum l grad C is downhill on half the squared centred signal (Section 2.3.1)."""
    pair, x = random_pair(2), random_cases(2)
    estimator = nvil_with(order="strict", normalisation=False, units=3)
    params, state = started(estimator, pair, x)
    h = jax.jit(estimator.sample)(jax.random.key(3), pair, x)

    def half_square(baselines):
        signal, _, _ = estimator.transformation.update(
            estimator.signals(*log_probs(pair, x, h)), pair.inference.contexts(x, h), baselines, state
        )
        return -0.5 * jnp.sum(signal**2)

    gradients, _, _ = jax.jit(estimator.gradients_from)(h, params, x, state)
    assert_trees_close(gradients.baselines, jax.jit(jax.grad(half_square))(params.baselines))


def test_variance_falls_as_techniques_are_added():
    """By enumeration, with baselines fitted for a while, in the strict order: but for the last, all have one mean.

    No theorem: on cases that are alike, say, a baseline has nothing to tell. A long decay keeps noise out of the means.
    """
    pair, x = scaled(random_pair(2), 2.0), random_cases(2, seed=5)
    settings = {"order": "strict", "decay": 0.999}
    ladder = [
        nvil.estimators.reinforce(),
        nvil_with(local=False, baseline=False, normalisation=False, **settings),
        nvil_with(local=False, normalisation=False, units=5, **settings),
        nvil_with(normalisation=False, units=5, **settings),
        nvil_with(units=5, **settings),
    ]
    variances = [total_variance(estimator, pair, x) for estimator in ladder]
    assert all(after < before for before, after in itertools.pairwise(variances)), variances


def total_variance(estimator, pair, x):
    @jax.jit
    def fitted(pair):
        baselines, state = estimator.init(jax.random.key(0), pair, x)

        def step(i, carry):  # only baselines and statistics learn
            params, state = carry
            gradients, state, _ = estimator.gradients(jax.random.fold_in(jax.random.key(1), i), params, x, state)
            moved = jax.tree.map(lambda p, g: p + 0.01 * g, params.baselines, gradients.baselines)
            return params._replace(baselines=moved), state

        return jax.lax.fori_loop(0, 20_000, step, (nvil.Parameters(*pair, baselines), state))

    params, state = fitted(pair)
    result = exact.gradient_moments(estimator, params, x, state)
    return sum(float(jnp.sum(leaf)) for leaf in jax.tree.leaves(result.variance.inference))


def test_info_reports_the_raw_bound():
    pair, x = random_pair(2), random_cases(4)
    estimator = nvil_with(samples=3)
    params, state = started(estimator, pair, x)
    h = jax.jit(estimator.sample)(jax.random.key(1), pair, x)
    _, _, info = jax.jit(estimator.gradients_from)(h, params, x, state)
    log_p = jax.jit(jax.vmap(lambda h: pair.model.log_prob(x, h)))(h)
    log_q = jax.jit(jax.vmap(lambda h: pair.inference.log_prob(h, x)))(h)
    per_sample = np.sum(log_p, axis=-1) - np.sum(log_q, axis=-1)
    np.testing.assert_allclose(info.bound, np.mean(per_sample), rtol=1e-12)


def test_local_signals_need_a_term_for_every_layer():
    with pytest.raises(nvil.UsageError, match="need 3 terms"):
        signals.local_signals(jnp.zeros((1, 4, 2)), jnp.zeros((1, 4, 2)))
