"""The command line: a thin client of the package. Results go to standard output, everything else to standard error."""

import contextlib
import dataclasses
import errno
import io
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from json import dumps as to_json
from pathlib import Path
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import numpy as np
import scipy.sparse
import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from nvil import data, pictures, storage, tensorboard
from nvil.errors import DownloadError, TrainingError, UsageError
from nvil.evaluation import BLOCK, DocumentEvaluation, Evaluation, as_float, evaluate, evaluate_documents
from nvil.models import chain
from nvil.rows import dense_blocks
from nvil.runs import CHECKPOINT_SECONDS, Config, Run, metrics_of
from nvil.training import Report

stderr = Console(stderr=True, highlight=False)
FULL = (errno.ENOSPC, errno.EDQUOT)
Positional = tyro.conf.Positional


def train(
    config: Annotated[Config, tyro.conf.arg(name="")] = Config(),  # noqa: B008 (frozen)
    out: Path | None = None,
    quiet: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    checkpoint_updates: int | None = None,
    tensorboard: bool = False,
) -> None:
    """Train a model together with its inference network.

    Without arguments: a small sigmoid belief network on the digits that ship with scikit-learn. The same --out goes on
    where the run stopped; --updates may then be larger. Ctrl-C saves and stops; a second one stops without saving.

    For example:
      nvil train
      nvil train --hidden 200 200 --optimiser sgd --updates 100000 --out runs/deep
      nvil train --data my.npy --binarize threshold
      nvil train --data binarized-mnist --hidden 200 --batch-size 20 --learning-rate 1e-3 --updates 100000
      generate-cases | nvil train --data - --hidden 50

    Args:
        config: What to train, on what, and how.
        out: The run's folder; by default runs/ and a name made of data, model and sizes.
        quiet: No progress on standard error.
        checkpoint_seconds: How old the last checkpoint may get; what a crash can cost.
        checkpoint_updates: Write one at every multiple of this many updates as well.
        tensorboard: Write reports for TensorBoard to the run's folder too.

    """
    if not checkpoint_seconds >= 0:
        raise UsageError(f"--checkpoint-seconds must be at least 0, not {checkpoint_seconds}.")
    if checkpoint_updates is not None and checkpoint_updates < 1:
        raise UsageError(f"--checkpoint-updates must be at least 1, not {checkpoint_updates}.")
    config = config.resolved()
    source = "stream" if config.data == "-" else Path(config.data).stem
    name = "-".join((source, config.model, *map(str, config.hidden)))
    out = Path("runs", name) if out is None else out
    dataset = config.load_data()
    run = Run.create(out, config, dataset)
    with contextlib.ExitStack() as ends:
        show = ends.enter_context(progress(run, quiet))
        show.text(f"{dataset.name}: {cases_in_words(run, dataset)} ({dataset.note})")
        show.text(f"{chain(run.build())}, {config.estimator}, {config.optimiser} {config.learning_rate:g}")
        stop = ends.enter_context(stop_on_signals(lambda: getattr(dataset.train, "waiting", False)))

        def after_chunk(updates: int) -> bool:
            show.updates(updates)
            return stop.signal is not None

        board = ends.enter_context(board_of(run)) if tensorboard else None
        with contextlib.suppress(StoppedWaitingError):
            for report in run.fit(
                dataset,
                checkpoint_seconds=checkpoint_seconds,
                checkpoint_updates=checkpoint_updates,
                after_chunk=after_chunk,
            ):
                show.report(report)
                if board is not None:
                    board.add(time.time(), metrics_of(report))
        if stop.signal is not None:
            raise Stopped(stop.signal, run.updates())
        show.text("evaluating")
    from nvil.report import write_report  # here, so that other commands start without matplotlib

    if dataset.test is None:
        print(f"best validation bound {run.metrics()['best_bound'][-1]:8.2f} nats a case, over {run.updates()} updates")
        page = write_report(run)
    else:
        page = write_report(run, dataset=dataset, result=print_result(run, dataset))
    if run.image or run.documents:
        picture = out / ("samples.png" if run.image else "samples.txt")
        draw(run, 100, picture)
        print(f"samples               {picture}")
    print(f"report                {page}")
    print(f"next                  nvil evaluate {out} {'--data FILE' if dataset.test is None else '--samples 100'}")


def cases_in_words(run: Run, dataset: data.Dataset) -> str:
    """How many cases there are of what."""
    kind = f"{run.visible} {'words' if run.documents else 'binary units'}"
    if dataset.test is None:
        return f"cases of {kind}, the first {run.config.validation} for validation"
    train, validation, test = dataset.sizes(run.config.validation)
    return f"{train} training, {validation} validation and {test} test cases of {kind}"


def print_result(run: Run, dataset: data.Dataset) -> Evaluation | DocumentEvaluation:
    """Print, and return, the test bound, and what could be had without latents."""
    pair = run.load_best()
    if run.documents:
        found = documents = evaluate_documents(pair, dataset.test)
        result = documents.evaluation
        without = data.unigram_bound(dataset.train, dataset.test)
        print(f"test perplexity       {documents.perplexity:8.1f} a document, {documents.corpus_perplexity:.1f} a word")
        print(f"unigram model         {without[0]:8.1f} a document, {without[1]:.1f} a word, without latents")
    else:
        found = result = evaluate(pair, dataset.test)
        without = data.factorial_bound(dataset.test)
        print(f"best factorial model  {without:8.2f} nats a case could be had without latents")
    print(f"test bound            {result.bound:8.2f} nats a case{standard_error(result)}")
    return found


def evaluate_run(
    run: Positional[Path],
    split: str = "test",
    samples: int = 10,
    seed: int = 0,
    data: Path | None = None,
    json: bool = False,
) -> None:
    """Estimate the bound of a trained model.

    The bound is the average over samples from the inference network, as in the paper, in nats a case.

    Args:
        run: The run's folder.
        split: test or train.
        samples: From the inference network, for every case.
        seed: Of these samples.
        data: A file of other cases, instead of a split.
        json: One JSON object on standard output.

    """
    opened = Run.open(run)
    cases, where = (opened.split(split), split) if data is None else (cases_of(opened, data), str(data))
    more: dict[str, Any] = {}
    if opened.documents:
        documents = evaluate_documents(opened.load_best(), cases, samples=samples, seed=seed)
        result = documents.evaluation
        more = {name: value for name, value in documents._asdict().items() if name != "evaluation"}
    else:
        result = evaluate(opened.load_best(), cases, samples=samples, seed=seed)
    if json:
        print(to_json({**result._asdict(), "split": where, **more}))
        return
    if opened.documents:
        print(f"{where} perplexity {more['perplexity']:.1f} a document, {more['corpus_perplexity']:.1f} a word")
    print(f"{where} bound {result.bound:.3f} nats a case{standard_error(result)}")
    if result.monte_carlo_se is not None:
        print(f"of that, from sampling h: {result.monte_carlo_se:.3f}")
    print(f"{result.cases} cases, {result.samples} samples each")


def sample(run: Positional[Path], count: int = 100, out: Path = Path("samples.png"), seed: int = 0) -> None:
    """Draw samples from a trained model.

    A .png shows, for every sample, the probability of each pixel given the sampled latents. A .npz holds the samples
    `x`, their means given the latents `mean`, and the latents `h1`, `h2`, ...; for documents, in place of `x` and
    `mean`, the counts as a sparse matrix for `scipy.sparse.load_npz`. A .txt, for documents, has one a line, as its
    words with their counts.

    Args:
        run: The run's folder.
        count: How many.
        out: A .png (pictures), .txt (documents) or .npz file.
        seed: Of the samples.

    """
    if count < 1:
        raise UsageError(f"--count must be at least 1, not {count}.")
    opened = Run.open(run)
    storage.output_file(out, (".png", ".txt", ".npz"))
    draw(opened, count, out, seed)
    print(out)


def encode(
    run: Positional[Path],
    data: Path,
    out: Path = Path("codes.npz"),
    samples: int = 1,
    binary: bool = False,
    seed: int = 0,
) -> None:
    """Encode cases with the inference network.

    Writes `h1`, `h2`, ...: the probability that each latent is on, a row for every case. For layers above the first it
    is an average over samples of the layers below.

    Args:
        run: The run's folder.
        data: A file of cases.
        out: A .npz file.
        samples: To average over; 1 is exact for the first layer of a factorial inference network.
        binary: Round to binary codes instead (on where the probability is at least one half).
        seed: Of these samples.

    """
    if samples < 1:
        raise UsageError(f"--samples must be at least 1, not {samples}.")
    opened = Run.open(run)
    cases = cases_of(opened, data)
    storage.output_file(out, (".npz",))
    codes = encoded(opened, cases, samples, seed)
    if binary:
        codes = {name: (values >= 0.5).astype(np.uint8) for name, values in codes.items()}
    save_npz(out, codes)
    print(out)


def data_sets(action: Positional[Literal["list", "fetch"]], name: Positional[str | None] = None) -> None:
    """List the named data sets, or fetch one.

    A file in the folder $NVIL_DATA, or in a folder named like the data set in it, is taken first; what is not there is
    downloaded to a cache folder and checked.

    For example:
      nvil data list
      nvil data fetch binarized-mnist

    Args:
        action: list them, or fetch one.
        name: Of the data set to fetch.

    """
    if action == "list":
        for name, entry in data.NAMED.items():
            print(f"{name:20} {entry.cases} cases, {entry.variables}")
            print(f"{'':20} split: {entry.split}")
            here = "on this machine" if entry.here() else f"not on this machine (download: {entry.download})"
            print(f"{'':20} {entry.origin}; {here}")
        return
    if name is None:
        raise UsageError("Which one? Give a name that `nvil data list` shows.")
    data.choose("data set", name, data.NAMED)
    contents = data.NAMED[name].load()
    for split, rows in contents.splits.items():
        print(f"{split:10} {rows.shape[0]:>8} cases of {rows.shape[1]} variables")
    print(f"next       nvil train --data {name}")


def report_runs(runs: Positional[tuple[Path, ...]], out: Path | None = None) -> None:
    """Write a page on a run, or on several compared, that needs nothing but a browser.

    Of one run: the bound, samples, what the latents mean, diagnostics, and how to make it again. Of several: their
    curves on shared axes, their results in a table, and what differs.

    Args:
        runs: The folders of the runs.
        out: An .html file; by default report.html in the run's folder, and comparison.html for several runs.

    """
    from nvil.report import write_comparison, write_report  # here, so that other commands start without matplotlib

    if not runs:
        raise UsageError("Give the folder of at least one run, for example: nvil report runs/demo")
    opened = [Run.open(folder) for folder in runs]
    default = runs[0] / "report.html" if len(runs) == 1 else Path("comparison.html")
    path = storage.output_file(default if out is None else out, (".html",))
    print(write_report(opened[0], path) if len(opened) == 1 else write_comparison(opened, path))


COMMANDS: dict[str, Callable[..., None]] = {
    "train": train,
    "evaluate": evaluate_run,
    "sample": sample,
    "encode": encode,
    "data": data_sets,
    "report": report_runs,
}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit with 2 for a mistake in what was asked, 1 for a failure."""
    # Small networks train fastest on one thread, and two runs side by side each get a core.
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    try:
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="nvil",
            description="Directed latent variable models with discrete latents, trained with an inference network.",
            args=arguments,
            config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
        )
    except UsageError as error:
        _exit(2, str(error))
    except (TrainingError, DownloadError) as error:
        _exit(1, str(error))
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        full = " What was saved before is kept; make room and give the same command to go on."
        _exit(1, f"{error.strerror or error}{where}.{full if error.errno in FULL else ''}")
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        said = ("RESOURCE_EXHAUSTED", "Out of memory")
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in said):
            raise
        _exit(1, "There is not enough memory for this; make --hidden or --batch-size smaller.")
    except Stopped as stopped:
        command = shlex.join(["nvil", *(sys.argv[1:] if arguments is None else arguments)])
        _exit(128 + stopped.signal, f"Stopped and saved at update {stopped.updates}; to go on: {command}")
    except KeyboardInterrupt:
        print("nvil: Stopped.", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)  # at once: XLA's threads may be in the midst of compiling


class Stopped(Exception):  # noqa: N818 (not an error)
    """Training was asked to stop by a signal, and did."""

    def __init__(self, signal: int, updates: int):
        super().__init__(signal, updates)
        self.signal, self.updates = signal, updates


class StoppedWaitingError(Exception):
    """A signal came while training waited for the next case of a stream."""


@dataclasses.dataclass
class Stop:
    """The signal that asked for an end, if one did."""

    signal: int | None = None


@contextlib.contextmanager
def stop_on_signals(waiting: Callable[[], bool]) -> Iterator[Stop]:
    """Note Ctrl-C and SIGTERM instead of ending; a second Ctrl-C ends at once.

    While training is `waiting` for a stream that may never go on, the wait ends in `StoppedWaitingError`.
    """
    stop = Stop()

    def note(number: int, _: Any) -> None:
        if stop.signal is not None and number == signal.SIGINT:
            os.write(2, b"\nnvil: Stopped at once; what was saved before is kept.\n")
            os._exit(130)
        stop.signal = number
        os.write(2, b"\nnvil: Saving, then stopping; Ctrl-C again stops at once.\n")
        if waiting():
            raise StoppedWaitingError

    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield stop
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def standard_error(result: Evaluation) -> str:
    return "" if result.bound_se is None else f", standard error {result.bound_se:.2f}"


def cases_of(run: Run, path: Path) -> data.Cases:
    """The cases of a file, made binary as the run's own data was."""
    kind = "counts" if run.documents else "binary"
    return data.load_cases(path, run.config.choices(), visible=run.visible, kind=kind, vocabulary=run.vocabulary())


def draw(run: Run, count: int, out: Path, seed: int = 0) -> None:
    """Sample from the run's best model into a picture, a text or an archive."""
    model = run.load_best().model

    @eqx.filter_jit
    def drawn(model: Any, key: Any) -> Any:
        x, h = model.sample(key, count)
        return x, h, model.mean(h)

    x, h, mean = jax.tree.map(np.asarray, drawn(model, jax.random.key(seed)))
    if out.suffix == ".npz":
        latents = {f"h{i}": np.asarray(values, np.uint8) for i, values in enumerate(h, 1)}
        save_npz(
            out, {**(sparse_parts(x) if run.documents else {"x": np.asarray(x, np.uint8), "mean": mean}), **latents}
        )
    elif out.suffix == ".txt":
        if not run.documents:
            raise UsageError(
                f"The cases of {run.folder} are not documents; write samples to a .png or .npz file instead."
            )
        storage.save_text(out, "".join(f"{line}\n" for line in pictures.bags(np.asarray(x), run.vocabulary())))
    elif run.image is None:
        raise UsageError(f"The cases of {run.folder} are not pictures; write samples to an .npz file instead.")
    else:
        pictures.save_grid(out, mean, run.image)


def sparse_parts(counts: Any) -> dict[str, np.ndarray]:
    """Word counts as `scipy.sparse.save_npz` lays them out, so that `load_npz` reads them."""
    matrix: Any = scipy.sparse.csr_array(np.asarray(counts, np.int32))
    parts = {name: getattr(matrix, name) for name in ("data", "indices", "indptr")}
    return {**parts, "shape": np.array(matrix.shape), "format": np.array(b"csr")}


def encoded(run: Run, cases: data.Cases, samples: int, seed: int) -> dict[str, np.ndarray]:
    """Probabilities of the latents of every layer, averaged over samples of the layers below."""
    inference = run.load_best().inference

    @eqx.filter_jit
    def means(x: Any, key: Any) -> Any:
        return inference.mean(x, inference.sample(key, x))

    blocks = []
    for i, rows in enumerate(dense_blocks(cases, BLOCK)):
        x = as_float(rows)
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), i), samples)
        drawn = [means(x, key) for key in keys]
        blocks.append([np.mean(layer, axis=0) for layer in zip(*drawn, strict=True)])
    layers = zip(*blocks, strict=True)
    return {f"h{i}": np.concatenate(parts) for i, parts in enumerate(layers, 1)}


def save_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with storage.written_beside(path) as file:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        file.write(buffer.getvalue())


@dataclasses.dataclass
class Show:
    """Progress on standard error: a live bar on a terminal, a line for every report elsewhere."""

    bar: Progress | None
    quiet: bool
    reports: int = 0

    def text(self, line: str) -> None:
        if not self.quiet:
            (self.bar.console if self.bar else stderr).print(line, soft_wrap=True)

    def updates(self, done: int) -> None:
        if self.bar:
            first = self.bar.tasks[0].description == "compiling"
            self.bar.update(self.bar.task_ids[0], completed=done, description="training" if first else None)

    def report(self, report: Report) -> None:
        if self.bar:
            text = f"bound {report.bound:.2f}"
            if report.validation_bound is not None:
                text += f"  validation {report.validation_bound:.2f}  best {report.best.bound:.2f}"
            text += f"  {report.updates_per_second:.0f} updates/s"
            self.bar.update(self.bar.task_ids[0], description=text)
            if not self.reports:  # the time left is not to be told from the seconds that compiling took
                self.bar.reset(self.bar.task_ids[0], completed=report.updates)
            self.reports += 1
        else:
            self.text(str(report))


@contextlib.contextmanager
def progress(run: Run, quiet: bool) -> Iterator[Show]:
    if quiet or not stderr.is_terminal:
        yield Show(None, quiet)
        return
    columns = (
        *([BarColumn(bar_width=None)] if stderr.width >= 100 else []),  # in what room the rest leaves
        TextColumn("{task.percentage:3.0f}%"),
        TextColumn("{task.description}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
    )
    with Progress(*columns, console=stderr, expand=stderr.width >= 100) as bar:
        bar.add_task("compiling", total=None if run.config.data == "-" else run.config.updates, completed=run.updates())
        yield Show(bar, quiet)


@contextlib.contextmanager
def board_of(run: Run) -> Iterator[tensorboard.Writer]:
    with contextlib.closing(tensorboard.Writer(run.folder / "tensorboard", run.updates())) as board:
        yield board


def _exit(code: int, message: str) -> None:
    print(f"nvil: {message}", file=sys.stderr)
    sys.exit(code)
