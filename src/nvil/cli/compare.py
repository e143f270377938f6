"""`nvil compare`: estimators on the same model, data, seed and time, as one page."""

import dataclasses
import sys
from collections.abc import Callable
from json import dumps as to_json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nvil.cli.fitting import fit_run
from nvil.cli.groups import CLASSES, folder_of, group, how_to_fit, parse_choices
from nvil.cli.options import option
from nvil.errors import UsageError, above_zero
from nvil.runs.config import Config, estimators_own

if TYPE_CHECKING:
    from nvil.data.dataset import Dataset
    from nvil.runs.run import Run

COMPARED = {
    "comparison": dataclasses.make_dataclass(
        "comparison",
        [
            option(
                "seconds",
                float | None,
                None,
                "Seconds of training for each estimator; validation and compiling come on top.",
            ),
            option("minutes", float | None, None, "The same in minutes; 1 by default."),
            option("estimators", tuple[str, ...], (), "Those to compare, by name; by default all that apply."),
        ],
        frozen=True,
        namespace={"__doc__": "What to compare, and for how long."},
    ),
    **CLASSES,
    "what": group(
        "what",
        option("out", Path | None, None, "The comparison's folder; by default runs/ and a name of its own."),
        refused=["updates"],
    ),
    "learning": group("learning", refused=["estimator", "warm_up"]),
}


def compare(words: list[str]) -> None:
    r"""Compare estimators on the same model, data, seed and time.

    The options are those of nvil train, and --seconds or --minutes for each estimator. All that apply are trained one
    after another, in minibatches of --batch-size over their number of samples, and judged by the bound of one sample.
    In the folder: a run for each, comparison.html and comparison.json. The same command goes on where it stopped.

    For example:
      nvil compare --seconds 30
      nvil compare --data binarized-mnist --hidden 200 --batch-size 100 --minutes 30 --out runs/estimators
      nvil compare --from runs/mine --estimators nvil rloo disarm vimco --minutes 5
    """
    said = {word.partition("=")[0].replace("_", "-") for word in words}
    if "--updates" in said:
        raise UsageError("Time decides how many updates there are: give `seconds` or `minutes` in place of `updates`.")
    if "--estimator" in said:
        raise UsageError("Name the estimators to compare with `estimators`, not `estimator`.")
    if "--warm-up" in said:
        raise UsageError("`warm_up` is not for comparisons, in which each estimator has its own number of updates.")
    parsed, config = parse_choices(compare, COMPARED, words)
    asked, how = parsed.comparison, how_to_fit(parsed.run)
    if asked.seconds is not None and asked.minutes is not None:
        raise UsageError("Give `seconds` or `minutes`, not both.")
    above_zero(seconds=asked.seconds, minutes=asked.minutes)
    seconds = asked.seconds if asked.seconds is not None else 60.0 * (1.0 if asked.minutes is None else asked.minutes)
    # What the run that --from names spells out for its own estimator is not for those that are compared.
    left = {name: None for name in estimators_own(config) if f"--{name.replace('_', '-')}" not in said}
    config = dataclasses.replace(config, updates=None, warm_up=0, estimator=Config.estimator, **left)
    from nvil.report.estimators import text_table, write_estimators
    from nvil.runs import comparison
    from nvil.runs.storage import save_text

    folder = folder_of(parsed.what.out, config, "compare")

    def train(run: "Run", dataset: "Dataset", each: Callable[[Any], None]) -> None:
        print(f"nvil: {run.folder.name}", file=sys.stderr)
        fit_run(run, dataset, each=each, **how)

    found = comparison.compare(config, folder, train, seconds=seconds, estimators=asked.estimators)
    save_text(folder / "comparison.json", to_json(found, indent=1) + "\n")
    print(text_table(found))
    for name, reason in found["left_out"].items():
        print(f"left out: {name} ({reason})")
    print(f"as JSON   {folder / 'comparison.json'}")
    print(f"page      {write_estimators(found, folder / 'comparison.html')}")
