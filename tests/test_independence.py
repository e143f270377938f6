"""What must be drawn apart is drawn apart, what must not be seen is not seen, and the paper's numbers are the paper's.

The exact tests put every draw in the place of `sample`, so they cannot see how it draws. Tests that count draws do so
with a fixed seed; what is right would fail them for at most one seed in a billion (`ALARM`), unless they say otherwise.
"""

import inspect
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvil
from nvil import estimators, evaluation, layers, optimisers, signals, training
from nvil.contracts import Estimator, Info
from nvil.evaluation import Evaluation
from nvil.random import seeded_key, uniform
from nvil.reproduce import results
from nvil.rows import DenseRows, as_rows
from nvil.runs import Config

ALARM = 1e-9
"""The probability of a false alarm in a test that counts draws."""
UNITS = 300


def assert_fair_and_independent(bits):
    """Rows of fair bits, each independent of each.

    Then every row is on in, and every two rows agree in, a number of places that is Binomial(n, 1/2). By Hoeffding's
    inequality it is further than t from n/2 with a probability of at most 2 exp(-2 t^2 / n).
    """
    bits = np.asarray(bits, float)
    count, n = bits.shape
    looks = count * (count + 1) / 2
    far = math.sqrt(n * math.log(2 * looks / ALARM) / 2)
    assert far < n / 4, "too few bits to tell anything"
    signs = 2 * bits - 1
    agreements = (signs @ signs.T + n) / 2
    assert np.max(np.abs(agreements - n / 2)[~np.eye(count, dtype=bool)], initial=0) < far
    assert np.max(np.abs(bits.sum(axis=1) - n / 2)) < far


def fair_pair():
    """All parameters are zero: every unit of P and of Q is a fair bit, whatever the others are."""
    pair = nvil.sbn(UNITS, (UNITS, UNITS))
    return jax.tree.map(jnp.zeros_like, pair)


def as_rows_of_bits(*draws):
    return np.concatenate([np.asarray(each).reshape(-1, UNITS) for each in jax.tree.leaves(draws)])


def test_every_sample_case_and_layer_of_q_is_drawn_apart():
    x = jnp.zeros((4, UNITS))
    draw = jax.jit(lambda key: estimators.nvil(samples=3).sample(key, fair_pair(), x))
    bits = as_rows_of_bits(draw(jax.random.key(1)), draw(jax.random.key(2)))
    assert bits.shape == (2 * 2 * 3 * 4, UNITS)
    assert_fair_and_independent(bits)


def test_every_dream_and_layer_of_p_is_drawn_apart_and_from_the_wake_phase():
    x = jnp.zeros((4, UNITS))
    draw = jax.jit(lambda key: estimators.wake_sleep(samples=2).sample(key, fair_pair(), x))
    bits = as_rows_of_bits(draw(jax.random.key(1)))
    assert bits.shape == (2 * 2 * 4 + 3 * 4, UNITS)  # two layers of Q, three of P
    assert_fair_and_independent(bits)


def test_samples_of_a_model_are_drawn_apart():
    found = nvil.sample(fair_pair(), 6, means=False)
    assert_fair_and_independent(as_rows_of_bits(found.x, found.h))


def test_words_of_documents_are_drawn_apart():
    """Documents of 300 words out of two: as a coin's tosses, so counts too are Binomial(300, 1/2), one by one."""
    layer = layers.Multinomial(layers.Affine(jnp.zeros((0, 2)), jnp.zeros(2)), units=2, lengths=(300,))
    counts = np.asarray(jax.jit(lambda key: layer.sample(key, jnp.zeros((200, 0))))(jax.random.key(0)))
    np.testing.assert_array_equal(counts.sum(axis=1), 300)
    assert np.max(np.abs(counts[:, 0] - 150)) < math.sqrt(300 * math.log(2 * 200 / ALARM) / 2)
    assert 30 < np.var(counts[:, 0]) < 120  # 75 is right, and six deviations of the estimate are 45


# --- keys ---


class KeyRows(DenseRows):
    """Its minibatch is the key that it was drawn with."""

    def minibatch(self, key, size, step=0):
        return jax.random.key_data(key)


class KeyEstimator(Estimator):
    """Its state is the minibatch and the key that it last got; it moves nothing."""

    def init(self, key, pair, x):
        return (), (x, jax.random.key_data(key))

    def sample(self, key, pair, x):
        return jax.random.key_data(key)

    def gradients_from(self, draws, params, x, state):
        return jax.tree.map(jnp.zeros_like, params), (x, draws), Info(jnp.zeros(()))


def test_minibatches_and_draws_have_keys_of_their_own(monkeypatch):
    """In every update, in the beginning, and for other seeds; nor is one made of another by splitting it once."""
    monkeypatch.setattr("nvil.learning.check_pair", lambda pair, x: None)  # keys are no data for a pair
    learner = nvil.Learner(KeyEstimator(), optimisers.sgd(), batch_size=1)
    rows = KeyRows(jnp.zeros((3, 1)))
    step = eqx.filter_jit(lambda state: learner.step(state, rows)[0])
    keys = []
    for seed in (0, 1):
        state = learner.init(nvil.sbn(1, (1,)), rows, seed=seed)
        keys += state.estimator
        for _ in range(3):
            state = step(state)
            keys += state.estimator
    parents = jax.random.wrap_key_data(jnp.stack(keys))
    children = jax.vmap(lambda key: jax.random.split(key, 4))(parents).ravel()
    family = np.concatenate([jax.random.key_data(each) for each in (parents, children)])
    assert len(np.unique(family, axis=0)) == len(family) == 5 * 2 * 2 * 4


class Asked(DenseRows):
    """Keeps what it was last asked for."""

    last = ()

    def take(self, rows, key):
        Asked.last = rows, key
        return super().take(rows, key)


def test_grey_levels_are_not_binarized_by_the_key_that_chose_the_rows():
    Asked(jnp.zeros((1000, 1))).minibatch(jax.random.key(0), 50)
    rows, key = Asked.last
    assert not np.array_equal(rows, jax.random.randint(key, (50,), 0, 1000))


# --- minibatches ---


def test_a_minibatch_draws_every_case_as_often_and_next_to_every_other():
    """Each of 25 pairs of neighbours is as likely: drawn with replacement, the last case too, and in no order."""
    cases, size = 5, 40_000
    values = np.arange(cases)[:, None]
    drawn = np.asarray(as_rows(values).on_device().minibatch(jax.random.key(0), size), int)[:, 0]
    pairs = drawn[0::2] * cases + drawn[1::2]
    counts = np.bincount(pairs, minlength=cases**2)
    far = math.sqrt(len(pairs) * math.log(2 * cases**2 / ALARM) / 2)
    assert far < len(pairs) / cases**2
    assert np.max(np.abs(counts - len(pairs) / cases**2)) < far


@pytest.mark.parametrize("cases", [1, 2, 7])
def test_a_minibatch_reaches_the_first_and_the_last_case(cases):
    """One of 7 cases is missing in 400 draws with a probability of 7 (6/7)^400 = 1e-26."""
    drawn = as_rows(np.arange(cases)[:, None]).on_device().minibatch(jax.random.key(1), 400)
    assert {*np.asarray(drawn)[:, 0].tolist()} == {*map(float, range(cases))}


# --- evaluation ---


def one_number(key, pair, x):
    """In the place of a bound: what the key gives."""
    return uniform(key, (len(x),))


def test_every_block_case_and_sample_of_an_evaluation_is_drawn_apart(monkeypatch):
    """No two of 26 numbers out of 2^23 are the same; by chance some would be in 4e-5 of all seeds."""
    monkeypatch.setattr(evaluation, "BLOCK", 5)
    x = np.zeros((13, 2), np.uint8)
    pair = nvil.sbn(2, (1,))
    (first, _), (both, variances), (other, _) = (
        evaluation.case_bounds(pair, x, samples=samples, seed=seed, objective=one_number)
        for samples, seed in ((1, 0), (2, 0), (1, 1))
    )
    assert len(np.unique([first, other])) == 2 * len(x)
    assert np.all(variances > 0)
    second = 2 * both - first  # what the second sample was
    np.testing.assert_allclose(variances, (first - second) ** 2 / 2, rtol=1e-4, atol=1e-6)
    assert len(np.unique(np.round([first, second], 5))) == 2 * len(x)


class Still(Estimator):
    """Moves nothing, and costs next to nothing to compile."""

    def init(self, key, pair, x):
        return (), None

    def sample(self, key, pair, x):
        return None

    def gradients_from(self, draws, params, x, state):
        return jax.tree.map(jnp.zeros_like, params), None, Info(jnp.zeros(()))


LOOKS = []


class Watched(nvil.Learner):
    """Notes what it is asked to validate on."""

    def validate(self, pair, x, *, samples=10, seed=0):
        LOOKS.append((x.dense(), samples, seed))
        return Evaluation(0.0, 0.0, 0.0, samples, x.shape[0])

    def diagnose(self, state, rows):
        return None


@pytest.mark.parametrize("how", ["fit", "run"])
def test_validation_never_sees_a_training_case_nor_training_a_validation_case(how, monkeypatch, tmp_path):
    trained_on = []

    def noted(learner, state, rows, updates, tally):
        trained_on.append(rows.dense())
        return chunk(learner, state, rows, updates, tally)

    chunk = training.train_chunk
    monkeypatch.setattr(training, "train_chunk", noted)
    LOOKS.clear()
    data = np.arange(40.0).reshape(20, 2)
    learner, pair = Watched(Still(), optimisers.sgd(), batch_size=4), nvil.sbn(2, (1,), lengths=[3])
    settings = {"updates": 3, "report_every": 1, "validation": 6}
    if how == "fit":
        list(nvil.fit(pair, data, learner, **settings))
    else:
        list(nvil.Run.create(tmp_path / "run", pair, data, learner, **settings).fit())
    assert len(trained_on) >= 3
    assert [look[1:] for look in LOOKS] == [(10, 1), (10, 2), (10, 3)]  # ten samples, and others at every report
    for seen in trained_on:
        for held_out, *_ in LOOKS:
            assert held_out.shape == (6, 2)
            np.testing.assert_array_equal(np.sort(np.concatenate([seen, held_out]), axis=0), data)


class Counting(Still):
    """The bound of update t is t, from 0 on."""

    def init(self, key, pair, x):
        return (), jnp.zeros(())

    def gradients_from(self, draws, params, x, state):
        return jax.tree.map(jnp.zeros_like, params), state + 1, Info(state)


def test_a_report_averages_over_its_own_updates_alone():
    learner = Watched(Counting(), optimisers.sgd(), batch_size=4)
    reports = nvil.fit(nvil.sbn(2, (1,)), np.zeros((20, 2)), learner, updates=7, report_every=3, validation=6)
    assert [report.bound for report in reports] == [1, 4, 6]


# --- where weights start ---


@pytest.mark.parametrize(("inputs", "outputs"), [(100, 100), (30, 400)])
def test_weights_start_uniform_within_glorot_s_limit(inputs, outputs):
    """All of 10,000 weights are within the outer 1% of the limit with a probability of 0.99^10000 = 1e-44; a quarter of
    them is in every quarter of the range, as Hoeffding's inequality has it."""
    weights = np.asarray(layers.affine(jax.random.key(0), inputs, outputs).weights)
    limit = math.sqrt(6 / (inputs + outputs))
    assert 0.99 * limit < np.max(np.abs(weights)) <= limit
    counts, _ = np.histogram(weights, bins=4, range=(-limit, limit))
    far = math.sqrt(weights.size * math.log(2 * 4 / ALARM) / 2)
    assert np.max(np.abs(counts - weights.size / 4)) < far < weights.size / 20


def test_every_layer_starts_with_weights_of_its_own():
    pair = nvil.sbn(20, (20, 20))
    drawn = [layer.logits.weights for layer in (*pair.model.layers[:-1], *pair.inference.layers)]
    drawn += [nvil.sbn(20, (20,), seed=1).model.layers[0].logits.weights]
    drawn = np.stack(drawn).reshape(5, -1)
    assert len(np.unique(drawn[:, 0])) == 5
    # Correlations of 400 independent pairs have a deviation of 1/20: 0.4 is eight of them, for ten correlations.
    assert np.max(np.abs(np.corrcoef(drawn) - np.eye(5))) < 0.4


def test_baselines_of_different_layers_start_apart():
    contexts = (jnp.zeros((2, 9)), jnp.zeros((1, 2, 9)))
    (first, _), (second, _) = signals.input_dependent_baseline().init(
        seeded_key(0, "test"), jnp.zeros((1, 2, 2)), contexts
    )[0]
    assert not np.array_equal(first.weights, second.weights)


# --- the paper's numbers (Sections 2.3.1, 4.1 and Algorithm 1) ---


def default(function, name):
    return inspect.signature(function).parameters[name].default


def test_the_paper_s_constants_are_the_defaults():
    baseline, mean, variance = estimators.nvil().transformation.transformations
    assert (baseline.units, mean.decay, variance.decay) == (100, 0.8, 0.8)
    assert (mean.order, variance.order) == ("paper", "paper")
    assert (default(optimisers.sgd, "learning_rate"), default(optimisers.sgd, "inference_ratio")) == (3e-4, 0.2)
    assert default(optimisers.sgd, "momentum") == 0
    for function in (nvil.evaluate, nvil.Learner.validate, evaluation.case_bounds, evaluation.evaluate_documents):
        assert default(function, "samples") == 10
    for function in (nvil.fit, training.chunks):
        assert default(function, "validation_samples") == 10
    assert results.SAMPLES == 10
    for estimator in (estimators.nvil(), estimators.reinforce(), estimators.wake_sleep()):
        assert estimator.samples == 1


def test_the_baseline_has_as_many_units_as_it_says():
    ((hidden, output),) = signals.input_dependent_baseline(units=13).init(
        jax.random.key(0), jnp.zeros((1, 2, 1)), (jnp.zeros((2, 5)),)
    )[0]
    assert (hidden.weights.shape, output.weights.shape) == ((5, 13), (13, 1))


@pytest.mark.parametrize(
    ("choices", "rates"),
    [
        ({"optimiser": "sgd"}, (3e-4, 0.2)),
        ({"optimiser": "sgd", "estimator": "wake-sleep"}, (1e-4, 0.2)),
        ({"optimiser": "adam"}, (3e-3, 1.0)),
        ({"optimiser": "adam", "estimator": "wake-sleep"}, (1e-3, 1.0)),
    ],
)
def test_the_command_line_s_rates(choices, rates):
    config = Config(**choices).resolved()
    assert (config.learning_rate, config.inference_ratio) == pytest.approx(rates)
    assert (config.baseline_units, config.decay, config.samples) == (100, 0.8, 1)
