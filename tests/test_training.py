"""Training: the same bits whatever the chunks, learning that is real, and clear ends."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nvil
from helpers import assert_trees_close, first, nvil_with
from nvil import exact, optimisers
from nvil.rows import as_rows
from nvil.training import DivergedError, empty_tally, hold_out, train_chunk
from processes import plain_diagnose

DATA = (np.random.default_rng(0).random((300, 9)) < np.linspace(0.1, 0.9, 9)).astype(np.uint8)
LEARNER = nvil.Learner(nvil_with(units=7), optimisers.adam(), batch_size=8)
ROWS = as_rows(DATA).on_device()


@pytest.fixture(autouse=True)
def plain_diagnostics(monkeypatch):
    """Diagnostics are test_diagnostics'; that they too go on to the same bits is seen in test_own_run."""
    monkeypatch.setattr(nvil.Learner, "diagnose", plain_diagnose)


def small_pair(seed=0):
    return nvil.sbn(9, (5, 3), mean=DATA.mean(0), seed=seed)


def last(reports):
    *_, report = reports
    return report


def assert_same_bits(first, second):
    first, second = (jax.tree.leaves(eqx.filter(tree, eqx.is_array)) for tree in (first, second))
    assert len(first) == len(second) > 0
    for a, b in zip(first, second, strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    reports = [last(nvil.fit(small_pair(), DATA, updates=50, seed=seed)) for seed in (3, 3, 4)]
    assert_same_bits(reports[0].state, reports[1].state)
    weights = [report.state.params.model.layers[0].logits.weights for report in reports]
    assert not np.array_equal(weights[0], weights[2])


@pytest.mark.parametrize("sizes", [(60,), (1, 59), (59, 1), (7, 13, 40), (1,) * 60])
def test_a_chunk_boundary_changes_nothing(sizes):
    state = LEARNER.init(small_pair(), ROWS)
    tally = empty_tally(LEARNER, state, ROWS)
    whole, desired = train_chunk(LEARNER, state, ROWS, 60, tally)
    for size in sizes:
        state, last = train_chunk(LEARNER, state, ROWS, size, tally)
        tally = last.tally
    assert int(state.step) == int(tally.updates) == 60
    assert_same_bits(state, whole)
    assert_same_bits(last, desired)


def test_going_on_from_a_report_gives_the_same_bits():
    whole = last(nvil.fit(small_pair(), DATA, updates=90, report_every=40))
    halfway = last(nvil.fit(small_pair(), DATA, updates=50, report_every=40))
    resumed = list(nvil.fit(small_pair(), DATA, updates=90, report_every=40, resume=halfway))
    assert [report.updates for report in resumed] == [80, 90]
    assert_same_bits(resumed[-1].state, whole.state)
    assert_same_bits(resumed[-1].best.pair, whole.best.pair)


def test_the_compiled_loop_does_what_single_steps_do():
    state = LEARNER.init(small_pair(), ROWS)
    looped, chunk = train_chunk(LEARNER, state, ROWS, 5, empty_tally(LEARNER, state, ROWS))
    bounds = []
    step = eqx.filter_jit(lambda state: LEARNER.step(state, ROWS))
    for _ in range(5):
        state, info, gradients = step(state)
        bounds.append(float(info.bound))
    assert_trees_close(looped.params, state.params, 1e-5)
    np.testing.assert_allclose(chunk.info.bound, np.mean(bounds), rtol=1e-5)
    squares = [sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(group)) for group in gradients]
    np.testing.assert_allclose(chunk.gradient_norms, np.sqrt(squares), rtol=1e-4)


def test_a_step_does_not_recompile():
    state = LEARNER.init(small_pair(), ROWS)
    state, first = train_chunk(LEARNER, state, ROWS, 3, empty_tally(LEARNER, state, ROWS))
    with jax.log_compiles(False), _no_compilation():
        train_chunk(LEARNER, state, ROWS, 17, first.tally)


def _no_compilation():
    import contextlib

    @contextlib.contextmanager
    def watch():
        compiled = []
        listener = lambda name, *_, **__: compiled.append(name) if "backend_compile" in name else None  # noqa: E731
        jax.monitoring.register_event_duration_secs_listener(listener)
        try:
            yield
        finally:
            jax.monitoring.unregister_event_duration_listener(listener)
        assert not compiled

    return watch()


@pytest.mark.parametrize("optimiser", first(1, [(optimisers.adam(0.01),), (optimisers.sgd(0.01),)]))
def test_training_raises_the_exact_bound(optimiser):
    data = np.repeat([[1, 1, 0, 0], [0, 0, 1, 1]], 50, axis=0).astype(np.uint8)
    pair = nvil.sbn(4, (2,), mean=data.mean(0))
    learner = nvil.Learner(optimiser=optimiser, batch_size=20)
    report = last(nvil.fit(pair, data, learner, updates=3000, validation=20))
    latents, x = pair.inference.support(), jnp.asarray(data[[0, 99]], float)
    before, after = (
        jnp.mean(eqx.filter_jit(exact.bound)(one, x, tuple(map(jnp.float32, latents))))
        for one in (pair, report.best.pair)
    )
    assert before < -2.5  # four independent pixels: -4 log 2 = -2.77
    assert after > -1.0  # two patterns: -log 2 = -0.69 at best


@pytest.mark.parametrize("optimiser", [optimisers.sgd(0.1), optimisers.adam(0.1, inference_ratio=0.2)])
def test_the_inference_network_moves_at_its_own_rate(optimiser):
    """With equal gradients everywhere, groups move in the ratio of their rates, under Adam too."""
    params = nvil.Parameters({"w": jnp.zeros(2)}, {"w": jnp.zeros(2)}, {"w": jnp.zeros(2)})
    gradients = jax.tree.map(jnp.ones_like, params)
    updates, _ = optimiser.update(gradients, optimiser.init(params), params)
    np.testing.assert_allclose(updates.inference["w"], 0.2 * updates.model["w"], rtol=1e-6)
    np.testing.assert_allclose(updates.baselines["w"], updates.model["w"], rtol=1e-6)
    np.testing.assert_allclose(updates.model["w"], -0.1, rtol=1e-5)


@pytest.mark.parametrize("optimiser", [optimisers.adam(), optax.adamw(1e-2, weight_decay=0.1)])
def test_the_centre_does_not_move(optimiser):
    report = last(nvil.fit(small_pair(), DATA, nvil.Learner(optimiser=optimiser), updates=50))
    np.testing.assert_array_equal(report.state.params.inference.center.value, small_pair().inference.center.value)


def test_the_best_parameters_are_those_of_the_best_validation_bound():
    learner = nvil.Learner(optimiser=optimisers.adam(0.05), batch_size=20)
    reports = list(nvil.fit(small_pair(), DATA, learner, updates=400, report_every=20))
    bounds = [report.validation_bound for report in reports]
    assert any(after < before for before, after in itertools.pairwise(bounds))  # else this test shows nothing
    assert reports[-1].best.bound == max(bounds)
    assert reports[-1].best.step == reports[int(np.argmax(bounds))].updates
    assert_same_bits(reports[-1].best.pair, reports[int(np.argmax(bounds))].state.params.pair)


def test_without_validation_the_last_parameters_are_kept():
    report = last(nvil.fit(small_pair(), DATA, updates=30, report_every=10, validation=0))
    assert report.validation_bound is None
    assert_same_bits(report.best.pair, report.state.params.pair)


def test_validation_cases_are_held_out():
    data = np.arange(40).reshape(20, 2)
    train, valid = (rows.dense() for rows in hold_out(as_rows(data), 5, 1))
    assert len(train) == 15
    assert len(valid) == 5
    np.testing.assert_array_equal(np.sort(np.concatenate([train, valid])[:, 0]), data[:, 0])
    assert not np.array_equal(valid, hold_out(as_rows(data), 5, 2)[1].dense())


@pytest.mark.parametrize("optimiser", first(1, [(optimisers.adam(1e38),), (optimisers.sgd(1e38),)]))
def test_parameters_that_explode_stop_training_with_the_last_good_state(optimiser):
    reports, learner = [], nvil.Learner(optimiser=optimiser)
    with pytest.raises(DivergedError, match=r"by update \d+, before the first report") as caught:
        reports.extend(nvil.fit(small_pair(), DATA, learner, updates=100, report_every=50))
    assert not reports
    assert 1 <= caught.value.update <= 3
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(caught.value.checkpoint.state.params))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"updates": -1}, "updates"),
        ({"patience": 0}, "patience"),
        ({"validation": 300}, "300 validation cases of 300"),
        ({"report_every": 0}, "report_every"),
    ],
)
def test_impossible_settings_are_refused_before_any_report_is_asked_for(settings, message):
    with pytest.raises(nvil.UsageError, match=message):
        nvil.fit(small_pair(), DATA, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patience": 2, "validation": 0}, "no validation cases"),
        ({"seed": 2**40}, r"`seed` must be at least 0 and less than 2\^32"),
    ],
)
def test_impossible_settings_end_with_the_first_report(settings, message):
    with pytest.raises(nvil.UsageError, match=message):
        next(nvil.fit(small_pair(), DATA, **settings))


@pytest.mark.parametrize("make", [optimisers.sgd, optimisers.adam])
@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_rates_are_refused(make, rate):
    for settings in ({"learning_rate": rate}, {"inference_ratio": rate}, {"clip": rate}):
        with pytest.raises(nvil.UsageError, match="must be a positive number"):
            make(**settings)
    with pytest.raises(nvil.UsageError, match="learning_rate"):
        optimisers.schedule("cosine", rate, 10)
    for name in ("weight_decay", "within_decay"):
        with pytest.raises(nvil.UsageError, match=f"`{name}` must be at least 0"):
            make(**{name: rate or -0.1})


def test_equal_settings_are_the_same_optimiser():
    """Training with it then compiles once."""
    assert optimisers.adam() is optimisers.adam(3e-3) is optimisers.adam(learning_rate=3e-3)
    assert optimisers.sgd() is optimisers.sgd(3e-4, momentum=0.0)
    assert optimisers.adam(1e-3) is not optimisers.adam(1e-4)
    falling = optimisers.schedule("cosine", 1e-3, 10)
    assert falling is optimisers.schedule("cosine", learning_rate=1e-3, updates=10)
    assert optimisers.adam(falling) is optimisers.adam(falling)


def test_evaluation_agrees_with_the_exact_bound():
    pair = nvil.sbn(9, (3, 2), mean=DATA.mean(0))
    latents = tuple(map(jnp.float32, pair.inference.support()))
    desired = float(jnp.mean(eqx.filter_jit(exact.bound)(pair, jnp.asarray(DATA, float), latents)))
    result = nvil.evaluate(pair, DATA, samples=50)
    assert abs(result.bound - desired) < 5 * result.monte_carlo_se
    assert result.monte_carlo_se < result.bound_se
    assert (result.samples, result.cases) == (50, 300)


def test_evaluation_in_blocks_covers_every_case(monkeypatch):
    """The last, padded block counts each of its cases once."""
    from nvil import evaluation

    class Counter:
        def sample(self, key, x):
            return x[:, :1]

        def log_prob(self, h, x):
            return jnp.zeros((len(x), 1))

        def contexts(self, x, h):
            return (x,)

    class Identity:
        def log_prob(self, x, h):
            return x[:, :1]

    monkeypatch.setattr(evaluation, "BLOCK", 7)
    cases = np.arange(18.0, dtype=np.float32)[:, None]
    result = nvil.evaluate(nvil.Pair(Identity(), Counter()), cases, samples=2)
    assert result.bound == pytest.approx(np.mean(np.arange(18)))
    assert result.bound_se == pytest.approx(np.std(np.arange(18), ddof=1) / 18**0.5)
    assert result.monte_carlo_se == 0


def test_one_sample_has_a_standard_error_but_no_monte_carlo_part():
    result = nvil.evaluate(small_pair(), DATA, samples=1)
    assert result.bound_se > 0
    assert result.monte_carlo_se is None


@pytest.mark.parametrize(("cases", "samples"), [(DATA, 0), (DATA[:0], 1)])
def test_nothing_to_evaluate_is_refused(cases, samples):
    with pytest.raises(nvil.UsageError):
        nvil.evaluate(small_pair(), cases, samples=samples)


@pytest.mark.parametrize("kind", ["constant", "cosine", "linear"])
def test_schedules_go_from_the_rate_to_the_final_rate(kind):
    rate = optimisers.schedule(kind, 0.1, 100, final_rate=0.02)
    ends = [0.1, 0.1] if kind == "constant" else [0.1, 0.02]
    values = [rate(step) if callable(rate) else rate for step in (0, 100)]
    np.testing.assert_allclose(values, ends, rtol=1e-6)
    assert kind == "constant" or float(rate(50)) == pytest.approx(0.06)
    assert optimisers.schedule(kind, 0.1, 100, final_rate=0.02) is rate  # so that training compiles once


@pytest.mark.parametrize("make", [optimisers.sgd, optimisers.adam])
def test_a_schedule_scales_every_group(make):
    params = nvil.Parameters({"w": jnp.zeros(2)}, {"w": jnp.zeros(2)}, {"w": jnp.zeros(2)})
    gradients = jax.tree.map(jnp.ones_like, params)
    optimiser = make(optimisers.schedule("linear", 0.1, 4), inference_ratio=0.5)
    state, moved = optimiser.init(params), []
    for _ in range(5):
        updates, state = optimiser.update(gradients, state, params)
        moved.append([float(group["w"][0]) for group in updates])
    desired = -np.outer([0.1, 0.075, 0.05, 0.025, 0.0], [1, 0.5, 1])
    np.testing.assert_allclose(moved, desired, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("make", [optimisers.sgd, optimisers.adam])
def test_only_weights_decay_and_by_the_rate_of_their_group(make):
    params = nvil.Parameters(*({"weights": jnp.full((2, 2), 3.0), "bias": jnp.full(2, 3.0)} for _ in range(3)))
    zeros = jax.tree.map(jnp.zeros_like, params)
    optimiser = make(0.1, inference_ratio=0.5, weight_decay=0.01)
    updates, _ = optimiser.update(zeros, optimiser.init(params), params)
    for group, rate in zip(updates, (0.1, 0.05, 0.1), strict=True):
        np.testing.assert_allclose(group["weights"], -rate * 0.01 * 3, rtol=1e-6)
        np.testing.assert_array_equal(group["bias"], 0)


@pytest.mark.parametrize(("decay", "within"), [(0.01, 0.002), (0.01, 0.0), (0.0, 0.002), (0.01, None)])
def test_connections_within_layers_have_a_decay_of_their_own(decay, within):
    """In P and in Q of a real pair, where every other weight, and no bias, has the common one."""
    pair = nvil.fdarn(4, (3, 2), inference="autoregressive", mean=np.full(4, 0.5))
    params = jax.tree.map(jnp.ones_like, nvil.Parameters(*eqx.filter(pair, eqx.is_inexact_array), None))
    optimiser = optimisers.adam(0.1, weight_decay=decay, within_decay=within)
    updates, _ = optimiser.update(jax.tree.map(jnp.zeros_like, params), optimiser.init(params), params)
    within = decay if within is None else within
    layers = [*updates.model.layers, *updates.inference.layers]
    for layer in layers:
        np.testing.assert_allclose(layer.logits.weights, -0.1 * decay, rtol=1e-6)
        np.testing.assert_array_equal(layer.logits.bias, 0)
    connected = [layer.within for layer in layers if hasattr(layer, "within")]
    assert [array.shape[0] for array in connected] == [3, 2, 3, 2]
    for array in connected:
        np.testing.assert_allclose(array, -0.1 * within, rtol=1e-6)


def test_momentum_and_clipping_do_what_they_say():
    params = nvil.Parameters(jnp.zeros(1), jnp.zeros(1), jnp.zeros(1))
    gradients = nvil.Parameters(jnp.asarray([3.0]), jnp.zeros(1), jnp.asarray([4.0]))
    clipped = optimisers.sgd(1.0, clip=1.0)
    updates, _ = clipped.update(gradients, clipped.init(params), params)
    np.testing.assert_allclose([updates.model[0], updates.baselines[0]], [-0.6, -0.8], rtol=1e-6)  # the norm is 5
    heavy = optimisers.sgd(1.0, momentum=0.5)
    first, state = heavy.update(gradients, heavy.init(params), params)
    second, _ = heavy.update(gradients, state, params)
    np.testing.assert_allclose([first.model[0], second.model[0]], [-3.0, -4.5], rtol=1e-6)


def test_a_larger_epsilon_makes_the_steps_of_small_gradients_small():
    params = nvil.Parameters(jnp.zeros(2), jnp.zeros(2), jnp.zeros(2))
    gradients = jax.tree.map(lambda leaf: jnp.asarray([1e-3, 10.0]), params)
    for eps, desired in ((1e-8, [-0.1, -0.1]), (1e-2, [-0.1 / 11, -0.1 / 1.001])):
        optimiser = optimisers.adam(0.1, eps=eps)
        updates, _ = optimiser.update(gradients, optimiser.init(params), params)
        np.testing.assert_allclose(updates.model, desired, rtol=1e-4)


def test_adam_is_that_of_optax(float64):
    """With the corrections of both biases taken out of the pass over the parameters, to rounding."""
    key = jax.random.key(0)
    params = nvil.Parameters(*(jax.random.normal(jax.random.fold_in(key, i), (4, 3)) for i in range(3)))
    for b1, b2, eps in ((0.9, 0.999, 1e-8), (0.5, 0.9, 1e-2), (0.0, 0.99, 0.3)):
        ours, theirs = optimisers.adam(0.1, b1=b1, b2=b2, eps=eps), optax.adam(0.1, b1, b2, eps)
        state, desired_state = ours.init(params), theirs.init(params)
        for step in range(6):
            gradients = jax.tree.map(lambda leaf, step=step: jnp.sin(leaf * (step + 1)), params)
            updates, state = ours.update(gradients, state, params)
            with jax.numpy_dtype_promotion("standard"):
                desired, desired_state = theirs.update(gradients, desired_state, params)
            assert_trees_close(updates, desired, 1e-12)


def test_patience_ends_training_after_so_many_reports_without_a_better_bound():
    learner = nvil.Learner(optimiser=optimisers.adam(0.1), batch_size=20)
    settings = {"updates": 4000, "report_every": 10, "seed": 1}
    reports = list(nvil.fit(small_pair(), DATA, learner, patience=3, **settings))
    assert reports[-1].updates < 4000
    assert reports[-1].updates - reports[-1].best.step == 30
    assert all(report.updates - report.best.step < 30 for report in reports[:-1])
    assert not list(nvil.fit(small_pair(), DATA, learner, patience=3, resume=reports[-1], **settings))


def test_going_on_with_another_seed_is_refused():
    report = last(nvil.fit(small_pair(), DATA, updates=20, seed=3))
    with pytest.raises(nvil.UsageError, match="began with another seed than 4"):
        next(nvil.fit(small_pair(), DATA, updates=40, seed=4, resume=report))


def test_the_default_validation_set_is_a_share_with_a_floor_and_a_cap():
    from nvil.learning import default_validation

    assert [default_validation(n) for n in (4, 60, 1500, 10_000, 60_000)] == [0, 12, 100, 500, 1000]
    report = last(nvil.fit(small_pair(), DATA, updates=10))
    assert report.validation_se > 0


def test_what_is_not_a_learner_is_refused():
    with pytest.raises(nvil.UsageError, match="'nvil' is not an estimator; take one of"):
        nvil.Learner("nvil")
    with pytest.raises(nvil.UsageError, match="is not an optimiser"):
        nvil.Learner(optimiser=0.1)
    with pytest.raises(nvil.UsageError, match="`batch_size` must be at least 1, got 0"):
        nvil.Learner(batch_size=0)


def test_a_run_stopped_in_the_midst_of_a_warm_up_goes_on_to_the_same_bits():
    x = (np.random.default_rng(0).random((60, 6)) < 0.4).astype(np.uint8)
    pair = nvil.sbn(6, (3, 2), mean=x.mean(0))
    learner = nvil.Learner(nvil.estimators.rloo(samples=2, warm_up=5), batch_size=4)
    how = {"report_every": 3, "validation": 10}
    *_, whole = nvil.fit(pair, x, learner, updates=9, **how)
    *_, first = nvil.fit(pair, x, learner, updates=3, **how)
    assert int(first.state.estimator.updates) == 3
    *_, second = nvil.fit(pair, x, learner, updates=9, resume=first, **how)
    for ours, theirs in zip(jax.tree.leaves(whole.state.params), jax.tree.leaves(second.state.params), strict=True):
        np.testing.assert_array_equal(ours, theirs)
