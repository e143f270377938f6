"""Gaussian latents, alone and mixed with discrete layers: expectations are integrals, by the trapezoidal rule.

On a grid of step d over the whole line that rule is exact but for exp(-2 pi^2 s^2 / d^2) with Gaussians of deviation s:
far below 1e-8 here. Sums over "states" of the grid, as `nvil.exact` has them, then want a factor d for each Gaussian.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import nvil
from helpers import assert_trees_close, first, nvil_with, randomised, scaled, started, weighted_bound_gradient
from nvil import diagnostics, estimators, exact, likelihood
from nvil.layers import AutoregressiveGaussian, Gaussian, affine
from nvil.rows import as_rows

pytestmark = pytest.mark.usefixtures("float64")
STEP = 0.3
GRID = np.arange(-15, 15, STEP)
COARSE = np.arange(-12, 12, 0.5)
STRICT = nvil_with(order="strict", normalisation=False, units=3)


class OnAGrid(Gaussian):
    """One Gaussian unit, whose values are listed on the grid."""

    def support(self):
        assert self.units == 1
        return GRID[:, None]


def gridded(kinds):
    """A pair of one unit per layer. No weight is large, so that no deviation is small."""
    pair = scaled(randomised(nvil.sbn(2, (1,) * len(kinds), latents=kinds, mean=np.array([0.2, 0.6])), 0), 0.2)
    return jax.tree.map(
        lambda node: OnAGrid(node.moments, node.units) if isinstance(node, Gaussian) else node,
        pair,
        is_leaf=lambda node: isinstance(node, Gaussian),
    )


X = np.array([[1.0, 0.0]])


@pytest.mark.parametrize(
    ("estimator", "kinds"),
    first(
        4,
        [
            (STRICT, ("gaussian", "bernoulli")),
            (estimators.reinforce(), ("gaussian", "bernoulli")),
            (estimators.rloo(samples=2), ("gaussian", "bernoulli")),
            (estimators.vimco(samples=2), ("gaussian", "bernoulli")),
            (STRICT, ("gaussian",)),
            (STRICT, ("bernoulli", "gaussian")),
            (STRICT, ("gaussian", "gaussian")),
        ],
    ),
)
def test_reparameterised_gradients_are_unbiased(estimator, kinds):
    """Against the derivative of the integral over fixed values of h: nothing is reparameterised there."""
    pair, x = gridded(kinds), jnp.asarray(X)
    params, state = started(estimator, pair, x)
    bound_samples = estimator.samples if isinstance(estimator, estimators.VIMCO) else 1
    result = exact.gradient_moments(estimator, params, x, state).mean
    latents, gaussians = pair.inference.support(), kinds.count("gaussian")
    mass = jnp.sum(jnp.exp(exact.inference_log_prob(pair.inference, x, latents)))
    np.testing.assert_allclose(STEP**gaussians * mass, 1, rtol=1e-11)  # the grid is fine enough
    gradient = eqx.filter_jit(exact.bound_gradient)(pair, x, latents, bound_samples)
    assert_trees_close(
        scaled((result.model, result.inference), STEP ** (gaussians * estimator.samples)),
        tuple(scaled(gradient, STEP ** (gaussians * bound_samples))),
    )


@pytest.mark.parametrize(
    "kinds", first(1, [(("gaussian", "bernoulli"),), (("bernoulli", "gaussian"),), (("gaussian", "gaussian"),)])
)
def test_a_warm_up_weighs_reparameterised_layers_too(kinds):
    estimator = estimators.reinforce(local=True, warm_up=7)
    pair, x = gridded(kinds), jnp.asarray(X)
    params, state = started(estimator, pair, x)
    state = state._replace(updates=jnp.asarray(3, jnp.int32))
    result = exact.gradient_moments(estimator, params, x, state).mean
    wanted = weighted_bound_gradient(pair, x, jnp.array([1, 0.1 + 0.9 * 3 / 7]))
    cell = STEP ** kinds.count("gaussian")
    assert_trees_close(scaled((result.model, result.inference), cell), scaled(tuple(wanted), cell))


@pytest.mark.parametrize("order", ["paper", "strict"])
def test_normalisation_scales_discrete_layers_alone(order):
    """The draws of the Gaussian layer below get the exact gradient, and so do the parameters of P."""
    estimator = nvil_with(order=order, units=3)
    pair, x = gridded(("gaussian", "bernoulli")), jnp.asarray(X)
    params, (baseline, mean, variance) = started(estimator, pair, x)
    result = exact.gradient_moments(estimator, params, x, (baseline, mean, variance * 0 + 400.0)).mean
    exactly = eqx.filter_jit(exact.bound_gradient)(pair, x, pair.inference.support())
    assert_trees_close(scaled(result.model, STEP), scaled(exactly.model, STEP))
    below, above = (scaled(each.inference.layers, STEP) for each in (result, exactly))
    assert_trees_close(below[0], above[0])
    ratio = np.asarray(below[1].logits.bias / above[1].logits.bias)
    np.testing.assert_array_less(ratio, 0.1)
    if order == "strict":
        np.testing.assert_allclose(ratio, 1 / 20)


def test_wake_sleep_needs_no_reparameterisation():
    pair, x, estimator = gridded(("gaussian",)), jnp.asarray(X), estimators.wake_sleep()
    params, state = started(estimator, pair, x)
    result = scaled(exact.gradient_moments(estimator, params, x, state).mean, STEP**2)
    latents, every = pair.model.support(), jnp.asarray(pair.model.visible_support())

    @eqx.filter_jit
    def dreams(inference):
        probability = jnp.exp(exact.model_log_prob(pair.model, every, latents))
        return STEP * jnp.sum(probability * exact.inference_log_prob(inference, every, latents))

    assert_trees_close(result.inference, eqx.filter_grad(dreams)(pair.inference))
    wake = eqx.filter_jit(exact.bound_gradient)(pair, x, latents)
    assert_trees_close(result.model, scaled(wake.model, STEP))


def test_a_gaussian_layer_is_that_of_scipy():
    """Its samples too: a Kolmogorov-Smirnov test, a false alarm in 10,000 seeds."""
    layer = randomised(Gaussian(affine(jax.random.key(0), 2, 6), 3), 0)
    context = jnp.asarray([0.3, -0.8])
    mean, log_deviation = layer.mean_and_log_deviation(context)
    value = jnp.asarray([0.1, -2.0, 3.0])
    wanted = scipy.stats.norm(np.asarray(mean), np.exp(log_deviation))
    np.testing.assert_allclose(layer.log_prob(value, context), wanted.logpdf(value).sum(), rtol=1e-12)
    np.testing.assert_array_equal(layer.mean(context), mean)
    np.testing.assert_allclose(layer.reparameterised(value, context), value, rtol=1e-12)
    drawn = np.asarray(layer.sample(jax.random.key(1), jnp.broadcast_to(context, (4000, 2))))
    for j in range(3):
        own = scipy.stats.norm(float(mean[j]), float(np.exp(log_deviation[j])))
        assert scipy.stats.kstest(drawn[:, j], own.cdf).pvalue > 1e-4 / 3
    assert np.all(np.abs(np.corrcoef(drawn.T)[np.triu_indices(3, 1)]) < 0.08)


class TwoOnAGrid(AutoregressiveGaussian):
    """Two units, whose values are listed on a coarser grid."""

    def support(self):
        return np.stack(np.meshgrid(COARSE, COARSE), axis=-1).reshape(-1, 2)


@pytest.fixture
def joined():
    """A pair with connections within the two Gaussian latents of P and of Q."""
    made = nvil.fdarn(2, (2,), latents="gaussian", inference="autoregressive", mean=np.array([0.2, 0.6]))
    return jax.tree.map(
        lambda node: TwoOnAGrid(node.moments, node.units, node.within) if isinstance(node, Gaussian) else node,
        scaled(randomised(made, 0), 0.2),
        is_leaf=lambda node: isinstance(node, Gaussian),
    )


def test_an_autoregressive_gaussian_layer_is_one_of_full_covariance():
    layer = randomised(AutoregressiveGaussian(affine(jax.random.key(0), 2, 6), 3, jnp.zeros((3, 3))), 0)
    context = jnp.asarray([[0.3, -0.8]])
    (mean,), (log_deviation,) = layer.mean_and_log_deviation(context)
    mixed = np.linalg.inv(np.eye(3) - np.triu(layer.within, 1))
    covariance = mixed.T @ np.diag(np.exp(2 * log_deviation)) @ mixed
    value = jnp.asarray([[0.1, -2.0, 3.0]])
    wanted = scipy.stats.multivariate_normal(mean @ mixed, covariance)
    np.testing.assert_allclose(layer.log_prob(value, context), wanted.logpdf(value), rtol=1e-10)
    np.testing.assert_allclose(layer.mean(context), [wanted.mean], rtol=1e-10)
    np.testing.assert_allclose(layer.reparameterised(value, context), value, rtol=1e-10)
    drawn = layer.sample(jax.random.key(1), context)
    noise = jax.random.normal(jax.random.key(1), (1, 3), mean.dtype)
    np.testing.assert_allclose(drawn, (mean + np.exp(log_deviation) * noise) @ mixed, rtol=1e-10)


def test_autoregressive_gaussian_latents_have_unbiased_gradients(joined):
    """As for factorial ones; their KL, unit by unit given those before, adds up to the layer's term."""
    x = jnp.asarray(X)
    params, state = started(STRICT, joined, x)
    result = exact.gradient_moments(STRICT, params, x, state).mean
    latents = joined.inference.support()
    log_q = exact.inference_log_prob(joined.inference, x, latents)
    np.testing.assert_allclose(0.25 * jnp.sum(jnp.exp(log_q)), 1, rtol=1e-11)  # the grid is fine enough
    gradient = eqx.filter_jit(exact.bound_gradient)(joined, x, latents)
    assert_trees_close(scaled((result.model, result.inference), 0.25), tuple(scaled(gradient, 0.25)))
    (h,) = (jnp.asarray(layer) for layer in latents)
    log_p = joined.model.layers[1].log_prob(h, jnp.zeros((len(h), 0)))
    units = diagnostics.unit_kl_given(joined, jnp.broadcast_to(x, (len(h), 2)), (h,))[0]
    each, whole = (jnp.sum(jnp.exp(log_q[0]) * values) for values in (jnp.sum(units, axis=-1), log_q[0] - log_p))
    np.testing.assert_allclose(each, whole, rtol=1e-9)


def test_the_kl_of_gaussian_units_is_the_layers_term():
    pair, x = gridded(("gaussian",)), jnp.asarray(X)
    latents = pair.inference.support()
    log_q = exact.inference_log_prob(pair.inference, x, latents)
    log_p = pair.model.layers[1].log_prob(jnp.asarray(latents[0]), jnp.zeros((len(GRID), 0)))
    (units,) = diagnostics.unit_kl(pair, x, jax.random.key(0))
    np.testing.assert_allclose(jnp.sum(units), STEP * jnp.sum(jnp.exp(log_q) * (log_q - log_p)), rtol=1e-9)


@pytest.mark.parametrize(("build", "given"), [(nvil.sbn, 0), (nvil.sbn, 1), (nvil.darn, 0)])
def test_gaussian_visibles_are_in_the_units_of_the_data(build, given):
    """A pair for data that is stretched and moved has the same log Q, and log P less the logarithm of the stretch.

    So is a context, whose stretch has no part in the density of the rest.
    """
    mean, stretch = np.array([30.0, -2.0]), np.array([100.0, 0.1])
    plain = build(2, (2,), visibles="gaussian", given=given, mean=np.zeros(2))
    moved = build(2, (2,), visibles="gaussian", given=given, mean=mean, deviation=stretch)
    if build is nvil.darn:  # the second number depends on the first, each in its own units
        within = jnp.array([[0.0, 0.7], [0.0, 0.0]])
        plain, moved = (
            eqx.tree_at(lambda pair: pair.model.layers[0].standard.within, each, within) for each in (plain, moved)
        )
    x, latents = np.random.default_rng(0).normal(size=(3, 2)), plain.model.support()

    @eqx.filter_jit
    def log_probs(pair, x):
        return exact.inference_log_prob(pair.inference, x, latents), exact.model_log_prob(pair.model, x, latents)

    (q, p), (moved_q, moved_p) = log_probs(plain, jnp.asarray(x)), log_probs(moved, jnp.asarray(mean + stretch * x))
    np.testing.assert_allclose(moved_q, q, rtol=1e-10)
    np.testing.assert_allclose(moved_p + np.sum(np.log(stretch[given:])), p, rtol=1e-10)
    at = ((plain, jnp.zeros((4, given))), (moved, jnp.tile(mean[:given], (4, 1))))
    (drawn, h), (moved_drawn, _) = (pair.model.sample(jax.random.key(0), 4, y) for pair, y in at)
    np.testing.assert_allclose(moved_drawn, mean + stretch * drawn, rtol=1e-10)
    means, moved_means = (pair.model.mean(h, y) for pair, y in at)
    np.testing.assert_allclose(moved_means, mean + stretch * means, rtol=1e-10)
    if build is nvil.darn:
        later = moved.model.layers[0].conditional_mean(moved_drawn, h[0])[:, 1] - mean[1]
        own = plain.model.layers[0].standard.mean_and_log_deviation(h[0])[0][:, 1]
        np.testing.assert_allclose(
            later, stretch[1] * (own + 0.7 * (moved_drawn[:, 0] - mean[0]) / stretch[0]), rtol=1e-10
        )


def test_an_outlying_case_overflows_nothing():
    """Deviations start at 1 whatever the context, and no weight makes one leave e^-5 to e^5."""
    pair = nvil.sbn(3, (2,), visibles="gaussian", latents="gaussian", mean=np.zeros(3))
    x = jnp.asarray([[1e3, -1e3, 5.0]])
    for layer, context in ((pair.model.layers[0].standard, jnp.asarray([[50.0, -9.0]])), (pair.inference.layers[0], x)):
        np.testing.assert_array_equal(layer.mean_and_log_deviation(context)[1], 0.0)
    deviations = lambda pair: (pair.model.layers[0].deviation, pair.inference.deviation)  # noqa: E731
    odd = eqx.tree_at(deviations, randomised(pair, 0), deviations(pair))
    h = odd.inference.sample(jax.random.key(0), x)
    _, log_deviation = odd.inference.layers[0].mean_and_log_deviation(x)
    np.testing.assert_allclose(np.abs(log_deviation), 5.0, rtol=1e-6)

    def bound(pair):
        latents = pair.inference.reparameterised(x, h)
        return jnp.sum(pair.model.log_prob(x, latents)) - jnp.sum(pair.inference.log_prob(latents, x))

    assert all(np.all(np.isfinite(each)) for each in jax.tree.leaves((bound(odd), eqx.filter_grad(bound)(odd))))


def test_large_integers_are_not_cut_to_32_bits():
    """Times in milliseconds, say: as integers they are the same numbers as in double precision."""
    times = (1.7e12 + 1e9 * np.random.default_rng(0).normal(size=(40, 3))).astype(np.int64)
    pair = nvil.sbn(3, (2,), visibles="gaussian", mean=times.mean(0), deviation=times.std(0))
    bounds = [nvil.evaluate(pair, cases).bound for cases in (times.astype(float), times, times.astype(np.uint64))]
    assert bounds[0] == bounds[1] == bounds[2] > -100
    trained = [list(nvil.fit(pair, cases, updates=5))[-1].bound for cases in (times.astype(float), times)]
    assert trained[0] == trained[1]
    np.testing.assert_array_equal(as_rows(scipy.sparse.csr_array(times)).dense(), times.astype(float))
    assert as_rows(np.arange(6)[:, None]).dense().dtype == np.int64  # small ones stay as they are


def test_a_column_may_vary_among_the_cases_held_out_alone(tmp_path):
    cases = np.random.default_rng(0).normal(size=(30, 3))
    _, held_out = as_rows(np.arange(27)[:, None]).hold_out(5, seed=0)
    cases[:, 2] = np.arange(30) == held_out.dense()[0]
    data = nvil.data.load(cases[:27], test=cases[27:], values="numbers")
    config = nvil.Config(hidden=(2,), values="numbers", validation=5, seed=0)
    experiment = nvil.Run.from_config(tmp_path / "run", config, data).prepare()
    np.testing.assert_allclose(experiment.pair.inference.deviation.value, data.train.std(axis=0), rtol=1e-6)


def test_what_gaussian_latents_cannot_do_is_refused():
    for mistake, sentence in (
        (lambda: nvil.sbn(3, (2,), visibles="gaussian", lengths=(5,)), "are not those of documents"),
        (lambda: nvil.sbn(3, (2,), visibles="gaussian", deviation=np.zeros(3)), "`deviation` must hold positive numb"),
        (lambda: nvil.sbn(3, (2,), visibles="gaussian", deviation=np.ones(2)), "The deviation has shape"),
        (
            lambda: likelihood.exact(nvil.sbn(3, (2,), latents="gaussian"), np.ones((2, 3))),
            "The values of a Gaussian layer cannot be enumerated.",
        ),
    ):
        with pytest.raises(nvil.UsageError, match=sentence):
            mistake()
