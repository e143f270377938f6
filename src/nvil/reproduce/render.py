"""results/README.md and its pictures, made from the JSON files alone."""

from pathlib import Path
from typing import Any

from nvil.reproduce import presets
from nvil.reproduce.results import load_all, seconds_to_pass
from nvil.runs.storage import save_text

HEAD = """# Results

Made by `nvil reproduce --render` from the JSON files in this folder; nothing here is typed by hand. Every number is the
test figure of one run (seed {seeds}), beside the paper's. Each cell is made by one command, for example
`nvil reproduce table1 --row sbn-200-nvil`; its JSON file also holds the protocol, the config, versions and the curve.

Figures of Tables 1 and 2 are negative bounds in nats per case, as the paper prints them (lower is better): means over
10 samples from the inference network for each of the 10,000 test cases. Dim lists the deepest layer first.
"""
FOOTNOTE = """† On another corpus than the paper's: not comparable with its figure. The paper's own word counts of
20 Newsgroups are not published, so that even there its preparation may differ from ours."""
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
    parts.append(_times(found))
    figure = _figure(folder, found)
    if figure:
        parts.append(figure)
    parts.append(_claims(found))
    parts.append(_recipes(folder))
    parts.append(OPEN)
    parts.append(_details(results))
    path = folder / "README.md"
    save_text(path, "\n".join(part for part in parts if part))
    return path


def _table(table: str, found: dict[Any, Any]) -> str:
    contents = presets.description(table)
    lines = [f"\n## Table {table[-1]}: {contents['title'][0].lower() + contents['title'][1:]}\n"]
    columns = list(contents["columns"])
    heads = [f"{column}: {what}" for column in columns for what in ("paper", "`paper`", "`best`", "best - paper")]
    lines.append(f"| Model | Dim | {' | '.join(heads)} |")
    lines.append("|---|---|" + "---:|" * len(heads))
    for row in contents["rows"]:
        entries = []
        for column in columns:
            paper = row["paper"].get(column)
            ours = [_of(table, row, column, recipe, found) for recipe in presets.RECIPES]
            shown = [_figure_of(each) + ("" if _same_corpus(table, column, each) else "†") for each in ours]
            difference = _difference(ours[1], paper) if _same_corpus(table, column, ours[1]) else ""
            entries += [_shown(paper), *shown, difference]
        lines.append(f"| {row['model']} | {row['dim']} | {' | '.join(entries)} |")
    lines += _quoted(table, found)
    if table == "table3":
        names = sorted({f"{each['row']}: {each['data']['name']}" for key, each in found.items() if key[0] == table})
        lines.append(f"\nPerplexity per document on the test set. Data: {'; '.join(names) or 'none yet'}.")
        lines.append(f"\n{FOOTNOTE}")
    return "\n".join(lines)


def front_page(folder: Path) -> str:
    """Table 1 in brief, as the project's README shows it: the paper's bounds and ours by the recipe `best`."""
    found = {(each["table"], each["row"], each["recipe"]): each for each in load_all(folder)}
    lines = ["| Model | Dim | NVIL: paper | NVIL: ours | time | wake-sleep: paper | wake-sleep: ours |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|")
    for row in presets.description("table1")["rows"]:
        by_nvil, by_wake_sleep = (_of("table1", row, column, "best", found) for column in ("NVIL", "WS"))
        minutes = "" if by_nvil is None else f"{by_nvil['curve']['seconds'][-1] / 60:.0f} min"
        numbers = [
            _shown(-row["paper"]["NVIL"]),
            _bound_of(by_nvil),
            minutes,
            _shown(-row["paper"]["WS"]),
            _bound_of(by_wake_sleep),
        ]
        lines.append(f"| {row['model']} | {row['dim']} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def _bound_of(result: dict[str, Any] | None) -> str:
    if result is None:
        return "not yet"
    miss = " (miss)" if result["figure"] > result["paper"] and result["row"].endswith("nvil") else ""
    return f"{_shown(result['bound'])}{miss}"


def _of(table: str, row: dict[str, Any], column: str, recipe: str, found: dict[Any, Any]) -> Any:
    """The result of a cell, which may be that of another table."""
    same = presets.description(table)["columns"][column].get("same_as")
    where, column = same.split(" ", 1) if same else (table, column)
    return found.get((where, presets.slug(row["model"], row["dim"], column), recipe))


def _same_corpus(table: str, column: str, result: dict[str, Any] | None) -> bool:
    """Whether a result is on the data that the paper's figure is for, by its name."""
    contents = presets.description(table)
    where = {**contents["common"], **contents["columns"][column]}
    return result is None or result["data"]["name"].startswith(where.get("corpus", where["data"]))


def _quoted(table: str, found: dict[Any, Any]) -> list[str]:
    quoted = presets.quoted(table)
    if not quoted:
        return []
    lines = ["\nWhat the paper quotes from others, and what we measure on our data:\n"]
    lines += ["| Model | Dim | Data | quoted | ours |", "|---|---|---|---:|---:|"]
    for each in quoted:
        ours = found.get((table, each.row, "rival"))
        lines.append(
            f"| {each.model} | {each.dim} | {each.column or 'MNIST'} | {_shown(each.value)} | {_figure_of(ours)} |"
        )
    return lines


def _times(found: dict[Any, Any]) -> str:
    lines = [
        "\n## Time to the paper's figure\n",
        "Wall time on one core, compilation and validation included, until the *validation* bound passes the paper's "
        "figure for the test set; where the validation cases are the harder ones, it may never, though the test bound "
        "does. `quick` is `best` on a quarter of its schedule.\n",
        "| Cell | recipe | paper | test | best validation | time to pass | whole run | updates |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for (table, row, recipe), result in found.items():
        if recipe not in ("quick", "best") or table not in ("table1", "table2"):
            continue
        seconds = seconds_to_pass(result)
        passed = "not passed" if seconds is None else f"{seconds / 60:.1f} min"
        whole = result["curve"]["seconds"][-1] / 60
        figures = " | ".join(map(_shown, (result["paper"], result["figure"], -_best(result))))
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
    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(4.5 * len(dims), 3.8), layout="constrained")
        axes = figure.subplots(1, len(dims), squeeze=False)[0]
        for place, dim in zip(axes, dims, strict=True):
            ends = []
            for cell, result in curves.items():
                if cell.dim != dim or result is None:
                    continue
                bounds = [float("nan") if value is None else value for value in result["curve"]["validation_bound"]]
                place.plot(result["curve"]["updates"], bounds, label=cell.column, linewidth=1.2)
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
        "Baseline is the running mean, IDB the input-dependent baseline, VN variance normalisation; recipe `paper`.\n",
        "| SBN | techniques | best validation bound | test bound | updates |",
        "|---|---|---:|---:|---:|",
    ]
    for cell, result in curves.items():
        if result is not None:
            best = _shown(_best(result))
            lines.append(f"| {cell.dim} | {cell.column} | {best} | {_shown(result['bound'])} | {result['updates']:,} |")
    return "\n".join(lines)


def _claims(found: dict[Any, Any]) -> str:
    """What Section 4 says of one way against another, beside the differences of our own cells."""
    lines = []
    pairs = (
        ("NVIL is above wake-sleep", "table1", "NVIL", "WS"),
        ("an autoregressive Q is above a factorial one", "table2", "Autoreg", "Factorial"),
    )
    for claim, table, better, worse in pairs:
        differences = {}
        for row in presets.description(table)["rows"]:
            ours = [_of(table, row, column, "best", found) for column in (better, worse)]
            if all(ours):
                differences[f"{row['model']} {row['dim']}"] = ours[0]["bound"] - ours[1]["bound"]
        if differences:
            held = sum(difference > 0 for difference in differences.values())
            each = ", ".join(f"{name} {_signed(difference)}" for name, difference in differences.items())
            lines.append(f"- That {claim} holds in {held} of {len(differences)} pairs (recipe `best`): {each} nats.")
    whole = "Baseline+IDB+VN"
    for left_out, column in (
        ("local signals", "Global signal"),
        ("the input-dependent baseline", "Baseline+VN"),
        ("the running mean", "IDB+VN"),
        ("variance normalisation", "Baseline+IDB"),
        ("all three", "None"),
    ):
        costs = []
        for row in presets.description("figure1")["rows"]:
            names = [presets.slug(row["model"], row["dim"], name) for name in (whole, column)]
            ours = [result for name in names if (result := found.get(("figure1", name, "paper")))]
            if len(ours) == 2:
                costs.append(f"{_signed(_best(ours[1]) - _best(ours[0]))} nats on {row['model']} {row['dim']}")
        if costs:
            lines.append(f"- Leaving out {left_out} changes the best validation bound by {', '.join(costs)}.")
    return "\n".join(["\n## The paper's comparisons\n", *lines]) if lines else ""


def _best(result: dict[str, Any]) -> float:
    return max(bound for bound in result["curve"]["validation_bound"] if bound is not None)


def _recipes(folder: Path) -> str:
    lines = ["\n## The recipes\n"]
    if (folder / "search.md").exists():
        lines.append("How `best` was found, and what did not help, is in [search.md](search.md).\n")
    for what, tables in (("Tables 1 and 2", ("table1", "table2")), ("Table 3", ("table3",))):
        for recipe in presets.RECIPES:
            values = presets.recipes(tables[0])[recipe]
            columns = {name: each for table in tables for name, each in presets.description(table)["columns"].items()}
            own = {name: value for name, value in values.items() if isinstance(value, dict)}
            own |= {name: column[recipe] for name, column in columns.items() if recipe in column}
            each = [_choices(values), *(f"{name}: {_choices(value)}" for name, value in own.items())]
            lines.append(f"- `{recipe}`, {what}: {'; for '.join(each)}.")
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
        errors = [each.get(name) for name in ("bound_se", "monte_carlo_se")]
        shown = ["" if error is None else f"{error:.2f}" for error in errors]
        shown.append(_shown(-likelihood["log_likelihood"]) if (likelihood := each.get("importance")) else "")
        lines.append(
            f"| {each['table']} {each['row']} | {each['recipe']} | {_figure_of(each)} | {' | '.join(shown)} "
            f"| {each['updates'] or 0:,} | {each.get('made_with', {}).get('commit', '')} |"
        )
    lines.append(
        "\nThe standard error is for new cases (from the standard deviation between cases). Importance-weighted is the "
        "negative estimate of log P(x) from 1000 samples, which later papers quote: never comparable with a bound.\n"
    )
    return "\n".join(lines)


def _figure_of(result: dict[str, Any] | None) -> str:
    return "" if result is None else _shown(result["figure"])


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if abs(value) >= 300 else f"{value:.1f}"


def _difference(result: dict[str, Any] | None, paper: float | None) -> str:
    if result is None or paper is None:
        return ""
    difference = result["figure"] - paper
    return _signed(difference) + (" (miss)" if difference > 0 else "")


def _signed(difference: float) -> str:
    return f"{difference:+.1f}".replace("-", "\N{MINUS SIGN}")
