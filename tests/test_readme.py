"""The figures of the README are what the files and commands give that it names."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nvil.reproduce.render import front_page, render

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_front_page_shows_the_results_there_are():
    shown = re.search(r"<!-- Table 1.*?-->\n(.*?)\n<!-- end of Table 1 -->", README, re.DOTALL)
    assert shown is not None
    assert shown[1] == front_page(ROOT / "results"), "put this table into README.md"


def test_the_page_of_results_is_rendered_from_the_results_there_are(tmp_path):
    for path in (ROOT / "results").glob("*.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert render(tmp_path).read_text() == (ROOT / "results/README.md").read_text(), "run nvil reproduce --render"


@pytest.mark.slow
def test_the_demo_prints_what_the_readme_says(tmp_path):
    """Machines differ in the last bits, so parameters do by the end of training: by less than a standard error."""
    shown = re.search(r"`make demo` prints\n\n```text\n(.*?)```", README, re.DOTALL)
    assert shown is not None
    command = [sys.executable, "-m", "nvil", "train", "--out", "runs/demo", "--quiet"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    told, wanted = (re.split(r"(-?\d+\.\d+)", text) for text in (done.stdout, shown[1]))
    assert told[0::2] == wanted[0::2]
    (without, bound, error), (told_without, told_bound, told_error) = (
        [float(number) for number in parts[1::2]] for parts in (wanted, told)
    )
    assert without == told_without
    assert abs(bound - told_bound) < error
    assert abs(error - told_error) < 0.05
