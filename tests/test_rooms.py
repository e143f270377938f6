"""Imports point one way: core <- rivals <- data <- runs <- sklearn <- report <- reproduce <- bench <- cli.

Every import statement counts, also those inside functions and under `if TYPE_CHECKING:`. Only `nvil/__init__.py` is
left out, because it gives the names of every room to the user, lazily; the other lazy packages (`nvil.data`,
`nvil.runs`) name only what is their own, and `nvil/lazy.py` imports nothing of ours, so they need no exception.
"""

import ast
from pathlib import Path

import pytest

import nvil

SOURCE = Path(nvil.__file__).parent
ROOMS = ("core", "rivals", "data", "runs", "sklearn", "report", "reproduce", "bench", "cli")
MODULES = {
    ".".join(("nvil", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
}


def room(module: str) -> str:
    """The modules right in nvil, and nvil.estimators, are the core; `python -m nvil` is the command line."""
    first = (*module.split("."), "")[1]
    if first == "__main__":
        return "cli"
    package = MODULES.get(f"nvil.{first}", Path()).name == "__init__.py"
    return first if package and first != "estimators" else "core"


def imported(module: str, tree: ast.AST) -> set[str]:
    """The modules of ours that a module imports, wherever in it; names of `nvil` itself are traced to their homes."""
    found = set()
    names_nvil = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
            names_nvil |= any(alias.name.split(".")[0] == "nvil" and not alias.asname for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module if MODULES.get(module, Path()).name == "__init__.py" else module.rpartition(".")[0]
            parents = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            origin = ".".join([*parents, *([node.module] if node.module else [])])
            found |= {home(f"{origin}.{alias.name}") for alias in node.names}
    for node in ast.walk(tree) if names_nvil else ():
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "nvil":
            found.add(home(f"nvil.{node.attr}"))
    return {name for name in found if name.split(".")[0] == "nvil" and name != "nvil"}


def home(name: str) -> str:
    """The module that a name is of: itself, where it is one, or the one that has it."""
    if name in MODULES:
        return name
    package, _, attribute = name.rpartition(".")
    if package == "nvil":
        return f"nvil.{nvil._HOMES.get(attribute, attribute)}"
    return package


def backwards(module: str, tree: ast.AST) -> list[str]:
    """What a module imports of rooms that are built on its own."""
    allowed = ROOMS[: ROOMS.index(room(module)) + 1]
    return sorted(name for name in imported(module, tree) if room(name) not in allowed)


@pytest.mark.parametrize("module", sorted(MODULES.keys() - {"nvil"}))
def test_no_module_imports_from_a_room_built_on_its_own(module):
    assert backwards(module, ast.parse(MODULES[module].read_text())) == []


def test_all_rooms_are_found():
    """A package that is none of them is a question, and does not pass for a part of the core."""
    assert {room(module) for module in MODULES} == set(ROOMS)
    assert room("nvil.estimators.nvil") == room("nvil.training") == "core"


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("nvil.training", "import nvil.data"),
        ("nvil.training", "from nvil import data"),
        ("nvil.training", "from nvil import Stream"),
        ("nvil.training", "from . import data"),
        ("nvil.training", "from .data.streams import Stream"),
        ("nvil.training", "import nvil\nnvil.Run"),
        ("nvil.training", "def f():\n    from nvil.data.sparse import SparseRows"),
        ("nvil.training", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from nvil.runs.run import Run"),
        ("nvil.estimators.samples", "from nvil.data import Stream"),
        ("nvil.data", "from .. import runs"),
        ("nvil.data.loading", "from nvil.runs.storage import save_text"),
        ("nvil.runs.run", "from nvil import report"),
        ("nvil.runs.run", "from nvil.sklearn import DocumentModel"),
        ("nvil.report.page", "from nvil.cli import main"),
    ],
)
def test_an_import_the_wrong_way_is_seen(module, text):
    assert backwards(module, ast.parse(text))
    assert backwards("nvil.__main__", ast.parse(text)) == []
