"""Every command and every long block of Python on the pages, run for real as a reader would, with training cut short.

`make docs` runs these after it has built the site. Each page has a folder of its own with small files under the names
that the page takes for granted; a data set that has to be fetched is replaced by one of these. test_docs.py, which is
part of `make test`, runs the rest of the Python and checks that every command is understood.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile

import numpy as np
import pytest
from matplotlib import image

from test_docs import ELSEWHERE, PAGES, ROOT, blocks

pytestmark = pytest.mark.pages

NOT_RUN = {
    "make test": "these tests are part of it",
    "pip install": "`make dist` installs the package in clean environments",
    "source .venv": "this environment is active already",
    "nvil data fetch": "needs a network; test_download.py has a server of its own",
}
BRIEFLY = {
    "train": "--updates 40 --report-every 20",
    "resume": "--updates 60",
    "sweep": "--updates 40",
    "compare": "--minutes 0.02",
    "reproduce": "--data my.npy --budget 0.2 --jobs 1",
    "evaluate": "--samples 20",
}
WORDS = ["shuttle", "launch", "orbit", "encryption", "key", "clipper", "chip", "game", "season", "team"]


@pytest.fixture
def folder(tmp_path):
    """The reader's folder: cases of 64 bits as an array and a table, pictures, texts, and a generator of cases."""
    random = np.random.default_rng(0)
    cases = (random.random((2000, 64)) < random.random((1, 64))).astype(np.uint8)
    np.save(tmp_path / "my.npy", cases)
    np.save(tmp_path / "new.npy", cases[:20])
    names = ["class_a", "class_b", *(f"pixel_{i}" for i in range(62))]
    np.savetxt(tmp_path / "my.csv", cases[:300], fmt="%d", delimiter=",", header=",".join(names), comments="")
    (tmp_path / "pictures").mkdir()
    for i in range(60):
        image.imsave(tmp_path / f"pictures/{i}.png", random.random((8, 8)), cmap="gray")
    for part, count in (("train", 120), ("test", 60)):
        for i in range(count):
            post = tmp_path / f"20news-bydate-{part}/group{i % 2}/{i}"
            post.parent.mkdir(parents=True, exist_ok=True)
            post.write_text(" ".join(random.choice(WORDS, 4)))
    shutil.copytree(tmp_path / "20news-bydate-train", tmp_path / "texts")
    with tarfile.open(tmp_path / "20news-bydate.tar.gz", "w:gz") as archive:
        for part in ("train", "test"):
            archive.add(tmp_path / f"20news-bydate-{part}", arcname=f"20news-bydate-{part}")
    (tmp_path / "results").mkdir()
    shutil.copy(ROOT / "results/table1-sbn-200-nvil-best.json", tmp_path / "results")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/generate-cases").write_text(f"#!/bin/sh\nexec {sys.executable} examples/bars.py 3000\n")
    (tmp_path / "bin/generate-cases").chmod(0o755)
    for home in (".local/share/bash-completion/completions", ".zfunc", ".config/fish/completions"):
        (tmp_path / home).mkdir(parents=True)
    return tmp_path


def run(words, folder):
    """Run in the reader's folder; what it printed, if it failed, is what the test shows."""
    path = os.pathsep.join([str(folder / "bin"), os.path.dirname(sys.executable), os.environ["PATH"]])
    done = subprocess.run(
        words, cwd=folder, env=os.environ | {"PATH": path, "HOME": str(folder)}, capture_output=True, text=True
    )
    out_of_time = "cells are not done; the same command goes on" in done.stderr  # the budget of `BRIEFLY`
    assert done.returncode == 0 or out_of_time, f"{words}\n{done.stdout}\n{done.stderr}"


def commands(page):
    """The lines of a page's consoles that are commands, each cut short."""
    for text in blocks(page, "console"):
        for line in re.sub(r"\\\n\s*", " ", text).splitlines():
            if line.startswith("$ ") and not line[2:].startswith(tuple(NOT_RUN)):
                yield briefly(line[2:])


def briefly(line):
    """The same command with less training, and on data that is at hand."""
    line = re.sub(r"\s+#.*", "", line).replace("make demo", "nvil train --out runs/demo")
    line = line.replace("--data binarized-mnist", "--data my.npy")
    line = re.sub(r"bars\.py \d+", "bars.py 3000", line)
    command = re.search(r"\bnvil (\w+)", line)
    line = f"{line} --temperatures 10" if "--estimate ais" in line else line
    if "nvil compare" in line and "--estimators" not in line:  # each is compiled
        line = f"{line} --estimators nvil rloo"
    if not command or command[1] not in BRIEFLY or "--render" in line:
        return line
    for flag in re.findall(r"--[\w-]+", BRIEFLY[command[1]]):
        line = re.sub(rf" {flag} \S+", "", line)
    return f"{line} {BRIEFLY[command[1]]}"


def elsewhere(page):
    return [text for text in blocks(page, "python") if ">>>" not in text and any(each in text for each in ELSEWHERE)]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")])
def test_the_commands_of_a_page_run(page, folder):
    for line in commands(page):
        run(["bash", "-o", "pipefail", "-c", line], folder)


@pytest.mark.parametrize("page", [page for page in PAGES if elsewhere(page)])
def test_the_python_of_a_page_that_trains_long_runs(page, folder):
    given = (
        "import numpy as np, nvil\nx = np.load('my.npy')[:200]\ntexts = ['shuttle launch', 'team game season'] * 60\n"
    )
    for text in elsewhere(page):
        run([sys.executable, "-c", given + text.replace("20_000", "40")], folder)


def test_a_command_that_fails_is_seen(folder):
    with pytest.raises(AssertionError, match=r"nvil: .*absent\.npy"):
        run(["bash", "-c", "nvil train --data absent.npy"], folder)
