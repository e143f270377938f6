"""Runs of what a user brings: a model, an estimator and a transformation of their own, in a folder that survives."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvil
from helpers import assert_trees_close, first, random_cases, random_pair, started
from nvil import exact
from nvil.rows import as_rows
from nvil.training import empty_tally, train_chunk

EXAMPLES = Path(__file__).parent.parent / "examples"
CASES = (np.random.default_rng(0).random((80, 9)) < np.linspace(0.1, 0.9, 9)).astype(np.uint8)


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mlp_decoder, own_estimator = example("mlp_decoder"), example("own_estimator")


def make_pair(latents=4):
    return mlp_decoder.make_pair(9, latents=latents, units=5, mean=CASES.mean(axis=0))


def make_run(folder, updates=40, pair=None, data=CASES, **more):
    settings = {"report_every": 10, "validation": 20, "image": (3, 3), **more}
    learner = settings.pop("learner", None) or nvil.Learner(batch_size=5)
    return nvil.Run.create(folder, make_pair() if pair is None else pair, data, learner, updates=updates, **settings)


def trained_run(folder, **more):
    run = make_run(folder, **more)
    assert [report.updates for report in run.fit()][-1] == run.plan.updates
    return run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "run"
    return trained_run(folder)


def bytes_of(folder):
    names = ("metrics.jsonl", "best.safetensors", "checkpoint/000000000040.safetensors")
    return {name: (Path(folder) / name).read_bytes() for name in names}


def test_the_same_call_goes_on_to_the_same_bits(finished, tmp_path):
    run = make_run(tmp_path / "run")
    reports = run.fit()
    assert next(reports).updates == 10
    reports.close()
    assert [report.updates for report in make_run(tmp_path / "run").fit()] == [20, 30, 40]
    assert bytes_of(tmp_path / "run") == bytes_of(finished.folder)
    assert list(make_run(tmp_path / "run").fit()) == []


KILLED = """
import sys
sys.path[:0] = [{tests!r}]
from test_own_run import make_run
for report in make_run({folder!r}).fit(checkpoint_seconds=0):
    print(report.updates, flush=True)
"""


def test_killed_it_goes_on_to_the_same_bits(finished, tmp_path):
    folder = tmp_path / "run"
    program = KILLED.format(tests=str(Path(__file__).parent), folder=str(folder))
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "10\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert [report.updates for report in make_run(folder).fit()][-1] == 40
    assert bytes_of(folder) == bytes_of(finished.folder)


def test_it_is_opened_with_the_code_that_built_it(finished):
    run = nvil.Run.open(finished.folder, make_pair())
    best = run.load_best()
    assert nvil.evaluate(best, CASES).bound > nvil.evaluate(make_pair(), CASES).bound
    assert nvil.sample(best, 3).x.shape == (3, 9)
    assert nvil.encode(best, CASES).shape == (80, 4)
    assert nvil.reconstruct(best, CASES).shape == (80, 9)
    assert run.metrics()["validation_bound"].shape == run.metrics()["validation_se"].shape == (4,)


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda run: run.load_best(), "build the pair there, and open the run with nvil.Run.open"),
        (lambda run: list(run.fit()), "call nvil.Run.create again as before"),
        (lambda run: run.dataset(), "data from Python, which is not kept"),
    ],
)
def test_without_that_code_it_says_so(finished, ask, sentence):
    with pytest.raises(nvil.UsageError, match=sentence):
        ask(nvil.Run.open(finished.folder))


@pytest.mark.parametrize(
    "command", [["evaluate"], ["sample"], ["sample", "--data", "x.npy"], ["resume"], ["encode", "--data", "x.npy"]]
)
def test_the_command_line_says_so_too(finished, command, capsys, monkeypatch, tmp_path):
    from nvil.cli import main

    monkeypatch.chdir(tmp_path)
    np.save("x.npy", CASES)
    folder = finished.folder
    if command[1:] and command[0] == "sample":  # for conditional models
        folder = Path("conditional")
        make_run(folder, pair=nvil.sbn(9, (2,), given=2)).write_config()
    with pytest.raises(SystemExit) as caught:
        main([command[0], str(folder), *command[1:]])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "trained from Python on a pair of its own" in error


def test_it_has_no_choices_for_another_run(finished, capsys):
    from nvil.cli import main

    with pytest.raises(SystemExit) as caught:
        main(["train", "--from", str(finished.folder)])
    assert caught.value.code == 2
    assert "has no choices to take" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            {"pair": make_pair(3)},
            "pair of another shape: the run has inference.up.bias 4 float32, the pair given has inference.up.bias 3",
        ),
        ({"data": 1 - CASES}, "is not what .* was trained on"),
        ({"learner": nvil.Learner(batch_size=6)}, "batch_size 5 -> 6"),
        ({"learner": nvil.Learner(nvil.estimators.reinforce(), batch_size=5)}, "another config .*estimator NVIL"),
        ({"seed": 1}, "seed 0 -> 1"),
        ({"updates": 30}, "asked for 40 updates already"),
        ({"image": (3, 4)}, "does not have 9 pixels"),
    ],
)
def test_anything_else_is_refused(finished, more, sentence):
    before = bytes_of(finished.folder)
    with pytest.raises(nvil.UsageError, match=sentence):
        make_run(finished.folder, **more)
    assert bytes_of(finished.folder) == before


def test_a_run_of_a_config_and_one_of_python_do_not_mix(finished, tmp_path):
    with pytest.raises(nvil.UsageError, match="made from Python"):
        nvil.Run.from_config(finished.folder, nvil.Config())


def test_the_page_shows_what_such_a_model_can_show(finished, tmp_path):
    path = nvil.report.write_report(make_run(finished.folder), tmp_path / "page.html", test=CASES)
    page = path.read_text()
    for shown in ("Decoder trained by NVIL", "Samples", "Reconstructions", "Best without latents", "Test bound"):
        assert shown in page
    for other in ("What the latents stand for", "Units in use"):  # which need our layers
        assert other not in page
    without_code = nvil.report.write_report(nvil.Run.open(finished.folder), tmp_path / "less.html").read_text()
    assert "only the code that made it can build again" in without_code
    assert "The bound of minibatches goes from" in without_code


class Uncentred(eqx.Module):
    """Q(h | x) that knows no mean of the data."""

    layer: nvil.layers.Layer

    def contexts(self, x, h):
        return (x,)

    def sample(self, key, x):
        return (self.layer.sample(key, x),)

    def log_prob(self, h, x):
        return self.layer.log_prob(h[0], x)[:, None]


@pytest.mark.parametrize(
    ("kind", "own_q", "shown", "not_shown"),
    first(
        1,
        [
            ("binary", True, "its probability of being on given", "Share of ones"),
            ("counts", False, "What sampled latents say", "its probability of being on given"),
            ("counts", True, "What sampled latents say", "its probability of being on given"),
            ("numbers", False, "Each row is a sample, each cell a variable.", "its probability of being on given"),
        ],
    ),
)
def test_the_page_knows_what_the_cases_are(kind, own_q, shown, not_shown, tmp_path):
    data = np.random.default_rng(0).normal(size=CASES.shape) if kind == "numbers" else CASES
    pair = {
        "counts": lambda: nvil.document_model(CASES, (2,)),
        "numbers": lambda: nvil.sbn(9, (2,), visibles="gaussian", mean=data.mean(0), deviation=data.std(0)),
        "binary": lambda: nvil.sbn(9, (2,)),
    }[kind]()
    pair = nvil.Pair(pair.model, Uncentred(pair.inference.layers[0])) if own_q else pair
    run = trained_run(tmp_path / "run", pair=pair, data=data, image=None, updates=1)
    assert (run.kind, nvil.Run.open(run.folder).kind) == (kind, kind)
    page = nvil.report.write_report(run, tmp_path / "page.html", test=data).read_text()
    assert shown in page
    assert not_shown not in page
    assert ("erplexity" in page) == (kind == "counts")


@pytest.mark.parametrize("name", first(1, ["clipped", "exact"]))
def test_an_estimator_and_a_transformation_of_ones_own(name, tmp_path):
    learner = own_estimator.learners()[name]
    pair = nvil.sbn(9, (3,), mean=CASES.mean(axis=0))
    run = make_run(tmp_path / "run", pair=pair, learner=learner)
    reports = run.fit()
    next(reports)
    reports.close()
    *_, report = make_run(tmp_path / "run", pair=pair, learner=learner).fit()
    whole = make_run(tmp_path / "whole", pair=pair, learner=learner)
    *_, _ = whole.fit()
    assert bytes_of(run.folder) == bytes_of(whole.folder)
    assert report.validation_bound > nvil.evaluate(pair, CASES).bound
    assert nvil.report.write_report(run, test=CASES).exists()


@pytest.mark.usefixtures("float64")
def test_the_example_estimator_has_no_bias_and_no_variance():
    pair, x = random_pair(2), random_cases(2)
    estimator = own_estimator.ExactGradient()
    params, state = started(estimator, pair, x)
    result = exact.gradient_moments(estimator, params, x, state)
    desired = eqx.filter_jit(exact.bound_gradient)(pair, x, pair.inference.support())
    assert_trees_close((result.mean.model, result.mean.inference), desired)
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(result.variance))


class TwoSamples(nvil.Estimator):
    """An estimator that climbs another objective: the importance-weighted bound of two samples."""

    def init(self, key, pair, x):
        return (), None

    def sample(self, key, pair, x):
        return ()

    def gradients_from(self, draws, params, x, state):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return zeros, None, nvil.Info(jnp.asarray(0.0))

    def objective(self, key, pair, x):
        draws = [nvil.contracts.bound_of_one_sample(each, pair, x) for each in jax.random.split(key)]
        return jax.nn.logsumexp(jnp.stack(draws), axis=0) - jnp.log(2.0)


def test_validation_is_of_the_objective_that_was_trained():
    pair = make_pair()
    bound, better = (nvil.Learner(each).validate(pair, CASES, samples=200) for each in (None, TwoSamples()))
    assert better.bound - bound.bound > 5 * (better.monte_carlo_se**2 + bound.monte_carlo_se**2) ** 0.5


def test_parameters_that_start_weakly_typed_compile_the_loop_once():
    """`jnp.full(4, -1.0)` is of a weak type; the loop gives it back as a strong one."""
    learner, rows = nvil.Learner(batch_size=5), as_rows(CASES).on_device()
    state = learner.init(make_pair(), rows)
    after, _ = train_chunk(learner, state, rows, 1, empty_tally(learner, state, rows))
    for before, now in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        assert before.aval == now.aval


def test_averaged_parameters_are_the_mean_of_the_last_share():
    """With all updates in the share and one in ten taken, the average is that of every tenth state."""
    learner, rows = nvil.Learner(batch_size=5, average=1.0), as_rows(CASES).on_device()
    state = learner.init(make_pair(), rows)
    seen = []
    for _ in range(4):
        state, _ = train_chunk(learner, state, rows, 10, empty_tally(learner, state, rows))
        seen.append(state.params.model.second.weights)
    np.testing.assert_allclose(learner.learned(state).model.second.weights, np.mean(seen, axis=0), rtol=1e-5)
    assert not np.array_equal(learner.learned(state).model.second.weights, seen[-1])
    np.testing.assert_array_equal(learner.learned(state).inference.center.value, CASES.mean(axis=0).astype(np.float32))


def test_the_average_of_few_updates_is_the_last():
    learner, rows = nvil.Learner(batch_size=5, average=0.1), as_rows(CASES).on_device()
    state = learner.init(make_pair(), rows)
    state, _ = train_chunk(learner, state, rows, 7, empty_tally(learner, state, rows))
    np.testing.assert_array_equal(learner.learned(state).model.second.weights, state.params.model.second.weights)
