"""The cells of the paper's tables and the curves of its figure, each a config: a table's TOML file, merged.

A cell is what all cells of its table share, a recipe, the choices of its row and of its column, in this order; a recipe
may be like another, and have choices for one estimator, and a column for one recipe, each also for a number of layers.
"""

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from nvil.errors import choose
from nvil.runs.config import Config, config_from

TABLES = ("table1", "table2", "table3", "figure1")
RECIPES = ("paper", "best")


@dataclasses.dataclass(frozen=True)
class Cell:
    """One number of a table, or one curve of the figure.

    - `table`, `row`: where it is; `row` is its name on the command line.
    - `model`, `dim`, `column`: as the paper prints them; `dim` lists the deepest layer first.
    - `paper`: the paper's number, as it prints it: a negative log-likelihood or a perplexity; None for a curve.
    """

    table: str
    row: str
    model: str
    dim: str
    column: str
    recipe: str
    paper: float | None
    metric: str
    config: Config

    @property
    def name(self) -> str:
        """Of its run folder and its file of results."""
        return f"{self.table}-{self.row}-{self.recipe}"


@dataclasses.dataclass(frozen=True)
class Quoted:
    """A number that the paper quotes from others, and how we measure that model on our data, where we do.

    - `by`: the column of our own cells that it is trained like; None if it is not one of our models.
    - `rival`: the module of `nvil.rivals`, with its `settings` and how it is evaluated; None if we have none.
    """

    table: str
    model: str
    dim: str
    column: str
    value: float | None
    data: str
    by: str | None = None
    rival: str | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    evaluation: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def row(self) -> str:
        """Its name on the command line."""
        return slug(self.model, self.dim, self.by or self.column)


@cache
def description(table: str) -> dict[str, Any]:
    """The TOML file of a table."""
    choose("table or figure", table, TABLES)
    return tomllib.loads((Path(__file__).parent / f"{table}.toml").read_text(encoding="utf-8"))


def recipes(table: str) -> dict[str, dict[str, Any]]:
    """The recipes of a table, by name."""
    found = description(table)["recipes"]
    if isinstance(found, str):
        return recipes(found)
    return {name: {**found.get(recipe.get("like"), {}), **recipe} for name, recipe in found.items()}


@cache
def cells(table: str, recipe: str) -> tuple[Cell, ...]:
    """Every cell of a table that is its own, in the paper's order; the figure has the recipe `paper` only.

    The last are models that the paper quotes from others and that we train by the same recipe.
    """
    contents = description(table)
    choose("recipe", recipe, recipes(table))
    quoted = [{**each, "paper": {each["by"]: each["value"]}} for each in contents.get("quoted", ()) if "by" in each]
    return tuple(
        _cell(table, row, column, recipe)
        for row in [*contents["rows"], *quoted]
        for column in row.get("columns") or row["paper"]
        if "same_as" not in contents["columns"][column]
    )


def _cell(table: str, row: dict[str, Any], column: str, recipe: str) -> Cell:
    contents, how, where = description(table), recipes(table)[recipe], description(table)["columns"][column]
    layers = len(row["choices"]["hidden"])
    own = _for(how, where.get("estimator", "nvil"), layers) | _for(where, recipe, layers)
    config = config_from({**contents["common"], **_flat(how), **row["choices"], **_flat(where), **own})
    return Cell(
        table,
        slug(row["model"], row["dim"], column),
        row["model"],
        row["dim"],
        column,
        recipe,
        row.get("paper", {}).get(column),
        contents["metric"],
        config.resolved(),
    )


def _for(values: dict[str, Any], name: str, layers: int) -> dict[str, Any]:
    """Its choices under a name, and those under the name and a number of layers."""
    return {**values.get(name, {}), **values.get(f"{name}, {layers} layer{'s' * (layers > 1)}", {})}


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """Its choices for every cell."""
    return {name: value for name, value in values.items() if not isinstance(value, dict) and name != "like"}


def find(table: str, row: str, recipe: str) -> Cell:
    """The cell with this name."""
    every = {cell.row: cell for cell in cells(table, recipe)}
    choose(f"row of {table}", row, every)
    return every[row]


@cache
def quoted(table: str) -> tuple[Quoted, ...]:
    """What the paper quotes from others in this table."""
    contents = description(table)
    found = []
    for each in contents.get("quoted", ()):
        column = each.get("column", "")
        data = {**contents["common"], **contents["columns"].get(column, {})}["data"]
        more = {name: each[name] for name in ("by", "rival", "settings", "evaluation") if name in each}
        found.append(Quoted(table, each["model"], each["dim"], column, each.get("value"), data, **more))
    return tuple(found)


def rivals(table: str) -> dict[str, Quoted]:
    """Those that are not models of ours, by name."""
    return {each.row: each for each in quoted(table) if each.rival is not None}


def slug(*words: str) -> str:
    """A name for folders and options: `sbn-200-200-nvil`."""
    text = "-".join(words).lower().replace("+", "-")
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")
