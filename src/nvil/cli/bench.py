"""`nvil bench`: the speed of updates, beside other libraries."""

import sys
from json import dumps as to_json
from pathlib import Path
from typing import Literal

from nvil.cli.options import command
from nvil.errors import choose, count_of


@command
def bench(
    models: tuple[str, ...] = ("sbn-200", "sbn-200-200"),
    batch_size: tuple[int, ...] = (20, 100),
    optimiser: tuple[Literal["sgd", "adam"], ...] = ("sgd",),
    rounds: int = 7,
    full: bool = False,
    out: Path | None = None,
) -> None:
    """Measure what an update costs, beside its bare matrix products and beside other libraries.

    All sides are timed in turn on one core, on made-up data of the right shape; every figure is a ratio within a round,
    as the median over rounds with its range. "Bare" is the update's matrix products in NumPy plus the optimiser's pass
    over the parameters; "PyTorch / nvil" of 5 means that PyTorch takes five times as long. NumPyro, which has no
    baselines, is compared with "plain nvil" too, which leaves them out. What is not installed is left out; the extra
    `peers` of this package installs PyTorch, Pyro and NumPyro. Keep the machine idle meanwhile.

    For example:
      nvil bench
      nvil bench --models fdarn-200 documents-sbn-50-10k --batch-size 20
      nvil bench --full --out bench.json

    Args:
        models: sbn-200, sbn-200-200, sbn-200-200-200, sbn-200-autoregressive (its Q), fdarn-200, fdarn-500, and
            documents-sbn-50-2k, documents-fdarn-50-2k (words), documents-sbn-50-10k, documents-fdarn-50-10k.
        batch_size: Sizes of the minibatch.
        optimiser: sgd, adam or both.
        rounds: Rounds of about a third of a second for each side.
        full: Every model at batch 20, 100 and 400.
        out: A JSON file for the times of every round.

    """
    from nvil.bench import measure
    from nvil.bench.cases import MODELS, Case
    from nvil.runs.run import made_with
    from nvil.runs.storage import output_file, save_text

    count_of(1, rounds=rounds)
    if out is not None:
        output_file(out, (".json",))
    if full:
        models, batch_size = tuple(MODELS), (20, 100, 400)
    for name in models:
        choose("model", name, MODELS)
    count_of(1, batch_size=min(batch_size))
    sides = measure.installed()
    for side in measure.SIDES:
        if side not in sides:
            print(f"{side} is not installed; skipped.", file=sys.stderr)
    results = []
    print(measure.head(sides))
    cases = [Case(name, batch, rule) for name in models for batch in batch_size for rule in optimiser]
    for i, case in enumerate(cases, start=1):
        print(f"{i} of {len(cases)}: {case.name}, batch {case.batch}, {case.optimiser}", file=sys.stderr)
        results.append(measure.measure_apart(case, sides, rounds))
        print(measure.row(results[-1]), flush=True)  # a later failure loses nothing
    if out is not None:
        save_text(out, to_json({"made_with": made_with(), "results": results}, indent=1) + "\n")
