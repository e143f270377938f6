"""The pieces of a page: figures, tables, pictures and lists with their captions, and the HTML around them."""

import base64
import dataclasses
import hashlib
import io
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jinja2
import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import nvil
from nvil.report import figures
from nvil.report.pictures import grid, png
from nvil.report.summary import Summary, printable

MINUS = "\N{MINUS SIGN}"
SORTABLE = Markup(' class="sortable"')


@dataclasses.dataclass(frozen=True)
class Part:
    """A figure, table or list with its caption: one sentence on how to read it."""

    body: Markup
    caption: str = ""
    wide: bool = False
    title: str = ""


def titled(part: Part, title: str) -> Part:
    return dataclasses.replace(part, title=title)


def render(*, sections: list[tuple[str, list[Part]]], **values: Any) -> str:
    """The page as HTML; where a table of it can be sorted, with the one script that its security policy allows."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    full = [(heading, parts) for heading, parts in sections if parts]
    if any(SORTABLE in part.body for _, parts in full for part in parts):
        script = Path(__file__).with_name("sort.js").read_text(encoding="utf-8")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        values |= {"script": Markup(script), "script_hash": Markup(f"sha256-{digest}")}
    return environment.get_template("page.html").render(sections=full, version=nvil.__version__, **values)


def number(value: float, digits: int = 2) -> str:
    """A number as it is printed, with a true minus sign."""
    text = f"{value:,.{digits}f}" if abs(value) < 1e7 else f"{value:.4g}"
    return text.replace("-", MINUS)


def with_error(bound: float, error: float | None) -> str:
    return number(bound) + ("" if error is None else f" ±\N{NO-BREAK SPACE}{number(error)}")


def facts(rows: Sequence[tuple[str, str]]) -> Markup:
    items = [Markup("<dt>{}</dt><dd>{}</dd>").format(name, printable(value)) for name, value in rows]
    return Markup("<dl>{}</dl>").format(Markup("\n").join(items))


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    whole: Sequence[int] = (),
    words: Sequence[int] = (),
    sortable: bool = False,
) -> Markup:
    """A table in a box of its own that scrolls where it is too wide.

    `whole` columns are never broken into lines, and columns of `words` not into lines of a word or two.
    """
    kinds = {"whole": whole, "words": words, "number": numbers}
    styles = {column: f' class="{kind}"' for kind, columns in kinds.items() for column in columns}

    def line(kind: str, values: Sequence[str]) -> Markup:
        tags = [Markup(f"<{kind}{styles.get(i, '')}>") for i in range(len(values))]
        cells = [tag + value + Markup(f"</{kind}>") for tag, value in zip(tags, values, strict=True)]
        return Markup("<tr>") + Markup("").join(cells) + Markup("</tr>\n")

    body = Markup("").join(line("td", row) for row in rows)
    box = '<div class="scroll" tabindex="0"><table{}>\n<thead>{}</thead>\n<tbody>{}</tbody>\n</table></div>'
    return Markup(box).format(SORTABLE if sortable else "", line("th", header), body)


def picture(
    cases: np.ndarray, image: tuple[int, int], alt: str, *, columns: int = 10, apart: Sequence[int] = ()
) -> Markup:
    """Cases in a grid, with more room before the columns in `apart`."""
    return drawn(grid(cases, image, side=84, columns=columns, apart=apart), alt)


def drawn(canvas: np.ndarray, alt: str) -> Markup:
    height, width = canvas.shape
    data = base64.b64encode(png(canvas)).decode()
    tag = '<img src="data:image/png;base64,{}" width="{}" height="{}" alt="{}">'
    return Markup(tag).format(data, width, height, alt)


def svg(draw: Callable[[Axes], None], alt: str, size: tuple[float, float]) -> Markup:
    """A figure as inline SVG whose text is text, in the colours of the page, light or dark."""
    buffer = io.StringIO()
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "nvil"}):
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)  # the browser has more fonts
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        unwanted = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=unwanted)
    found = re.search(r'<svg [^>]*viewBox="([^"]*)"[^>]*>(.*</svg>)', buffer.getvalue(), re.DOTALL)
    assert found is not None
    view, body = found.groups()
    body = re.sub(r'<g id="[^"]*">', "<g>", body)  # names that several figures of a page would share
    body = body.replace("#000000", "currentColor")
    for i, colour in enumerate(figures.COLOURS):
        body = body.replace(colour, f"var(--line{i})")
    return Markup('<svg role="img" aria-label="{}" viewBox="{}">').format(alt, view) + Markup(body)


def bag(summary: Summary, counts: np.ndarray, most: int = 16, *, rest: bool = True) -> str:
    """The most telling words of a document, with their counts, and how many others there are."""
    counts = counts[summary.context :]
    kinds = int(np.sum(counts > 0))
    order = summary.raised_order(counts / max(1, counts.sum()))[: min(most, kinds)]
    names = summary.vocabulary
    words = [names[i] if counts[i] == 1 else f"{names[i]}:{counts[i]:.0f}" for i in order]
    return " ".join(words) + (f" … and {kinds - len(words)} more" if rest and kinds > len(words) else "")


def raised(summary: Summary, mean: np.ndarray) -> str:
    """The words that expected counts raise most over their usual share."""
    mean = mean[summary.context :]
    return " ".join(summary.vocabulary[i] for i in summary.raised_order(mean / mean.sum())[:12])
