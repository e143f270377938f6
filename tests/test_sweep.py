"""Sweeps: a grid of choices, each a run of its own; the starting of real processes is test_reproduce's."""

import contextlib
import csv
import io
import json
import os
import shutil
import signal
import types
from pathlib import Path

import numpy as np
import pytest

import nvil
from nvil.cli import main
from nvil.cli.sweep import _print_table
from nvil.errors import UsageError
from nvil.runs import jobs
from nvil.runs.lock import locked
from nvil.runs.sweep import MEASURES, axis_from_text, read_sweep
from processes import plain_diagnose

TINY = (
    "--data",
    "pixels.npy",
    "--hidden",
    "2",
    "--updates",
    "2",
    "--report-every",
    "1",
    "--validation",
    "10",
    "--optimiser",
    "sgd",
)


class InThisProcess:
    """In the place of a process of its own: runs the command at once, and has ended."""

    started: list[str]

    def __init__(self, command, *, stderr, **_):
        self.pid, self.returncode = os.getpid(), 0
        self.started.append(command[-1])
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                main(command[3:])
        except SystemExit as ended:
            self.returncode = ended.code
        stderr.write(said.getvalue().encode())

    def poll(self):
        return self.returncode


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    np.save("pixels.npy", (random.random((60, 9)) < np.linspace(0.1, 0.9, 9)).astype(np.uint8))
    monkeypatch.setattr(nvil.Learner, "diagnose", plain_diagnose)
    monkeypatch.setattr(jobs, "subprocess", types.SimpleNamespace(Popen=InThisProcess, DEVNULL=None))
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None, raising=False)
    monkeypatch.setattr(jobs, "LOOK_SECONDS", 0.0)
    InThisProcess.started = []


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_an_axis_is_typed_as_after_the_flags_of_train():
    assert axis_from_text("learning-rate=1e-3,3") == ("learning_rate", (1e-3, 3.0))
    assert axis_from_text("hidden=100,100 50") == ("hidden", ((100,), (100, 50)))
    assert axis_from_text("without=,baseline running-mean") == ("without", ((), ("baseline", "running-mean")))
    assert axis_from_text("estimator=nvil,wake-sleep") == ("estimator", ("nvil", "wake-sleep"))
    assert axis_from_text("patience=3,5") == ("patience", (3, 5))


def test_every_combination_has_a_folder_of_its_own(monkeypatch):
    grid = {"hidden": [(3,), (3, 2)], "data": ["a/x.npy", "b/x.npy", "digits"], "seed": [0, 1]}
    sweep = nvil.Sweep("s", nvil.Config(updates=7), grid)
    points = sweep.points()
    assert len({point.name for point in points}) == len(points) == 12
    assert points[0].name == "hidden=3,data=x,seed=0"
    assert points[2].name == "hidden=3,data=x,seed=0'"  # of another folder
    assert [point.config.seed for point in points[:2]] == [0, 1]
    assert {point.config.hidden for point in points} == {(3,), (3, 2)}
    assert Path(points[0].config.data) == Path("a/x.npy").resolve()
    monkeypatch.chdir("/")
    assert sweep.points() == points  # the same from any folder


def test_a_file_holds_choices_and_a_grid():
    Path("s.toml").write_text("updates = 5\n[grid]\nhidden = [[3], [3, 2]]\nlearning_rate = [1, 0.5]\n")
    base, grid = read_sweep(Path("s.toml"))
    assert base == nvil.Config(updates=5)
    assert grid == {"hidden": ((3,), (3, 2)), "learning_rate": (1.0, 0.5)}
    for text, sentence in (
        ("grid = 3", "grid must be a table"),
        ("[grid]\nhiden = [[3]]", "Unknown choice 'hiden'; did you mean 'hidden'?"),
        ("[grid]\nhidden = 3", "hidden of the grid must be a list of values"),
        ("[grid]\nhidden = [3, 4]", "hidden must be a list of whole numbers"),
        ("updates = 'many'", "updates must be a whole number"),
    ):
        Path("s.toml").write_text(text)
        with pytest.raises(UsageError, match=r"s\.toml cannot be used: ") as caught:
            read_sweep(Path("s.toml"))
        assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--grid", "learning_rat=1,2"), "Unknown choice in --grid 'learning_rat'; did you mean 'learning_rate'?"),
        (("--grid", "learning_rate=a,2"), "--learning-rate takes numbers, got 'a' in --grid."),
        (("--grid", "learning_rate=2,-1"), "--learning-rate must be a positive number, got -1.0."),
        (
            ("--grid", "hidden"),
            "--grid takes a choice and its values, such as learning_rate=0.001,0.003, got 'hidden'.",
        ),
        (("--grid", "hidden=2"), "There is nothing to sweep over; give a --grid of at least two values, or --seeds."),
        (("--grid", "seed=1,1"), "--seed has 1 twice in the grid."),
        (("--grid", "seed=1,2", "--seeds", "1"), "--grid names seed twice; list all its values at once."),
        (("--grid", "validation=10,60"), "Cannot hold out 60 validation cases of 54; leave at least one to train on."),
        (("--grid", "data=digits,-"), "A sweep cannot train on a stream, which only one run could read; give a file."),
        (("--seeds", "1", "2", "--jobs", "0"), "--jobs must be at least 1, got 0."),
        (("--seeds", "1", "2", "--budget", "0"), "--budget must be above 0, got 0.0."),
        (("nowhere",), "There is no file or folder nowhere; give a TOML file, or a sweep's folder."),
    ],
)
def test_mistakes_get_a_sentence_before_anything_starts(words, sentence, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["sweep", *words, *TINY])
    assert caught.value.code == 2
    assert capsys.readouterr() == ("", f"nvil: {sentence}\n")
    assert not Path("runs").exists()


def test_a_run_that_fails_stops_no_other_and_the_rest_is_not_done_again(capsys):
    command = ["sweep", *TINY, "--grid", "learning_rate=0.01,1e38", "--seeds", "0", "1", "--out", "s"]
    with pytest.raises(SystemExit) as caught:
        main(command)
    assert caught.value.code == 1
    out, err = capsys.readouterr()
    failed = ["learning_rate=1e+38,seed=0", "learning_rate=1e+38,seed=1"]
    assert len(InThisProcess.started) == 4
    assert f"Of 4 runs 2 failed ({', '.join(failed)}; see s/failed)" in err
    assert f"nvil: {failed[0]} failed: The bound or the parameters stopped being finite by update" in err
    assert "stopped being finite" in Path("s/failed", f"{failed[0]}.txt").read_text()

    runs = rows("s/runs.csv")
    assert [row["state"] for row in runs] == ["done", "done", "failed", "failed"]
    bounds = np.array([float(row["test_bound"]) for row in runs[:2]])
    run = nvil.Run.open(f"s/{runs[0]['run']}")
    assert bounds[0] == nvil.evaluate(run.load_best(), run.split("test")).bound
    table = rows("s/table.csv")
    assert [(row["learning_rate"], row["done"], row["runs"]) for row in table] == [
        ("0.01", "2", "2"),
        ("1e+38", "0", "2"),
    ]
    assert float(table[0]["test_bound"]) == pytest.approx(bounds.mean())
    assert float(table[0]["test_bound_se"]) == pytest.approx(bounds.std(ddof=1) / np.sqrt(2))
    assert table[1]["test_bound"] == ""
    assert f"{bounds.mean():.2f} ± {bounds.std(ddof=1) / np.sqrt(2):.2f}" in out
    assert "best      learning_rate=0.01 (by the validation bound)" in out
    page = Path("s/comparison.html").read_text()
    assert "The sweep" in page
    assert f"{failed[1]} failed." in page

    # the same folder, with a grid that works: what is done is left alone
    InThisProcess.started.clear()
    with pytest.raises(SystemExit):
        main(["sweep", "s"])
    assert InThisProcess.started == failed
    InThisProcess.started.clear()
    sweep = nvil.Sweep("s", nvil.Sweep.open("s").base, {"learning_rate": [0.01], "seed": [0, 1]})
    assert sweep.fit() == []
    assert [row["done"] for row in sweep.table()] == [2]
    with pytest.raises(
        UsageError, match=r"holds a sweep with other choices \(hidden \(2,\) -> \(3,\); updates 2 -> None"
    ):
        nvil.Sweep("s", nvil.Config(data="pixels.npy", hidden=(3,)), sweep.grid).prepare()


def test_a_grid_grows_and_loses_nothing_that_is_done(capsys):
    """What takes long is left out: a run is done where its result is."""

    def sweep(*, write=True, **grid):
        made = nvil.Sweep("s", nvil.Config("pixels.npy", hidden=(2,), updates=2, validation=10), grid)
        made.prepare()
        for point in made.points():
            if write and made.result(point) is None:
                InThisProcess.started.append(point.name)
                Path("s/results").mkdir(exist_ok=True)
                found = {"asked": 2, "updates": 2, "seconds": 1.0, **dict.fromkeys(MEASURES, -float(point.config.seed))}
                Path("s/results", f"{point.name}.json").write_text(json.dumps(found))
        made.write_tables()
        return [(row["run"], row["state"]) for row in rows("s/runs.csv")]

    names = [f"learning_rate={rate},seed={seed}" for rate in (0.01, 0.02) for seed in (0, 1)]
    assert sweep(learning_rate=[0.01], seed=[0, 1]) == [(name, "done") for name in names[:2]]
    before = Path("s/sweep.toml").read_text(), Path("s/table.csv").read_text()
    for grid in (
        {"learning_rate": [0.02], "seed": [0, 1]},
        {"learning_rate": [0.01], "seed": [1, 2]},
        {"seed": [0, 1], "learning_rate": [0.01]},
        {"hidden": [(2,)], "learning_rate": [0.01], "seed": [0, 1]},
    ):
        with pytest.raises(
            UsageError, match=r"not in this grid, such as .* \(learning_rate=0.01; seed=0,1\), or choose"
        ):
            sweep(**grid)
    with pytest.raises(SystemExit):
        main(["sweep", "s", "--grid", "learning_rate=0.02,0.03"])
    assert capsys.readouterr().err == (
        f"nvil: s holds finished runs that are not in this grid, such as {names[0]}, and its tables would lose them; "
        "add values to the grid that is there (learning_rate=0.01; seed=0,1), or choose another --out.\n"
    )
    assert (Path("s/sweep.toml").read_text(), Path("s/table.csv").read_text()) == before

    InThisProcess.started.clear()
    assert sweep(learning_rate=[0.01, 0.02], seed=[0, 1]) == [(name, "done") for name in names]
    assert InThisProcess.started == names[2:]
    undone = sweep(learning_rate=[0.01, 0.02, 0.03], seed=[0, 1], write=False)
    assert [state for _, state in undone] == ["done"] * 4 + ["not done"] * 2
    assert len(sweep(learning_rate=[0.01, 0.02], seed=[0, 1])) == 4  # what was not done may go


@pytest.mark.parametrize(
    ("axis", "said"),
    [("updates", "best      updates=2 (by the validation bound)"), ("threshold", "none: threshold changes the data")],
)
def test_no_best_is_named_among_runs_on_different_data(axis, said, capsys):
    empty = {f"{name}{se}": None for name in MEASURES for se in ("", "_se")}
    table = [{axis: value, "runs": 1, "done": 1, **empty, "validation_bound": float(value)} for value in (1, 2)]
    _print_table(types.SimpleNamespace(grid={axis: (1, 2)}, table=lambda: table))
    assert said in capsys.readouterr().out


def test_a_job_whose_parent_is_gone_saves_and_stops_and_a_taken_folder_is_waited_for(monkeypatch, capsys):
    sweep = nvil.Sweep("s", nvil.Config("pixels.npy", hidden=(2,), updates=10**6, validation=10), {"seed": [0, 1]})
    sweep.prepare()
    monkeypatch.setenv(jobs.PARENT, str(os.getppid() + 1))
    with pytest.raises(SystemExit) as caught:
        main(["sweep", "s", "--only", "seed=0"])
    assert caught.value.code == 128 + 15
    assert "Stopped and saved at update" in capsys.readouterr().err
    assert nvil.Run.open("s/seed=0").updates() > 0

    shutil.rmtree("s/seed=0")
    Path("s/seed=0").mkdir()
    job = jobs.Job("seed=0", ["--version"], Path("s/seed=0"), 2)
    seen = []
    with contextlib.ExitStack() as taken:
        taken.enter_context(locked(job.folder))

        def watch(_):
            seen.append(job.state)
            taken.close()

        assert jobs.run_jobs([job], watch=watch)
    assert seen == ["waiting", "done"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_all_runs_says_how_to_go_on_and_is_the_exit_code(monkeypatch, capfd, number, code):
    sweep = nvil.Sweep("s", nvil.Config("pixels.npy", hidden=(2,), updates=2, validation=10), {"seed": [0, 1]})
    sweep.prepare()
    monkeypatch.setattr(jobs.time, "sleep", lambda _: signal.raise_signal(number))
    monkeypatch.setattr(jobs, "is_locked", lambda _: True)  # both runs wait for another process
    with pytest.raises(SystemExit) as caught:
        main(["sweep", "s"])
    assert caught.value.code == code
    assert capfd.readouterr().err.strip().splitlines() == [
        "nvil: Saving, then stopping; Ctrl-C again stops at once.",
        "nvil: Stopped; what was running is saved. To go on: nvil sweep s",
    ]
    assert [row["done"] for row in rows("s/table.csv")] == ["0"]
