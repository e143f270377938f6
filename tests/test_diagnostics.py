"""Diagnostics against enumeration and against hand-worked cases."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvil
from helpers import VISIBLE, nvil_with, random_cases, randomised, started
from nvil import diagnostics, exact, signals
from nvil.contracts import trained
from nvil.estimators.samples import sample_latents
from nvil.rows import as_rows

MAKES = {
    "factorial": (nvil.sbn, "factorial", (3,)),
    "autoregressive P and Q": (nvil.darn, "autoregressive", (3,)),
    "deep, autoregressive Q": (nvil.sbn, "autoregressive", (2, 2)),
    "deep, autoregressive P": (nvil.fdarn, "factorial", (2, 2)),
}


@pytest.mark.parametrize("kind", MAKES)
def test_kl_by_enumeration(kind, float64):
    """Exactly: what the estimates from one sample are on average, over all samples that Q could draw."""
    make, inference, hidden = MAKES[kind]
    pair = randomised(make(VISIBLE, hidden, inference=inference), seed=3)
    x = random_cases(1)

    @eqx.filter_jit
    def expectations(pair):
        latents = tuple(map(jnp.asarray, pair.inference.support()))
        states = len(latents[0])
        repeated = jnp.repeat(x, states, axis=0)
        weights = jnp.exp(exact.inference_log_prob(pair.inference, x, latents))[0]
        log_p, log_q = pair.model.log_prob(repeated, latents), pair.inference.log_prob(latents, repeated)
        one_by_one = jax.vmap(lambda x, h: diagnostics.layer_kl(pair, x[None], jax.tree.map(lambda v: v[None], h)))
        units = diagnostics.unit_kl_given(pair, repeated, latents)
        bound = exact.bound(pair, x, latents)[0]
        contexts = pair.inference.contexts(repeated, latents), (*latents[1:], latents[0][:, :0])
        desired = [
            [
                _divergence(*(_unit_mean(layer, h, context, j) for layer, context in ((q, below), (p, above))))
                for j in range(q.units)
            ]
            for q, p, h, below, above in zip(
                pair.inference.layers, pair.model.layers[1:], latents, *contexts, strict=True
            )
        ]
        return weights, log_p, log_q - log_p[:, 1:], one_by_one(repeated, latents), units, desired, bound

    weights, log_p, terms, layers, units, desired, bound = expectations(pair)
    terms, layers, reconstruction = weights @ terms, weights @ layers, weights @ log_p[:, 0]
    np.testing.assert_allclose(layers, terms, rtol=1e-10)
    np.testing.assert_allclose(reconstruction - jnp.sum(layers), bound, rtol=1e-10)  # they are what the bound pays
    np.testing.assert_allclose(jnp.sum(weights @ units[-1]), terms[-1], rtol=1e-10)
    assert terms[-1] > 0.1
    for got, own in zip(units, desired, strict=True):
        np.testing.assert_allclose(got, jnp.stack(own, axis=-1), rtol=1e-8)


def _divergence(q, p):
    return q * jnp.log(q / p) + (1 - q) * jnp.log((1 - q) / (1 - p))


def _unit_mean(layer, value, context, j):
    """P(v_j = 1 | v_1..j-1, context) from the layer's own log_prob, summed over all values of the units after j."""
    rest = jnp.asarray(nvil.layers.binary_vectors(layer.units - j - 1))

    def mass(bit):
        options = [value.at[:, j].set(bit).at[:, j + 1 :].set(state) for state in rest]
        return sum(jnp.exp(layer.log_prob(option, context)) for option in options)

    return mass(1.0) / (mass(0.0) + mass(1.0))


def test_unit_kl_is_of_one_sample_for_every_case(float64):
    pair = randomised(nvil.fdarn(VISIBLE, (3, 2)), seed=1)
    x, key = random_cases(5), jax.random.key(2)

    @eqx.filter_jit
    def both(pair):
        h = pair.inference.sample(key, x)
        return diagnostics.unit_kl(pair, x, key), diagnostics.unit_kl_given(pair, x, h)

    for got, each in zip(*both(pair), strict=True):
        np.testing.assert_allclose(got, each.mean(axis=0))
        assert np.all(got >= 0)


def test_kl_of_categories_by_enumeration(float64):
    """Of one layer the divergences of the variables add up to the layer's term in the bound, case by case."""
    pair = randomised(nvil.sbn(VISIBLE, (2,), latents="categorical", categories=3), seed=3)
    x, latents = random_cases(4), pair.inference.support()

    @eqx.filter_jit
    def found(pair):
        log_q = exact.inference_log_prob(pair.inference, x, latents)
        log_p = pair.model.layers[1].log_prob(jnp.asarray(latents[0]), jnp.zeros((9, 0)))
        return diagnostics.unit_kl_given(pair, x, pair.inference.sample(jax.random.key(0), x))[0], jnp.sum(
            jnp.exp(log_q) * (log_q - log_p), axis=1
        )

    units, terms = found(pair)
    assert units.shape == (4, 2)
    np.testing.assert_allclose(jnp.sum(units, axis=1), terms, rtol=1e-10)


class Fixed:
    """Networks whose log-probabilities are the first columns of the data: the signal is 1, 3 for the two cases."""

    def log_prob(self, first, second):
        x = first if first.shape[-1] == 2 else second
        return x[..., :1] if first is x else jnp.zeros((*x.shape[:-1], 1))

    def contexts(self, x, h):
        return (x[..., 1:],)


def test_signal_variance_of_a_case_worked_by_hand():
    """Signals 1 and 3; a baseline of 1 leaves 0 and 2; c = 0.8 * 2 + 0.2 * 1 = 1.8; v = 0.8 * 5 + 0.2 * 1 = 4.2."""
    x = jnp.array([[1.0, 0.0], [3.0, 0.0]])
    estimator = nvil_with(units=1)
    hidden = nvil.layers.Affine(jnp.zeros((1, 1)), jnp.zeros(1))
    output = nvil.layers.Affine(jnp.zeros((1, 1)), jnp.ones(1))
    params = nvil.Parameters(Fixed(), Fixed(), (((hidden, output),), None, None))
    state = (None, jnp.array([2.0]), jnp.array([5.0]))
    variances = estimator.signal_variances(jnp.zeros((1, 2, 1)), params, x, state)
    assert estimator.signal_names() == ("raw", "InputDependentBaseline", "RunningMean", "VarianceNormalisation")
    desired = [1, 1, 1, 1 / 4.2]  # a constant takes none of it away
    np.testing.assert_allclose([float(value[0]) for value in variances], desired, rtol=1e-6)


def test_signal_to_noise_of_a_case_worked_by_hand():
    """Draws (3, 1) and (1, 1): mean (2, 1), variance 2; |E g|^2 = 5 - 2 / 2 = 4, so the ratio is sqrt(4 / 2)."""
    assert diagnostics.signal_to_noise(5.0, (10 + 2) / 2, 2) == pytest.approx(2**0.5)
    assert diagnostics.signal_to_noise(0.1, 10.0, 2) == 0  # less than nothing is left
    assert diagnostics.signal_to_noise(4.0, 4.0, 8) is None  # no noise at all


@pytest.fixture(scope="module")
def state():
    rows = as_rows(np.random.default_rng(0).integers(0, 2, (50, VISIBLE))).on_device()
    learner = nvil.Learner(nvil_with(units=2), batch_size=4)
    pair = randomised(nvil.sbn(VISIBLE, (3, 2)), seed=0)
    return learner.init(pair, rows), rows, learner


def test_diagnostics_are_those_of_minibatches_one_by_one(state):
    """The compiled scan against plain loops over the same minibatches and draws."""
    state, rows, learner = state
    found = learner.diagnose(state, rows)
    assert found == learner.diagnose(state, rows)
    key = jax.random.fold_in(jax.random.fold_in(state.key, np.uint32(2**32 - 1)), state.step)
    estimator, pair = learner.estimator, state.params.pair

    @jax.jit
    def one(own):
        data_key, draw_key, latent_key = jax.random.split(own, 3)
        x = rows.minibatch(data_key, learner.batch_size)
        draws = sample_latents(draw_key, pair, x, 1)
        given, _, _ = estimator.gradients_from(draws, state.params, x, state.estimator)
        flat = [jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(trained(group))]) for group in given]
        h = pair.inference.sample(latent_key, x)
        units = [layer.mean(axis=0) for layer in diagnostics.unit_kl_given(pair, x, h)]
        variances = estimator.signal_variances(draws, state.params, x, state.estimator)
        return flat, variances, diagnostics.layer_kl(pair, x, h), units

    looks = [one(own) for own in jax.random.split(key, diagnostics.MINIBATCHES)]
    gradients, variances, terms, units = zip(*looks, strict=True)
    np.testing.assert_allclose(found.kl, np.mean(terms, axis=0), rtol=1e-5)
    shares = [np.mean(np.mean(layer, axis=0) > 0.01) for layer in zip(*units, strict=True)]
    np.testing.assert_allclose(found.units_in_use, shares)
    for got, each in zip(found.signal_variance.values(), zip(*variances, strict=True), strict=True):
        np.testing.assert_allclose(got, np.mean(each, axis=0), rtol=1e-5)
    for i, name in enumerate(("model", "inference", "baselines")):
        draws = np.stack([gradient[i] for gradient in gradients]).astype(float)
        variance = draws.var(axis=0, ddof=1).sum()
        square = max(0, (draws.mean(axis=0) ** 2).sum() - variance / len(draws))
        np.testing.assert_allclose(found.gradient_snr[name], (square / variance) ** 0.5, rtol=1e-4, atol=1e-4)


def test_a_unit_that_says_nothing_is_not_in_use(state):
    """Where Q's unit has the prior's logit whatever it sees, its divergence is zero."""
    state, rows, learner = state
    pair = nvil.sbn(VISIBLE, (4,))
    q, p = pair.inference.layers[0].logits, pair.model.layers[1].logits
    bias = jnp.array([0.3, -1.0, 2.0, 0.0])
    quiet = jnp.array([0.0, 0.0, 5.0, 5.0])
    object.__setattr__(q, "weights", jnp.ones_like(q.weights) * quiet)
    for logits in (q, p):
        object.__setattr__(logits, "bias", bias)
    assert learner.diagnose(learner.init(pair, rows), rows).units_in_use == [0.5]


def test_other_estimators_and_networks(state):
    state, rows, _ = state
    asleep = nvil.Learner(nvil.estimators.wake_sleep(), batch_size=4)
    found = asleep.diagnose(asleep.init(state.params.pair, rows), rows)
    assert found.signal_variance is None
    assert set(found.gradient_snr) == {"model", "inference"}
    assert len(found.kl) == 2
    assert not diagnostics.has_known_layers(nvil.Pair(Fixed(), Fixed()))
    assert nvil.estimators.reinforce().signal_names() == ("raw",)


def test_names_of_a_chain_stay_apart(float64):
    estimator = nvil.estimators.nvil(signals.running_mean(), signals.running_mean())
    assert estimator.signal_names() == ("raw", "RunningMean", "RunningMean 2")
    pair, x = randomised(nvil.sbn(VISIBLE, (2,)), seed=0), random_cases(3)
    params, state = started(estimator, pair, x)
    draws = sample_latents(jax.random.key(0), pair, x, 1)
    assert len(estimator.signal_variances(draws, params, x, state)) == 3
