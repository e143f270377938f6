"""Docstrings are in Markdown's manner, and autodoc reads reStructuredText: what differs is put right here.

`!!! example` becomes an admonition, an indented formula or piece of code a literal block, and a table a table. Lists
mean the same in both, and so do single backticks, by `default_role` in conf.py.
"""

import inspect
import re
from collections.abc import Set

NOTE = re.compile(r"!!! (\w+)$")
ITEM = re.compile(r"(?:[-*]|\d+\.) ")
CODE = re.compile(r"(``[^`]+``|`[^`]+`)")


def setup(app):
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-process-signature", _short)
    return {"parallel_read_safe": True}


def _process(app, what, name, thing, options, lines):
    try:
        arguments = set(inspect.signature(thing).parameters)
    except (TypeError, ValueError):
        arguments = set()
    lines[:] = as_rst(lines, arguments)


def _short(app, what, name, thing, options, signature, returned):
    """Arrays by the name that everyone imports them by."""
    return tuple(text and text.replace("jaxlib._jax.Array", "Array") for text in (signature, returned))


def as_rst(lines: list[str], arguments: Set[str] = frozenset()) -> list[str]:
    """The same docstring for docutils; the names of `arguments` are not links, to modules of that name for example."""
    text = "\n".join(lines).strip("\n")
    text = re.sub(r"(?<!`)`(\w+)`(?!`)", lambda found: f"`{found[0]}`" if found[1] in arguments else found[0], text)
    paragraphs = re.split(r"\n\s*\n", text)
    found: list[str] = []
    above = 0  # the indentation of the last paragraph that is not code
    note = False  # whether the last paragraph began an admonition
    code = False
    for paragraph in paragraphs:
        first = paragraph.split("\n", 1)[0]
        indent = len(first) - len(first.lstrip())
        doctest = first.lstrip().startswith(">>>")
        deeper = indent >= above + 4 and not doctest and not ITEM.match(first.lstrip())
        if NOTE.match(first.strip()):
            kind = first.split()[-1].capitalize()
            paragraph = f"{' ' * indent}.. admonition:: {kind}"
        elif deeper:
            if not code:
                found.append(f"{' ' * (above + 4 * note)}::")
            paragraph = _indented(paragraph, 4)
        elif "\n|--" in paragraph:
            paragraph = _table(paragraph.split("\n"))
        elif not doctest:
            paragraph = "\n".join(map(_escaped, paragraph.split("\n")))
        note, code = bool(NOTE.match(first.strip())), deeper
        above = above if deeper or doctest else indent
        found.append(paragraph)
    return [*"\n\n".join(found).split("\n"), ""]


def _indented(paragraph: str, by: int) -> str:
    return "\n".join(f"{' ' * by}{line}" for line in paragraph.split("\n"))


def _escaped(line: str) -> str:
    """Outside of backticks, without what only reStructuredText gives a meaning: |this|, this_ and a lone *."""
    parts = CODE.split(line)
    for i in range(0, len(parts), 2):
        part = re.sub(r"\||(?<=\w)_(?!\w)", lambda found: f"\\{found[0]}", parts[i])
        if part.count("*") == 1 and not ITEM.match(part.lstrip()):
            part = part.replace("*", "\\*")
        if i and re.match(r"\w", part):  # the plural of a name
            part = f"\\ {part}"
        parts[i] = part
    return "".join(parts)


def _table(rows: list[str]) -> str:
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (rows[0], *rows[2:]):
        for i, cell in enumerate(row.strip().strip("|").split(" | ")):
            lines.append(f"   {'  ' if i else '* '}- {_escaped(cell.strip())}")
    return "\n".join(lines)
