"""Training as a person follows it: with progress on standard error, until the run is done or is stopped."""

import contextlib
import logging
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nvil.cli import Stopped
from nvil.runs.config import CHECKPOINT_SECONDS

if TYPE_CHECKING:
    from nvil.data.dataset import Dataset
    from nvil.runs.run import Run


def fit_run(
    run: "Run",
    dataset: "Dataset",
    *,
    quiet: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    checkpoint_updates: int | None = None,
    tensorboard: bool = False,
    mesh: Any = None,
    each: Callable[[Any], None] | None = None,
) -> None:
    """Train with progress on standard error, until the run is done or a signal stops it; `each` sees every report."""
    from nvil.cli.stopping import StoppedWaitingError, stop_on_signals
    from nvil.devices import any_process, first_process
    from nvil.models import chain
    from nvil.runs.jobs import parent_gone
    from nvil.runs.metrics import metrics_of
    from nvil.runs.progress import progress

    config = run.config
    assert config is not None
    quiet = quiet or not first_process()
    if quiet:
        logging.getLogger("nvil").setLevel(logging.WARNING)
    with contextlib.ExitStack() as ends:
        total = None if config.data == "-" else run.plan.updates
        show = ends.enter_context(progress(total, run.updates(), quiet))
        show.text(f"{dataset.name}: {cases_in_words(run, dataset)} ({dataset.note})")
        show.text(f"{chain(run.like())}, {config.estimator}, {config.optimiser} {config.learning_rate:g}")
        if many := of_samples(run):
            show.text(f"bounds in training and validation are{many.removeprefix(',')}")
        stop = ends.enter_context(stop_on_signals(lambda: getattr(dataset.train, "waiting", False)))

        def after_chunk(updates: int) -> bool:
            show.updates(updates)
            if parent_gone():  # nobody is there to stop this process
                stop.signal = stop.signal or signal.SIGTERM
            return stop.signal is not None

        board = None
        if tensorboard and first_process():
            from nvil.runs.tensorboard import Writer

            board = ends.enter_context(contextlib.closing(Writer(run.folder / "tensorboard", run.updates())))
        with contextlib.suppress(StoppedWaitingError):
            for report in run.fit(
                checkpoint_seconds=checkpoint_seconds,
                checkpoint_updates=checkpoint_updates,
                after_chunk=after_chunk,
                mesh=mesh,
            ):
                show.report(report)
                if each is not None:
                    each(report)
                if board is not None:
                    board.add(time.time(), metrics_of(report))
        if any_process(stop.signal is not None):
            raise Stopped(stop.signal or signal.SIGTERM, run.updates())
        if config.patience is not None and total is not None and run.updates() < total:
            show.text(f"stopped at update {run.updates()}: no better bound in the last {config.patience} reports")
        show.text("evaluating")


def of_samples(run: Any) -> str:
    """Which bound the run climbs, where it is not that of one sample."""
    many = 1 if run.config is None else run.config.objective_samples
    return f", of {many} samples (above the bound of one, which nvil evaluate has)" if many > 1 else ""


def cases_in_words(run: "Run", dataset: "Dataset") -> str:
    """How many cases there are of what."""
    each = run.facts.visible_categories or 1
    visible, context = run.facts.visible // each, (run.facts.context or 0) // each
    what = {"counts": "words", "numbers": "numbers", "categories": "categorical variables", "binary": "binary units"}
    kind = f"{visible - context} {what[run.kind]}"
    kind += f" given {context}" if context else ""
    if dataset.test is None:
        held_out = f"the first {run.plan.validation}" if run.plan.validation else "none"
        return f"cases of {kind}, {held_out} for validation"
    train, validation, test = dataset.sizes(run.plan.validation or 0)
    return f"{train} training, {validation} validation and {test} test cases of {kind}"
