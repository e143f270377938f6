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
            "Share every minibatch among this many devices in all, of this process or of those that srun or mpirun "
            "started with the same command. A CPU core is one.",
        ),
        option("coordinator", str | None, None, "Without such a launcher: HOST:PORT of the first process, for all."),
        option("processes", int | None, None, "How many processes there are."),
        option("process", int | None, None, "Which of them this one is, from 0."),
    ),
}


def train(words: list[str]) -> None:
    r"""Train a model together with its inference network.

    Without arguments: a small sigmoid belief network on the digits that ship with scikit-learn. The same --out resumes
    the run; --updates may then be larger. Ctrl-C saves and stops; a second one stops without saving.

    For example:
      nvil train
      nvil train --data my.npy --binarize threshold --hidden 200 200 --out runs/deep
      nvil train --data binarized-mnist --hidden 200 --batch-size 100 --latent-bias -4 \
        --schedule cosine --weight-decay 0.01 --updates 120000
      nvil train --from runs/deep --without normalisation --out runs/ablation
      generate-cases | nvil train --data - --hidden 50
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
