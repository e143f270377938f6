"""What Section 4 says of one way against another, beside the differences of our own cells: computed, never typed."""

from typing import Any

from nvil.reproduce import presets

MINUS = "\N{MINUS SIGN}"
WHOLE = "Baseline+IDB+VN"
TECHNIQUES = {
    "the input-dependent baseline": "Baseline+VN",
    "the running mean": "IDB+VN",
    "variance normalisation": "Baseline+IDB",
}
"""The three of Figure 1, by the curve that leaves each out."""
OTHERS = {"all three": "None", "local signals": "Global signal"}


def comparisons(found: dict[Any, Any]) -> str:
    """A section of the page of results."""
    lines = [
        *_pairs("NVIL is above wake-sleep", "table1", ("NVIL", "WS"), found),
        *_wake_sleep(found),
        *_pairs("an autoregressive Q is above a factorial one", "table2", ("Autoreg", "Factorial"), found),
    ]
    for row in presets.description("figure1")["rows"]:
        costs = _costs(row, found)
        if costs:
            name = f"{row['model']} {row['dim']}"
            each = ", ".join(f"{signed(cost)} ({left_out})" for left_out, cost in costs.items())
            lines.append(f"- Leaving out techniques changes the best validation bound of {name}, in nats, by {each}.")
            lines += _techniques(name, {what: cost for what, cost in costs.items() if what in TECHNIQUES})
    return "\n".join(["\n## The paper's comparisons\n", *lines]) if lines else ""


def of(table: str, row: dict[str, Any], column: str, recipe: str, found: dict[Any, Any]) -> Any:
    """The result of a cell, which may be that of another table."""
    same = presets.description(table)["columns"][column].get("same_as")
    where, column = same.split(" ", 1) if same else (table, column)
    return found.get((where, presets.slug(row["model"], row["dim"], column), recipe))


def best(result: dict[str, Any]) -> float:
    """Its best validation bound."""
    return max(bound for bound in result["curve"]["validation_bound"] if bound is not None)


def rounded(value: float | None) -> str:
    """To as many digits as the paper gives."""
    return "" if value is None else f"{value:.0f}" if abs(value) >= 300 else f"{value:.1f}"


def is_level(figure: float, paper: float) -> bool:
    """Whether a figure is the same as the paper's, to its last digit."""
    return rounded(figure) == rounded(paper)


def signed(difference: float) -> str:
    """With its sign, and a second digit where the first alone would be zero."""
    return f"{difference:+.{1 if abs(difference) >= 0.05 else 2}f}".replace("-", MINUS)


def _pairs(claim: str, table: str, columns: tuple[str, str], found: dict[Any, Any]) -> list[str]:
    differences = {}
    for row in presets.description(table)["rows"]:
        ours = [of(table, row, column, "best", found) for column in columns]
        if all(ours):
            differences[f"{row['model']} {row['dim']}"] = ours[0]["bound"] - ours[1]["bound"]
    if not differences:
        return []
    held = sum(difference > 0 for difference in differences.values())
    return [f"- That {claim} holds in {held} of {len(differences)} pairs (recipe `best`): {_listed(differences)} nats."]


def _wake_sleep(found: dict[Any, Any]) -> list[str]:
    """Where wake-sleep does worse here than in the paper, which flatters NVIL beside it."""
    differences = {}
    for row in presets.description("table1")["rows"]:
        if result := of("table1", row, "WS", "best", found):
            level = is_level(result["figure"], row["paper"]["WS"])
            differences[f"{row['model']} {row['dim']}"] = 0 if level else result["bound"] + row["paper"]["WS"]
    below = {name: difference for name, difference in differences.items() if difference < 0}
    if not below:
        return []
    return [
        f"  - Our wake-sleep is below the paper's in {len(below)} of {len(differences)} cells: {_listed(below)} nats; "
        "NVIL's lead there is too large by as much."
    ]


def _costs(row: dict[str, Any], found: dict[Any, Any]) -> dict[str, float]:
    """What leaving out a technique does to the best validation bound of a net of Figure 1."""

    def end(column: str) -> float | None:
        result = found.get(("figure1", presets.slug(row["model"], row["dim"], column), "paper"))
        return None if result is None else best(result)

    whole = end(WHOLE)
    ends = {what: end(column) for what, column in {**TECHNIQUES, **OTHERS}.items()}
    return {} if whole is None else {what: bound - whole for what, bound in ends.items() if bound is not None}


def _techniques(name: str, costs: dict[str, float]) -> list[str]:
    """The two claims of Section 4.2 on the three techniques, as far as each was left out alone."""
    lines, complete = [], len(costs) == len(TECHNIQUES)
    essential = "The paper finds all three techniques essential for the best bound"
    needless = " or ".join(what for what, cost in costs.items() if cost >= 0)
    if needless:
        lines.append(f"  - {essential}; not so here: at our length of training {name} is no worse without {needless}.")
    elif complete:
        lines.append(f"  - {essential}; this holds for {name}.")
    first = next(iter(TECHNIQUES))
    least = max(costs, key=costs.__getitem__, default=first)
    if first in costs and least != first:
        lines.append(f"  - It finds {first} the least important of them; for {name} here it is {least}.")
    elif complete:
        lines.append(f"  - It finds {first} the least important of them; this holds for {name}.")
    return lines


def _listed(differences: dict[str, float]) -> str:
    return ", ".join(f"{name} {signed(difference)}" for name, difference in differences.items())
