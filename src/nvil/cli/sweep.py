"""`nvil sweep`: every combination of some choices, side by side, with a table over seeds at the end."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from nvil.cli.fitting import fit_run
from nvil.cli.groups import CLASSES, TAKEN, group, parse_choices
from nvil.cli.options import option
from nvil.cli.results import print_result
from nvil.data.choices import Choices
from nvil.errors import TrainingError, UsageError, above_zero, count_of

GRID = dataclasses.make_dataclass(
    "sweep",
    [
        (
            "source",
            Annotated[
                tyro.conf.Positional[Path | None],
                tyro.conf.arg(
                    metavar="[FILE|FOLDER]",
                    help="A TOML file of choices with a table [grid], or the folder of a sweep to go on with.",
                    help_behavior_hint="",
                ),
            ],
            None,
        ),
        (
            "grid",
            Annotated[
                tyro.conf.UseAppendAction[tuple[str, ...]],
                tyro.conf.arg(
                    metavar="KEY=A,B,...",
                    help="A choice and its values, each as after the flag of nvil train; may be given again.",
                    help_behavior_hint="",
                ),
            ],
            (),
        ),
        (
            "seeds",
            Annotated[
                tuple[int, ...],
                tyro.conf.arg(metavar="N ...", help="Like --grid seed=...; averaged over.", help_behavior_hint=""),
            ],
            (),
        ),
        option("jobs", int | None, None, "Runs side by side; by default one per core."),
        option("budget", float | None, None, "Minutes after which to save and stop; the same command resumes."),
        option("only", str | None, None, "Train just this run of a sweep's folder, by its name, in this process."),
    ],
    frozen=True,
    namespace={"__doc__": "What varies, and how many at a time."},
)
SWEPT = {
    "grid": GRID,
    **CLASSES,
    "what": group(
        "what", option("out", Path | None, None, "The sweep's folder; by default runs/ and the file's name.")
    ),
    "run": group("run", *TAKEN),
}


def sweep(words: list[str]) -> None:
    r"""Train every combination of some choices, side by side, one process and one core each.

    Takes the options of `nvil train` for what all runs share, and --grid for what varies. Ends with a table of means
    and standard errors over the seeds. The same command, or `nvil sweep FOLDER`, goes on with what is not done; a run
    that fails stops no other.

    For example:
      nvil sweep --grid learning_rate=0.001,0.003 --seeds 0 1 2 --updates 5000 --out runs/rates
      nvil sweep --data mnist --grid "hidden=200,200 200" --grid estimator=nvil,wake-sleep
      nvil sweep rates.toml
      nvil sweep runs/rates

    where rates.toml holds choices as they are in the config.toml of a run, and a grid:
      data = "mnist"
      updates = 20000
      [grid]
      learning_rate = [0.001, 0.003]
      hidden = [[200], [200, 200]]
      seed = [0, 1, 2]
    """
    from nvil.runs.sweep import Sweep

    parsed, found = _asked(words)
    options = parsed.grid
    if options.only is not None:
        _train_one(found, options.only)
        return
    count_of(1, jobs=options.jobs)
    above_zero(budget=options.budget)
    assert isinstance(found, Sweep)
    _train_all(found, options.jobs, options.budget)


def _asked(words: list[str]) -> tuple[Any, Any]:
    """The options, and the sweep that they, a file or a folder describe."""
    from nvil.runs.sweep import Sweep, axis_from_text, read_sweep

    source = Path(words[0]) if words and not words[0].startswith("-") else None
    given: dict[str, Any] = {}
    grid: dict[str, tuple[Any, ...]] = {}
    if source is not None:
        if not source.exists():
            raise UsageError(f"There is no file or folder {source}; give a TOML file, or a sweep's folder.")
        base, grid = read_sweep(source / "sweep.toml" if source.is_dir() else source)
        given = dataclasses.asdict(base)
    parsed, config = parse_choices(sweep, SWEPT, words, given)
    options = parsed.grid
    if options.source != source:
        raise UsageError(f"Give the file or folder first: nvil sweep {options.source} ...")
    axes = [axis_from_text(text) for text in options.grid]
    axes += [("seed", options.seeds)] if options.seeds else []
    names = [name for name, _ in axes]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"`grid` names {twice} twice; list all its values at once.")
    out = parsed.what.out
    if source is not None and source.is_dir():
        if out is not None and out != source:
            raise UsageError(f"{source} is the folder of the sweep; leave `folder` out.")
        out = source
    elif out is None:
        out = Path("runs", "sweep" if source is None else source.stem)
    return parsed, Sweep(out, config, grid | dict(axes))


def _train_one(sweep: Any, name: str) -> None:
    from nvil.runs.run import Run

    point = sweep.point(name)
    dataset = point.config.load_data()
    run = Run.from_config(sweep.folder / point.name, point.config, dataset)
    fit_run(run, dataset)
    sweep.keep_result(point, run, print_result(run, dataset))


def _train_all(sweep: Any, side_by_side: int | None, budget: float | None) -> None:
    from nvil.cli.jobs import shown
    from nvil.report import write_sweep

    with shown() as watch:
        jobs = sweep.fit(side_by_side=side_by_side, budget=None if budget is None else 60 * budget, watch=watch)
    rows = sweep.runs()
    if any(row["state"] == "done" for row in rows):
        _print_table(sweep)
        print(f"tables    {sweep.folder / 'table.csv'}, {sweep.folder / 'runs.csv'}")
        print(f"page      {write_sweep(sweep)}")
    failed = [job.name for job in jobs if job.state == "failed"]
    left = sum(job.state != "done" for job in jobs) - len(failed)
    if failed or left:
        parts = [f"{len(failed)} failed ({', '.join(failed)}; see {sweep.folder / 'failed'})"] if failed else []
        parts += [f"{left} are unfinished"] if left else []
        go_on = shlex.join(["nvil", "sweep", str(sweep.folder)])
        raise TrainingError(f"Of {len(rows)} runs {' and '.join(parts)}; `{go_on}` continues with what is not done.")


def _print_table(sweep: Any) -> None:
    """Mean and standard error over seeds, a line for every config."""
    from nvil.runs.sweep import MEASURES, in_words

    table = sweep.table()
    axes = [name for name in sweep.grid if name != "seed"]
    measured = [name for name in MEASURES if any(row[name] is not None for row in table)]
    lines: list[Sequence[str]] = [[*axes, "runs", *(name.replace("_", " ") for name in measured)]]
    for row in table:
        cells = [in_words(row[name]) for name in axes]
        cells.append(f"{row['done']}" if row["done"] == row["runs"] else f"{row['done']} of {row['runs']}")
        for name in measured:
            known = [value for value in (row[name], row[f"{name}_se"]) if value is not None]
            cells.append(" ± ".join(f"{value:.2f}" if abs(value) < 1e7 else f"{value:.4g}" for value in known))
        lines.append(cells)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        shown = [
            cell.ljust(width) if i < len(axes) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(shown).rstrip())
    if any(row[f"{name}_se"] is not None for row in table for name in measured):
        print("Mean over seeds ± its standard error.")
    of_data = [name for name in axes if name == "data" or name in Choices.__dataclass_fields__]
    if of_data:
        print(f"best      none: {of_data[0]} changes the data, so the bounds cannot be compared")
        return
    best = max(table, key=lambda row: -float("inf") if row["validation_bound"] is None else row["validation_bound"])
    if axes and best["validation_bound"] is not None:
        words = " ".join(f"{name}={in_words(best[name])}" for name in axes)
        print(f"best      {words} (by the validation bound)")
