"""What a cell of the paper's tables came to, from its file in results/: the directive {result}, with its curve."""

import io
import json
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive

RESULTS = Path(__file__).parents[2] / "results"


def setup(app):
    app.add_directive("result", Result)
    return {"parallel_read_safe": True}


class Result(Directive):
    """A sentence on a cell, by the name of its file, and its curve beside the paper's figure."""

    required_arguments = 1

    def run(self):
        path = RESULTS / f"{self.arguments[0]}.json"
        self.state.document.settings.record_dependencies.add(str(path))
        cell = json.loads(path.read_text(encoding="utf-8"))
        text = (
            f"Test bound {_number(cell['bound'])} nats per case, standard error {cell['bound_se']:.2f}; the paper has "
            f"{_number(-cell['paper'])}. {cell['updates']:,} updates, seed {cell['seed']}, "
            f"{cell['curve']['seconds'][-1] / 60:.0f} minutes on one core, commit {cell['made_with']['commit']}."
        )
        return [nodes.paragraph("", text), nodes.raw("", _curve(cell), format="html")]


def _number(value: float) -> str:
    return f"{value:.1f}".replace("-", "\N{MINUS SIGN}")


def _curve(cell) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    minutes = [seconds / 60 for seconds in cell["curve"]["seconds"]]
    axes.plot(minutes, cell["curve"]["bound"], color="#1f5f9e", label="minibatches")
    axes.plot(minutes, cell["curve"]["validation_bound"], color="#b8431f", ls=(0, (5, 1.5)), label="validation cases")
    axes.axhline(-cell["paper"], color="0.4", lw=1, label="the paper, test cases")
    axes.set(xlabel="minutes on one core", ylabel="bound (nats per case)")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    svg = drawn.getvalue()
    return f'<div class="curve">{svg[svg.index("<svg") :]}</div>'
