"""The command line as people use it: in a folder of their own, with their own mistakes."""

import ast
import dataclasses
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import nvil
import nvil.report
from helpers import first
from nvil.cli import groups, hints, main
from nvil.data import load
from nvil.runs import Config, Run
from processes import plain_diagnose, plain_page

DIAGNOSE = nvil.Learner.diagnose
TINY = ("--hidden", "6", "4", "--updates", "40", "--report-every", "20", "--validation", "20")


@pytest.fixture(autouse=True, scope="module")
def plain_reports():
    """Pages are test_report's, diagnostics test_diagnostics': they would take most of the time of most tests here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvil.report, "write_report", plain_page)
        patch.setattr(nvil.Learner, "diagnose", plain_diagnose)
        yield


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small run on the digits."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    main(["train", *TINY, "--out", str(folder), "--quiet"])
    return folder


def run(*arguments):
    main([str(argument) for argument in arguments])


def refused(capsys, *arguments, code=2):
    """The one sentence with which a command ends badly."""
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    captured = capsys.readouterr()
    assert caught.value.code == code
    assert captured.out == ""
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("nvil: ")
    return lines[0]


def left_behind():
    return sorted(str(path) for path in Path().rglob("*"))


def test_train_ends_with_a_bound_a_picture_and_the_next_command(capsys):
    """Away from a terminal progress is plain lines on standard error, and results are alone on standard output."""
    command = [sys.executable, "-m", "nvil", "train", *TINY, "--out", "run"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    out, err = done.stdout, done.stderr
    labels = [line.split("  ")[0] for line in out.splitlines()]
    assert labels == ["without latents", "test bound", "no better than", "samples", "report", "next"]
    digits = load("digits")
    means = nvil.data.independent_bound(digits.train, digits.test)
    assert f"independent variables at their training means ({means:.2f}): the latents are of no use yet" in out
    assert "try more --updates, a --learning-rate below 0.003, or fewer --hidden units" in out
    assert "without latents         -25.20" in out
    assert "samples               run/samples.png" in out
    assert "report                run/report.html" in out
    assert "nvil evaluate run --samples 100" in out
    assert "digits: 1480 training, 20 validation and 297 test cases of 64 binary units" in err
    assert "x 64 <- h1 6 <- h2 4" in err
    assert "update 20  bound -" in err
    assert "\x1b" not in out + err
    names = {path.name for path in Path("run").iterdir()}
    assert names == {
        "config.toml", "metrics.jsonl", "timing.jsonl", "checkpoint", "best.safetensors", "samples.png", "report.html"
    }  # fmt: skip
    metrics = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [line["updates"] for line in metrics] == [20, 40]
    assert list(metrics[0]) == [
        "updates", "bound", "validation_bound", "validation_se", "best_bound", "signal", "gradient_norms", "diagnostics"
    ]  # fmt: skip
    power = metrics[0]["diagnostics"]["signal_variance"]
    assert list(power) == ["raw", "InputDependentBaseline", "RunningMean", "VarianceNormalisation"]
    # the next command works as printed
    run("evaluate", "run", "--samples", "100")
    assert "100 samples each" in capsys.readouterr().out


def test_the_same_folder_resumes_to_the_same_bits(trained, capsys):
    shorter = [*TINY]
    shorter[4] = "20"
    run("train", *shorter, "--out", "run", "--quiet")
    shutil.copytree("run", "other")
    shutil.copytree("run", "stopped")  # as if it had been asked for all of them, and stopped halfway
    config = Path("stopped/config.toml")
    config.write_text(config.read_text().replace("updates = 20", "updates = 40"))
    run("train", *TINY, "--out", "run", "--quiet")
    capsys.readouterr()
    run("resume", "other", "--updates", "40")
    out, err = capsys.readouterr()
    assert "test bound" in out
    assert "nvil evaluate other" in out
    assert "update 40  bound -" in err
    run("resume", "stopped", "--quiet")
    assert capsys.readouterr().err == ""
    for folder in ("run", "other", "stopped"):
        assert Path(folder, "metrics.jsonl").read_bytes() == (trained / "metrics.jsonl").read_bytes()
        for name in ("best.safetensors", "checkpoint/000000000040.safetensors"):
            assert Path(folder, name).read_bytes() == (trained / name).read_bytes()
    assert tomllib.loads(Path("other/config.toml").read_text())["updates"] == 40


def test_a_finished_run_is_only_shown_again(trained, capsys):
    before = (trained / "metrics.jsonl").read_bytes()
    run("train", *TINY, "--out", trained)
    assert "test bound" in capsys.readouterr().out
    assert (trained / "metrics.jsonl").read_bytes() == before


def test_resume_of_a_finished_run_only_shows_it_again(trained, capsys):
    shutil.copytree(trained, "copy")
    before = {path: path.read_bytes() for path in Path("copy").rglob("*.*") if path.name != "timing.jsonl"}
    run("resume", "copy", "--quiet")
    assert capsys.readouterr().err == ""
    assert {path: path.read_bytes() for path in before} == before
    assert "can only grow" in refused_after(capsys, "resume", "copy", "--updates", "30")
    assert "--updates must be at least 1, got 0." in refused_after(capsys, "resume", "copy", "--updates", "0")
    assert "There is no run nowhere" in refused_after(capsys, "resume", "nowhere")


def test_another_config_on_the_same_folder_is_refused(trained, capsys):
    assert "seed 0 -> 5" in refused(capsys, "train", *TINY, "--seed", "5", "--out", trained)
    fewer = [*TINY]
    fewer[4] = "30"
    assert "can only grow" in refused(capsys, "train", *fewer, "--out", trained)


def test_evaluate_json(trained, capsys):
    run("evaluate", trained, "--json")
    result = json.loads(capsys.readouterr().out)
    assert {"bound", "bound_se", "samples", "cases", "split"} <= result.keys()
    assert (result["samples"], result["cases"], result["split"], result["estimate"]) == (10, 297, "test", "bound")
    assert -64 * np.log(2) - 5 < result["bound"] < -10
    run("evaluate", trained, "--json", "--split", "train", "--samples", "1")
    held_out = Run.open(trained).config.validation
    assert json.loads(capsys.readouterr().out)["cases"] == 1500 - held_out


def test_the_validation_split_gives_the_figure_of_training_again(trained, capsys):
    opened = Run.open(trained)
    assert [type(opened.split(name)) for name in ("train", "validation", "test")] == [np.ndarray] * 3
    best = opened.best_update()
    run("evaluate", trained, "--json", "--split", "validation", "--seed", str(best))
    found = json.loads(capsys.readouterr().out)
    assert found["cases"] == opened.config.validation
    metrics = opened.metrics()
    assert found["bound"] == metrics["validation_bound"][list(metrics["updates"]).index(best)]
    run("train", "--from", trained, "--validation", "0", "--updates", "1", "--out", "without")
    capsys.readouterr()
    assert refused(capsys, "evaluate", "without", "--split", "validation") == (
        "nvil: without was trained without validation cases; choose another --split."
    )


def test_evaluate_says_which_estimate_a_number_is(trained, capsys):
    run("evaluate", trained, "--estimate", "importance", "--samples", "30")
    out = capsys.readouterr().out
    assert "test log-likelihood -" in out
    assert "nats per case (importance-weighted estimate), standard error" in out
    assert "297 cases, 30 samples each; effective sample size" in out
    run("evaluate", trained, "--estimate", "importance", "--samples", "30", "--json")
    result = json.loads(capsys.readouterr().out)
    assert (result["estimate"], result["samples"], result["cases"]) == ("importance", 30, 297)
    assert 1 <= result["least_effective_samples"] <= result["effective_samples"] <= 30
    run("evaluate", trained, "--json")
    assert json.loads(capsys.readouterr().out)["bound"] < result["log_likelihood"]
    assert "--samples is not for --estimate exact" in refused(
        capsys, "evaluate", trained, "--estimate", "exact", "--samples", "3"
    )


def test_evaluate_by_annealing(trained, capsys, monkeypatch):
    few = ("--estimate", "ais", "--samples", "2", "--temperatures", "5")
    run("evaluate", trained, *few, "--cases", "20")
    out = capsys.readouterr().out
    assert "test log-likelihood -" in out
    assert "nats per case (annealed importance sampling, a lower bound in expectation), standard error" in out
    assert "20 cases, 2 chains of 5 temperatures each; effective sample size" in out
    run("evaluate", trained, *few, "--cases", "20", "--json")
    result = json.loads(capsys.readouterr().out)
    assert (result["estimate"], result["kind"], result["cases"]) == ("ais", "lower bound in expectation", 20)
    with monkeypatch.context() as patch:
        patch.setattr(nvil, "sample", None)  # a sandwich draws its own cases
        run("evaluate", trained, *few, "--simulated", "20")
    out = capsys.readouterr().out
    assert "between two bounds in expectation" in out
    assert "20 cases of the model's own, 2 chains of 5 temperatures each way" in out
    run("evaluate", trained, *few, "--simulated", "20", "--json")
    result = json.loads(capsys.readouterr().out)
    assert (result["kind"], result["split"]) == ("sandwich", "simulated")
    assert result["gap"] == pytest.approx(result["upper"]["log_likelihood"] - result["lower"]["log_likelihood"])
    run("evaluate", trained, "--simulated", "20", "--estimate", "exact", "--json")
    exactly = json.loads(capsys.readouterr().out)["log_likelihood"]  # of the same cases
    assert result["lower"]["log_likelihood"] - 1 < exactly < result["upper"]["log_likelihood"] + 1
    for words, said in (
        (("--temperatures", "5"), "--temperatures are for --estimate ais"),
        (("--estimate", "ais", "--temperatures", "1"), "--temperatures must be at least 2, got 1"),
        (("--simulated", "0"), "--simulated must be at least 1, got 0"),
        (("--simulated", "3", "--cases", "3"), "leave --data and --cases out"),
        (("--simulated", "3", "--split", "train"), "--split is of the run's own data; leave it out"),
        (("--data", "x.npy", "--split", "test"), "--split is of the run's own data; leave it out"),
    ):
        assert said in refused(capsys, "evaluate", trained, *words)


def test_sample_pictures_and_arrays(trained, capsys):
    run("sample", trained, "--count", "7", "--out", "some.png")
    assert Path("some.png").read_bytes()[:4] == b"\x89PNG"
    run("sample", trained, "--count", "7", "--out", "some.npz")
    with np.load("some.npz", allow_pickle=False) as arrays:
        assert {name: array.shape for name, array in arrays.items()} == {
            "x": (7, 64), "mean": (7, 64), "h1": (7, 6), "h2": (7, 4)
        }  # fmt: skip
        assert set(np.unique(arrays["x"])) <= {0, 1}
    assert capsys.readouterr().out == "some.png\nsome.npz\n"


def test_a_page_opens_in_the_browser_if_there_is_one(trained, tmp_path, monkeypatch, capsys):
    shown = []
    monkeypatch.setattr("webbrowser.open", lambda address: not shown.append(address))
    run("report", trained, "--out", tmp_path / "page.html", "--open")
    assert shown == [(tmp_path / "page.html").as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    with pytest.raises(SystemExit):
        run("report", trained, "--out", tmp_path / "page.html", "--open")
    assert "There is no browser" in capsys.readouterr().err


def test_encode(trained):
    np.save("cases.npy", np.random.default_rng(0).integers(0, 2, (11, 64)))
    run("encode", trained, "--data", "cases.npy", "--out", "codes.npz")
    run("encode", trained, "--data", "cases.npy", "--out", "binary.npz", "--binary", "--samples", "3")
    with np.load("codes.npz") as codes, np.load("binary.npz") as binary:
        assert {name: array.shape for name, array in codes.items()} == {"h1": (11, 6), "h2": (11, 4)}
        assert np.all((codes["h1"] > 0) & (codes["h1"] < 1))
        np.testing.assert_array_equal(binary["h1"], codes["h1"] >= 0.5)


def test_files_of_ones_own(capsys):
    cases = np.random.default_rng(0).random((60, 5)).round(2)
    np.save("grey.npy", cases)
    # with as many training cases as a tenth leaves of the others, so that training is compiled once
    np.savez("split.npz", train=cases[:54] > 0.5, test=cases[50:] > 0.5)
    np.savetxt("table.csv", cases, delimiter=",", header="a,b,c,d,e", comments="")
    settings = ("--hidden", "3", "--updates", "4", "--validation", "5", "--batch-size", "4")
    run("train", "--data", "split.npz", *settings, "--out", "one")
    run("train", "--data", "grey.npy", "--binarize", "threshold", "--threshold", "0.3", *settings, "--out", "two")
    run("train", "--data", "table.csv", "--binarize", "threshold", *settings, "--out", "three")
    out, err = capsys.readouterr()
    assert "49 training, 5 validation and 10 test cases of 5" in err
    assert "49 training, 5 validation and 6 test cases of 5" in err
    assert "at least 0.3" in err
    assert "samples.png" not in out  # five variables are no picture
    run("sample", "one", "--out", "x.npz")
    assert "not pictures" in refused_after(capsys, "sample", "one", "--out", "x.png")


def test_a_conditional_model_of_categories(capsys):
    """Columns to condition on may be anywhere in a table; they come first in cases, and pictures are of the rest."""
    table = np.random.default_rng(0).integers(0, 2, (60, 11))
    header = [*(f"x{i}" for i in range(4)), "a", *(f"x{i}" for i in range(4, 9)), "b"]
    np.savetxt("table.csv", table, "%g", delimiter=",", header=",".join(header), comments="")
    settings = ("--hidden", "5", "--updates", "4", "--validation", "5", "--batch-size", "4", "--between", "3")
    kind = ("--latents", "categorical", "--categories", "3")
    run("train", "--data", "table.csv", "--given", "b", "a", *kind, *settings, "--out", "run")
    err = capsys.readouterr().err
    assert "49 training, 5 validation and 6 test cases of 9 binary units given 2" in err
    assert "x 9 given 2 <- tanh 3 <- h1 5x3, nvil" in err
    kept = tomllib.loads((Path("run") / "config.toml").read_text())
    assert (kept["given"], kept["context"], kept["visible"], kept["image"]) == (["b", "a"], 2, 11, [3, 3])
    run("resume", "run", "--updates", "8", "--quiet")
    run("evaluate", "run", "--data", "table.csv")
    run("encode", "run", "--data", "table.csv", "--out", "codes.npz")
    run("encode", "run", "--data", "table.csv", "--out", "rounded.npz", "--binary")
    with np.load("codes.npz") as codes, np.load("rounded.npz") as rounded:
        assert codes["h1"].shape == (60, 5, 3)
        np.testing.assert_allclose(codes["h1"].sum(axis=-1), 1, rtol=1e-5)
        np.testing.assert_array_equal(rounded["h1"], codes["h1"].argmax(axis=-1))
    run("sample", "run", "--count", "70", "--data", "table.csv", "--out", "samples.npz")
    with np.load("samples.npz") as samples:
        np.testing.assert_array_equal(samples["x"][:, :2], np.resize(table, (70, 11))[:, [10, 4]])
        np.testing.assert_array_equal(samples["mean"][:, :2], samples["x"][:, :2])
        assert samples["h1"].shape == (70, 5)
        assert set(samples["h1"].ravel()) == {0, 1, 2}
    run("sample", "run", "--out", "samples.png")
    for given, sentence in {
        ("c",): "table.csv has no column 'c' to condition on; its columns are x0, x1, x2, x3, a, x4, x5, x6, ...",
        ("0-20",): "table.csv has no column 0-20 to condition on; it has 11, the first is 0.",
        ("0-10",): "--given leaves nothing to model of the 11 columns of table.csv.",
    }.items():
        assert sentence in refused_after(capsys, "train", "--data", "table.csv", "--given", *given, "--out", "none")


def test_real_numbers_and_gaussian_latents(capsys):
    cases = np.random.default_rng(0).normal([1000, 0, 0.1], [100, 1, 0.01], (60, 3))
    np.save("numbers.npy", cases)
    settings = ("--hidden", "2", "2", "--updates", "4", "--validation", "5", "--batch-size", "4")
    kinds = ("--latents", "gaussian", "bernoulli")
    given = ("--values", "numbers", "--given", "1")
    run("train", "--data", "numbers.npy", *given, *kinds, *settings, "--out", "run")
    out, err = capsys.readouterr()
    assert "49 training, 5 validation and 6 test cases of 2 numbers given 1 (real numbers, as they are)" in err
    assert "independent Gaussians" in out
    run("evaluate", "run", "--data", "numbers.npy")
    run("encode", "run", "--data", "numbers.npy", "--binary", "--out", "codes.npz")
    run("sample", "run", "--count", "7", "--out", "samples.npz")
    with np.load("codes.npz") as codes, np.load("samples.npz") as samples:
        assert codes["h1"].dtype == samples["h1"].dtype == samples["x"].dtype == np.float32
        assert set(codes["h2"].ravel()) <= {0, 1}
        assert set(samples["x"][:, 0]) <= set(cases[:, 1].astype(np.float32))
        assert 500 < samples["x"][:, 1].mean() < 1500
    cases[:, 1] = 3
    np.save("same.npy", cases)
    sentence = refused_after(capsys, "train", "--data", "same.npy", *given, "--out", "none")
    assert "Column 1 of same.npy is the same in every training case, so there is nothing to model" in sentence
    assert "leave it out with --drop-columns 1" in sentence
    both = ("--values", "numbers", "--binarize", "threshold")
    assert "leave one out" in refused_after(capsys, "train", "--data", "numbers.npy", *both, "--out", "none")


def test_categories_as_visibles(capsys):
    table = np.random.default_rng(0).integers(0, 3, (60, 4))
    np.savetxt("table.csv", table, "%d", delimiter=",", header="a,b,c,d", comments="")
    settings = ("--hidden", "2", "--updates", "4", "--validation", "5", "--batch-size", "4")
    given = ("--values", "categories", "--given", "c")
    run("train", "--data", "table.csv", *given, *settings, "--out", "run")
    out, err = capsys.readouterr()
    assert "6 test cases of 3 categorical variables given 1 (each variable one of 3 categories)" in err
    assert "x 3x3 given 3 <- h1 2" in err
    best = nvil.data.load(table, values="categories", given="2")
    best = nvil.data.factorial_bound(best.test, best.context, 3)
    assert f"without latents       {best:8.2f} nats per case" in out
    run("evaluate", "run", "--data", "table.csv")
    run("sample", "run", "--count", "70", "--data", "table.csv", "--out", "samples.npz")
    with np.load("samples.npz") as samples:
        assert samples["x"].dtype == np.uint8
        assert set(samples["x"].ravel()) == {0, 1, 2}
        np.testing.assert_array_equal(samples["x"][:, 0], np.resize(table, (70, 4))[:, 2])
        np.testing.assert_allclose(samples["mean"].sum(axis=-1), np.ones((70, 4)), rtol=1e-5)
    np.savetxt("more.csv", table + 1, "%d", delimiter=",", header="a,b,c,d", comments="")
    sentence = refused_after(capsys, "evaluate", "run", "--data", "more.csv")
    assert "more.csv has the category 3 at row" in sentence
    assert "the model was trained on categories from 0 to 2" in sentence


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """Grey pictures with a label before them, as the usual tables of digits have it, and a run on them."""
    folder = tmp_path_factory.mktemp("labelled")
    random = np.random.default_rng(0)
    table = np.column_stack([random.integers(0, 10, 60), random.random((60, 16)).round(2)])
    header = "label," + ",".join(f"pixel{i}" for i in range(16))
    np.savetxt(folder / "table.csv", table, "%g", delimiter=",", header=header, comments="")
    np.savetxt(folder / "bare.csv", table, "%g", delimiter=",")
    np.savetxt(folder / "pixels.csv", table[:, 1:], "%g", delimiter=",")
    settings = ("--hidden", "3", "--updates", "4", "--validation", "5", "--batch-size", "4", "--quiet")
    data = ("--data", str(folder / "table.csv"), "--binarize", "threshold", "--drop-columns", "label")
    main(["train", *data, *settings, "--out", str(folder / "run")])
    return folder


def test_a_label_among_the_variables_is_noticed_and_dropped(labelled, capsys):
    table, bare = labelled / "table.csv", labelled / "bare.csv"
    advice = refused_after(capsys, "train", "--data", table, "--out", "none")
    assert "column 0, 'label', is unlike the rest (its name is 'label')" in advice
    assert (
        "leave it out with --drop-columns label; then say how to make them binary with --binarize threshold" in advice
    )
    advice = refused_after(capsys, "train", "--data", bare, "--binarize", "threshold", "--out", "none")
    assert "column 0 is unlike the rest (whole numbers up to 9, where no other value is above 1)" in advice
    assert "leave it out with --drop-columns 0; if it is data like the rest, give --threshold." in advice
    assert left_behind() == []
    config = tomllib.loads((labelled / "run/config.toml").read_text())
    assert (config["drop_columns"], config["visible"], config["image"]) == (["label"], 16, [4, 4])
    assert 0.4 < config["threshold"] < 0.6
    # new cases come with the label, without it, and, where it has no name, by its place
    codes = []
    for arguments in ((table,), (labelled / "pixels.csv",), (bare, "--drop-columns", "0")):
        run("encode", labelled / "run", "--data", *arguments, "--out", "codes.npz")
        codes.append(np.load("codes.npz")["h1"])
        run("evaluate", labelled / "run", "--data", *arguments)
    np.testing.assert_array_equal(codes[0], codes[1])
    np.testing.assert_array_equal(codes[0], codes[2])
    assert "has no column 'label' to drop; its columns have no names" in refused_after(
        capsys, "encode", labelled / "run", "--data", bare
    )


def test_what_encode_and_evaluate_advise_they_understand(trained, labelled, capsys):
    grey = np.random.default_rng(0).random((11, 64))
    np.save("grey.npy", grey)
    for command in ("encode", "evaluate"):
        advice = refused_after(capsys, command, trained, "--data", "grey.npy")
        assert "say how to make them binary with --binarize threshold or --binarize stochastic" in advice
        run(command, trained, "--data", "grey.npy", "--binarize", "threshold", "--threshold", "0.5")
        run(command, trained, "--data", "grey.npy", "--binarize", "stochastic")
        assert "--threshold needs --binarize threshold" in refused_after(
            capsys, command, trained, "--data", "grey.npy", "--threshold", "0.5"
        )
    np.save("bits.npy", grey >= 0.5)
    run("encode", trained, "--data", "bits.npy", "--out", "one.npz")
    run("encode", trained, "--data", "grey.npy", "--binarize", "threshold", "--threshold", "0.5", "--out", "two.npz")
    np.testing.assert_array_equal(np.load("one.npz")["h1"], np.load("two.npz")["h1"])
    assert "--binarize is for the cases of a file; give it with --data." in refused_after(
        capsys, "evaluate", trained, "--binarize", "threshold"
    )
    # another threshold than in training
    run("encode", labelled / "run", "--data", labelled / "pixels.csv", "--threshold", "0.9", "--out", "three.npz")


def refused_after(capsys, *arguments):
    capsys.readouterr()
    return refused(capsys, *arguments)


def npy_bytes(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz_bytes():
    buffer = io.BytesIO()
    np.savez(buffer, np.ones((20, 8), np.uint8))
    return buffer.getvalue()


BAD_FILES = {
    "missing.npy": (None, "no file missing.npy"),
    "empty.npy": (b"", "Cannot read empty.npy"),
    "empty.csv": (b"", "empty.csv is empty"),
    "header.csv": (b"a,b\n", "header.csv"),
    "ragged.csv": (b"0,1\n0\n", "Cannot read ragged.csv"),
    "words.csv": (b"0,1\n0,yes\n", "Cannot read words.csv"),
    "garbage.npz": (b"PK garbage", "Cannot read garbage.npz"),
    "cut.npz": (npz_bytes()[:-30], "Cannot read cut.npz"),
    "damaged.npz": (npz_bytes().replace(b"\x01" * 8, b"\x00" * 8), "Cannot read damaged.npz"),
    "archive.npy": (npz_bytes(), "its name must end in .npz"),
    "array.npz": (npy_bytes(np.zeros((2, 2))), "its name must end in .npy"),
    "complex.npy": (npy_bytes(np.zeros((2, 2), complex)), "numbers are needed"),
    "table.xls": (b"", "it must be one of .npy, .npz, .csv, .tsv"),
    "grey.csv": (b"0,1\n0,0.5\n", "first 0.5 at row 1, column 1 (from 0); say how to make them binary with --binarize"),
    "nan.csv": (b"0,1\nnan,1\n", "not a finite number, at row 1, column 0"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_get_one_clear_sentence(name, capsys):
    content, message = BAD_FILES[name]
    if content is not None:
        Path(name).write_bytes(content)
    before = left_behind()
    assert message in refused(capsys, "train", "--data", name, "--hidden", "3", "--out", "run")
    assert left_behind() == before


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((0, 3)), "is empty: its shape is (0, 3)"),
        (np.zeros(3), "it must have one case per row"),
        (np.array([["a", "b"]]), "numbers are needed"),
        (np.array([[None, 1]], object), "Cannot read array.npy"),  # would have to be unpickled
    ],
)
def test_bad_arrays_get_one_clear_sentence(array, message, capsys):
    np.save("array.npy", array, allow_pickle=True)
    assert message in refused(capsys, "train", "--data", "array.npy", "--out", "run")
    assert left_behind() == ["array.npy"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "digit"), "Unknown data set 'digit'; did you mean 'digits'?"),
        (("--model", "sbm"), "Unknown model 'sbm'; did you mean 'sbn'?"),
        (("--estimator", "nvill"), "did you mean 'nvil'?"),
        (("--optimiser", "adamw"), "did you mean 'adam'?"),
        (("--hidden", "0"), "The sizes of --hidden layers must be at least 1 and at most 2147483647, got 0."),
        (("--hidden", "10", "-3"), "The sizes of --hidden layers must be at least 1 and at most 2147483647, got -3."),
        (("--updates", "0"), "--updates must be at least 1, got 0."),
        (("--batch-size", "0"), "--batch-size must be at least 1"),
        (("--learning-rate", "-1"), "--learning-rate must be a positive number"),
        (("--learning-rate", "nan"), "--learning-rate must be a positive number"),
        (("--seed", "-1"), "--seed must be at least 0"),
        (("--seed", str(2**70)), "--seed must be at most 2147483647, got 1180591620717411303424."),
        (("--updates", str(10**10)), "--updates must be at most 2147483647, got 10000000000."),
        (("--binarize", "threshold"), "no grey levels to binarize"),
        (("--threshold", "3"), "--threshold needs --binarize threshold"),
        (("--data", "x.npy", "--binarize", "threshold", "--threshold", "inf"), "must be a finite number"),
        (("--checkpoint-seconds", "-1"), "--checkpoint-seconds must be at least 0"),
        (("--checkpoint-updates", "0"), "--checkpoint-updates must be at least 1"),
        (("--hidden", str(10**20)), "and at most 2147483647, got 100000000000000000000."),
        (("--validation", "1500"), "Cannot hold out 1500 validation cases of 1500"),
    ],
)
def test_impossible_choices_get_one_clear_sentence(arguments, message, capsys):
    assert message in refused(capsys, "train", *arguments, "--out", "run", "--quiet")
    assert left_behind() == []


NONSENSE = {
    ("--without", "baselin"): "Unknown technique 'baselin'; did you mean 'baseline'?",
    ("--order", "strict", "--estimator", "vimco"): "--order is for the estimator nvil, not for vimco",
    ("--patience", "3", "--validation", "0"): "--patience is for a better validation bound",
    ("--without", "baseline", "--estimator", "reinforce"): "--without is for the estimator nvil, not for reinforce",
    ("--estimator", "arm", "--inference", "autoregressive"): "ARM needs an inference network of factorial Bernoulli",
    ("--estimator", "vimco", "--samples", "1"): "--samples must be at least 2, got 1",
    ("--warm-up", "-1"): "--warm-up must be at least 0, got -1",
    ("--warm-up", "9", "--updates", "8"): "--warm-up must be at most --updates (8), got 9",
    ("--estimator", "vimco", "--mean", "harmonic"): "Unknown mean 'harmonic'",
    ("--estimator", "ovis", "--gamma", "2"): "--gamma must be at least 0 and at most 1, got 2",
    ("--gamma", "1"): "--gamma is for the estimator ovis, not for nvil",
    ("--sleep", "0.2"): "--sleep is for the estimator reweighted-wake-sleep, not for nvil",
    ("--estimator", "concrete", "--temperature", "0"): "--temperature must be a positive number, got 0.0",
    ("--order", "strickt"): "Unknown order 'strickt'; did you mean 'strict'?",
    ("--decay", "1"): "--decay must be at least 0 and less than 1, got 1.0.",
    ("--decay", "nan"): "--decay must be at least 0 and less than 1, got nan.",
    ("--baseline-units", "0"): "--baseline-units must be at least 1, got 0.",
    ("--schedule", "cosin"): "Unknown schedule 'cosin'; did you mean 'cosine'?",
    ("--final-rate", "1e-4"): "--final-rate needs --schedule cosine or --schedule linear.",
    ("--schedule", "linear", "--final-rate", "-1"): "--final-rate must be at least 0, got -1.0.",
    ("--schedule", "cosine", "--data", "-"): "how many updates there will be; give --updates.",
    ("--average", "0"): "--average must be above 0 and at most 1, got 0.0.",
    ("--average", "1.5"): "--average must be above 0 and at most 1, got 1.5.",
    ("--weight-decay", "-0.1"): "--weight-decay must be at least 0, got -0.1.",
    ("--within-decay", "-1"): "--within-decay must be at least 0, got -1.0.",
    ("--momentum", "0.9"): "--momentum is for --optimiser sgd; adam has its own.",
    ("--optimiser", "sgd", "--momentum", "1"): "--momentum must be at least 0 and less than 1, got 1.0.",
    ("--optimiser", "sgd", "--epsilon", "0.1"): "--epsilon is for --optimiser adam; sgd has none.",
    ("--epsilon", "0"): "--epsilon must be a positive number, got 0.0.",
    ("--clip", "0"): "--clip must be a positive number, got 0.0.",
    ("--clip", "inf"): "--clip must be a positive number, got inf.",
    ("--latent-bias", "inf"): "--latent-bias must be finite.",
    ("--latent-bias", "-1", "-2", "-3"): "--latent-bias must be one number, or one per layer (2), got 3.",
    ("--patience", "0"): "--patience must be at least 1, got 0.",
    ("--between", "5", "0"): "The sizes of --between layers must be at least 1 and at most 2147483647, got 0.",
    ("--activation", "relu"): "--activation is for deterministic layers; give their sizes with --between.",
    ("--latents", "200"): "--latents says what the latents are, such as bernoulli; 200 is for --hidden.",
    ("--latents", "categorial"): "Unknown kind of latents 'categorial'; did you mean 'categorical'?",
    ("--latents", "bernoulli", "bernoulli", "categorical"): "--latents must be one word, or one per layer (2), got 3.",
    ("--categories", "5"): "--categories is for --latents categorical.",
    ("--latents", "categorical", "--categories", "1"): "--categories must be at least 2, got 1.",
    ("--latents", "categorical", "--estimator", "arm"): "ARM needs an inference network of factorial Bernoulli layers",
    ("--between", "5", "--activation", "relus"): "Unknown activation 'relus'; did you mean 'relu'?",
}


@pytest.mark.parametrize("arguments", NONSENSE)
def test_nonsense_in_how_it_learns_gets_one_clear_sentence(arguments, capsys):
    assert NONSENSE[arguments] in refused(capsys, "train", *arguments, "--out", "run", "--quiet")
    assert left_behind() == []


LEARNING = {
    "without": ["normalisation", "local-signals"],
    "order": "strict",
    "decay": 0.9,
    "baseline_units": 7,
    "warm_up": 10,
    "optimiser": "sgd",
    "schedule": "cosine",
    "final_rate": 1e-5,
    "average": 0.5,
    "weight_decay": 0.01,
    "within_decay": 0.001,
    "momentum": 0.5,
    "clip": 10.0,
    "latent_bias": [-2.0, -1.0],
    "between": [5],
    "activation": "relu",
    "patience": 3,
}


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory):
    """A run that makes every choice of how to learn."""
    words = []
    for name, value in LEARNING.items():
        words += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
    folder = tmp_path_factory.mktemp("scheduled") / "run"
    arguments = ["train", *TINY, *words, "--out", str(folder), "--quiet"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvil.Learner, "diagnose", DIAGNOSE)
        main(arguments)
    return folder, arguments


def test_every_choice_of_how_to_learn_is_recorded(scheduled, capsys):
    folder, arguments = scheduled
    kept = tomllib.loads((folder / "config.toml").read_text())
    assert {name: kept[name] for name in LEARNING} == LEARNING
    assert kept["format"] == 2
    line = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert list(line["diagnostics"]["signal_variance"]) == ["raw", "InputDependentBaseline", "RunningMean"]
    before = (folder / "metrics.jsonl").read_bytes()
    main(arguments)  # the same choices are the same run
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_a_schedule_cannot_be_made_longer_later(scheduled, capsys):
    folder, arguments = scheduled
    longer = ["60" if word == "40" else word for word in arguments]
    sentence = f"The learning rate of {folder} falls over 40 updates, which cannot be changed later; "
    sentence += "choose another --out for a longer schedule."
    assert sentence in refused(capsys, *longer)
    assert sentence in refused(capsys, "resume", folder, "--updates", "60")


@pytest.fixture
def config_of(monkeypatch):
    """What a command would train."""

    def config(*arguments):
        made = []

        def noted(folder, config, dataset):
            made.append(config.resolved())  # as the run does
            raise nvil.UsageError("enough")

        with monkeypatch.context() as patch:
            patch.setattr(Run, "from_config", noted)
            with pytest.raises(SystemExit):
                run("train", *arguments)
        (config,) = made
        return config

    return config


def test_choices_come_from_a_run_or_a_file_and_options_beside_them_win(scheduled, config_of):
    folder, _ = scheduled
    whole = Run.open(folder).config
    assert config_of("--from", folder) == whole
    changed = config_of("--without", "baseline", "--from", folder, "--hidden", "5", "3", "--latent-bias", "-3")
    wanted = {"without": ("baseline",), "hidden": (5, 3), "latent_bias": (-3.0,)}
    assert changed == dataclasses.replace(whole, **wanted)
    Path("choices.toml").write_text('hidden = [7]\nestimator = "wake-sleep"\nclip = 3\nlatent_bias = [-1]\n')
    found = config_of("--config", "choices.toml", "--hidden", "9", "4")
    made = Config(hidden=(9, 4), estimator="wake-sleep", clip=3.0, latent_bias=(-1.0,)).resolved()
    assert found == made
    assert config_of("--config=choices.toml", "--hidden", "9", "4") == made
    # a file beside a run: what comes later wins
    assert config_of("--from", folder, "--config", "choices.toml").hidden == (7,)
    # what the run's estimator decided or alone has is not for another
    other = config_of("--from", folder, "--estimator", "vimco")
    assert (other.estimator, other.samples, other.without, other.hidden) == ("vimco", 5, (), whole.hidden)
    # and the config.toml of a run is such a file as well, but for what is known of its data
    assert config_of("--from", folder, "--seed", "3") == dataclasses.replace(whole, seed=3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "nvil: There is no file choices.toml."),
        ("hiden = [3]\n", "nvil: Unknown choice in choices.toml 'hiden'; did you mean 'hidden'?"),
        ("hidden = 3\n", "nvil: choices.toml cannot be used: hidden must be a list of whole numbers."),
        ('updates = "many"\n', "nvil: choices.toml cannot be used: updates must be a whole number."),
        ("average = true\n", "nvil: choices.toml cannot be used: average must be a number."),
        ('latent_bias = ["a"]\n', "nvil: choices.toml cannot be used: latent_bias must be a list of numbers."),
        ('without = "baseline"\n', "nvil: choices.toml cannot be used: without must be a list of texts."),
        ("average = 7\n", "nvil: --average must be above 0 and at most 1, got 7.0."),
        ("hidden = [", "nvil: choices.toml cannot be read ("),
    ],
)
def test_a_file_of_choices_that_cannot_be_used(text, sentence, capsys):
    if text is not None:
        Path("choices.toml").write_text(text)
    before = left_behind()
    assert refused(capsys, "train", "--config", "choices.toml", "--out", "run").startswith(sentence)
    assert left_behind() == before


def test_a_run_to_take_choices_from_that_is_none(capsys):
    assert refused(capsys, "train", "--from", "nowhere") == "nvil: There is no run nowhere."
    Path("file.toml").write_text("")
    assert "file.toml is not the folder of a run; for a file" in refused(capsys, "train", "--from", "file.toml")
    Path("folder").mkdir()
    assert "folder/config.toml is missing." in refused(capsys, "train", "--from", "folder")
    Path("folder/config.toml").write_text("format = 'png'\n[model]\nport = 80\n")
    sentence = "folder/config.toml is not the config of an nvil run; choose another folder."
    assert refused(capsys, "train", "--from", "folder") == f"nvil: {sentence}"
    assert refused(capsys, "evaluate", "folder") == f"nvil: {sentence}"
    assert refused(capsys, "train", "--out", "folder") == f"nvil: {sentence}"


@pytest.mark.parametrize("line", ["format = 1\n", ""])
def test_a_run_of_the_first_format_is_refused_with_what_to_do(line, trained, capsys):
    """The very first had no format."""
    shutil.copytree(trained, "old")
    text = Path("old/config.toml").read_text()
    assert "format = 2\n" in text
    Path("old/config.toml").write_text(text.replace("format = 2\n", line))
    before = {path: path.read_bytes() for path in Path("old").rglob("*.*")}
    sentence = (
        "old/config.toml is of format 1, and this version of nvil reads format 2; train again in another folder, "
        "or install the version that made it (config.toml names it)."
    )
    with pytest.raises(nvil.UsageError) as caught:
        Run.open("old")
    assert str(caught.value) == sentence
    for arguments in (("evaluate", "old"), ("report", "old"), ("resume", "old"), ("train", *TINY, "--out", "old")):
        assert refused(capsys, *arguments) == f"nvil: {sentence}"
    assert {path: path.read_bytes() for path in Path("old").rglob("*.*")} == before


def test_the_command_itself(capsys):
    run("--help")
    shown = capsys.readouterr().out
    assert all(
        f"\n  {name} " in shown for name in ("train", "resume", "evaluate", "sample", "encode", "report", "data")
    )
    run("-h")
    assert capsys.readouterr().out == shown
    run()
    assert capsys.readouterr().out == shown
    run("--version")
    assert capsys.readouterr().out == f"nvil {nvil.__version__}\n"
    assert refused(capsys, "trian") == "nvil: Unknown command 'trian'; did you mean 'train'?"
    assert refused(capsys, "--versoin").startswith("nvil: Unknown option '--versoin'; choose one of: train, resume,")


COMPLETE = """
complete_() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMPREPLY=()
    "$(complete -p nvil | sed 's/.*-F \\([^ ]*\\).*/\\1/')" nvil
    echo "${COMPREPLY[@]}"
}
complete_ nvil t
complete_ nvil train --lat
complete_ nvil train --dev
complete_ nvil sweep --gr
complete_ nvil evaluate --estimate ''
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_and_their_options(capsys):
    with pytest.raises(SystemExit) as ended:
        run("--print-completion", "bash")
    assert not ended.value.code
    Path("complete.bash").write_text(capsys.readouterr().out + COMPLETE)
    done = subprocess.run(["bash", "complete.bash"], capture_output=True, text=True, check=True)
    told = [sorted(line.split()) for line in done.stdout.splitlines()]
    assert told == [
        ["topics", "train"],
        ["--latent-bias", "--latents"],
        ["--devices"],
        ["--grid"],
        ["ais", "bound", "exact", "importance"],
    ]
    assert refused(capsys, "--print-completion", "bsah") == "nvil: Unknown shell 'bsah'; did you mean 'bash'?"
    assert refused(capsys, "--print-completion") == "nvil: Say which shell: nvil --print-completion bash|zsh|fish"


def python(code, *arguments, **options):
    """A new interpreter; its standard output is buffered, as a user's is."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    options = {"env": environment, "stderr": subprocess.PIPE, "text": True, "check": False, **options}
    return subprocess.run(command, **options)


def test_a_reader_who_has_had_enough_is_no_error():
    """As in `nvil data list | head -1`."""
    for arguments in (("data", "list"), ("--help",), ("data", "--help")):
        reader, writer = os.pipe()
        os.close(reader)
        done = python("from nvil.cli import main; main()", *arguments, stdout=writer)
        os.close(writer)
        assert (done.returncode, done.stderr) == (141, ""), arguments


def test_output_that_cannot_be_written_as_it_is():
    """A terminal without Unicode gets escapes, and a closed standard output nothing."""
    show = "import nvil.cli as c; c._help = lambda: 'ünï'; c.main(['--help'])"
    done = python(show, stdout=subprocess.PIPE, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "\\xfcn\\xef\n", "")
    done = subprocess.run(
        ["sh", "-c", '"$0" -c "from nvil.cli import main; main()" data list >&-', sys.executable],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_help_does_not_wait_for_jax():
    code = """if True:
        import sys, nvil, nvil.cli
        for words in (["--help"], ["--version"], []):
            nvil.cli.main(words)
        for words in (["train", "--help"], ["train", "--clip", "x"]):
            try:
                nvil.cli.main(words)
            except SystemExit:
                pass
        sys.exit(any(name in sys.modules for name in ("jax", "numpy", "matplotlib", "sklearn")))
    """
    done = python(code, stdout=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr


def test_a_system_without_file_locks(tmp_path):
    """Where there is no fcntl, as on Windows, a run is not locked, and that is said."""
    code = """if True:
        import sys, pathlib
        sys.modules["fcntl"] = None
        import nvil
        from nvil.runs.lock import locked
        folder = pathlib.Path(sys.argv[1])
        with locked(folder):
            assert (folder / "lock").exists()
            with locked(folder):
                pass
        assert not (folder / "lock").exists()
    """
    done = python(code, tmp_path, stdout=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path} cannot be locked (this system has no file locks)" in done.stderr


def test_an_unknown_option_suggests_the_near_miss(capsys):
    with pytest.raises(SystemExit) as caught:
        run("train", "--hiden", "5")
    assert caught.value.code == 2
    assert "--hidden" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("train", "--lr", "1e-3"), "Unknown option '--lr'; did you mean --learning-rate?"),
        (("train", "--epochs=3"), "Unknown option '--epochs'; did you mean --updates, counted in minibatches?"),
        (("compare", "--epochs", "3"), "Unknown option '--epochs'; nvil compare --help lists those there are."),
        (("compare", "--estimater", "nvil"), "Unknown option '--estimater'; did you mean --estimators?"),
        (
            ("compare", "--warm_up=3"),
            "--warm-up is not for comparisons, in which each estimator has its own number of updates.",
        ),
        (("train", "--batch", "20"), "Unknown option '--batch'; did you mean --batch-size?"),
        (("train", "--layers", "200", "200"), "Unknown option '--layers'; did you mean --hidden?"),
        (("train", "--lr_decay", "cosine"), "Unknown option '--lr-decay'; did you mean --schedule?"),
        (("sample", "run", "--output", "x.png"), "Unknown option '--output'; did you mean --out?"),
    ],
)
def test_the_options_of_other_tools_get_a_hint(arguments, sentence, capsys):
    assert refused(capsys, *arguments) == f"nvil: {sentence}"


def test_the_options_of_other_tools_are_none_of_ours():
    names = {field.name for kind in groups.CLASSES.values() for field in dataclasses.fields(kind)} | {"count"}
    assert set(hints.OTHER_TOOLS.values()) <= names
    assert not set(hints.OTHER_TOOLS) & names


def test_the_library_names_arguments_and_only_the_command_line_flags():
    """A flag in a message of the library is in a command to type, or not there: from Python it would make no sense."""
    source = Path(nvil.__file__).parent
    said = []
    for path in source.rglob("*.py"):
        if "cli" in path.relative_to(source).parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and node.exc is not None:
                parts = [each.value for each in ast.walk(node.exc) if isinstance(each, ast.Constant)]
                text = "".join(part for part in parts if isinstance(part, str))
                said += [f"{path.name}: {text}"] if re.search(r"--[a-z]", re.sub(r"nvil \w+ +--\w+", "", text)) else []
    assert said == []


def test_an_output_folder_that_is_a_file(capsys):
    Path("taken").write_text("mine")
    assert "taken cannot be a folder: taken is a file." in refused(capsys, "train", *TINY, "--out", "taken")
    assert "taken/run cannot be a folder: taken is a file." in refused(capsys, "train", *TINY, "--out", "taken/run")
    assert Path("taken").read_text() == "mine"


@pytest.mark.skipif(
    os.geteuid() == 0, reason="root may write everywhere; test_no_write_permission_as_another_user covers it"
)
def test_no_write_permission(capsys):
    Path("locked").mkdir(mode=0o500)
    assert "permission denied" in refused(capsys, "train", *TINY, "--out", "locked/run")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_no_write_permission_as_another_user(tmp_path):
    """Root may write everywhere, so the command is run as nobody."""
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o755)
    code = (
        "import os, sys; from nvil.runs.storage import writable_folder; from nvil import UsageError\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "try: writable_folder(__import__('pathlib').Path(sys.argv[1]))\n"
        "except UsageError as error: print(error)"
    )
    for parent in [tmp_path, *tmp_path.parents][:-2]:
        parent.chmod(parent.stat().st_mode | 0o111)
    result = subprocess.run([sys.executable, "-c", code, locked / "run"], capture_output=True, text=True, check=True)
    assert "permission denied" in result.stdout


def test_wrong_width_for_a_trained_model(trained, capsys):
    np.save("narrow.npy", np.zeros((3, 10)))
    for command in (("encode", trained, "--data", "narrow.npy"), ("evaluate", trained, "--data", "narrow.npy")):
        assert "has 10 columns, but the model was trained on 64" in refused(capsys, *command)


def test_a_run_that_is_not_one(capsys, tmp_path):
    assert "There is no run nowhere" in refused(capsys, "evaluate", "nowhere")
    Path("folder").mkdir()
    assert "config.toml is missing" in refused(capsys, "evaluate", "folder")
    Path("folder/config.toml").write_text('format = 2\nhidden = [3]\nfingerprint = "0"\n')
    assert "does not describe a run" in refused(capsys, "sample", "folder")


def test_outputs_that_cannot_be_written(trained, capsys):
    assert "must end in .png or .txt or .npz" in refused(capsys, "sample", trained, "--out", "samples.jpg")
    assert "--count must be at least 1" in refused(capsys, "sample", trained, "--count", "0")
    Path("folder.png").mkdir()
    assert "it is a folder" in refused(capsys, "sample", trained, "--out", "folder.png")


def test_training_that_explodes_at_once_ends_with_code_1_and_leaves_the_folder_free(capsys):
    settings = ("--hidden", "4", "--optimiser", "sgd", "--updates", "60", "--report-every", "20", "--quiet")
    message = refused(capsys, "train", *settings, "--learning-rate", "1e38", "--out", "run", code=1)
    assert "stopped being finite by update" in message
    assert "before the first report. A smaller learning rate usually helps." in message
    assert not any(path.is_file() for path in Path("run").rglob("*") if path.name != "lock")
    run("train", *settings, "--learning-rate", "1e-4", "--out", "run")  # what was advised


def test_a_path_that_is_not_utf_8_is_refused_before_anything_is_written(capsys):
    odd = "\udcff.txt"  # the byte 255
    Path(odd).write_text("cat\ndog\n")
    Path("some.txt").write_text("cat\ndog\n" * 10)
    for option in ("--data", "--vocabulary"):
        said = refused(capsys, "train", "--data", "some.txt", option, odd, "--out", "run")
        assert said.endswith("\\udcff.txt' is not UTF-8, which a run needs; rename it.")
    assert not Path("run").exists()


def test_a_model_too_large_for_the_machine_is_refused_before_it_is_built(capsys):
    assert "GB to train" in refused(capsys, "train", "--hidden", "2000000000", "--out", "run", "--quiet")
    assert left_behind() == []


def test_documents_from_counts_to_samples_and_codes(capsys):
    import scipy.sparse

    counts = scipy.sparse.csr_array(np.random.default_rng(0).poisson(0.5, (80, 12)))
    scipy.sparse.save_npz("counts.npz", counts)
    train, test = counts[:60], counts[60:]
    parts = {
        f"{s}_{p}": getattr(m, p) for s, m in (("train", train), ("test", test)) for p in ("data", "indices", "indptr")
    }
    np.savez("split.npz", vocab=np.array([f"w{i}" for i in range(12)]), **parts)
    settings = ("--hidden", "3", "--updates", "4", "--validation", "5", "--batch-size", "4")
    run("train", "--data", "split.npz", "--model", "fdarn", "--optimiser", "sgd", *settings, "--out", "one")
    assert tomllib.loads(Path("one/config.toml").read_text())["learning_rate"] == 3e-5  # documents were noticed first
    out, err = capsys.readouterr()
    assert "test perplexity" in out
    assert "unigram model" in out
    assert "55 training, 5 validation and 20 test cases of 12 words" in err
    assert all(word.split(":")[0][0] == "w" for word in Path("one/samples.txt").read_text().split())
    run("sample", "one", "--count", "5", "--out", "some.npz")
    assert scipy.sparse.load_npz("some.npz").shape == (5, 12)
    capsys.readouterr()
    run("evaluate", "one", "--json")
    result = json.loads(capsys.readouterr().out)
    assert 1 < result["perplexity"] < 100
    assert {"corpus_perplexity", "empty_documents"} <= result.keys()
    run("evaluate", "one", "--json", "--estimate", "exact")
    exactly = json.loads(capsys.readouterr().out)
    assert (exactly["estimate"], exactly["samples"]) == ("exact", None)
    assert exactly["perplexity"] < result["perplexity"]
    run("evaluate", "one", "--estimate", "exact")
    assert "per word (exact)" in capsys.readouterr().out
    run("encode", "one", "--data", "counts.npz", "--out", "codes.npz")
    with np.load("codes.npz") as codes:
        assert codes["h1"].shape == (80, 3)
    assert "take fdarn" in refused_after(
        capsys, "train", "--data", "split.npz", "--model", "darn", *settings, "--out", "two"
    )
    np.save("halves.npy", np.full((3, 12), 0.5))
    assert "must hold word counts" in refused_after(capsys, "encode", "one", "--data", "halves.npy")


@pytest.mark.parametrize("value", [-1.0, 0.5, np.nan])
def test_counts_that_are_none(value, capsys):
    import scipy.sparse

    scipy.sparse.save_npz("counts.npz", scipy.sparse.csr_array(np.array([[value, 1], [1, 0]])))
    assert "must hold word counts" in refused(capsys, "train", "--data", "counts.npz", "--out", "run")


@pytest.mark.parametrize(
    "choices",
    first(
        1,
        [
            (("--model", "darn", "--inference", "autoregressive", "--hidden", "6"),),
            (("--model", "fdarn"),),
            (("--estimator", "wake-sleep", "--hidden", "6"),),
        ],
    ),
)
def test_the_whole_family_from_the_command_line(choices, capsys):
    run("train", *TINY, *choices, "--out", "run", "--quiet")
    run("sample", "run", "--count", "3", "--out", "x.png")
    np.save("cases.npy", np.zeros((3, 64)))
    run("encode", "run", "--data", "cases.npy")
    assert "test bound" in capsys.readouterr().out


def test_a_byte_order_mark_is_not_a_header():
    Path("bom.csv").write_text("\ufeff0,1\n" + "1,0\n" * 40, encoding="utf-8")
    data = load("bom.csv")
    assert (data.train.shape, data.test.shape) == ((37, 2), (4, 2))


def test_the_default_threshold_does_not_overflow():
    np.save("grey.npy", np.random.default_rng(0).integers(10, 256, (50, 4)).astype(np.uint8))
    assert "at least 132" in load("grey.npy", binarize="threshold").note


def test_a_tampered_model_file_is_refused(trained, capsys, tmp_path):
    shutil.copytree(trained, "copy")
    Path("copy/best.safetensors").write_bytes(b"\xff" * 100)
    assert "not a readable safetensors file" in refused(capsys, "evaluate", "copy")
    config = Path("copy/config.toml")
    shutil.copy(trained / "best.safetensors", "copy/best.safetensors")
    config.write_text(config.read_text().replace("hidden = [6, 4]", "hidden = [6, 5]"))
    assert "does not fit its config" in refused(capsys, "evaluate", "copy")


@pytest.mark.parametrize(
    ("command", "taught"),
    [
        ("train", "nvil train --data my.npy --binarize threshold"),
        ("resume", "How many in all, those already done included"),
        ("evaluate", "as in the paper, in nats per case"),
        ("sample", "scipy.sparse.load_npz"),
        ("encode", "the probability that each latent is on"),
        ("data", "nvil data fetch binarized-mnist"),
        ("report", "--out"),
        ("compare", "nvil compare --seconds 30"),
    ],
)
def test_help_teaches(command, taught, capsys):
    with pytest.raises(SystemExit) as caught:
        run(command, "--help")
    assert caught.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert taught in shown
    assert "{None}" not in shown
    assert "(default: None)" not in shown
    assert "(default: )" not in shown


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("train --updates 1e3", "--updates must be a whole number, got '1e3'."),
        ("train --updates None", "--updates must be a whole number, got 'None'."),
        ("train --updates", "--updates needs a value."),
        ("train --learning-rate=abc", "--learning-rate must be a number, got 'abc'."),
        ("train --hidden 5 abc", "--hidden must be a whole number, got 'abc'."),
        ("train --latent-bias -4 x", "--latent-bias must be a number, got 'x'."),
        ("train --hiden 5", "Unknown option '--hiden'; did you mean --hidden?"),
        ("train --nonsense", "Unknown option '--nonsense'; nvil train --help lists those there are."),
        ("train my.npy", "nvil train takes no further argument, got 'my.npy'; did you mean --data my.npy?"),
        ("train --quiet yes --data x", "nvil train takes no further argument, got 'yes'."),
        ("train --out=", "--out must not be empty."),
        ("evaluate", "RUN is missing: nvil evaluate RUN [OPTIONS]."),
        ("evaluate run --estimate best", "Unknown estimate 'best'; choose one of: ais, bound, exact, importance."),
        ("encode run", "--data is missing; nvil encode --help says what it is."),
        ("data lst", "Unknown action 'lst'; did you mean 'list'?"),
        ("reproduce tabel1", "Unknown table 'tabel1'; did you mean 'table1'?"),
        ("search run two words", "nvil search takes no further argument, got 'words'; put quotes around a text."),
        ("report", "Give the folder of at least one run, for example: nvil report runs/demo"),
    ],
)
def test_words_that_make_no_command_get_a_sentence(words, sentence, capsys):
    assert refused(capsys, *words.split()) == f"nvil: {sentence}"


def test_a_folder_that_holds_something_else_is_left_alone(capsys):
    Path("mine").mkdir()
    Path("mine/report.html").write_text("my own")
    said = refused(capsys, "train", *TINY, "--out", "mine")
    assert said == "nvil: mine is not a run, but holds report.html; choose another --out."
    assert Path("mine/report.html").read_text() == "my own"
    assert os.listdir("mine") == ["report.html"]


def test_samples_are_written_as_the_cases_are(capsys):
    np.save("cases.npy", np.random.default_rng(0).integers(0, 2, (200, 7)))
    run("train", *TINY, "--data", "cases.npy", "--out", "run")
    capsys.readouterr()
    run("sample", "run", "--count", "3")
    assert capsys.readouterr().out == "samples.npz\n"
    assert np.load("samples.npz")["x"].shape == (3, 7)
