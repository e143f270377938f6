"""`nvil report`: a page on a run, or on several compared."""

import webbrowser
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional

from nvil.cli.options import command
from nvil.errors import UsageError


@command
def report(
    runs: Annotated[
        Positional[tuple[Path, ...]], tyro.conf.arg(metavar="PATH [PATH ...]", help_behavior_hint="(required)")
    ],
    out: Path | None = None,
    open: bool = False,
) -> None:
    """Write a page on a run, or on several compared, that needs nothing but a browser.

    Of one run: the bound, samples, what the latents mean, diagnostics, and how to make it again. Of several: their
    curves on shared axes, their results in a table, and what differs.

    Args:
        runs: The folders of the runs.
        out: An .html file; by default report.html in the run's folder, and comparison.html for several runs.
        open: Show it in the browser.

    """
    if not runs:
        raise UsageError("Give the folder of at least one run, for example: nvil report runs/demo")
    from nvil.report import write_comparison, write_report
    from nvil.runs.run import Run
    from nvil.runs.storage import output_file

    opened = [Run.open(folder) for folder in runs]
    default = runs[0] / "report.html" if len(runs) == 1 else Path("comparison.html")
    path = output_file(default if out is None else out, (".html",))
    print(write_report(opened[0], path) if len(opened) == 1 else write_comparison(opened, path))
    if open and not webbrowser.open(path.resolve().as_uri()):
        raise UsageError(f"There is no browser to show {path} in; open it by hand.")
