"""`nvil train`: a model together with its inference network."""

import shlex
from typing import TYPE_CHECKING, Any

from nvil.cli.fitting import fit_run, of_samples
from nvil.cli.groups import CLASSES, folder_of, group, how_to_fit, parse_choices
from nvil.cli.options import option
from nvil.cli.results import print_result
from nvil.cli.sample import write_samples
from nvil.errors import UsageError

if TYPE_CHECKING:
    from nvil.data.dataset import Dataset
    from nvil.runs.run import Run

TRAINED = {
    **CLASSES,
    "devices": group(
        "devices",
        option(
            "devices",
            int | None,
            None,
            "Split each minibatch across this many devices (a CPU core counts as one), counted over all processes.",
        ),
        option(
            "coordinator",
            str | None,
            None,
            "Address (HOST:PORT) of process 0; every one of several processes needs it unless srun or mpirun started "
            "them.",
        ),
        option("processes", int | None, None, "Number of processes."),
        option("process", int | None, None, "Index of this process, from 0."),
    ),
}


def train(words: list[str]) -> None:
    r"""Train a model together with its inference network.

    Without arguments: a small sigmoid belief network on the digits that ship with scikit-learn. The same --out resumes
    the run; --updates may then be larger. Ctrl-C saves and stops; a second one stops without saving.

    For example:
      nvil train
      nvil train --data my.npy --binarize threshold --hidden 200 200 --out runs/deep
      nvil train --data binarized-mnist --hidden 200 200 --learning-rate 4e-3 --epsilon 1e-2 --latent-bias -4 \
        --weight-decay 0.01 --schedule cosine --batch-size 25 --samples 4 --baseline leave-one-out \
        --validation 1000 --updates 800000 --report-every 5000
      nvil train --from runs/deep --without normalisation --out runs/ablation
      python examples/bars.py 200000 | nvil train --data - --hidden 16
    """
    parsed, config = parse_choices(train, TRAINED, words)
    config.resolved()  # tells mistakes first; the run resolves it by what the data turns out to be
    how = how_to_fit(parsed.run)
    spread = parsed.devices
    mesh = None
    if spread.devices is not None:
        from nvil.devices import connect

        mesh = connect(
            spread.devices, coordinator=spread.coordinator, processes=spread.processes, process=spread.process
        )
    elif spread.coordinator or spread.processes is not None or spread.process is not None:
        raise UsageError("`coordinator`, `processes` and `process` are for a run on several `devices`; say how many.")
    from nvil.runs.run import Run

    dataset = config.load_data()
    run = Run.from_config(folder_of(parsed.what.out, config), config, dataset)
    train_run(run, dataset, mesh=mesh, **how)


def train_run(run: "Run", dataset: "Dataset", **how: Any) -> None:
    """Train as `fit_run` does, and end with results on standard output."""
    from nvil.devices import disconnect

    fit_run(run, dataset, **how)
    if not disconnect():
        return
    from nvil.report import write_report

    if dataset.test is None:
        best = run.metrics()["best_bound"][-1]
        which = "best validation bound" if run.plan.validation else "bound of minibatches "
        print(f"{which} {best:8.2f} nats per case{of_samples(run)}, over {run.updates()} updates")
        page = write_report(run)
    else:
        page = write_report(run, dataset=dataset, result=print_result(run, dataset))
    if run.facts.image or run.documents:
        picture = run.folder / ("samples.png" if run.facts.image else "samples.txt")
        write_samples(run, 100, picture, test=dataset.test)
        print(f"samples               {picture}")
    print(f"report                {page}")
    cases = "--data FILE" if dataset.test is None else "--samples 100"
    print(f"next                  nvil evaluate {shlex.quote(str(run.folder))} {cases}")
