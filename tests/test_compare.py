"""nvil compare: estimators on the same model, data, seed and time."""

import dataclasses
import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.sparse

import nvil
from helpers import random_cases, random_pair
from nvil import estimators, exact
from nvil.cli import main
from nvil.contracts import Parameters
from nvil.diagnostics import gradient_noise
from nvil.rows import as_rows
from nvil.runs import comparison
from nvil.runs.comparison import candidates
from nvil.runs.config import Config, estimators_own

SMALL = (
    "--hidden",
    "2",
    "--baseline-units",
    "2",
    "--batch-size",
    "20",
    "--validation",
    "20",
    "--seconds",
    "0.05",
    "--quiet",
)


def run(*words):
    main(["compare", *map(str, words)])


def test_estimators_are_compared_and_a_comparison_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nvil.diagnostics.FITTING", 3)
    monkeypatch.setattr("nvil.runs.comparison.SAMPLES", 5)
    monkeypatch.setattr("nvil.runs.comparison.LEAST_PROBE", 0.0)
    monkeypatch.setattr("nvil.runs.comparison.REPORTS", 3)
    these = (*SMALL, "--out", "both", "--estimators", "nvil", "vimco")
    run(*these)
    out = capsys.readouterr().out
    assert "page      both/comparison.html" in out
    found = json.loads(Path("both/comparison.json").read_text())
    assert (found["fixed_point"], found["seconds"], found["validation_cases"]) == ("nvil", 0.05, 20)
    nvil, vimco = found["estimators"]
    assert (nvil["samples"], nvil["batch_size"], vimco["samples"], vimco["batch_size"]) == (1, 20, 5, 4)
    for each in found["estimators"]:
        assert each["name"] in out
        curve = each["curve"]
        assert len(curve["updates"]) == len(curve["seconds"]) == len(curve["bound"]) >= 1
        assert curve["updates"][-1] == each["updates"]
        assert np.all(np.diff([0, *curve["seconds"]]) > 0)
        assert each["gradient"]["variance"]["inference"] > 0
    own, one_sample = (
        json.loads(Path("both/vimco", name).read_text().splitlines()[-1])[field]
        for name, field in (("metrics.jsonl", "validation_bound"), (comparison.ONE_SAMPLE, "bound"))
    )
    assert vimco["curve"]["bound"][-1] == one_sample != own  # which is of five
    page = Path("both/comparison.html").read_text()
    assert "2 estimators compared" in page
    assert "VIMCO" in page
    before = Path("both/nvil/metrics.jsonl").read_bytes()
    Path("both/comparison.json").unlink()
    run(*these)  # nothing is left to train
    assert json.loads(Path("both/comparison.json").read_text())["estimators"][0]["updates"] == nvil["updates"]
    assert Path("both/nvil/metrics.jsonl").read_bytes() == before
    with pytest.raises(SystemExit):
        run(*these, "--seconds", "3")
    assert "holds a comparison of 0.05 seconds each, not 3; choose another --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--updates", "5"), "in place of --updates"),
        (("--estimator", "rloo"), "Name the estimators to compare with --estimators, not --estimator"),
        (("--warm-up", "5"), "--warm-up is not for comparisons"),
        (("--minutes", "1"), "Give --seconds or --minutes, not both"),
        (("--seconds", "0"), "--seconds must be above 0, got 0"),
        (("--validation", "0"), "--validation must be at least 1, got 0"),
        (("--data", "-"), "compare on a file"),
        (("--estimators", "nvli"), "did you mean 'nvil'"),
        (("--estimators", "arm", "--inference", "autoregressive"), "ARM needs an inference network of factorial"),
    ],
)
def test_mistakes_get_one_sentence(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        run(*SMALL, *words)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_what_is_refused_is_not_in_the_help(capsys):
    with pytest.raises(SystemExit):
        run("--help")
    shown = capsys.readouterr().out
    assert "--estimators" in shown
    assert not re.search(r"--(updates|estimator|warm-up)\b", shown)


def test_all_that_apply_have_as_many_latents_in_an_update():
    dataset = Config().load_data()
    chosen, left_out = candidates(Config(batch_size=60, without=("baseline",)), dataset, ())
    assert not left_out
    sizes = {name: config.batch_size for name, config in chosen.items()}
    assert (sizes["nvil"], sizes["rloo"], sizes["vimco"], sizes["disarm"]) == (60, 15, 12, 20)  # 2 layers: 3 per pair
    assert (chosen["nvil"].without, chosen["rloo"].without) == (("baseline",), ())
    chosen, left_out = candidates(Config(inference="autoregressive"), dataset, ())
    factorial = {"arm", "disarm", "double-control-variates", "muprop", "rebar", "straight-through", "concrete"}
    assert set(left_out) == factorial
    assert "factorial Bernoulli layers" in left_out["arm"]


def test_nvil_has_its_samples_for_documents_counted():
    counts = scipy.sparse.csr_array(np.random.default_rng(0).poisson(0.5, (60, 30)))
    chosen, _ = candidates(Config(batch_size=60), nvil.data.load(counts, values="counts"), ("nvil", "vimco"))
    assert [each.batch_size for each in chosen.values()] == [30, 12]
    assert chosen["nvil"].resolved().samples == 2


def test_what_a_run_spells_out_for_its_estimator_is_not_for_others():
    every = {"samples", "baseline", "learning_rate", "inference_ratio"}
    config = Config(estimator="wake-sleep").resolved()
    assert estimators_own(config) == every
    assert estimators_own(dataclasses.replace(config, learning_rate=0.1)) == every - {"learning_rate"}


@pytest.mark.usefixtures("float64")
def test_the_noise_of_gradients_is_their_exact_variance():
    pair, x = random_pair(1), random_cases(1)
    estimator = estimators.reinforce(samples=2)
    rows = as_rows(np.repeat(x, 4, axis=0)).on_device()  # minibatches are all alike: the latents make all the noise
    found = gradient_noise(estimator, 1, pair, rows, minibatches=4000)
    moments = exact.gradient_moments(estimator, Parameters(*pair), x, ())
    for name in ("model", "inference"):
        variance = sum(float(np.sum(leaf)) for leaf in jax.tree.leaves(getattr(moments.variance, name)))
        square = sum(float(np.sum(leaf**2)) for leaf in jax.tree.leaves(getattr(moments.mean, name)))
        # The deviation of either estimate is below 5 % of it.
        np.testing.assert_allclose([found.variance[name], found.from_latents[name]], variance, rtol=0.2)
        np.testing.assert_allclose(found.signal_to_noise[name], (square / variance) ** 0.5, rtol=0.2)
