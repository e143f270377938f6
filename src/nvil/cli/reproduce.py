"""`nvil reproduce`: the paper's tables and its figure."""

import dataclasses
import sys
from pathlib import Path
from typing import Any, Literal

from tyro.conf import Positional

from nvil.cli.fitting import fit_run
from nvil.cli.options import command
from nvil.errors import TrainingError, UsageError, above_zero, choose, count_of


@command
def reproduce(
    table: Positional[Literal["table1", "table2", "table3", "figure1"] | None] = None,
    row: str | None = None,
    recipe: Literal["paper", "best", "quick", "rival"] | None = None,
    jobs: int | None = None,
    budget: float | None = None,
    data: str | None = None,
    runs: Path = Path("runs/reproduce"),
    results: Path = Path("results"),
    render: bool = False,
    cells: bool = False,
) -> None:
    """Reproduce the paper's tables and its figure.

    Every cell trains, or goes on, in a run folder of its own, is evaluated by the paper's protocol, and is written as
    one JSON file. Cells run side by side, one to a core.

    For example:
      nvil reproduce table1 --cells
      nvil reproduce table1 --row sbn-200-nvil
      nvil reproduce table1 --recipe paper --budget 120
      nvil reproduce --render

    Args:
        table: table1, table2, table3 or figure1.
        row: One cell, by its name (see --cells); without it, all of them.
        recipe: paper is the paper's own protocol, best a better one for the same models, quick that one in three
            eighths of the updates (Tables 1 and 2), rival the other models that the paper quotes; figure1 has only
            paper.
        jobs: Cells side by side; by default one per core. 0 trains in this process.
        budget: Minutes after which to save and stop; the same command resumes.
        data: Another data set or file than the preset's, for one cell; the results say so.
        runs: The folder of the run folders.
        results: The folder of the JSON files.
        render: Make README.md and the pictures in the folder of results.
        cells: List the names of the cells.

    """
    from nvil.reproduce import presets

    count_of(0, jobs=jobs)
    above_zero(budget=budget)
    if jobs == 0 and budget is not None:
        raise UsageError("`budget` is for cells in processes of their own; leave it out where `jobs` is 0.")
    if table is None and not render:
        raise UsageError("Say what to reproduce: table1, table2, table3 or figure1; or --render existing results.")
    recipe = recipe or ("paper" if table == "figure1" else "best")
    if table is not None and recipe == "rival":
        if jobs is not None or budget is not None:
            raise UsageError("Rivals are measured one after another to the end; leave `jobs` and `budget` out.")
        _measure_rivals(table, row, data, results, cells)
    elif table is not None and cells:
        for cell in presets.cells(table, recipe):
            paper = "" if cell.paper is None else f"  paper {cell.paper:g}"
            print(f"{cell.row:32}{paper:14}  {cell.config.updates:>9,} updates of {cell.config.data}")
    elif table is not None:
        every = presets.cells(table, recipe)
        if row is not None:
            every = (presets.find(table, row, recipe),)
        elif data is not None:
            raise UsageError("`data` is for one cell; give its name with `row`.")
        if jobs == 0:
            for cell in every:
                _reproduce_here(cell, runs, results, data)
        else:
            _reproduce_side_by_side(every, runs, results, data, jobs, budget)
    if render:
        from nvil.reproduce.render import render as write_page

        print(write_page(results))


def _measure_rivals(table: str, row: str | None, data: str | None, results: Path, cells: bool) -> None:
    from nvil.reproduce import presets

    every = presets.rivals(table)
    if not every:
        raise UsageError(f"{table} quotes no models of others that we measure.")
    if row is not None:
        every = {row: every[choose(f"rival of {table}", row, every)]}
    elif data is not None and not cells:
        raise UsageError("`data` is for one cell; give its name with `row`.")
    for name, rival in every.items():
        if cells:
            quoted = "" if rival.value is None else f"  quoted {rival.value:g}"
            print(f"{name:32}{quoted:14}  nvil.rivals.{rival.rival} on {rival.data}")
            continue
        from nvil.reproduce.rivals import measure

        print(measure(rival, results=results, data=data, say=lambda text: print(text, file=sys.stderr)))


def _reproduce_here(cell: Any, runs: Path, results: Path, data: str | None) -> None:
    from nvil.reproduce.results import reproduce

    print(reproduce(cell, runs=runs, results=results, data=data, train=fit_run))


def _reproduce_side_by_side(
    every: Any, runs: Path, results: Path, data: str | None, jobs: int | None, budget: float | None
) -> None:
    from nvil.cli.jobs import shown
    from nvil.runs.jobs import Job, run_jobs

    for cell in every[:1]:  # refuse here, in a sentence, what no process could do
        (cell.config if data is None else dataclasses.replace(cell.config, data=data)).load_data()
    listed = []
    for cell in every:
        words = ["reproduce", cell.table, "--row", cell.row, "--recipe", cell.recipe, "--jobs", "0"]
        words += ["--runs", str(runs), "--results", str(results), *([] if data is None else ["--data", data])]
        listed.append(Job(cell.name, words, runs / cell.name, cell.config.updates or 0))
    with shown() as watch:
        seconds = None if budget is None else 60 * budget
        done = run_jobs(listed, side_by_side=jobs, budget=seconds, watch=watch)
    for job in listed:
        if job.state == "done":
            print(results / f"{job.name}.json")
    if not done:
        left = [job.name for job in listed if job.state != "done"]
        raise TrainingError(f"{len(left)} of {len(listed)} cells are not done; the same command goes on with them.")
