"""The pages of docs/ and the README: their Python runs, their commands are understood, their links lead somewhere.

Python with prompts is run as doctests (pyproject.toml); the rest here, with training cut short.
"""

import ast
import importlib.util
import inspect
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import tyro

import nvil
import nvil.devices
import nvil.report
from nvil.cli import COMMANDS, groups, main, sweep
from nvil.runs import Config, checkpoints
from nvil.training import Best
from processes import plain_diagnose, plain_page

ROOT = Path(__file__).parent.parent
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ELSEWHERE = ("nvil.sklearn", "20news-bydate")
"""What is long to train or to fetch, and is tried in small by test_sklearn.py, test_topics.py and test_search.py."""
CASES = (np.random.default_rng(0).random((200, 64)) < 0.3).astype(np.uint8)


def blocks(page, *languages):
    return [text for language, text in BLOCK.findall(PAGES[page]) if language in languages]


def plain_python(page):
    return [text for text in blocks(page, "python") if not any(each in text for each in (">>>", *ELSEWHERE))]


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


# ---- Python


def names():
    """What pages take for granted: the user's data, a pair and a learner for it."""
    import equinox as eqx
    import jax.numpy as jnp

    from nvil import estimators, exact, optimisers, signals

    own = module(ROOT / "examples/mlp_decoder.py")
    learner = nvil.Learner(estimators.nvil(signals.leave_one_out(), samples=2), batch_size=5)
    return {
        **{"nvil": nvil, "np": np, "eqx": eqx, "jnp": jnp, "exact": exact, "estimators": estimators},
        **{"signals": signals, "optimisers": optimisers, "x": CASES, "x_test": CASES[:50], "two_samples": learner},
        "data": nvil.data.load(CASES, test=CASES[:50]),
        "pair": own.make_pair(64, latents=4, units=5, mean=CASES.mean(axis=0)),
        "__name__": "page",
    }


@pytest.fixture
def briefly(monkeypatch, tmp_path):
    """Every training is cut to a few updates, and leaves the page and the diagnostics, which other tests have."""
    create, fit = nvil.Run.create, nvil.training.fit

    def short(function):
        return lambda *values, updates=10, report_every=10, **more: function(
            *values, updates=min(updates, 10), report_every=min(report_every, 10), **{"validation": 20} | more
        )

    monkeypatch.setattr(nvil.Run, "create", staticmethod(short(create)))
    monkeypatch.setattr(nvil.training, "fit", short(fit))
    monkeypatch.setattr(nvil.report, "write_report", plain_page)
    monkeypatch.setattr(nvil.Learner, "diagnose", plain_diagnose)
    monkeypatch.chdir(tmp_path)


def untrained(folder):
    """A run on the digits with one report: nothing is compiled for it."""
    run = nvil.Run.from_config(folder, Config(hidden=(6, 4)).resolved())
    run.write_config()
    checkpoints.save_best(folder, Best(run.prepare().pair, -1.0, 1), run.made_with["version"])
    (folder / "metrics.jsonl").write_text(json.dumps({"updates": 1, "bound": -1.0, "validation_bound": -1.0}) + "\n")


@pytest.mark.parametrize("page", [page for page in PAGES if plain_python(page)])
def test_the_python_of_a_page_runs(page, briefly, tmp_path, monkeypatch):
    """Blocks share their names, and have a folder each, with the runs in it that they open."""
    space = names()
    for i, text in enumerate(plain_python(page)):
        (tmp_path / str(i)).mkdir()
        monkeypatch.chdir(tmp_path / str(i))
        for folder in set(re.findall(r'Run\.open\("([^"]+)"\)', text)):
            untrained(Path(folder))
        exec(compile(text, page, "exec"), space)


def examples():
    """Examples in docstrings that have no prompts, and so are no doctests."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                for code in re.findall(r"^!!! example\n\n((?:    .*\n?|\n)+)", text, re.MULTILINE):
                    if ">>>" not in code:
                        yield pytest.param(inspect.cleandoc(code), id=getattr(node, "name", path.stem))


@pytest.mark.parametrize("code", list(examples()))
def test_an_example_without_prompts_runs(code, briefly):
    exec(compile(code, "example", "exec"), names())


# ---- Commands


class Understood(Exception):
    """A command was read to its end, and would now begin to work."""


@pytest.fixture
def reading(monkeypatch):
    """Commands are read by the real command line, and then nothing is done."""
    real = tyro.cli

    def read(target, **how):
        if not inspect.isfunction(target):  # options in groups: the command looks at them itself
            return real(target, **how)

        def nothing(**_):
            raise Understood

        nothing.__signature__ = inspect.signature(target)
        nothing.__annotations__ = target.__annotations__
        nothing.__doc__, nothing.__name__ = target.__doc__, target.__name__
        return real(nothing, **how)

    def stop(*_, **__):
        raise Understood

    monkeypatch.setattr(tyro, "cli", read)
    monkeypatch.setattr(groups, "_given", lambda words: {})  # runs that the page has the reader make
    monkeypatch.setattr(Config, "load_data", stop)
    monkeypatch.setattr(nvil.devices, "connect", stop)  # this process keeps the devices that it has
    monkeypatch.setattr(sweep, "_train_all", stop)


def console(page):
    """The commands of a page's consoles, without what pipes into them and without comments."""
    for text in blocks(page, "console"):
        for line in re.sub(r"\\\n\s*", " ", text).splitlines():
            if line.startswith("$ "):
                words = shlex.split(line.removeprefix("$ "), comments=True)
                while "|" in words:
                    words = words[words.index("|") + 1 :]
                if words:
                    yield words


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")])
def test_the_commands_of_a_page_are_understood(page, reading, tmp_path, monkeypatch):
    makefile = (ROOT / "Makefile").read_text()
    monkeypatch.chdir(tmp_path)
    for words in console(page):
        words = words[: words.index(">")] if ">" in words else words
        if words[0] == "nvil":
            with pytest.raises(SystemExit if words[1] == "--print-completion" else Understood):
                main(words[1:])
        elif words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), words
        elif words[0] == "python" and not words[1].startswith("-"):
            assert (ROOT / words[1]).is_file(), words


def test_a_command_with_an_option_that_there_is_not_is_seen(reading):
    for words in (["train", "--hiden", "3"], ["evaluate", "runs/x", "--sample", "3"], ["train", "--estimator", "mine"]):
        with pytest.raises(SystemExit):
            main(words)


def test_options_named_in_passing_are_options(capsys):
    """In sentences commands are seldom whole: their flags are looked for in the help."""
    helps = {}
    for page, text in PAGES.items():
        found = re.findall(r"`(nvil \w[^`]*)`|^ {4}(?:\w+ -n \d+ )?(nvil \w.*)$", re.sub(BLOCK, "", text), re.MULTILINE)
        for command in map("".join, found):
            words = command.split()
            if words[1].isupper():
                continue
            assert words[1] in COMMANDS, (page, command)
            if words[1] not in helps:
                with pytest.raises(SystemExit):
                    main([words[1], "--help"])
                helps[words[1]] = capsys.readouterr().out
            for flag in re.findall(r"(?<!\S)--[a-z][\w-]*", command):
                assert re.search(rf"{flag}\b", helps[words[1]]) or flag == "--help", (page, command)


# ---- Links


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(BLOCK, "", PAGES[page])):
        if not re.match(r"[a-z]+:|#", target):
            assert ((ROOT / page).parent / target.partition("#")[0]).exists(), target


def test_every_page_is_in_the_contents():
    listed = {
        (Path(page).parent / entry).as_posix()
        for page, text in PAGES.items()
        for tree in re.findall(r"^```{toctree}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        for entry in tree.split()
    }
    assert {page.removesuffix(".md") for page in PAGES} - listed == {"README", "docs/index"}


def test_lines_of_source_are_found():
    sources = module(ROOT / "docs/_extensions/sources.py")
    found = re.findall(r"\{line\}`([^`]+)`", "".join(PAGES.values()))
    assert len(found) > 30
    for text in found:
        sources.find_line(*sources.parse_line(text))


def test_the_reference_has_every_public_name():
    reference = "".join(text for page, text in PAGES.items() if page.startswith("docs/api/"))
    for name, home in nvil._HOMES.items():
        wanted = rf"^\.\. auto\w+:: (?:nvil\.)?{name}$|^\.\. automodule:: nvil\.{home}$"
        assert name == home or re.search(wanted, reference, re.MULTILINE), name


def test_the_bars_of_the_stream_are_bars():
    cases = np.stack(list(module(ROOT / "examples/bars.py").bars(500))).reshape(-1, 4, 4)
    rows, columns = cases.all(axis=2), cases.all(axis=1)
    np.testing.assert_array_equal(cases, rows[:, :, None] | columns[:, None, :])
    assert 0.1 < rows.mean() < 0.3
