"""Runs survive: death at any instant, full disks, damaged and hostile files, and each other."""

import dataclasses
import errno
import inspect
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import numpy as np
import pytest
import safetensors.numpy
import scipy.sparse

import nvil
import nvil.report
from helpers import SLOW, first
from nvil import learning, training
from nvil.cli import main
from nvil.runs import Config, Run, checkpoints, lock, tensorboard
from processes import Commands, plain_diagnose, plain_page

CASES = (np.random.default_rng(0).random((60, 6)) < np.linspace(0.1, 0.9, 6)).astype(np.uint8)
SIZES = ("--hidden", "3", "2", "--batch-size", "4", "--validation", "10")


@pytest.fixture(autouse=True, scope="module")
def plain_pages():
    """Pages are test_report's; drawing one takes longer than the trainings here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvil.report, "write_report", plain_page)
        yield


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def refused(capsys, *arguments, code=2):
    """The one sentence with which a command ends badly."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert caught.value.code == code
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1, captured.err
    return lines[0]


def assert_same_run(one: Path, other: Path):
    """Metrics, newest checkpoint and best parameters are the same bytes, and nothing unfinished is left."""
    for name in ("metrics.jsonl", "best.safetensors", newest(other).relative_to(other)):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    for run in (one, other):
        assert not [path for path in run.rglob("*") if path.name.endswith(".part") or path.name == "lock"]


def newest(run: Path) -> Path:
    return max((run / "checkpoint").glob("*.safetensors"))


# --- processes that are killed ---


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands")
    np.save(folder / "cases.npy", CASES)
    commands = Commands(folder)
    yield commands
    commands.close()


UPDATES = "6000"
"""Of runs that are stopped: enough that none is done before it is."""
KILLED = (
    "--hidden",
    "3",
    "--batch-size",
    "4",
    "--validation",
    "10",
    "--data",
    "cases.npy",
    "--report-every",
    "7",
    "--checkpoint-seconds",
    "0",
    "--quiet",
)


@pytest.fixture(scope="module")
def uninterrupted(commands):
    """The run that nothing happened to; it also fills the cache of compiled functions."""
    assert commands.run("train", *KILLED, "--checkpoint-seconds", "1000", "--updates", UPDATES, "--out", "whole") == 0
    return commands.folder / "whole"


def report_count(run: Path) -> int:
    metrics = run / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def until(condition, seconds=120):
    """Wait, closely."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.0005)


def stopped_in_writing(run: Path, pid: int) -> bool:
    """Halt the process while it writes a file, or somewhere after several attempts."""
    for _ in range(10):
        until(lambda: list(run.rglob(".*.part")))
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.002)
        if list(run.rglob(".*.part")):
            return True
        os.kill(pid, signal.SIGCONT)
    return False


def killed_over_and_over(commands, uninterrupted, name, kills, seed):
    """Kill at random instants: of every four lives one anywhere from its start on, one in the midst of writing a file,
    and two anywhere after a report."""
    run = commands.folder / name
    dice = random.Random(seed)
    dead = in_writing = 0
    while dead < kills:
        pid = commands.start("train", *KILLED, "--updates", UPDATES, "--out", name)
        before = report_count(run)
        if dead % 4 == 0:
            time.sleep(dice.uniform(0, 1.5))
        elif dead % 4 == 1:
            in_writing += stopped_in_writing(run, pid)
        else:
            until(lambda before=before: report_count(run) > before)  # it may first be cut down to the checkpoint
            time.sleep(dice.uniform(0, 0.02))
        os.kill(pid, signal.SIGKILL)
        assert commands.wait(pid) == -signal.SIGKILL, commands.error(pid)  # else it was done: more updates are needed
        dead += 1
    assert in_writing > 0
    assert commands.run("train", *KILLED, "--updates", UPDATES, "--out", name) == 0
    assert_same_run(run, uninterrupted)


@SLOW  # test_own_run has one kill
def test_killed_4_times_a_run_ends_in_the_same_bits(commands, uninterrupted):
    killed_over_and_over(commands, uninterrupted, "killed", 4, seed=0)


@SLOW
@pytest.mark.parametrize("seed", range(1, 6))
def test_killed_again_and_again(commands, uninterrupted, seed):
    killed_over_and_over(commands, uninterrupted, f"killed{seed}", 24, seed)


@SLOW
def test_sigterm_and_ctrl_c_save_and_say_how_to_go_on(commands, uninterrupted):
    """Off the grid of reports: chunks are cut at every third update, reports at every seventh."""
    run = commands.folder / "stopped"
    arguments = ["train", *KILLED, "--checkpoint-updates", "3", "--updates", UPDATES, "--out", "stopped"]
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGINT, 130)):
        pid, before = commands.start(*arguments), report_count(run)
        until(lambda before=before: report_count(run) > before + 1)
        os.kill(pid, number)
        assert commands.wait(pid) == code, commands.error(pid)
        *_, first, last = commands.error(pid).strip().splitlines()
        assert first == "nvil: Saving, then stopping; Ctrl-C again stops at once."
        at = int(newest(run).stem)
        assert last == f"nvil: Stopped and saved at update {at}; to go on: {shlex.join(['nvil', *map(str, arguments)])}"
        assert not (run / "lock").exists()
    assert commands.run(*arguments) == 0
    assert_same_run(run, uninterrupted)


@SLOW
def test_a_second_ctrl_c_ends_at_once(commands, uninterrupted):
    """Even where a chunk does not end: the signal handler is called twice before it does."""
    settings = [value if value != "0" else "1000" for value in KILLED]
    pid = commands.start("train", *settings, "--updates", "100000000", "--report-every", "100000000", "--out", "twice")
    until(lambda: (commands.folder / "twice/config.toml").exists())
    for _ in range(200):  # the first may come between two chunks
        try:
            os.kill(pid, signal.SIGINT)
        except ProcessLookupError:
            break
        if "at once; what" in commands.error(pid) or "to go on" in commands.error(pid):
            break
        time.sleep(0.0002)
    assert commands.wait(pid) == 130
    assert "Traceback" not in commands.error(pid)


def test_two_processes_on_one_run_and_a_dead_owner(commands):
    long = ("train", *KILLED, "--updates", "1000000", "--out", "contested")
    owner = commands.start(*long)
    until(lambda: report_count(commands.folder / "contested") > 1)
    second = commands.start(*long)
    assert commands.wait(second) == 2
    assert commands.error(second).strip() == (
        f"nvil: Another process (PID {owner}) is training in contested; wait for it, stop it, or choose another --out."
    )
    assert commands.run("evaluate", "contested") == 0  # to look is allowed
    os.kill(owner, signal.SIGKILL)
    commands.wait(owner)
    assert (commands.folder / "contested/lock").read_text().strip() == str(owner)
    third, before = commands.start(*long), int(newest(commands.folder / "contested").stem)
    until(lambda: int(newest(commands.folder / "contested").stem) > before)
    os.kill(third, signal.SIGTERM)
    assert commands.wait(third) == 143


def test_before_its_first_checkpoint_a_run_says_when_that_is_due(copy, capsys):
    copy[0].rename("run")
    Path("run/best.safetensors").unlink()
    due = r"its first checkpoint is due in about (5\d|60) seconds, unless its --checkpoint-seconds says otherwise\."
    with lock.locked(Path("run")):
        os.utime("run/config.toml")
        assert re.search(
            f"The run run is in training and has no checkpoint yet; {due}", refused(capsys, "evaluate", "run")
        )
        Path("run/config.toml").unlink()
        assert re.search(f"The run run has only just begun; {due}", refused(capsys, "evaluate", "run"))
    Path("run/lock").touch()  # its owner is dead
    assert "config.toml is missing" in refused(capsys, "evaluate", "run")


# --- faults at every single call that changes a file ---


class Dead(BaseException):
    """The process is gone: nothing it does reaches the disk any more."""


class Faults:
    """From call `at` on, each call that changes a file fails; a write that fails has written half."""

    def __init__(self, monkeypatch, error, writes_only=False):
        self.error, self.at, self.calls = error, None, 0
        for module, names in ((os, ("fsync",)), (os, () if writes_only else ("replace", "unlink", "rename", "chmod"))):
            for name in names:
                monkeypatch.setattr(module, name, self.failing(getattr(module, name)))
        real_fdopen, real_open = os.fdopen, Path.open
        monkeypatch.setattr(os, "fdopen", lambda *args: self.half_writing(real_fdopen(*args)))
        monkeypatch.setattr(
            Path,
            "open",
            lambda path, mode="r", *args, **options: (
                self.half_writing(real_open(path, mode, *args, **options))
                if mode == "ab"
                else real_open(path, mode, *args, **options)
            ),
        )

    def fails(self):
        self.calls += 1
        return self.at is not None and self.calls > self.at

    def failing(self, function):
        def call(*args, **options):
            if self.fails():
                raise self.error()
            return function(*args, **options)

        return call

    def half_writing(self, file):
        faults = self

        class File:
            def __enter__(self):
                return self

            def __exit__(self, *_):
                file.close()

            def write(self, text):
                if faults.fails():
                    file.write(text[: len(text) // 2])
                    file.flush()
                    raise faults.error()
                return file.write(text)

            def __getattr__(self, name):
                return getattr(file, name)

        return File()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "cases.npy"
    np.save(path, CASES)
    return Config(data=str(path)).load_data()


def once(function):
    """The first answer, every time."""
    answers = []

    def first(*args, **settings):
        answers[:] = answers or [function(*args, **settings)]
        return answers[0]

    return first


@pytest.fixture
def short_run(dataset, tmp_path, monkeypatch):
    """A run of twelve updates with reports at 5, 10 and 12 and checkpoints at 4, 8 and 12."""
    np.save("cases.npy", CASES)
    config = Config(data="cases.npy", hidden=(3,), updates=12, batch_size=4, validation=10, report_every=5)
    # Building and tracing the same networks again takes longer than all the rest.
    monkeypatch.setattr(training, "empty_tally", once(training.empty_tally))
    monkeypatch.setattr(checkpoints, "empty_tally", training.empty_tally)
    monkeypatch.setattr(learning, "check_pair", once(learning.check_pair))
    monkeypatch.setattr(nvil.runs.run, "_shapes", once(nvil.runs.run._shapes))
    monkeypatch.setattr(checkpoints, "_shapes", once(checkpoints._shapes))
    monkeypatch.setattr(nvil.Learner, "diagnose", plain_diagnose)
    experiment = once(lambda run: run.prepare())

    def train(folder):
        run = Run.from_config(folder, config, dataset)
        run = dataclasses.replace(run, prepare=lambda run=run: experiment(run))
        return [report.updates for report in run.fit(checkpoint_updates=4)]

    assert train(Path("whole")) == [5, 10, 12]
    return train


def no_space():
    return OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("error", first(1, [Dead, no_space]))
def test_a_fault_at_every_single_call_loses_nothing(short_run, error, monkeypatch):
    with monkeypatch.context() as patch:
        faults = Faults(patch, error, writes_only=error is no_space)
        short_run(Path("counted"))
    assert faults.calls > 25
    for at in range(faults.calls):
        folder = Path(f"fault{at}")
        with monkeypatch.context() as patch:
            broken = Faults(patch, error, writes_only=error is no_space)
            broken.at = at
            with pytest.raises((Dead, OSError)) as caught:
                short_run(folder)
        if error is no_space:
            assert caught.value.errno == errno.ENOSPC
            assert caught.value.filename.startswith(str(folder))
            assert not list(folder.rglob("*.part"))
        short_run(folder)
        assert_same_run(folder, Path("whole"))


def test_a_small_disk(capsys):
    """The same for real: a file system that is full in the midst of a run, and then is not."""
    Path("disk").mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=72k", "tmpfs", "disk"], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("only root can mount a small file system")
    try:
        np.save("cases.npy", CASES)
        arguments = ["train", "--data", "cases.npy", *SIZES, "--updates", "20", "--report-every", "4", "--quiet"]
        arguments += ["--checkpoint-updates", "4"]
        message = refused(capsys, *arguments, "--out", "disk/run", code=1)
        assert "No space left on device (disk/run/" in message
        assert "What was saved before is kept; make room" in message
        kept = [path for path in Path("disk/run/checkpoint").iterdir() if path.suffix == ".safetensors"]
        assert kept
        assert not list(Path("disk").rglob("*.part"))
        subprocess.run(["mount", "-o", "remount,ro", "disk"], check=True)
        message = refused(capsys, *arguments, "--out", "disk/run")
        assert message == "nvil: Cannot write to disk/run: Read-only file system. Choose another --out."
        subprocess.run(["mount", "-o", "remount,rw,size=20m", "disk"], check=True)
        main([*arguments, "--out", "disk/run"])
        main([*arguments, "--out", "whole"])
        assert_same_run(Path("disk/run"), Path("whole"))
    finally:
        subprocess.run(["umount", "disk"], check=True)


# --- files that are damaged, from the future, or hostile ---


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    np.save(folder / "cases.npy", CASES)
    arguments = ["train", "--data", str(folder / "cases.npy"), *SIZES, "--report-every", "5", "--quiet"]
    arguments += ["--checkpoint-updates", "10"]
    main([*arguments, "--updates", "20", "--out", str(folder / "run"), "--tensorboard"])
    return folder / "run", arguments


@pytest.fixture
def copy(finished):
    shutil.copytree(finished[0], "copy")
    return Path("copy"), [*finished[1], "--updates", "25", "--out", "copy"]


@pytest.fixture(scope="module")
def longer(finished):
    folder, arguments = finished
    longer = folder.parent / "longer"
    main([*arguments, "--updates", "25", "--out", str(longer)])
    return longer


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "truncated":
        content = content[: len(content) // 2]
    elif how == "empty":
        content = b""
    elif how == "header":
        content[:8] = (2**62).to_bytes(8, "little")
    elif how == "a bit":
        content[-100] ^= 1
    else:
        content[8:40] = bytes(range(32))
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["truncated", "empty", "header", "overwritten", "a bit"])
def test_a_damaged_checkpoint_is_passed_over_and_said(how, copy, longer, capsys):
    run, arguments = copy
    damage(newest(run), how)
    name = newest(run).stem
    capsys.readouterr()
    main(arguments)
    said = capsys.readouterr().err
    reason = "is damaged: its checksum" if how == "a bit" else "is not a readable safetensors file"
    assert f"{name}.safetensors {reason}" in said
    assert "Going on from the checkpoint before it." in said
    assert_same_run(run, longer)
    assert [path.stem for path in sorted((run / "checkpoint").glob("*.safetensors"))] == [
        "000000000020",
        "000000000025",
    ]
    assert (run / "checkpoint" / f"{name}.damaged").exists()  # not ours to throw away


def test_when_no_checkpoint_can_be_read_nothing_is_touched(copy, capsys):
    run, arguments = copy
    for path in (run / "checkpoint").iterdir():
        damage(path, "truncated")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert (
        "There is no other checkpoint; choose another --out, or remove copy to start again." in capsys.readouterr().err
    )
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def rewritten(path: Path, arrays=None, **metadata) -> None:
    """The same file with some arrays or metadata changed."""
    stored = safetensors.numpy.load_file(path)
    with safetensors.safe_open(path, framework="numpy") as file:
        known = json.loads(file.metadata()["nvil"])
    text = json.dumps({**known, **metadata})
    path.write_bytes(safetensors.numpy.save({**stored, **(arrays or {})}, metadata={"nvil": text}))


def test_files_of_a_newer_format_are_refused_and_kept(copy, capsys):
    run, arguments = copy
    rewritten(newest(run), format="3")
    before = newest(run).read_bytes()
    assert "is of format 3, and this version of nvil reads format 2; install a newer nvil." in refused(
        capsys, *arguments
    )
    assert newest(run).read_bytes() == before
    rewritten(run / "best.safetensors", format="3")
    assert "best.safetensors is of format 3" in refused(capsys, "evaluate", run)
    config = run / "config.toml"
    config.write_text(config.read_text().replace("format = 2", "format = 7"))
    assert "config.toml is of format 7" in refused(capsys, *arguments)
    assert "config.toml is of format 7" in refused(capsys, "sample", run)


def huge_header(path: Path) -> None:
    path.write_bytes((10**9).to_bytes(8, "little") + b'{"x":' + b"[" * 100_000)


def huge_claim(path: Path) -> None:
    header = json.dumps({"model": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)


HOSTILE_PARAMETERS = {
    "huge header": (huge_header, "not a readable safetensors file"),
    "huge claim": (huge_claim, "not a readable safetensors file"),
    "other names": (lambda p: rewritten(p, {"<script>" * 50: np.zeros(1)}), "is in only one of the two"),
    "wrong shape": (
        lambda p: rewritten(p, {"model.layers.0.logits.bias": np.zeros((7, 9), np.float32)}),
        "'model.layers.0.logits.bias' has shape [7, 9], not [6]",
    ),
    "wrong type": (
        lambda p: rewritten(p, {"model.layers.0.logits.bias": np.zeros(6, np.int64)}),
        "'model.layers.0.logits.bias' is int64, not float32",
    ),
    "odd metadata": (
        lambda p: p.write_bytes(safetensors.numpy.save({}, metadata={"nvil": "[1, 2]"})),
        "its metadata is not what nvil writes",
    ),
    "deep metadata": (
        lambda p: p.write_bytes(safetensors.numpy.save({}, metadata={"nvil": "[" * 100_000})),
        "not a readable safetensors file",
    ),
    "odd format": (lambda p: rewritten(p, format="new"), "its format is 'new', not a number"),
}


@pytest.mark.parametrize("name", HOSTILE_PARAMETERS)
def test_hostile_parameters_get_one_clear_sentence(name, copy, capsys):
    run, _ = copy
    make, message = HOSTILE_PARAMETERS[name]
    make(run / "best.safetensors")
    sentence = refused(capsys, "evaluate", run)
    assert message in sentence
    assert len(sentence) < 400


HOSTILE_CONFIGS = {
    "hidden = [3, 2]": {
        "hidden = [1000000000]": "best.safetensors does not hold the parameters its config describes",
        "hidden = [1000000000, 1000000000]": "has shape",
        "hidden = [100000000000000000000]": "at most 2147483647, got 100000000000000000000",
        "hidden = [0]": "The sizes of --hidden layers must be at least 1",
        "hidden = []": "at least one layer",
        "hidden = 3": "hidden must be a list of whole numbers",
        "hidden = [true]": "hidden must be a list of whole numbers",
        'hidden = ["3"]': "hidden must be a list of whole numbers",
        f"hidden = {[1] * 5000}": "more than 100 are not supported",
        f"hidden = {'[' * 5000}": "config.toml cannot be read",
    },
    "updates = 20": {
        'updates = "many"': "updates must be a whole number",
        "updates = 1e300": "updates must be a whole number",
        "updates = true": "updates must be a whole number",
        f"updates = {'9' * 5000}": "config.toml cannot be read",
        "updates = 1979-05-27": "updates must be a whole number",
    },
    "learning_rate = 0.003": {
        "learning_rate = nan": "must be a positive number",
        "learning_rate = [1]": "learning_rate must be a number",
        f"learning_rate = {'9' * 400}": "must be a positive number",
    },
    "visible = 6": {
        "visible = 6000000000000": "visible must be at least 1 and at most 2147483647, got 6000000000000",
        "visible = 0": "visible must be at least 1 and at most 2147483647, got 0",
        "visible = 7": "has shape",
        "visible = 6\nimage = [3, 3]": "a picture of [3, 3] does not have 6 pixels",
        "visible = 6\nimage = [3]": "image must be a list of whole numbers",
        "visible = 6\nlengths = [-1]": "lengths must be at least 1",
        "visible = 6\nlengths = []": "lengths must be at least 1",
        "visible = 6\nlengths = [3]": "lengths are those of documents, whose values must be counts",
        "visible = 6\nimage = [-2, -3]": "a picture of [-2, -3] does not have 6 pixels",
        "": "visible is missing",
    },
    'model = "sbn"': {'model = "<script>"': "Unknown model '<script>'", "model = 3": "model must be a text"},
    "seed = 0": {"seed = 0\n\x00": "config.toml cannot be read", "seed = -1": "--seed must be at least 0"},
}


@pytest.mark.parametrize("line", HOSTILE_CONFIGS)
def test_a_hostile_config_gets_one_clear_sentence(line, copy, capsys):
    run, _ = copy
    config = (run / "config.toml").read_text()
    assert line in config
    for other, message in HOSTILE_CONFIGS[line].items():
        (run / "config.toml").write_text(config.replace(line, other))
        sentence = refused(capsys, "evaluate", run)
        assert message in sentence, other
        assert len(sentence) < 400


def test_a_format_that_is_no_number(copy, capsys):
    run, _ = copy
    config = (run / "config.toml").read_text()
    for version in ("inf", "nan", '"one"'):
        (run / "config.toml").write_text(config.replace("format = 2", f"format = {version}"))
        assert "its format is" in refused(capsys, "evaluate", run)


def test_a_lock_that_leads_elsewhere_is_not_followed(copy, capsys):
    run, arguments = copy
    Path("precious.txt").write_text("precious")
    (run / "lock").symlink_to(Path("precious.txt").resolve())
    refused(capsys, *arguments, code=1)
    assert Path("precious.txt").read_text() == "precious"


def test_a_report_of_a_million_numbers_is_not_multiplied(copy):
    run, _ = copy
    lines = [json.dumps({"updates": 1, "a": [0] * 1_000_000}), *(f'{{"updates": {i}}}' for i in range(2, 4000))]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert "a" not in Run.open(run).metrics()


def test_another_config_is_told_how_to_go_on(copy, capsys):
    run, _ = copy
    sentence = refused(capsys, "train", "--out", run)
    assert "hidden (3, 2) -> (100, 50)" in sentence
    main([*shlex.split(sentence.split("go on with: nvil ")[1]), "--quiet"])


def recorded(run: Path, name: str = "data") -> str | None:
    return getattr(Run.open(run).config, name)


def test_a_run_whose_data_has_moved_goes_on_from_its_new_place(capsys, monkeypatch):
    monkeypatch.setattr(nvil.Learner, "diagnose", plain_diagnose)
    arguments = [*SIZES, "--updates", "20", "--report-every", "5", "--checkpoint-updates", "10", "--quiet"]
    np.save("cases.npy", CASES)
    main(["train", "--data", "cases.npy", *arguments, "--out", "run"])
    shutil.copytree("run", "again")
    shutil.copytree("run", "whole")
    main(["resume", "whole", "--updates", "25", "--quiet"])
    Path("elsewhere").mkdir()
    Path("cases.npy").rename("elsewhere/moved.npy")
    gone = (
        f"nvil: There is no file {Path('cases.npy').resolve()} any more, which run was trained on; if it has moved, "
        "say where to with: nvil resume run --data PATH"
    )
    assert refused(capsys, "resume", "run") == gone
    assert refused(capsys, "evaluate", "run") == gone
    np.save("cases.npy", 1 - CASES)
    sentence = refused(capsys, "resume", "run", "--data", "cases.npy")
    assert sentence == "nvil: The data 'cases.npy' is not what run was trained on; its contents are others."
    assert "its contents changed" in refused(capsys, "evaluate", "run")
    Path("cases.npy").unlink()

    made = Run.open("run").made_with
    main(["resume", "run", "--data", "elsewhere/moved.npy", "--quiet"])  # nothing is left to train
    assert recorded(Path("run")) == str(Path("elsewhere/moved.npy").resolve())
    assert Run.open("run").made_with == made
    main(["evaluate", "run"])
    main(["resume", "run", "--updates", "25", "--quiet"])
    assert_same_run(Path("run"), Path("whole"))
    other = ["train", "--data", "elsewhere/moved.npy", *arguments, "--updates", "25", "--out", "again"]
    assert "batch_size 4 -> 5" in refused(capsys, *other, "--batch-size", "5")
    main(other)
    assert recorded(Path("again")) == recorded(Path("run"))
    assert_same_run(Path("again"), Path("whole"))


def test_a_vocabulary_that_is_gone_is_read_from_the_run(monkeypatch):
    monkeypatch.setattr(nvil.Learner, "diagnose", plain_diagnose)
    Path("texts.txt").write_text("one two two\ntwo three\nthree one\n" * 10)
    Path("words.txt").write_text("one\ntwo\nthree\n")
    text = ["--data", "texts.txt", "--vocabulary", "words.txt", "--hidden", "2", "--batch-size", "4", "--quiet"]
    main(["train", *text, "--updates", "4", "--out", "run"])
    Path("words.txt").unlink()
    Path("texts.txt").rename("moved.txt")
    main(["resume", "run", "--data", "moved.txt", "--updates", "6", "--quiet"])
    assert Run.open("run").updates() == 6
    assert recorded(Path("run"), "vocabulary") == str(Path("run/vocabulary.txt").resolve())


@pytest.mark.parametrize("path", ["../../../etc/passwd", "/dev/zero", "/dev/zero.npy", ".", "\\u0000.npy"])
def test_a_config_that_names_other_files_is_refused(path, copy, capsys):
    run, _ = copy
    lines = (run / "config.toml").read_text().splitlines()
    lines = [f'data = "{path}"' if line.startswith("data =") else line for line in lines]
    (run / "config.toml").write_text("\n".join(lines))
    assert len(refused(capsys, "evaluate", run)) < 400


def test_hostile_metrics_do_no_harm(copy, longer, caplog):
    run, arguments = copy
    metrics = run / "metrics.jsonl"
    good = metrics.read_bytes()
    odd = [
        b"garbage",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"updates": 1e9}',
        b'{"updates": "5"}',
        b'{"updates": -5}',
        b'{"updates": ' + b"9" * 5000 + b"}",
        b"[1, 2]",
        b"null",
        b'{"bound": 1}',
    ]
    metrics.write_bytes(b"\n".join([*odd[:5], good.rstrip(b"\n"), *odd[5:], b'{"updates": 21']))
    found = Run.open(run).metrics()
    np.testing.assert_array_equal(found["updates"], [5, 10, 15, 20])
    assert "metrics.jsonl: 10 invalid lines are skipped." in caplog.text
    main(arguments)
    assert_same_run(run, longer)


def test_numbers_that_are_none_are_nan(copy):
    run, _ = copy
    huge = "9" * 400
    lines = [
        '{"updates": 1, "bound": NaN, "best_bound": 1e999, "signal": {"mean": [1, 2]}, "text": "<script>"}',
        '{"updates": 2, "bound": "low", "best_bound": -' + huge + ', "signal": {"mean": [1]}}',
        '{"updates": 3, "bound": null, "best_bound": true, "signal": {"mean": "x"}}',
        '{"updates": 4, "bound": -1.5, "signal": null}',
    ]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    found = Run.open(run).metrics()
    np.testing.assert_array_equal(found["updates"], [1, 2, 3, 4])
    np.testing.assert_array_equal(found["bound"], [np.nan, np.nan, np.nan, -1.5])
    np.testing.assert_array_equal(found["best_bound"], [np.inf, -np.inf, np.nan, np.nan])
    np.testing.assert_array_equal(found["signal.mean"], [[1, 2], [np.nan] * 2, [np.nan] * 2, [np.nan] * 2])
    assert "text" not in found


# --- from Python ---


def test_a_run_on_data_from_python_says_so_and_is_evaluated_on_no_other(monkeypatch, capsys):
    monkeypatch.setattr(nvil.Learner, "diagnose", plain_diagnose)
    config = Config(hidden=(3,), updates=4, batch_size=4, validation=10)
    list(Run.from_config("run", config, nvil.data.load(CASES)).fit())
    assert recorded(Path("run")) == "data from Python"
    kept = "nvil: run was trained on data from Python, which is not kept; "
    for command in ("evaluate", "index"):
        assert refused(capsys, command, "run") == f"{kept}give cases with --data instead."
    again = "to go on, give it again to nvil.Run.from_config, or a file of the same cases with --data."
    assert refused(capsys, "resume", "run") == f"{kept}{again}"
    for command in (("train",), ("sweep", "--seeds", "0", "1"), ("compare",)):
        assert refused(capsys, *command, "--from", "run", "--out", "other") == (
            "nvil: The data that these choices were for came from Python, and is not kept; give --data."
        )
    assert "--data FILE" in Run.open("run").command(all=True)

    assert list(Run.from_config("run", config, nvil.data.load(CASES)).fit()) == []  # the same lines go on
    with pytest.raises(nvil.UsageError, match="is not what run was trained on; its contents changed"):
        Run.from_config("run", config, nvil.data.load(1 - CASES))
    np.save("cases.npy", CASES)
    main(["evaluate", "run", "--data", "cases.npy"])
    main(["resume", "run", "--data", "cases.npy", "--quiet"])
    assert recorded(Path("run")) == str(Path("cases.npy").resolve())
    main(["evaluate", "run"])


def test_a_run_records_where_its_data_was_loaded_from(tmp_path):
    np.save("cases.npy", CASES)
    loaded = nvil.data.load("cases.npy")
    changed = dataclasses.replace(loaded, train=loaded.train[:40])
    stream = nvil.data.load(iter(CASES))
    for data, dataset, place in (
        ("digits", loaded, str(tmp_path / "cases.npy")),
        ("cases.npy", changed, "data from Python"),
        ("digits", nvil.data.load("digits"), "digits"),
        ("-", stream, "-"),
        ("digits", stream, "data from Python"),
    ):
        run = Run.described("run", Config(data=data, hidden=(2,), updates=3), dataset)
        assert run.config is not None
        assert run.config.data == place


def test_a_run_from_python(copy, longer):
    run = nvil.Run.open("copy")
    metrics = run.metrics()
    layers = 2
    for name, shape in {
        "updates": (4,),
        "bound": (4,),
        "validation_bound": (4,),
        "validation_se": (4,),
        "best_bound": (4,),
        "signal.raw_deviation": (4, layers),
        "gradient_norms.model": (4,),
        "diagnostics.kl": (4, layers),
        "diagnostics.units_in_use": (4, layers),
        "diagnostics.gradient_snr.inference": (4,),
        "diagnostics.signal_variance.raw": (4, layers),
        "diagnostics.signal_variance.VarianceNormalisation": (4, layers),
    }.items():
        assert metrics[name].shape == shape, name
        assert np.all(np.isfinite(metrics[name])), name
    np.testing.assert_array_equal(metrics["best_bound"], np.maximum.accumulate(metrics["validation_bound"]))
    assert np.all(run.timing()["updates_per_second"] > 0)
    assert nvil.chain(run.load_best()) == "x 6 <- h1 3 <- h2 2"
    assert run.made_with["version"] == nvil.__version__
    assert run.made_with["jax"]
    assert [report.updates for report in run.resume(updates=25)] == [25]
    assert_same_run(Path("copy"), longer)
    with pytest.raises(nvil.UsageError, match="can only grow"):
        next(nvil.Run.open("copy").resume(updates=3))


def test_a_caller_who_has_enough_leaves_a_run_to_go_on_with(copy, longer):
    reports = nvil.Run.open("copy").resume(updates=25)
    with pytest.raises(nvil.UsageError, match=f"Another process .PID {os.getpid()}. is training in copy"):
        next(reports), next(nvil.Run.open("copy").resume(updates=25))
    reports.close()
    list(nvil.Run.open("copy").resume())
    assert_same_run(Path("copy"), longer)


def test_a_run_that_was_opened_trains_as_it_is_told_to(copy):
    config = Path("copy/config.toml")
    config.write_text(config.read_text().replace("updates = 20\n", "updates = 25\n"))
    stops = []
    reports = nvil.Run.open("copy").fit(
        checkpoint_updates=23, after_chunk=lambda done: stops.append(done) or done >= 23
    )
    assert list(reports) == []
    assert stops[-1] == 23


def test_other_versions_are_said(copy, longer, capsys):
    run, arguments = copy
    config = run / "config.toml"
    config.write_text(config.read_text().replace(f'jax = "{nvil.Run.open(run).made_with["jax"]}"', 'jax = "0.0.1"'))
    capsys.readouterr()
    main(arguments)
    assert "This run began with other versions (jax 0.0.1 -> " in capsys.readouterr().err
    assert_same_run(run, longer)


def test_a_folder_that_cannot_be_locked_is_said(tmp_path, monkeypatch, caplog):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", no_locks)
    with lock.locked(tmp_path):
        pass
    assert "cannot be locked (No locks available); let no other process train in it" in caplog.text


def test_a_look_at_the_lock_keeps_no_trainer_out(tmp_path, monkeypatch):
    looking = os.open(tmp_path / "lock", os.O_RDONLY | os.O_CREAT)
    lock.fcntl.flock(looking, lock.fcntl.LOCK_SH)  # as `is_locked` does
    monkeypatch.setattr(lock, "time", SimpleNamespace(sleep=lambda _: os.close(looking)))
    with lock.locked(tmp_path):
        assert lock.is_locked(tmp_path)


def test_a_lock_that_was_removed_while_it_was_opened_is_taken_anew(tmp_path, monkeypatch):
    real = lock.fcntl.flock

    def removed_meanwhile(descriptor, how):
        monkeypatch.setattr(lock.fcntl, "flock", real)
        (tmp_path / "lock").unlink()
        real(descriptor, how)

    monkeypatch.setattr(lock.fcntl, "flock", removed_meanwhile)
    with lock.locked(tmp_path):
        assert (tmp_path / "lock").exists()
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
        with pytest.raises(nvil.UsageError), lock.locked(tmp_path):
            pass


def test_a_run_that_diverges_goes_back_to_the_last_report(dataset, monkeypatch, tmp_path):
    """Checkpoints between it and the divergence would only lead to the same divergence again."""
    np.save("cases.npy", CASES)
    config = Config(data="cases.npy", hidden=(3,), updates=60, batch_size=4, validation=10, report_every=20)
    evaluate = learning.evaluate

    def diverging(pair, x, *, samples, seed, objective):
        result = evaluate(pair, x, samples=samples, seed=seed, objective=objective)
        return result._replace(bound=float("nan")) if seed == 40 else result

    monkeypatch.setattr(nvil.Learner, "diagnose", plain_diagnose)
    monkeypatch.setattr(learning, "evaluate", diverging)
    with pytest.raises(training.DivergedError, match="by update 40; the state of update 20 is kept"):
        list(Run.from_config(tmp_path / "run", config, dataset).fit(checkpoint_updates=5))
    assert newest(tmp_path / "run").stem == "000000000020"
    assert Run.open(tmp_path / "run").metrics()["updates"].tolist() == [20]
    monkeypatch.setattr(learning, "evaluate", evaluate)
    assert [report.updates for report in Run.from_config(tmp_path / "run", config, dataset).fit()] == [40, 60]


# --- TensorBoard ---


def test_tensorboard_gets_every_report_once(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for begin, values in ((0, [(5, 0.5), (10, 1.0), (15, 1.5)]), (10, [(15, 1.5), (20, 2.0)])):  # killed after 15
        writer = tensorboard.Writer(tmp_path / "board", begin)
        for step, value in values:
            layers = {"kl": [value, 2 * value], "none": None}
            writer.add(1e9 + begin + step, {"updates": step, "bound": value, "diagnostics": layers})
        writer.close()
        time.sleep(1.1)  # event files are named by the second
    events = accumulator.EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["bound", "diagnostics/kl/layer1", "diagnostics/kl/layer2"]
    for name, factor in (("bound", 1), ("diagnostics/kl/layer2", 2)):
        got = [(event.step, event.value) for event in events.Scalars(name)]
        assert got == [(step, factor * step / 10) for step in (5, 10, 15, 20)]


def test_tensorboard_from_the_command_line(finished):
    files = list((finished[0] / "tensorboard").iterdir())
    assert len(files) == 1
    assert b"diagnostics/gradient_snr/model" in files[0].read_bytes()


def test_tensorboard_that_is_not_installed(finished, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "tensorboard.compat.proto", None)
    _, arguments = finished
    message = refused(capsys, *arguments, "--updates", "5", "--out", "new", "--tensorboard")
    assert message == "nvil: --tensorboard needs TensorBoard: pip install tensorboard"
    assert not list(Path("new").iterdir())


def test_python_and_the_command_line_have_the_same_defaults():
    config = Config().resolved()
    for function in (nvil.fit, Run.create):
        defaults = {name: each.default for name, each in inspect.signature(function).parameters.items()}
        for name in ("updates", "report_every", "patience", "seed", "validation"):
            assert defaults[name] == getattr(config, name), name
    learner = nvil.Learner()
    assert learner.batch_size == config.batch_size
    assert eqx.tree_equal(learner.estimator, config.build_learner().estimator)
    rate = inspect.signature(nvil.optimisers.adam).parameters["learning_rate"].default
    assert (rate, nvil.models.LATENT_BIAS) == (config.learning_rate, *config.latent_bias)
    given, built = nvil.sbn(5, config.hidden), config.build_pair(5)
    assert jax.tree.all(jax.tree.map(np.array_equal, given, built))


@pytest.mark.parametrize(
    ("choices", "chosen"),
    [
        ({}, ("leave-one-out", 2)),
        ({"samples": 5}, ("leave-one-out", 5)),
        ({"samples": 1}, ("input-dependent", 1)),
        ({"baseline": "input-dependent"}, ("input-dependent", 1)),
        ({"without": ("baseline",)}, ("input-dependent", 1)),
        ({"optimiser": "sgd"}, ("input-dependent", 1)),
        ({"estimator": "vimco"}, ("input-dependent", 5)),
        ({"values": "binary"}, ("input-dependent", 1)),
        ({"values": "binary", "baseline": "leave-one-out"}, ("leave-one-out", 2)),
    ],
)
def test_documents_have_a_leave_one_out_baseline_by_default(choices, chosen):
    config = Config(**{"values": "counts", **choices}).resolved()
    assert (config.baseline, config.samples) == chosen


def test_the_default_rate_of_sgd_is_smaller_for_documents():
    """Gradients are sums over words; the paper has 3e-5 on 20 Newsgroups (Section 4.3), 3e-4 on MNIST (4.2)."""
    rates = [Config(optimiser="sgd", values=values).resolved().learning_rate for values in ("binary", "counts")]
    assert rates == [3e-4, 3e-5]
    counts = scipy.sparse.csr_array(np.random.default_rng(0).poisson(1.0, (40, 6)))
    dataset = nvil.data.load(counts, values="counts")
    run = Run.from_config("run", Config(optimiser="sgd", estimator="wake-sleep", hidden=(2,)), dataset)
    assert run.config is not None
    assert run.config.learning_rate == 1e-5


def test_validation_cases_of_the_data_take_the_place_of_those_held_out(tmp_path, caplog):
    np.savez(tmp_path / "split.npz", train=CASES, validation=CASES[:7], test=CASES[:5])
    config = Config(data=str(tmp_path / "split.npz"), hidden=(3,), updates=1, validation=0)
    run = Run.from_config(tmp_path / "run", config)
    assert "split.npz brings validation cases of its own" in caplog.text
    assert run.config.validation is None
    assert run.prepare().validation.shape[0] == 7
