"""A sweep: every combination of some choices, each a run of its own in one folder.

sweep.toml       the choices that all share, and the grid of those that vary
results/         one JSON file for every run that is done
failed/          what a run that failed had to say
table.csv        a row for every config, with mean and standard error over its seeds
runs.csv         a row for every run
comparison.html  the page, where the command line ran it

and the run folders, each named by its place in the grid.
"""

import csv
import dataclasses
import io
import itertools
import json
import math
import re
import types
import typing
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nvil.errors import StoppedJobs, UsageError, choose
from nvil.runs.config import FROM_PYTHON, Config, typed_fields

if TYPE_CHECKING:
    from nvil.data.dataset import Dataset
    from nvil.evaluation import DocumentEvaluation, Evaluation
    from nvil.runs.jobs import Job
    from nvil.runs.run import Run

MEASURES = ("validation_bound", "test_bound", "test_perplexity")
LONGEST_NAME = 150
NUMBERS = (int, float, types.NoneType)


@dataclasses.dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    name: str
    """Of its folder, such as `learning_rate=0.001,seed=0`."""
    values: Mapping[str, Any]
    """What the grid gives it."""
    config: Config
    """Before what depends on the data is filled in."""

    @property
    def updates(self) -> int:
        return self.config.resolved().updates or 0


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Runs of every combination in a grid of choices, side by side, one process and one core each.

    The same call again goes on where the last one stopped and leaves alone what is done:

    !!! example

        grid = {"learning_rate": [1e-3, 3e-3], "hidden": [(100,), (100, 50)], "seed": [0, 1, 2]}
        sweep = nvil.Sweep("runs/rates", nvil.Config(updates=5000), grid)
        if __name__ == "__main__":
            sweep.fit()
            sweep.table()  # a row for every config: mean and standard error over its seeds

    **Arguments:**

    - `folder`: of the sweep.
    - `base`: the choices that all runs share.
    - `grid`: the values of those that vary, by name. `seed` is one of them, and is averaged over.
    """

    folder: Path
    base: Config
    grid: Mapping[str, Sequence[Any]]

    def __init__(self, folder: Path | str, base: Config, grid: Mapping[str, Sequence[Any]]):
        object.__setattr__(self, "folder", Path(folder))
        object.__setattr__(self, "base", _with_whole_paths(base))
        object.__setattr__(self, "grid", {name: tuple(_checked_axis(name, grid[name])) for name in grid})
        if not any(len(values) > 1 for values in self.grid.values()):
            raise UsageError("There is nothing to sweep over; give a `grid` of at least two values, or `seeds`.")
        self.points()

    @staticmethod
    def open(folder: Path | str) -> "Sweep":
        """The sweep that a folder holds."""
        path = Path(folder) / "sweep.toml"
        if not path.exists():
            raise UsageError(f"{folder} is not the folder of a sweep: it has no sweep.toml.")
        return Sweep(folder, *read_sweep(path))

    def points(self) -> list[Point]:
        """Every run of the sweep, its choices checked, the last axis of the grid varying fastest."""
        found: dict[str, Point] = {}
        for combination in itertools.product(*self.grid.values()):
            values = dict(zip(self.grid, combination, strict=True))
            config = dataclasses.replace(self.base, **values)
            if config.data == "-":
                raise UsageError("A sweep cannot train on a stream, which only one run could read; give a file.")
            name = _name(values)
            while name in found:  # files of one name in several folders
                name += "'"
            config.resolved()
            found[name] = Point(name, values, config)
        return list(found.values())

    def point(self, name: str) -> Point:
        points = {point.name: point for point in self.points()}
        return points[choose(f"run of {self.folder}", name, points)]

    def prepare(self) -> None:
        """Refuse, before anything is trained, what cannot be; then write sweep.toml.

        Every data set is read, and every pair's shapes are built. Of a sweep that is there the updates may have grown,
        and the grid may have changed, but for what is done: the tables are of the whole grid, and of nothing else.
        """
        from nvil.runs.run import Run
        from nvil.runs.storage import save_text, to_toml, writable_folder

        path = self.folder / "sweep.toml"
        if path.exists():
            old, new = (dataclasses.asdict(base) for base in (read_sweep(path)[0], self.base))
            changed = [f"{name} {old[name]} -> {new[name]}" for name in old if old[name] != new[name]]
            if [name for name in old if name != "updates" and old[name] != new[name]]:
                raise UsageError(
                    f"{self.folder} holds a sweep with other choices ({'; '.join(changed)}); choose another `folder`."
                )
            self._check_nothing_lost(Sweep.open(self.folder))
        datasets: dict[Any, Dataset] = {}
        for point in self.points():
            read = point.config.data, point.config.choices()
            if read not in datasets:
                datasets = {read: point.config.load_data()}  # one at a time is enough, and may be much
            Run.described(self.folder / point.name, point.config, datasets[read])
        writable_folder(self.folder)
        base = to_toml(dataclasses.asdict(self.base), comment="nvil sweep; go on with: nvil sweep FOLDER")
        save_text(path, f"{base}\n[grid]\n{to_toml(self.grid)}")

    def _check_nothing_lost(self, before: "Sweep") -> None:
        """Refuse a grid whose tables would lack runs that are done."""
        here = {point.name: point.values for point in self.points()}
        done = [point for point in before.points() if before.result(point) is not None]
        lost = [point.name for point in done if here.get(point.name) != point.values]
        if lost:
            grid = "; ".join(f"{name}={','.join(map(in_words, values))}" for name, values in before.grid.items())
            raise UsageError(
                f"{self.folder} holds finished runs that are not in this grid, such as {lost[0]}, and its "
                f"tables would lose them; add values to the grid that is there ({grid}), or choose another `folder`."
            )

    def fit(
        self,
        *,
        side_by_side: int | None = None,
        budget: float | None = None,
        watch: "Callable[[Sequence[Job]], None]" = lambda _: None,
    ) -> "list[Job]":
        """Train what is not done yet, and write the tables; the jobs that were run say how each ended.

        **Arguments:**

        - `side_by_side`: runs at a time; by default one per core.
        - `budget`: seconds after which those that run save and stop; the same call goes on.
        - `watch`: called with the jobs every two seconds.

        Ctrl-C or SIGTERM saves and stops all runs, writes the tables and raises `nvil.errors.StoppedJobs`.
        """
        from nvil.runs.jobs import Job, run_jobs

        self.prepare()
        jobs = [
            Job(point.name, ["sweep", str(self.folder), "--only", point.name], self.folder / point.name, point.updates)
            for point in self.points()
            if self.result(point) is None
        ]
        try:
            run_jobs(jobs, side_by_side=side_by_side, budget=budget, watch=watch, ended=self._keep_apart)
        except StoppedJobs:
            self.write_tables()
            raise
        self.write_tables()
        return jobs

    def _keep_apart(self, job: "Job") -> None:
        """What a failed run said goes to a file of its own, and goes when the run succeeds."""
        from nvil.runs.storage import save_text, writable_folder

        path = self.folder / "failed" / f"{job.name}.txt"
        if job.state == "failed":
            writable_folder(path.parent)
            save_text(path, job.error)
        elif job.state == "done":
            path.unlink(missing_ok=True)

    # What came of it

    def keep_result(self, point: Point, run: "Run", result: Any) -> None:
        """Write the result of a run that is done, an `Evaluation` or `DocumentEvaluation` of the test cases."""
        from nvil.runs.metrics import finite
        from nvil.runs.storage import save_text, writable_folder

        test = result._asdict()
        if "evaluation" in test:
            test |= test.pop("evaluation")._asdict()
        metrics, timing = run.metrics(), run.timing()
        values = {
            "asked": point.updates,
            "updates": run.updates(),
            "best_update": run.best_update(),
            "validation_bound": float(metrics["best_bound"][-1]) if run.plan.validation != 0 else None,
            "test_bound": test["bound"],
            "test_perplexity": test.get("perplexity"),
            "seconds": float(timing["seconds"].sum()),
            "test": test,
        }
        folder = writable_folder(self.folder / "results")
        save_text(folder / f"{point.name}.json", json.dumps(finite(values), indent=1) + "\n")

    def result(self, point: Point) -> dict[str, Any] | None:
        """Of a run that has done all the updates it was asked for; None for others."""
        try:
            values = json.loads((self.folder / "results" / f"{point.name}.json").read_text(encoding="utf-8"))
            whole = all(type(values[name]) is int for name in ("asked", "updates"))
            numbers = all(type(values[name]) in NUMBERS for name in (*MEASURES, "seconds"))
        except (OSError, ValueError, RecursionError, TypeError, KeyError):
            return None
        return values if whole and numbers and values["asked"] >= point.updates else None

    def evaluation(self, point: Point) -> "Evaluation | DocumentEvaluation | None":
        """Of the test cases, as it was kept; None where it was not."""
        from nvil.evaluation import DocumentEvaluation, Evaluation

        values = (self.result(point) or {}).get("test")
        if not isinstance(values, dict) or not all(type(each) in NUMBERS for each in values.values()):
            return None
        try:
            result = Evaluation(*(values.pop(name) for name in Evaluation._fields))
            return DocumentEvaluation(result, **values) if values else result
        except (KeyError, TypeError):
            return None

    def runs(self) -> list[dict[str, Any]]:
        """A row for every run: what the grid gives it, whether it is done, and its results."""
        rows = []
        for point in self.points():
            result = self.result(point) or {}
            failed = (self.folder / "failed" / f"{point.name}.txt").exists()
            state = "done" if result else "failed" if failed else "not done"
            names = ("updates", *MEASURES, "seconds")
            rows.append(
                {**point.values, "run": point.name, "state": state, **{name: result.get(name) for name in names}}
            )
        return rows

    def table(self) -> list[dict[str, Any]]:
        """A row for every config: how many of its seeds are done, and mean and standard error over these.

        The standard error is the deviation between seeds over the root of their number; None for a single one.
        """
        axes = [name for name in self.grid if name != "seed"]
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.runs():
            groups.setdefault(tuple(row[name] for name in axes), []).append(row)
        return [
            {
                **dict(zip(axes, values, strict=True)),
                "done": sum(row["state"] == "done" for row in rows),
                "runs": len(rows),
                **{key: value for name in MEASURES for key, value in _moments(name, rows)},
            }
            for values, rows in groups.items()
        ]

    def write_tables(self) -> None:
        """Write table.csv and runs.csv."""
        from nvil.runs.storage import save_text

        for name, rows in (("table.csv", self.table()), ("runs.csv", self.runs())):
            save_text(self.folder / name, _as_csv(rows))


def read_sweep(path: Path) -> tuple[Config, dict[str, tuple[Any, ...]]]:
    """The shared choices and the grid of a TOML file: choices of `nvil train`, and lists of them in a table `grid`."""
    from nvil.runs.storage import read_toml

    values = read_toml(path)
    grid = values.pop("grid", {})
    if not isinstance(grid, dict):
        raise UsageError(f"{path} cannot be used: grid must be a table, [grid], with a list of values for each choice.")
    try:
        for name in (*values, *grid):
            choose("choice", name, Config.__dataclass_fields__)
        base = Config(**typed_fields(Config, values))
        axes = {}
        for name, listed in grid.items():
            if not isinstance(listed, list):
                raise UsageError(f"{name} of the grid must be a list of values.")
            axes[name] = tuple(typed_fields(Config, {name: value})[name] for value in listed)
    except UsageError as error:
        raise UsageError(f"{path} cannot be used: {error}") from error
    return base, axes


def axis_from_text(text: str) -> tuple[str, tuple[Any, ...]]:
    """An axis as it is typed, `key=a,b`: each value as after the flag of `nvil train`, such as `hidden=100,100 50`."""
    name, separator, listed = text.partition("=")
    name = name.strip().removeprefix("--").replace("-", "_")
    if not separator:
        raise UsageError(f"`grid` takes a choice and its values, such as learning_rate=0.001,0.003, got {text!r}.")
    choose("choice in `grid`", name, Config.__dataclass_fields__)
    hint = typing.get_type_hints(Config)[name]
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind not in (types.NoneType, Ellipsis)]
    many = typing.get_origin(hint) is tuple
    values = []
    for value in listed.split(","):
        words = value.split() if many else [value.strip()]
        try:
            read = tuple(kinds[0](word) for word in words)
        except ValueError as error:
            wanted = {int: "whole numbers", float: "numbers"}[kinds[0]]
            raise UsageError(f"`{name}` takes {wanted}, got {value.strip()!r} in `grid`.") from error
        values.append(read if many else read[0])
    return name, tuple(values)


def _checked_axis(name: str, values: Sequence[Any]) -> Iterator[Any]:
    """The values of an axis as `Config` takes them, each of the right type and no two alike."""
    choose("choice in the grid", name, Config.__dataclass_fields__)
    listed = [list(value) if isinstance(value, tuple) else value for value in values]
    if not listed:
        raise UsageError(f"`{name}` has no values in the grid.")
    for i, value in enumerate(listed):
        if value in listed[:i]:
            raise UsageError(f"`{name}` has {in_words(value)} twice in the grid.")
        typed = typed_fields(Config, {name: value})[name]
        yield _whole_path(name, typed) if name in ("data", "vocabulary") else typed


def _with_whole_paths(config: Config) -> Config:
    """The same from any folder."""
    return dataclasses.replace(
        config, **{name: _whole_path(name, getattr(config, name)) for name in ("data", "vocabulary")}
    )


def _whole_path(name: str, path: str | None) -> str | None:
    from nvil.data.registry import NAMED

    if path is None or (name == "data" and path in (*NAMED, "-", FROM_PYTHON)):
        return path
    return str(Path(path).resolve())


def _name(values: Mapping[str, Any]) -> str:
    parts = []
    for key, value in values.items():
        text = Path(value).stem if key in ("data", "vocabulary") else in_words(value)
        parts.append(f"{key}={re.sub(r'[^A-Za-z0-9.+-]+', '-', text)}")
    name = ",".join(parts)
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}~{zlib.crc32(name.encode()):08x}"


def in_words(value: Any) -> str:
    """A choice as it is typed."""
    if isinstance(value, tuple | list):
        return " ".join(map(str, value)) or "none"
    return str(value)


def _moments(name: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float | None]]:
    values = [row[name] for row in rows if row[name] is not None]
    mean = math.fsum(values) / len(values) if values else None
    error = None
    if mean is not None and len(values) > 1:
        variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
        error = math.sqrt(variance / len(values))
    yield name, mean
    yield f"{name}_se", error


def _as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: in_words(value) if isinstance(value, tuple) else value for name, value in row.items()} for row in rows
    )
    return text.getvalue()
