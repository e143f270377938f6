"""The command line as people use it: in a folder of their own, with their own mistakes."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nvil.cli import main

TINY = ("--hidden", "6", "4", "--updates", "40", "--report-every", "20", "--validation", "20")


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
    run("train", *TINY, "--out", "run")
    out, err = capsys.readouterr()
    assert "test bound" in out
    assert "best factorial model    -25.20" in out
    assert "samples               run/samples.png" in out
    assert "report                run/report.html" in out
    assert "nvil evaluate run --samples 100" in out
    assert "1480 training" not in out
    assert "digits: 1480 training, 20 validation and 297 test cases of 64 binary units" in err
    assert "x 64 <- h1 6 <- h2 4" in err
    names = {path.name for path in Path("run").iterdir()}
    assert names == {
        "config.toml", "metrics.jsonl", "timing.jsonl", "checkpoint", "best.safetensors", "samples.png", "report.html"
    }  # fmt: skip
    metrics = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [line["updates"] for line in metrics] == [20, 40]
    assert list(metrics[0]) == [
        "updates", "bound", "validation_bound", "best_bound", "signal", "gradient_norms", "diagnostics"
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
    run("train", *TINY, "--out", "run", "--quiet")
    assert Path("run/best.safetensors").read_bytes() == (trained / "best.safetensors").read_bytes()
    assert len(Path("run/metrics.jsonl").read_text().splitlines()) == 2
    newest = "checkpoint/000000000040.safetensors"
    assert Path("run", newest).read_bytes() == (trained / newest).read_bytes()


def test_a_finished_run_is_only_shown_again(trained, capsys):
    before = (trained / "metrics.jsonl").read_bytes()
    run("train", *TINY, "--out", trained)
    assert "test bound" in capsys.readouterr().out
    assert (trained / "metrics.jsonl").read_bytes() == before


def test_another_config_on_the_same_folder_is_refused(trained, capsys):
    assert "seed 0 -> 5" in refused(capsys, "train", *TINY, "--seed", "5", "--out", trained)
    fewer = [*TINY]
    fewer[4] = "30"
    assert "can only grow" in refused(capsys, "train", *fewer, "--out", trained)


def test_evaluate_json(trained, capsys):
    run("evaluate", trained, "--json")
    result = json.loads(capsys.readouterr().out)
    assert {"bound", "bound_se", "samples", "cases", "split"} <= result.keys()
    assert (result["samples"], result["cases"], result["split"]) == (10, 297, "test")
    assert -64 * np.log(2) - 5 < result["bound"] < -10
    run("evaluate", trained, "--json", "--split", "train", "--samples", "1")
    assert json.loads(capsys.readouterr().out)["cases"] == 1500


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
    np.savez("split.npz", train=cases[:50] > 0.5, test=cases[50:] > 0.5)
    np.savetxt("table.csv", cases, delimiter=",", header="a,b,c,d,e", comments="")
    settings = ("--hidden", "3", "--updates", "4", "--validation", "5", "--batch-size", "4")
    run("train", "--data", "split.npz", *settings, "--out", "one")
    run("train", "--data", "grey.npy", "--binarize", "threshold", "--threshold", "0.3", *settings, "--out", "two")
    run("train", "--data", "table.csv", "--binarize", "threshold", *settings, "--out", "three")
    out, err = capsys.readouterr()
    assert "45 training, 5 validation and 10 test cases of 5" in err
    assert "49 training, 5 validation and 6 test cases of 5" in err
    assert "at least 0.3" in err
    assert "samples.png" not in out  # five variables are no picture
    run("sample", "one", "--out", "x.npz")
    assert "not pictures" in refused_after(capsys, "sample", "one", "--out", "x.png")


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
    "archive.npy": (npz_bytes(), "its name should end in .npz"),
    "array.npz": (npy_bytes(np.zeros((2, 2))), "its name should end in .npy"),
    "complex.npy": (npy_bytes(np.zeros((2, 2), complex)), "numbers are needed"),
    "table.xls": (b"", "it should be one of .npy, .npz, .csv, .tsv"),
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
        (np.zeros(3), "one case a row is needed"),
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
        (("--hidden", "0"), "--hidden 0 cannot be"),
        (("--hidden", "10", "-3"), "--hidden -3 cannot be"),
        (("--updates", "0"), "--updates must be at least 1, not 0"),
        (("--batch-size", "0"), "--batch-size must be at least 1"),
        (("--learning-rate", "-1"), "--learning-rate must be a positive number"),
        (("--learning-rate", "nan"), "--learning-rate must be a positive number"),
        (("--seed", "-1"), "--seed must be at least 0"),
        (("--seed", str(2**70)), "is too large"),
        (("--updates", str(10**10)), "is too large"),
        (("--binarize", "threshold"), "no grey levels to binarize"),
        (("--threshold", "3"), "--threshold needs --binarize threshold"),
        (("--data", "x.npy", "--binarize", "threshold", "--threshold", "inf"), "must be a finite number"),
        (("--checkpoint-seconds", "-1"), "--checkpoint-seconds must be at least 0"),
        (("--checkpoint-updates", "0"), "--checkpoint-updates must be at least 1"),
        (("--hidden", str(10**20)), "is too large"),
        (("--validation", "1500"), "Cannot hold out 1500 validation cases of 1500"),
    ],
)
def test_impossible_choices_get_one_clear_sentence(arguments, message, capsys):
    assert message in refused(capsys, "train", *arguments, "--out", "run", "--quiet")
    assert left_behind() == []


def test_an_unknown_option_suggests_the_near_miss(capsys):
    with pytest.raises(SystemExit) as caught:
        run("train", "--hiden", "5")
    assert caught.value.code == 2
    assert "--hidden" in capsys.readouterr().err


def test_an_output_folder_that_is_a_file(capsys):
    Path("taken").write_text("mine")
    assert "a file of that name is in the way" in refused(capsys, "train", *TINY, "--out", "taken")
    assert "a file of that name is in the way" in refused(capsys, "train", *TINY, "--out", "taken/run")
    assert Path("taken").read_text() == "mine"


@pytest.mark.skipif(
    os.geteuid() == 0, reason="root may write everywhere; test_no_write_permission_as_another_user covers it"
)
def test_no_write_permission(capsys):
    Path("locked").mkdir(mode=0o500)
    assert "there is no permission" in refused(capsys, "train", *TINY, "--out", "locked/run")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_no_write_permission_as_another_user(tmp_path):
    """Root may write everywhere, so the command is run as nobody."""
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o755)
    code = (
        "import os, sys; from nvil.storage import writable_folder; from nvil import UsageError\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "try: writable_folder(__import__('pathlib').Path(sys.argv[1]))\n"
        "except UsageError as error: print(error)"
    )
    for parent in [tmp_path, *tmp_path.parents][:-2]:
        parent.chmod(parent.stat().st_mode | 0o111)
    result = subprocess.run([sys.executable, "-c", code, locked / "run"], capture_output=True, text=True, check=True)
    assert "there is no permission" in result.stdout


def test_wrong_width_for_a_trained_model(trained, capsys):
    np.save("narrow.npy", np.zeros((3, 10)))
    for command in (("encode", trained, "--data", "narrow.npy"), ("evaluate", trained, "--data", "narrow.npy")):
        assert "has 10 columns, but the model was trained on 64" in refused(capsys, *command)


def test_a_run_that_is_not_one(capsys, tmp_path):
    assert "There is no run nowhere" in refused(capsys, "evaluate", "nowhere")
    Path("folder").mkdir()
    assert "config.toml is missing" in refused(capsys, "evaluate", "folder")
    Path("folder/config.toml").write_text("hidden = [3]\n")
    assert "does not describe a run" in refused(capsys, "sample", "folder")


def test_outputs_that_cannot_be_written(trained, capsys):
    assert "should end in .png or .txt or .npz" in refused(capsys, "sample", trained, "--out", "samples.jpg")
    assert "--count must be at least 1" in refused(capsys, "sample", trained, "--count", "0")
    Path("folder.png").mkdir()
    assert "it is a folder" in refused(capsys, "sample", trained, "--out", "folder.png")


def test_training_that_explodes_ends_with_code_1_and_keeps_what_was_good(capsys):
    settings = ("--hidden", "4", "--optimiser", "sgd", "--updates", "60", "--report-every", "20", "--quiet")
    message = refused(capsys, "train", *settings, "--learning-rate", "1e38", "--out", "run", code=1)
    assert "stopped being finite by update" in message
    assert "the state of update 0 is kept" in message
    assert [path.name for path in Path("run/checkpoint").iterdir()] == ["000000000000.safetensors"]
    run("evaluate", "run")  # the untrained parameters are still there


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
    run("train", "--data", "split.npz", "--model", "fdarn", *settings, "--out", "one")
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
    run("encode", "one", "--data", "counts.npz", "--out", "codes.npz")
    with np.load("codes.npz") as codes:
        assert codes["h1"].shape == (80, 3)
    assert "take fdarn" in refused_after(
        capsys, "train", "--data", "split.npz", "--model", "darn", *settings, "--out", "two"
    )
    np.save("halves.npy", np.full((3, 12), 0.5))
    assert "should hold word counts" in refused_after(capsys, "encode", "one", "--data", "halves.npy")


@pytest.mark.parametrize("value", [-1.0, 0.5, np.nan])
def test_counts_that_are_none(value, capsys):
    import scipy.sparse

    scipy.sparse.save_npz("counts.npz", scipy.sparse.csr_array(np.array([[value, 1], [1, 0]])))
    assert "should hold word counts" in refused(capsys, "train", "--data", "counts.npz", "--out", "run")


@pytest.mark.parametrize(
    "choices",
    [("--model", "fdarn"), ("--model", "darn", "--inference", "autoregressive"), ("--estimator", "wake-sleep")],
)
def test_the_whole_family_from_the_command_line(choices, capsys):
    run("train", *TINY, *choices, "--out", "run", "--quiet")
    run("sample", "run", "--count", "3", "--out", "x.png")
    np.save("cases.npy", np.zeros((3, 64)))
    run("encode", "run", "--data", "cases.npy")
    assert "test bound" in capsys.readouterr().out


def test_a_byte_order_mark_is_not_a_header(capsys):
    Path("bom.csv").write_text("\ufeff0,1\n" + "1,0\n" * 40, encoding="utf-8")
    run("train", "--data", "bom.csv", "--hidden", "2", "--updates", "2", "--validation", "0", "--out", "run")
    assert "37 training, 0 validation and 4 test cases" in capsys.readouterr().err


def test_the_default_threshold_does_not_overflow(capsys):
    np.save("grey.npy", np.random.default_rng(0).integers(10, 256, (50, 4)).astype(np.uint8))
    run(
        "train", "--data", "grey.npy", "--binarize", "threshold", "--hidden", "2", "--updates", "2", "--validation", "0"
    )
    assert "at least 132" in capsys.readouterr().err


def test_a_tampered_model_file_is_refused(trained, capsys, tmp_path):
    import shutil

    shutil.copytree(trained, "copy")
    Path("copy/best.safetensors").write_bytes(b"\xff" * 100)
    assert "not a readable safetensors file" in refused(capsys, "evaluate", "copy")
    config = Path("copy/config.toml")
    shutil.copy(trained / "best.safetensors", "copy/best.safetensors")
    config.write_text(config.read_text().replace("hidden = [6, 4]", "hidden = [6, 5]"))
    assert "does not fit its config" in refused(capsys, "evaluate", "copy")


def test_progress_is_plain_lines_away_from_a_terminal_and_results_alone_on_stdout():
    command = [sys.executable, "-m", "nvil", "train", *TINY, "--out", "run"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    labels = [line.split("  ")[0] for line in result.stdout.splitlines()]
    assert labels == ["best factorial model", "test bound", "samples", "report", "next"]
    assert "update 20  bound -" in result.stderr
    assert "\x1b" not in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("command", "taught"),
    [
        ("train", "nvil train --data my.npy --binarize threshold"),
        ("evaluate", "as in the paper, in nats a case"),
        ("sample", "scipy.sparse.load_npz"),
        ("encode", "the probability that each latent is on"),
        ("data", "nvil data fetch binarized-mnist"),
        ("report", "--out"),
    ],
)
def test_help_teaches(command, taught, capsys):
    with pytest.raises(SystemExit) as caught:
        run(command, "--help")
    assert caught.value.code == 0
    assert taught in " ".join(capsys.readouterr().out.split())
