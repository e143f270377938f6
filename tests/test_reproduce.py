"""The presets of the paper's tables and figure: each runs, in a tiny version, and results are rendered from files."""

import dataclasses
import importlib
import json
import shutil
import time
import types
from pathlib import Path

import equinox as eqx
import numpy as np
import pytest
import scipy.sparse

import nvil
from nvil.cli import main
from nvil.reproduce import presets, results
from nvil.reproduce.comparisons import comparisons
from nvil.reproduce.extrapolation import pace, updates_until
from nvil.reproduce.render import front_page, render
from nvil.reproduce.rivals import measure
from nvil.runs import jobs

CELLS = [cell for table in presets.TABLES for recipe in presets.recipes(table) for cell in presets.cells(table, recipe)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Stand-ins for the data sets: nine pixels, and documents of six words."""
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    bits = (random.random((60, 9)) < np.linspace(0.1, 0.9, 9)).astype(np.uint8)
    counts = scipy.sparse.csr_array(1 + random.poisson(1.0, (60, 6)))
    np.save(folder / "pixels.npy", bits)
    scipy.sparse.save_npz(folder / "words.npz", counts)
    return {"bound": str(folder / "pixels.npy"), "perplexity": str(folder / "words.npz")}


def tiny(cell):
    """The same cell with two units in one layer, so that cells that differ only in sizes compile once.

    A warm-up is of layers above the first, so there are two then.
    """
    sizes = {"hidden": (2, 2) if cell.config.warm_up else (2,), "warm_up": min(1, cell.config.warm_up)}
    config = dataclasses.replace(cell.config, **sizes, updates=2, report_every=1, validation=10)
    return dataclasses.replace(cell, config=config)


class FitOnce:
    """Trains a run, or copies the files of one that was trained by the same config: most cells differ only in sizes."""

    def __init__(self):
        self.trained = {}

    def __call__(self, run, dataset):
        twin = self.trained.setdefault(run.config, run.folder)
        if twin == run.folder:
            for _ in run.fit():
                pass
        else:
            shutil.copytree(twin, run.folder, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def fit():
    return FitOnce()


def test_every_cell_of_the_paper_is_there():
    names = {
        (table, recipe): [cell.row for cell in presets.cells(table, recipe)]
        for table in presets.TABLES
        for recipe in presets.recipes(table)
    }
    assert len(names["table1", "best"]) == len(names["table1", "paper"]) == 14 + 2
    assert names["table1", "best"][-2:] == ["fdarn-400-nvil", "darn-400-nvil"]  # which the paper quotes
    assert len(names["table2", "best"]) == 4
    assert len(names["table3", "best"]) == 5
    assert len(names["figure1", "paper"]) == 15
    assert len({cell.name for cell in CELLS}) == len(CELLS)


def test_the_paper_s_protocol_is_that_of_section_4():
    for cell in presets.cells("table1", "paper"):
        config = cell.config
        rate = {"nvil": 3e-4, "wake-sleep": 1e-4}[config.estimator]
        assert (config.optimiser, config.learning_rate, config.inference_ratio) == ("sgd", rate, 0.2)
        assert (config.batch_size, config.samples, config.validation, config.schedule) == (20, 1, 100, "constant")
        assert (config.baseline_units, config.decay, config.weight_decay, config.without) == (100, 0.8, 0.0, ())
    rates = {cell.column: cell.config.learning_rate for cell in presets.cells("table3", "paper")}
    assert rates == {"20 News": 3e-5, "Reuters": 1e-3}


def test_sizes_are_the_paper_s_deepest_first():
    for cell in CELLS:
        assert "-".join(map(str, cell.config.hidden[::-1])) == cell.dim
        visible, lengths = (10, (5,)) if cell.metric == "perplexity" else (784, None)
        pair = eqx.filter_eval_shape(lambda c=cell, v=visible, n=lengths: c.config.build_pair(v, lengths=n))
        assert [layer.units for layer in pair.model.layers] == [visible, *cell.config.hidden]


@pytest.mark.parametrize("table", presets.TABLES)
def test_a_tiny_version_of_every_preset_runs(table, data, fit, tmp_path, monkeypatch):
    """Without diagnostics, which take longest to compile and are tested elsewhere."""
    monkeypatch.setattr(nvil.Learner, "diagnose", lambda *_: None)
    for cell in CELLS:
        if cell.table == table:
            path = results.reproduce(
                tiny(cell), runs=tmp_path / "runs", results=tmp_path / "results", data=data[cell.metric], train=fit
            )
            result = results.load(path)
            assert result["updates"] == 2
            assert result["samples"] == 10
            assert result["protocol"]["split"]["test"] == 6
            assert len(result["curve"]["seconds"]) == 2
            if cell.metric == "bound":
                assert result["figure"] == -result["bound"]
            if table in ("table1", "table2"):  # hardly trained, so Q is near the posterior and the bound near log P(x)
                assert (result["importance"]["samples"], result["importance"]["cases"]) == (1000, 6)
                assert result["importance"]["log_likelihood"] == pytest.approx(result["bound"], abs=0.5)
    page = render(tmp_path / "results").read_text()
    assert page.count("best" if table != "figure1" else "Global signal") > 0
    compared = {"table1": "holds in", "figure1": "(local signals)"}
    assert compared.get(table, "# Results") in page
    if table == "figure1":
        assert (tmp_path / "results/figure1.png").stat().st_size > 10_000


TINY_RIVALS = {
    "mixture": ({"components": 2, "epochs": 2}, {}),
    "nade": ({"units": 2, "epochs": 1}, {}),
    "rbm": ({"units": 2, "steps": 1, "epochs": 1, "quick_temperatures": 2}, {"chains": 2, "betas": 2}),
    "lda": ({"topics": 2, "epochs": 1}, {"samples": 2}),
    "replicated_softmax": (
        {"units": 2, "steps": 1, "epochs": 1, "quick_chains": 2, "quick_temperatures": 2},
        {"documents": 3, "chains": 2, "betas": 2},
    ),
    "docnade": ({"units": 2, "epochs": 1}, {}),
    "unigram": ({}, {}),
}


def test_every_rival_is_measured_on_the_same_cases(data, tmp_path):
    """One of each kind; the presets of the others must be settings that there are."""
    every = {**presets.rivals("table1"), **presets.rivals("table3")}
    assert len(every) == 14
    seen = {}
    for rival in every.values():
        module = importlib.import_module(f"nvil.rivals.{rival.rival}")
        assert dataclasses.replace(module.Settings(), **rival.settings) is not None
        seen.setdefault(rival.rival, rival)
    assert set(seen) == set(TINY_RIVALS)
    for name, rival in seen.items():
        settings, evaluation = TINY_RIVALS[name]
        metric = "bound" if rival.table == "table1" else "perplexity"
        result = results.load(
            measure(rival, results=tmp_path, data=data[metric], settings=settings, evaluation=evaluation)
        )
        assert result["protocol"]["split"] == {"train": 44, "validation": 10, "test": 6}
        assert result["cases"] == evaluation.get("documents", 6)
        assert result["paper"] == rival.value
        wanted = -result["bound"] if metric == "bound" else result["perplexity"]["per_document"]
        assert result["figure"] == wanted > 0
    page = render(tmp_path).read_text()
    mixture = results.load(tmp_path / "table1-mob-500-rival.json")
    assert f"| MoB | 500 | MNIST | 137.6 | {mixture['figure']:.1f}‡ |" in page  # with fewer components than the preset
    few = results.load(tmp_path / "table3-repsoftmax-50-20-news-rival.json")
    error = few["perplexity"]["per_document_se"]
    assert f"| RepSoftMax | 50 | 20 News | 953 | {few['figure']:.1f}‡ ± {error:.0f} (3 documents) |" in page


def test_the_rivals_are_listed_by_name(capsys):
    main(["reproduce", "table1", "--recipe", "rival", "--cells"])
    assert "nade-500" in capsys.readouterr().out
    for words, wanted in (
        (("table1", "--row", "nad-500"), "Unknown rival of table1 'nad-500'; did you mean 'nade-500'?"),
        (("table2",), "table2 quotes no models of others that we measure."),
        (("table1", "--data", "x.npy"), "--data is for one cell; give its name with --row."),
        (("table1", "--jobs", "2"), "Rivals are measured one after another to the end; leave --jobs and --budget out."),
        (("table1", "--cells", "--render", "--results", "nowhere"), "There is no folder of results nowhere"),
    ):
        with pytest.raises(SystemExit):
            main(["reproduce", *words, "--recipe", "rival"])
        assert wanted in capsys.readouterr().err


def made(table="table1", row="sbn-200-nvil", recipe="best", figure=112.0, **more):
    curve = {
        "updates": [1, 2, 3],
        "seconds": [60.0, 120.0, 180.0],
        "bound": [-120.0, -114.0, -112.0],
        "validation_bound": [-120.0, -113.0, -112.0],
    }
    return {
        "format": 1,
        "table": table,
        "row": row,
        "recipe": recipe,
        "figure": figure,
        "paper": 113.1,
        "bound": -figure,
        "bound_se": 0.3,
        "monte_carlo_se": 0.01,
        "samples": 10,
        "cases": 10_000,
        "perplexity": None,
        "protocol": {},
        "data": {"name": "binarized-mnist"},
        "config": {},
        "seed": 0,
        "updates": 3,
        "curve": curve,
        "made_with": {"commit": "abc"},
        **more,
    }


def test_the_page_has_the_paper_s_number_beside_ours(tmp_path):
    results.save(made(), tmp_path)
    results.save(made(row="sbn-500-nvil", figure=113.9, paper=112.8), tmp_path)
    results.save(made(row="sbn-200-ws", bound=-113.5), tmp_path)
    page = render(tmp_path).read_text()
    assert "| SBN | 200 | 113.1 | 112.0 | \N{MINUS SIGN}1.1 | 120.8 |" in page
    assert "| SBN | 500 | 112.8 | 113.9 | +1.1 (miss) |" in page
    assert "recipe `paper` |" not in page  # no cell has been run with it, so there is no column for it
    assert "No cell of the tables has been run by the paper's own protocol" in page
    assert "‡" not in page
    assert "| sbn-200-nvil | best | 113.1 | 112.0 | 112.0 | 2.0 min | 3 min | 3 |" in page
    other = made("table3", "sbn-50-reuters", figure=435.0, paper=784.0, data={"name": "reuters21578.npz"})
    results.save(other, tmp_path)
    results.save(made("table3", "sbn-50-20-news", figure=850.0, paper=909.0, data={"name": "20news.npz"}), tmp_path)
    results.save(made(recipe="paper"), tmp_path)
    more = render(tmp_path).read_text()
    assert "| SBN | 50 | 909 | 850 | ≈ \N{MINUS SIGN}59.0 | 784 | 435† |" in more  # RCV1 is another corpus
    assert "`nvil reproduce table3 --row ROW --data 20news.npz`: `sbn-50-20-news`." in more
    assert "| table3 sbn-50-20-news | best | 850 |  |  |" in more  # the errors at hand are not those of a perplexity
    assert "No cell of the tables" not in more
    results.save(made(row="darn-400-nvil", figure=90.0, paper=93.0), tmp_path)
    assert "| DARN | 400 | MNIST | 93.0 | 90.0 |" in render(tmp_path).read_text()
    assert "Factorial: recipe `best`" in page
    assert "NVIL is above wake-sleep holds in 1 of 1 pairs (recipe `best`): SBN 200 +1.5 nats." in page
    table2 = page[page.index("## Table 2") :]
    assert "| SBN | 200 | 103.8 | 113.1 | 112.0 |" in table2  # the factorial column is Table 1's


def rising(*bounds):
    """A curve with these bounds after 1, 2, 4, ... thousand updates."""
    return {"updates": [1000 * 2**i for i in range(len(bounds))], "validation_bound": list(bounds)}


def test_a_curve_is_extrapolated_by_its_last_doublings():
    halving = pace(rising(-108.0, -104.0, -102.0, -101.0))  # to -100, half of the way with each doubling
    assert (halving.gain, halving.ratio) == (1.0, 0.5)
    assert updates_until(halving, 0.5) == pytest.approx(16_000)
    assert updates_until(halving, 0.75) == pytest.approx(32_000)
    assert updates_until(halving, 1.0) == float("inf")
    even = pace(rising(-104.0, -103.5, -103.0, -102.5, None))
    assert updates_until(even, 1.0) == pytest.approx(32_000)
    assert pace(rising(-103.0, -102.0, -101.0)) is None  # too short
    assert pace(rising(-103.0, -102.0, -101.0, -101.5)) is None
    assert pace({"updates": [], "validation_bound": []}) is None


def test_the_page_says_where_the_paper_s_own_recipe_leads(tmp_path):
    curve = {"seconds": [1.0] * 4, "bound": [None] * 4, **rising(-120.0, -118.0, -116.0, -114.0)}
    results.save(made(recipe="paper", figure=117.1, curve=curve), tmp_path)
    page = render(tmp_path).read_text()
    assert (
        "gained 2.0 nats, 1.00 of the one before. At that pace it would reach the paper's \N{MINUS SIGN}113.1" in page
    )
    assert "after about 0.0 million updates." in page
    results.save(made(recipe="paper", curve=curve), tmp_path)
    assert "It has passed the paper's \N{MINUS SIGN}113.1." in render(tmp_path).read_text()


def test_a_figure_by_an_earlier_recipe_is_marked_until_it_is_made_again(tmp_path):
    cell = presets.find("table2", "sbn-200-autoreg", "best")
    config = results._plain(dataclasses.asdict(cell.config))
    as_now = {**config, "seed": 1, "data": "elsewhere.npz"}
    before = {**as_now, "updates": 400_000, "weight_decay": 0.003}
    shown = {}
    for name, each in (("now", as_now), ("before", before)):
        results.save(made("table2", cell.row, figure=105.0, paper=103.8, config=each), tmp_path)
        shown[name] = render(tmp_path).read_text()
    assert "‡" not in shown["now"]
    assert "| SBN | 200 | 103.8 | 105.0‡ | +1.2 (miss) |" in shown["before"]
    why = "made with an earlier version of this recipe (updates 400000, weight_decay 0.003), to be run again."
    assert f"‡ {cell.row}: {why}" in shown["before"]


def test_misses_are_marked_for_wake_sleep_too(tmp_path):
    results.save(made(), tmp_path)
    results.save(made(row="sbn-200-ws", figure=122.0, paper=120.8), tmp_path)
    assert "| SBN | 200 | -113.1 | -112.0 | 3 min | -120.8 | -122.0 (miss) |" in front_page(tmp_path)
    below = "Our wake-sleep is below the paper's in 1 of 1 cells: SBN 200 \N{MINUS SIGN}1.2 nats"
    assert below in render(tmp_path).read_text()


@pytest.mark.parametrize(("figure", "what"), [(120.849, "+0.05 (level)"), (120.76, "\N{MINUS SIGN}0.04 (level)")])
def test_what_is_the_paper_s_figure_to_its_last_digit_is_level_with_it(tmp_path, figure, what):
    results.save(made(row="sbn-200-ws", figure=figure, paper=120.8), tmp_path)
    page = render(tmp_path).read_text()
    assert f"| 120.8 | 120.8 | {what} |" in page
    assert "Our wake-sleep is below" not in page
    assert "| -120.8 | -120.8 (level) |" in front_page(tmp_path)


@pytest.mark.parametrize(
    ("bounds", "essential", "least"),
    [
        ((-120.0, -121.0, -125.0, -126.0), "this holds for SBN 200", "this holds for SBN 200"),
        ((-120.0, -121.0, -125.0, -119.0), "SBN 200 is no worse without variance", "for SBN 200 here it is variance"),
    ],
)
def test_the_claims_on_figure_1_are_computed(bounds, essential, least):
    columns = ("baseline-idb-vn", "baseline-vn", "idb-vn", "baseline-idb")
    found = {
        ("figure1", f"sbn-200-{column}", "paper"): {"curve": {"validation_bound": [None, bound - 9, bound]}}
        for column, bound in zip(columns, bounds, strict=True)
    }
    first, second = comparisons(found).splitlines()[-2:]
    assert "all three techniques essential" in first
    assert essential in first
    assert "the input-dependent baseline the least important" in second
    assert least in second


def test_the_recipe_quick_is_best_with_three_eighths_of_its_updates():
    for table in ("table1", "table2"):
        for quick, best in zip(presets.cells(table, "quick"), presets.cells(table, "best"), strict=True):
            lengths = {name: getattr(best.config, name) for name in ("updates", "warm_up")}
            assert best.config == dataclasses.replace(quick.config, **lengths)
            for name, length in lengths.items():
                assert 3 * length == 8 * getattr(quick.config, name)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "is damaged: it cannot be read as JSON"),
        ("[]", "is not a result of"),
        (json.dumps({"format": 1}), "is not a result of"),
        (json.dumps(made(figure=float("nan"))), "its figure is not a finite number"),
        (json.dumps(made(row="sbn-500-nvil")), "holds the result of another cell"),
        (json.dumps(made(format=7)), "is not a result of"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused(content, sentence, tmp_path, capsys):
    (tmp_path / "table1-sbn-200-nvil-best.json").write_text(content)
    with pytest.raises(SystemExit) as caught:
        main(["reproduce", "--render", "--results", str(tmp_path)])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not (tmp_path / "README.md").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Say what to reproduce"),
        (["table1", "--row", "sbn-20-nvil"], "Unknown row of table1 'sbn-20-nvil'; did you mean 'sbn-200-nvil'?"),
        (["figure1", "--recipe", "best"], "Unknown recipe 'best'"),
        (["table1", "--jobs", "-1"], "--jobs must be at least 0, got -1."),
        (["table1", "--data", "x.npy"], "--data is for one cell; give its name with --row."),
        (["--render", "--results", "nowhere"], "There is no folder of results nowhere"),
    ],
)
def test_mistakes_get_a_sentence(words, sentence, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["reproduce", *words])
    assert caught.value.code == 2
    assert sentence in capsys.readouterr().err


def test_cells_are_listed(capsys):
    main(["reproduce", "table1", "--cells"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 16
    assert lines[0].split()[:3] == ["sbn-200-nvil", "paper", "113.1"]


def test_a_cell_runs_in_a_process_of_its_own_within_a_budget(tmp_path, monkeypatch, capsys):
    """A process of its own, on a real preset, stopped by the budget after it has saved.

    The clock here says that the budget is spent once the run has begun to write.
    """
    monkeypatch.chdir(tmp_path)
    np.save("pixels.npy", np.random.default_rng(0).integers(0, 2, (2000, 9), np.uint8))
    words = ["reproduce", "table1", "--data", "pixels.npy"]
    cell = presets.find("table1", "sbn-200-nvil", "best")
    folder = Path("runs/reproduce") / cell.name
    clock = types.SimpleNamespace(
        monotonic=lambda: time.monotonic() + (1e6 if (folder / "config.toml").exists() else 0), sleep=time.sleep
    )
    monkeypatch.setattr(jobs, "time", clock)
    monkeypatch.setattr(jobs, "LOOK_SECONDS", 0.05)
    with pytest.raises(SystemExit) as caught:
        main([*words, "--row", cell.row, "--budget", "1000"])
    assert caught.value.code == 1
    error = capsys.readouterr().err
    assert "1 of 1 cells are not done; the same command goes on with them." in error
    assert "failed" not in error
    assert 0 < nvil.Run.open(folder).updates() < cell.config.updates
    assert not Path("results").exists()
