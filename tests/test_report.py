"""The page of a run: its numbers, what it leaves out, what it does not believe, and how a browser takes it."""

import dataclasses
import html
import html.parser
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from markupsafe import Markup
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import nvil
from helpers import SLOW, first
from nvil import UsageError
from nvil.cli import main
from nvil.data import Choices, Dataset
from nvil.report import Summary, figures, page, write_comparison, write_report
from nvil.report.page import _changed
from nvil.report.parts import bag, raised
from nvil.rows import as_rows
from nvil.runs import Config, Run, checkpoints
from nvil.training import Best

HOSTILE = "<script>alert('x')</script> & \"$\\frac{1\" \x1b[31m"
VOID = {"meta", "img", "br", "link"}


def line(updates, bound, layers=1, **more):
    """A report as a run writes it, with all diagnostics."""
    return {
        "updates": updates,
        "bound": bound,
        "validation_bound": bound - 1,
        "signal": {"raw_deviation": [9.0] * layers, "mean": [0.1] * layers, "deviation": [1.0] * layers},
        "gradient_norms": {"model": 3.0, "inference": 2.0, "baselines": 1.0},
        "diagnostics": {
            "signal_variance": {
                "raw": [400.0] * layers,
                "InputDependentBaseline": [100.0] * layers,
                "RunningMean": [100.0] * layers,
                "VarianceNormalisation": [1.0] * layers,
            },
            "gradient_snr": {"model": 0.5, "inference": 0.1, "baselines": None},
            "kl": [3.0] * layers,
            "units_in_use": [0.5] * layers,
        },
        **more,
    }


def make(folder, config, dataset, lines):
    """A run with untrained parameters and the given reports: nothing is compiled for it."""
    run = Run.from_config(folder, config, dataset)
    run.write_config()
    checkpoints.save_best(folder, Best(run.prepare().pair, -1.0, 1), run.made_with["version"])
    text = "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines)
    (folder / "metrics.jsonl").write_text(text)
    return run


def numbers(columns):
    cases = np.random.default_rng(0).normal(size=(30, columns)).astype(np.float32)
    return Dataset("numbers", cases[:20], cases[20:], "numbers", choices=Choices(values="numbers"))


def categories(variables, each):
    cases = np.eye(each, dtype=np.uint8)[np.random.default_rng(0).integers(0, each, (30, variables))].reshape(30, -1)
    choices = Choices(values="categories")
    return Dataset("categories", cases[:20], cases[20:], "categories", categories=each, choices=choices)


def bits(columns, image=None, context=0):
    cases = np.random.default_rng(0).integers(0, 2, (30, columns), dtype=np.uint8)
    return Dataset("bits", cases[:20], cases[20:], image=image, context=context, choices=Choices())


def documents(words):
    counts = scipy.sparse.csr_array(np.random.default_rng(0).poisson(1.0, (30, len(words))).astype(np.float32))
    train, test = as_rows(counts[:20]), as_rows(counts[20:])
    return Dataset("words", train, test, "counts", vocabulary=words, choices=Choices())


def test_a_context_of_documents_is_not_shown_as_words(tmp_path):
    dataset = dataclasses.replace(documents(("kind", "orbit", "engine")), context=1)
    summary = Summary(make(tmp_path / "run", Config(hidden=(2,), validation=5), dataset, []), dataset=dataset)
    assert summary.vocabulary == ("orbit", "engine")
    assert summary.usual.shape == (2,)
    assert bag(summary, np.array([3, 0, 1])) == "engine"
    assert raised(summary, np.array([9.0, 0.0, 1.0])) == "engine orbit"


@pytest.mark.parametrize(
    ("dataset", "weights", "more", "less"),
    first(
        1,
        [
            (bits(4, context=1), [2.0, -1.0, 0.1], "fever +2", "<b>bold</b> \N{MINUS SIGN}1"),
            (categories(4, 2), [0.0] * 5 + [-3.0, 4.0, 0.0], "cough=0 +4", "<b>bold</b>=1 \N{MINUS SIGN}3"),
        ],
    ),
)
def test_variables_go_by_the_names_they_have(tmp_path, dataset, weights, more, less):
    dataset = dataclasses.replace(dataset, names=("age", "fever", "<b>bold</b>", "cough"))
    config = Config(hidden=(2,), values=dataset.kind, validation=5)
    run = make(tmp_path / "run", config, dataset, [line(20, -6.0)])
    assert _changed(Summary(run, dataset=dataset), np.array(weights)) == [more, less]
    write_report(run, tmp_path / "page.html", dataset=dataset)
    page = (tmp_path / "page.html").read_text()
    assert "Makes more likely" in page
    assert page.count(">fever</th>") == 1
    assert "&lt;b&gt;bold&lt;/b&gt;</th>" in page
    assert "<b>bold" not in page
    unnamed = dataclasses.replace(dataset, names=None)
    write_report(run, tmp_path / "page.html", dataset=unnamed)
    assert ">fever</th>" in (tmp_path / "page.html").read_text()  # the run remembers them
    write_report(make(tmp_path / "other", config, unnamed, [line(20, -6.0)]), tmp_path / "page.html", dataset=unnamed)
    assert ">x1</th>" in (tmp_path / "page.html").read_text()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small run on the digits, as `nvil train` leaves it."""
    folder = tmp_path_factory.mktemp("trained") / "digits-run"
    sizes = ("--hidden", "6", "4", "--updates", "40", "--report-every", "20", "--validation", "20")
    main(["train", *sizes, "--out", str(folder), "--quiet"])
    return Run.open(folder)


class Pages:
    """A page of every kind, by name; what a page shows is compiled when it is first asked for."""

    def __init__(self, folder, trained, made):
        self.folder, self.trained, self.made = folder, trained, made
        self.found = {"image": (trained.folder / "report.html").read_text()}

    def __getitem__(self, kind):
        if kind not in self.found:
            if kind == "comparison":
                write_comparison([self.trained, *(run for run, _ in self.made.values())], self.folder / "page.html")
            else:
                run, dataset = self.made[kind]
                write_report(run, self.folder / "page.html", dataset=dataset)
            self.found[kind] = (self.folder / "page.html").read_text()
        return self.found[kind]


@pytest.fixture(scope="module")
def pages(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    words = (*(f"word{i}" for i in range(11)), "<img src=x onerror=alert(1)>")
    garbage = ["", "{", "[1]", '{"updates": "<b>", "bound": 1}', "[" * 5000, '{"bound": ' + "9" * 5000 + "}", "\x00"]
    garbage += [
        '{"updates": 25}',
        '{"updates": 26, "bound": NaN}',
        '{"updates": 27, "bound": 1e400}',
    ]  # without a bound
    kinds = {
        # wake-sleep, no validation, no pictures, one report
        "survey": (
            Config(model="darn", hidden=(3,), inference="autoregressive", estimator="wake-sleep", validation=0),
            bits(5),
            [line(20, -3.0, validation_bound=None, signal=None, diagnostics=None)],
        ),
        # documents, reports of an older version, and a word that is a tag
        "words": (
            Config(hidden=(4,), validation=5),
            documents(words),
            [{"updates": n, "bound": -60.0 + n / 100, "validation_bound": -50.0} for n in (100, 200, 300)],
        ),
        # real numbers, and latents of two kinds
        "numbers": (
            Config(hidden=(3, 2), latents=("gaussian", "bernoulli"), values="numbers", validation=5),
            numbers(4),
            [line(20, -6.0, 2)],
        ),
        "categories": (Config(hidden=(3,), values="categories", validation=5), categories(4, 3), [line(20, -6.0)]),
        # pictures given a context that is no part of them
        "conditional": (
            Config(hidden=(4,), latents=("categorical",), categories=3, validation=5),
            bits(11, (3, 3), context=2),
            [line(20, -6.0), line(40, -5.0)],
        ),
        # nothing that comes from outside can be trusted
        HOSTILE.replace("/", "\u2215"): (
            Config(model="fdarn", hidden=(4, 3), between=(5,), validation=5, samples=2),
            bits(9, (3, 3)),
            [line(20, -6.0, 2), *garbage, line(40, -5.0, 2, signal={"deviation": "<b>", "mean": [1e300, "x"]})],
        ),
    }
    made = {}
    for name, (config, dataset, lines) in kinds.items():
        run = make(folder / name, config, dataset, lines)
        odd = '{"updates": 20, "seconds": "<b>", "updates_per_second": 1e400}\n{"updates": 40, "seconds": 1}\n'
        (run.folder / "timing.jsonl").write_text(odd)
        made["hostile" if "script" in name else name] = run, dataset
    return Pages(folder, trained, made)


class Outline(html.parser.HTMLParser):
    """The tags of a page with their attributes; fails where one is closed that is not open."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


KINDS = ("image", "words", "hostile", "comparison", "survey", "numbers", "categories", "conditional")


@pytest.mark.parametrize("kind", first(4, KINDS))
def test_a_page_stands_alone(pages, kind):
    outline = Outline(pages[kind])
    assert outline.open == []
    tags = {tag for tag, _ in outline.tags}
    assert not tags & {"link", "iframe", "object", "b"}
    assert [tag for tag, _ in outline.tags].count("script") == (kind == "comparison")  # only tables of runs sort
    assert {"h1", "svg", "figcaption"} <= tags
    identifiers = [values["id"] for _, values in outline.tags if "id" in values]
    for tag, values in outline.tags:
        assert not any(name.startswith("on") for name in values)
        for name in ("src", "href", "xlink:href"):
            assert values.get(name, "#").startswith(("#", "data:image/png;base64,"))
        assert tag != "img" or values["alt"]
        assert tag != "svg" or values["aria-label"]
    assert "url(http" not in pages[kind]
    assert "@import" not in pages[kind]
    references = re.findall(r'(?:href="|url\()#([^")]+)', pages[kind])
    assert set(references) <= set(identifiers)


def test_the_numbers_on_the_page(trained, pages, capsys):
    main(["evaluate", str(trained.folder), "--json"])
    result = json.loads(capsys.readouterr().out)
    text = pages["image"]
    assert f"{page.number(result['bound'])} ±\u00a0{result['bound_se']:.2f}" in text
    assert "297 test cases, 10 samples" in text
    assert "\u221225.20" in text  # the best factorial model
    assert "x 64 &lt;- h1 6 &lt;- h2 4" in text
    assert "1,480 training, 20 validation and 297 test cases of 64 variables" in text
    assert trained.facts.fingerprint in text
    bounds = [json.loads(each) for each in (trained.folder / "metrics.jsonl").read_text().splitlines()]
    best = max(bounds, key=lambda each: each["validation_bound"])
    assert f"at update {best['updates']:,}" in text
    shown = f"{page.number(best['validation_bound'])} ±\N{NO-BREAK SPACE}{page.number(best['validation_se'])}"
    assert shown in text
    assert text.count("data:image/png") == 5  # samples, reconstructions, weights, walks, neighbours


def test_the_command_makes_the_same_config(trained, pages, monkeypatch):
    shown = re.search(r"<pre><code>(.*?)</code></pre>", pages["image"])
    assert shown is not None
    words = shlex.split(html.unescape(re.sub(r"<.*?>", "", shown[1])))
    assert words[:2] == ["nvil", "train"]
    odd = Config(
        hidden=(7, 3),
        latent_bias=(-4.0, -1.5),
        without=("baseline", "local-signals"),
        schedule="cosine",
        average=0.1,
        clip=5.0,
        learning_rate=1e-5,
        validation=0,
    ).resolved()
    others = shlex.split(" ".join(dataclasses.replace(trained, config=odd).command(all=True)))
    made = []

    def noted(folder, config, dataset):
        made.append(config)
        raise UsageError("enough")

    monkeypatch.setattr(Run, "from_config", noted)
    for command in (words, others):
        with pytest.raises(SystemExit):
            main(command[1:])
    assert made == [trained.config, odd]


SHOWN = {
    "image": (["Training speed"], []),
    "words": (
        ["60% of the way", "The second nearest", "Test perplexity", "&lt;img src=x onerror=alert(1)&gt;"],
        ["Norms of the gradients"],
    ),
    "survey": (
        ["no validation cases", "The run is at update 20 of 30,000.", "Norms of the gradients"],
        ["Best validation bound", "learning signal", "Signal-to-noise"],
    ),
    "conditional": (
        [
            "Each is given the context of a test case.",
            "categories of h1",
            "x 9 given 2 &lt;- h1 4x3",
            "All but the right one are given the context of the left one.",
        ],
        [],
    ),
    "categories": (
        [
            "test cases of 4 variables",
            "the probability that its own then has",
            "columns, 3 for the categories of each variable in turn, become more likely",
        ],
        [],
    ),
    "numbers": (
        ["of independent Gaussians fitted to the training cases", "Each row is a sample, each cell a variable."],
        ["Nearest by code", "Training speed"],  # its times are not to be believed
    ),
}


@pytest.mark.parametrize("kind", first(2, SHOWN))
def test_what_a_run_does_not_have_is_left_out(pages, kind):
    shown, left_out = SHOWN[kind]
    for text in shown:
        assert text in pages[kind]
    for text in left_out:
        assert text not in pages[kind]


def test_hostile_files_do_no_harm(pages):
    text = pages["hostile"]
    assert "<script" not in text
    assert "&lt;script&gt;alert" in text
    assert "\x1b" not in text
    assert "7 lines of metrics.jsonl could not be used" in text
    assert "75.0%" in text  # of 400, the input-dependent baseline removes 300
    assert "25.0%" in text


def test_a_comparison_says_what_differs(trained, pages, tmp_path):
    text = pages["comparison"]
    assert "were not trained on the same data" in text
    assert all(model in text for model in ("fDARN", "DARN", "SBN"))
    config = Config(hidden=(2,), validation=2)
    same = [make(tmp_path / f"{seed}", dataclasses.replace(config, seed=seed), bits(9), []) for seed in (0, 1)]
    table = page._differences([Summary(run) for run in same]).body
    assert re.findall(r"<td[^>]*>(.*?)</td>", table) == ["seed", "0", "1"]
    assert "the same config" in page._differences([Summary(same[0])] * 2).body


@pytest.mark.parametrize(
    ("config", "in_use", "told"),
    [
        ({}, (1.0, 0.0, 1.0), True),
        ({}, (0.0, 1.0, 1.0), False),
        ({}, (1.0, 0.0), False),
        ({"warm_up": 5}, (1.0, 0.0, 1.0), False),
        ({"estimator": "wake-sleep"}, (1.0, 0.0, 1.0), False),
    ],
)
def test_units_lost_in_upper_layers_are_told_of_with_what_to_do(config, in_use, told, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "svg", lambda *_: Markup())
    monkeypatch.setattr(Summary, "unit_kl", tuple(np.full(4, nats) for nats in in_use))
    config = Config(hidden=(4,) * len(in_use), validation=5, **config)
    summary = Summary(make(tmp_path / "run", config, bits(3), []), dataset=bits(3))
    assert ("which --warm-up can prevent" in page._units(summary).caption) == told


def test_without_data_or_parameters_the_page_says_so(tmp_path):
    np.save(tmp_path / "gone.npy", bits(9).train)
    config = Config(data=str(tmp_path / "gone.npy"), hidden=(2,), validation=2)
    run = make(tmp_path / "run", config, config.load_data(), [line(20, -6.0)])
    (tmp_path / "gone.npy").unlink()
    text = write_report(run).read_text()
    assert "There is no file" in text
    assert "Samples" in text
    assert "Reconstructions" not in text
    (run.folder / "best.safetensors").write_bytes(b"nonsense")
    text = write_report(run).read_text()
    assert "is not a readable safetensors file" in text
    assert "Samples" not in text
    assert Outline(text).open == []


def test_a_page_is_no_reason_to_download(tmp_path, monkeypatch):
    monkeypatch.setenv("NVIL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    dataset = bits(9).loaded_from("binarized-mnist")
    run = make(tmp_path / "run", Config(hidden=(2,), validation=2), dataset, [])
    assert "nvil data fetch binarized-mnist" in Summary(run).why_no_data


def test_a_run_on_a_stream_has_a_page(tmp_path):
    run = make(tmp_path / "run", Config(hidden=(2,), validation=2), bits(9), [line(20, -6.0)])
    stream = dataclasses.replace(run, config=dataclasses.replace(run.config, data="-", updates=None))
    text = write_report(stream).read_text()
    assert "was trained on a stream, which is not kept" in text
    assert "The codes of test cases" not in text
    assert "<dd>20</dd>" in text
    assert "Samples" in text


def test_figures_draw_on_given_axes(trained):
    axes = Figure().subplots()
    figures.curve([trained], axes)
    minibatches, validation, best = axes.lines
    reports = [json.loads(each) for each in (trained.folder / "metrics.jsonl").read_text().splitlines()]
    np.testing.assert_array_equal(minibatches.get_xydata(), [[each["updates"], each["bound"]] for each in reports])
    np.testing.assert_array_equal(validation.get_ydata(), [each["validation_bound"] for each in reports])
    assert best.get_ydata() == [max(each["validation_bound"] for each in reports)]
    for name in (None, "validation_bound"):  # the band has the colour of its line
        axes = Figure().subplots()
        figures.curve([trained], axes, name)
        (line,) = (each for each in axes.lines if each.get_label() == " validation")
        assert to_hex(axes.collections[0].get_facecolor()[0]) == line.get_color()
    summary = Summary(trained)
    for draw in (figures.units, figures.signal_deviation, figures.signal_mean, figures.gradient_norms):
        axes = Figure().subplots()
        draw(summary, axes)
        assert axes.lines
    for draw in (figures.speed, figures.code_map):
        axes = Figure().subplots()
        draw(summary, axes)
        assert axes.lines
    assert [text.get_text().strip() for text in axes.get_legend().get_texts()] == list("0123456789")
    for draw in (figures.samples, figures.reconstructions, figures.weights, figures.walks, figures.neighbours):
        axes = Figure().subplots()
        draw(summary, axes)
        assert axes.images


def test_neighbours_are_those_of_a_search(trained):
    summary = Summary(trained)
    found = summary.neighbours
    index = nvil.Index.build(trained, summary.dataset.train)
    hits = index.search(trained, summary.cases[:10], 9)
    assert found.distances[:10].tolist() == [[hit.distance for hit in each] for each in hits]
    again = index.search(trained, found.cases[0], 1)  # those that are shown are at these distances
    code = index.codes[[each[0].row for each in again]] ^ np.packbits(summary.codes[:1] > index.thresholds, axis=1)
    assert np.bitwise_count(code).sum(axis=1).tolist() == found.distances[0].tolist()
    labels, own = np.array(summary.dataset.labels["train"]), np.array(summary.labels)
    assert found.same_class[1] == pytest.approx(np.mean([np.mean(labels == label) for label in own]))
    assert found.same_class[0] > found.same_class[1]


def test_classes_are_given_one_for_each_test_case(trained):
    with pytest.raises(UsageError, match="There are 2 `labels` for 297 test cases"):
        Summary(trained, labels=["a", "b"]).labels  # noqa: B018
    summary = Summary(trained, labels=[i < 100 for i in range(297)])
    assert figures.shown_classes(summary) == ["False", "True"]
    assert [label == "True" for label in summary.labels] == (summary._order < 100).tolist()


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["rate=0.001,hidden=20,seed=0", "rate=0.003,hidden=20-10,seed=0"], ["0.001,hidden=20", "0.003,hidden=20-10"]),
        (["a-long-name-of-a-run/nvil/1", "a-long-name-of-a-run/vimco/1"], ["nvil", "vimco"]),
        (["runs/a", "runs/b"], ["runs/a", "runs/b"]),
        (["the-very-same-name/of-runs"] * 2, ["of-runs"] * 2),
    ],
)
def test_long_names_are_told_apart(names, shown):
    assert figures.told_apart(names) == shown


def test_figures_refuse_what_is_not_there(tmp_path):
    run = make(tmp_path / "run", Config(hidden=(2,), validation=2), bits(5), [])
    with pytest.raises(UsageError, match="no report"):
        figures.curve([run], Figure().subplots())
    with pytest.raises(UsageError, match="not pictures"):
        figures.samples(run, Figure().subplots())
    with pytest.raises(UsageError, match="trained on data from Python, which is not kept"):
        figures.units(run, Figure().subplots())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "at least one run"),
        (["nowhere"], "There is no run nowhere"),
        (["{run}", "--out", "page.txt"], "must end in .html"),
    ],
)
def test_mistakes_get_a_sentence(trained, capsys, monkeypatch, tmp_path, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["report", *(each.format(run=trained.folder) for each in arguments)])
    assert caught.value.code == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_command_writes_where_it_says(trained, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    main(["report", str(trained.folder), str(trained.folder)])
    assert capsys.readouterr().out == "comparison.html\n"
    assert "2 runs compared" in Path("comparison.html").read_text()


def test_commands_start_without_matplotlib():
    code = "import sys, nvil.cli; sys.exit(any(name in sys.modules for name in ('matplotlib', 'jinja2')))"
    subprocess.run([sys.executable, "-c", code], check=True)


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PROBE = """<!DOCTYPE html><meta charset="utf-8"><body><script>
const pages = %s, widths = [360, 1200], results = [];
for (const [name, text] of Object.entries(pages)) for (const width of widths) {
  const frame = document.createElement("iframe");
  frame.style.width = width + "px";
  frame.onload = () => {
    const page = frame.contentDocument, root = page.documentElement;
    const sort = name => {
      [...page.querySelectorAll("table.sortable button")].find(each => each.textContent == name).click();
      return [...page.querySelectorAll("table.sortable tbody tr")].map(row => row.cells[0].textContent);
    };
    const wide = [...page.querySelectorAll("figure, pre, .cards > div, .scroll")];
    results.push({name, width, right: root.scrollWidth,
      inside: wide.every(box => box.getBoundingClientRect().right <= width),
      pictures: [...page.images].map(image => image.naturalWidth),
      figures: [...page.querySelectorAll("svg")].map(svg => svg.getBoundingClientRect().height).filter(Boolean),
      orders: page.scripts.length ? ["Updates", "Updates", "Run"].map(sort) : []});
    if (results.length == widths.length * Object.keys(pages).length) {
      const output = document.createElement("pre");
      output.textContent = JSON.stringify(results);
      document.body.replaceChildren(output);
    }
  };
  frame.srcdoc = text;
  document.body.append(frame);
}
</script></body>"""


@SLOW
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_in_a_browser_on_a_phone_and_on_a_desk(pages, tmp_path):
    assert CHROMIUM is not None
    (tmp_path / "probe.html").write_text(
        PROBE % json.dumps({kind: pages[kind] for kind in KINDS}).replace("<", "\\u003c")
    )
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--enable-logging=stderr"]
    done = subprocess.run(
        [CHROMIUM, *options, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"file://{tmp_path}/probe.html"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "CONSOLE" not in done.stderr
    found = re.search(r"<pre>(.*)</pre>", done.stdout, re.DOTALL)
    assert found, done.stdout[-500:]
    results = json.loads(html.unescape(found[1]))
    assert len(results) == 2 * len(KINDS)
    for each in results:
        assert each["right"] <= each["width"], each  # nothing to scroll sideways
        assert each["inside"], each
        assert all(each["pictures"]), each
        assert all(height > 100 for height in each["figures"])
        assert each["figures"], each
    assert sum(len(each["pictures"]) for each in results if each["name"] == "image") == 10
    most, fewest, by_name = next(each["orders"] for each in results if each["name"] == "comparison")
    assert (most[0], fewest[0]) == ("words", "survey")  # with 300 updates and with 20
    assert sorted(most) == sorted(fewest) == sorted(by_name)
    assert by_name.index("conditional") < by_name.index("numbers") < by_name.index("words")
