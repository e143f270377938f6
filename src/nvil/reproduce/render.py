"""results/README.md and its pictures, made from the JSON files alone."""

import dataclasses
import math
from pathlib import Path
from typing import Any

from nvil.reproduce import presets
from nvil.reproduce.comparisons import MINUS, best, comparisons, is_level, of, rounded, signed
from nvil.reproduce.extrapolation import pace, updates_until
from nvil.reproduce.results import load_all, seconds_to_pass
from nvil.runs.storage import save_text

HEAD = """# Results

Made by `nvil reproduce --render` from the JSON files in this folder; nothing here is typed by hand. Every number is the
test figure of one run (seed {seeds}), beside the paper's. Each cell is made by one command, for example
`nvil reproduce table1 --row sbn-200-nvil`; its JSON file also holds the protocol, the config, versions and the curve.

Figures of Tables 1 and 2 are negative bounds in nats per case, as the paper prints them (lower is better): means over
10 samples from the inference network for each of the 10,000 test cases. Dim lists the deepest layer first.
A figure that is worse than the paper's is a miss; one that is the same to its last digit is level with it.
"""
ELSEWHERE = "† On another corpus than the paper's: not comparable with its figure."
APPROXIMATE = """≈ An approximate comparison: the same collection of documents, but not the paper's own word counts
(those of Salakhutdinov & Hinton, 2009), which are not published."""
PERPLEXITY = """Perplexity per document on the test set (lower is better): exp(-mean(log P(x) / L)) over documents x of
L words, with the bound in the place of log P(x), as in Section 4.3."""
OPEN = """
## What the paper leaves open

It does not give the initial weights, the starting values of c and v, the baselines' learning rate, or for how many
updates it trained. Here, in both recipes: weights uniform in ±sqrt(6 / (in + out)), visible biases at the logit of the
training mean, connections within a layer at zero; c and v at the mean and variance of one extra draw; baselines at the
model's rate. Gradients are summed over the minibatch, as in Algorithm 1. The parameters kept are those of the best
validation bound.
"""


def render(folder: Path) -> Path:
    """Write README.md and the pictures of a folder of results."""
    results = load_all(folder)
    found = {(each["table"], each["row"], each["recipe"]): each for each in results}
    seeds = ", ".join(map(str, sorted({each["seed"] for each in results if "seed" in each}))) or "0"
    parts = [HEAD.format(seeds=seeds)]
    parts += [_table(number, found) for number in ("table1", "table2", "table3")]
    parts += [_times(found), _still_rising(found), _figure(folder, found), comparisons(found)]
    parts += [_recipes(folder, found), OPEN, _details(results)]
    path = folder / "README.md"
    save_text(path, "\n".join(part for part in parts if part))
    return path


def _table(table: str, found: dict[Any, Any]) -> str:
    contents = presets.description(table)
    columns = list(contents["columns"])
    whats = ("published", *(f"recipe `{recipe}`" for recipe in presets.RECIPES), f"`best` {MINUS} published")
    heads = ["Model", "Dim", *(f"{column}: {what}" for column in columns for what in whats)]
    rows, shown = [], []
    for row in contents["rows"]:
        entries = [row["model"], row["dim"]]
        for column in columns:
            paper = row["paper"].get(column)
            ours = [of(table, row, column, recipe, found) for recipe in presets.RECIPES]
            figures = [_figure_of(each) + ("" if _same_corpus(table, column, each) else "†") for each in ours]
            difference = _difference(ours[1], paper) if _same_corpus(table, column, ours[1]) else ""
            if difference and contents.get("approximate"):
                difference = f"≈ {difference}"
            entries += [rounded(paper), *figures, difference]
            shown += ours
        rows.append(entries)
    lines = [f"\n## Table {table[-1]}: {contents['title'][0].lower() + contents['title'][1:]}\n"]
    lines += _columns(heads, rows)
    notes = [PERPLEXITY] if contents["metric"] == "perplexity" else []
    notes += [note for note in (ELSEWHERE, APPROXIMATE) if any(note[0] in entry for row in rows for entry in row[2:])]
    lines += [*(f"\n{note}" for note in notes), *_stale(shown), *(f"\n{note}" for note in _files(table, found))]
    return "\n".join(lines + _quoted(table, found))


def _columns(heads: list[str], rows: list[list[str]]) -> list[str]:
    """A table without the columns that have no entry; those after Model, Dim and Data are numbers."""
    kept = [place for place in range(len(heads)) if any(row[place] for row in rows)]
    words = ("Model", "Dim", "Data")
    lines = [heads, ["---" if head in words else "---:" for head in heads], *rows]
    return [f"| {' | '.join(line[place] for place in kept)} |" for line in lines]


def _files(table: str, found: dict[Any, Any]) -> list[str]:
    """How the cells were made that are not on a named set."""
    made = {}
    for (where, row, recipe), result in found.items():
        name = result["data"]["name"]
        if where == table and "." in name:
            made.setdefault(name, []).append(f"`{row}`" + (f" (`--recipe {recipe}`)" if recipe == "rival" else ""))
    origins = presets.description(table).get("files", {})
    return [
        f"On `{name}`, each by `nvil reproduce {table} --row ROW --data {name}`: {', '.join(rows)}. "
        f"{origins.get(name, '')}".rstrip()
        for name, rows in made.items()
    ]


def _stale(results: list[Any]) -> list[str]:
    """A footnote for each figure that an earlier version of its recipe made."""
    marked = {each["row"]: _choices(earlier) for each in results if each is not None and (earlier := _earlier(each))}
    return [
        f"\n‡ {row}: made with an earlier version of this recipe ({choices}), to be run again."
        for row, choices in marked.items()
    ]


def _earlier(result: dict[str, Any]) -> dict[str, Any]:
    """The choices of a result's config that its recipe no longer makes; the data and the seed are not a recipe's."""
    config = result["config"]
    if "rival" in result:
        wanted, defaults = presets.rivals(result["table"])[result["row"]].settings, {}
    else:
        now = presets.find(result["table"], result["row"], result["recipe"]).config
        defaults = {"warm_up": 0}  # of options added after some results were made
        wanted = {
            field.name: getattr(now, field.name)
            for field in dataclasses.fields(now)
            if field.metadata["group"] in ("what", "model", "learning") and field.name not in ("data", "seed")
        }
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in wanted.items()}
    before = {name: config.get(name, defaults.get(name, value)) for name, value in plain.items()}
    return {name: before[name] for name, value in plain.items() if value is not None and before[name] != value}


def front_page(folder: Path) -> str:
    """Table 1 in brief, as the project's README shows it: the paper's bounds and ours by the recipe `best`."""
    found = {(each["table"], each["row"], each["recipe"]): each for each in load_all(folder)}
    lines = ["| Model | Dim | NVIL: paper | NVIL: ours | time | wake-sleep: paper | wake-sleep: ours |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|")
    shown = []
    for row in presets.description("table1")["rows"]:
        by_nvil, by_wake_sleep = (of("table1", row, column, "best", found) for column in ("NVIL", "WS"))
        minutes = "" if by_nvil is None else f"{by_nvil['curve']['seconds'][-1] / 60:.0f} min"
        numbers = [
            rounded(-row["paper"]["NVIL"]),
            _bound_of(by_nvil),
            minutes,
            rounded(-row["paper"]["WS"]),
            _bound_of(by_wake_sleep),
        ]
        lines.append(f"| {row['model']} | {row['dim']} | {' | '.join(numbers)} |")
        shown += [by_nvil, by_wake_sleep]
    return "\n".join(lines + _stale(shown))


def _bound_of(result: dict[str, Any] | None) -> str:
    if result is None:
        return "not yet"
    return f"{rounded(result['bound'])}{_mark(result)}{_standing(result['figure'], result['paper'])}"


def _mark(result: dict[str, Any]) -> str:
    return "‡" if _earlier(result) else ""


def _same_corpus(table: str, column: str, result: dict[str, Any] | None) -> bool:
    """Whether a result is on the data that the paper's figure is for, by its name."""
    contents = presets.description(table)
    where = {**contents["common"], **contents["columns"][column]}
    return result is None or result["data"]["name"].startswith(where.get("corpus", where["data"]))


def _quoted(table: str, found: dict[Any, Any]) -> list[str]:
    quoted = presets.quoted(table)
    if not quoted:
        return []
    ours = [found.get((table, each.row, "rival" if each.by is None else "best")) for each in quoted]
    rows = [
        [each.model, each.dim, each.column or "MNIST", rounded(each.value), _figure_of(result) + _of_few(result)]
        for each, result in zip(quoted, ours, strict=True)
    ]
    measured = "what we measure on our data" if any(row[-1] for row in rows) else "what we have not measured yet"
    heads = ["Model", "Dim", "Data", "quoted", "ours"]
    lines = [f"\nWhat the paper quotes from others, and {measured}:\n", *_columns(heads, rows)]
    bounds = [f"`{each.row}`" for each, result in zip(quoted, ours, strict=True) if each.by and result is not None]
    if bounds:
        lines.append(
            f"\nOur figures for {' and '.join(bounds)} are bounds, by the recipe `best`; the others are log P(x) or "
            "estimates of it."
        )
    return lines + _stale(ours)


def _is_quoted(table: str, row: str) -> bool:
    """Whether a cell's figure in the paper is one of others."""
    return any(each.row == row for each in presets.quoted(table))


def _of_few(result: dict[str, Any] | None) -> str:
    """The standard error of a perplexity that was not measured on all test documents."""
    if result is None or result["perplexity"] is None or result["cases"] == result["protocol"]["split"]["test"]:
        return ""
    return f" ± {result['perplexity']['per_document_se']:.0f} ({result['cases']} documents)"


def _times(found: dict[Any, Any]) -> str:
    lines = [
        "\n## Time to the paper's figure\n",
        "Wall time on one core, compilation and validation included, until the *validation* bound passes the paper's "
        "figure for the test set; where the validation cases are the harder ones, it may never, though the test bound "
        "does. `quick` is `best` with three eighths of its updates. Cells were made by different commits, on different "
        "machines, some of them busy, so their times do not compare.\n",
        "| Cell | recipe | paper | test | best validation | time to pass | whole run | updates |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for (table, row, recipe), result in found.items():
        if recipe not in ("quick", "best") or table not in ("table1", "table2") or _is_quoted(table, row):
            continue
        seconds = seconds_to_pass(result)
        passed = "not passed" if seconds is None else f"{seconds / 60:.1f} min"
        whole = result["curve"]["seconds"][-1] / 60
        figures = f"{rounded(result['paper'])} | {_figure_of(result)} | {rounded(-best(result))}"
        lines.append(f"| {row} | {recipe} | {figures} | {passed} | {whole:.0f} min | {result['updates']:,} |")
    return "\n".join(lines) if len(lines) > 4 else ""


def _figure(folder: Path, found: dict[Any, Any]) -> str:
    """Figure 1 as a picture, with the curves that there are."""
    curves = {cell: found.get(("figure1", cell.row, "paper")) for cell in presets.cells("figure1", "paper")}
    if not any(curves.values()):
        return ""
    import matplotlib
    from matplotlib.figure import Figure

    dims = list(dict.fromkeys(cell.dim for cell, result in curves.items() if result is not None))
    colours = {column: f"C{i}" for i, column in enumerate(dict.fromkeys(cell.column for cell in curves))}
    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(4.5 * len(dims), 3.8), layout="constrained")
        axes = figure.subplots(1, len(dims), squeeze=False)[0]
        for place, dim in zip(axes, dims, strict=True):
            ends = []
            for cell, result in curves.items():
                if cell.dim != dim or result is None:
                    continue
                bounds = [float("nan") if value is None else value for value in result["curve"]["validation_bound"]]
                place.plot(result["curve"]["updates"], bounds, colours[cell.column], label=cell.column, linewidth=1.2)
                ends.append(bounds[-1])
            place.set_title(f"SBN {dim}")
            place.set_xlabel("parameter updates")
            if ends:
                place.set_ylim(max(min(ends) - 5, -220), max(ends) + 5)
                place.legend(fontsize=7)
            place.grid(alpha=0.3)
        axes[0].set_ylabel("validation bound (nats per case)")
        figure.savefig(folder / "figure1.png", dpi=130)
    lines = [
        "\n## Figure 1: bounds on the validation set log-likelihood\n",
        "![Validation bounds over updates, with techniques left out](figure1.png)\n",
        "Baseline is the running mean, IDB the input-dependent baseline, VN variance normalisation.\n",
        "| SBN | techniques | best validation bound | test bound | updates |",
        "|---|---|---:|---:|---:|",
    ]
    for cell, result in curves.items():
        if result is not None:
            highest = rounded(best(result))
            bound = f"{rounded(result['bound'])}{_mark(result)}"
            lines.append(f"| {cell.dim} | {cell.column} | {highest} | {bound} | {result['updates']:,} |")
    return "\n".join(lines + _stale(list(curves.values())))


def _still_rising(found: dict[Any, Any]) -> str:
    """The curves of the recipe `paper`, and where they lead."""
    lines = []
    for (table, row, recipe), result in found.items():
        rate = pace(result["curve"]) if recipe == "paper" and table in ("table1", "table2") else None
        if rate is None or _is_quoted(table, row):
            continue
        points = zip(rate.updates, rate.bounds, strict=True)
        course = ", ".join(f"{bound:.1f} ({count:,.0f})" for count, bound in points)
        test, paper = result["figure"], result["paper"]
        line = (
            f"- `{row}`: validation bounds {course.replace('-', MINUS)}; test bound {MINUS}{test:.1f}. The last "
            f"doubling of the updates gained {rate.gain:.1f} nats, {rate.ratio:.2f} of the one before. "
        )
        needed = updates_until(rate, test - paper) if test > paper else 0
        if not needed:
            line += f"It has passed the paper's {MINUS}{paper}."
        elif math.isinf(needed):
            line += f"At that pace it would never reach the paper's {MINUS}{paper}."
        else:
            millions = f"{needed / 1e6:.0f} million" if needed >= 1e7 else f"{needed / 1e6:.1f} million"
            line += f"At that pace it would reach the paper's {MINUS}{paper} after about {millions} updates."
        lines.append(line)
    if not lines:
        return ""
    head = """
## By the paper's own protocol

Plain SGD at a fixed rate is still gaining where our runs of the recipe `paper` end, and the paper does not say how long
it trained. The extrapolation assumes that each further doubling of the updates gains as much less than the one before
as the last one did: a rough guess, from validation bounds on 100 cases (with the updates in brackets).
"""
    return "\n".join([head, *lines])


def _recipes(folder: Path, found: dict[Any, Any]) -> str:
    lines = ["\n## The recipes\n"]
    if not any(recipe == "paper" and table != "figure1" for table, _, recipe in found):
        lines.append("No cell of the tables has been run by the paper's own protocol, recipe `paper`, yet.\n")
    if (folder / "search.md").exists():
        lines.append("How `best` was found, and what did not help, is in [search.md](search.md).\n")
    for what, tables in (("Tables 1 and 2", ("table1", "table2")), ("Table 3", ("table3",))):
        for recipe in presets.RECIPES:
            values = presets.recipes(tables[0])[recipe]
            columns = {name: each for table in tables for name, each in presets.description(table)["columns"].items()}
            own = {name: value for name, value in values.items() if isinstance(value, dict)}
            own |= {
                name + key.removeprefix(recipe): value
                for name, column in columns.items()
                for key, value in column.items()
                if key.partition(",")[0] == recipe
            }
            each = [_choices(values), *(f"{name}: {_choices(value)}" for name, value in own.items())]
            lines.append(f"- `{recipe}`, {what}: {'; for '.join(each)}.")
    lines.append(f"- `paper`, Figure 1: {_choices(presets.recipes('figure1')['paper'])}.")
    return "\n".join(lines)


def _choices(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if not isinstance(value, dict))


def _details(results: list[dict[str, Any]]) -> str:
    lines = [
        "\n## Every result\n",
        "| Cell | recipe | figure | standard error | of it from sampling h | importance-weighted | updates | commit |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for each in results:
        perplexity = presets.description(each["table"])["metric"] == "perplexity"
        errors = [None if perplexity else each.get(name) for name in ("bound_se", "monte_carlo_se")]
        shown = ["" if error is None else f"{error:.2f}" for error in errors]
        shown.append(rounded(-likelihood["log_likelihood"]) if (likelihood := each.get("importance")) else "")
        lines.append(
            f"| {each['table']} {each['row']} | {each['recipe']} | {_figure_of(each)} | {' | '.join(shown)} "
            f"| {each['updates'] or 0:,} | {each.get('made_with', {}).get('commit', '')} |"
        )
    lines.append(
        "\nThe standard error of a bound is in nats per case, and for new cases (from the standard deviation between "
        "cases); perplexities have none here. Importance-weighted is the "
        "negative estimate of log P(x) from 1000 samples, which later papers quote: never comparable with a bound.\n"
    )
    return "\n".join(lines)


def _figure_of(result: dict[str, Any] | None) -> str:
    return "" if result is None else rounded(result["figure"]) + _mark(result)


def _difference(result: dict[str, Any] | None, paper: float | None) -> str:
    if result is None or paper is None:
        return ""
    return signed(result["figure"] - paper) + _standing(result["figure"], paper)


def _standing(figure: float, paper: float) -> str:
    """A figure that is worse than the paper's is a miss; one that is the same to the paper's last digit is level."""
    return " (level)" if is_level(figure, paper) else " (miss)" if figure > paper else ""
