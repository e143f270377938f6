"""The commands, each a function of its options. What is heavy is imported inside them."""

import contextlib
import dataclasses
import inspect
import logging
import signal
import sys
import time
import typing
import webbrowser
from collections.abc import Callable, Sequence
from json import dumps as to_json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from nvil.cli import Stopped
from nvil.errors import UsageError, choose
from nvil.runs.config import CHECKPOINT_SECONDS, OWN_OPTIONS, Config, config_file, estimators_own

if TYPE_CHECKING:
    from nvil.data.dataset import Cases, Dataset
    from nvil.evaluation import DocumentEvaluation, Evaluation
    from nvil.runs.run import Run

Positional = tyro.conf.Positional
GROUPS = {
    "what": "What to train, and for how long. A newcomer needs no more than these.",
    "model": "The networks.",
    "learning": "How they learn.",
    "data": "What the data's values are, where it does not say so itself.",
    "run": "The run's folder and its reports.",
    "devices": "One run on several devices and machines (docs/scaling.md).",
}
TITLES = {"what": "main", "devices": "device"}
"""Of groups, in the help: their options are under "main options"; the others go by their names."""
METAVARS = {str: "TEXT", int: "N", float: "X", Path: "PATH", tuple[str, ...]: "[TEXT ...]"}


def option(name: str, kind: Any, default: Any, text: str, flag: str | None = None) -> tuple[str, Any, Any]:
    """A field of a dataclass as tyro takes it."""
    return name, Annotated[kind, tyro.conf.arg(help=text, name=flag, **_in_help(kind, default))], default


def _in_help(kind: Any, default: Any) -> dict[str, Any]:
    """How the help shows an option: of those that are off or absent by default, its text says what that means."""
    kinds = [each for each in typing.get_args(kind) or (kind,) if each is not type(None)]
    shown = {"metavar": METAVARS[kinds[0]]} if len(kinds) == 1 and kinds[0] in METAVARS else {}
    if typing.get_origin(kinds[0]) is Literal:
        shown = {"metavar": f"{{{','.join(typing.get_args(kinds[0]))}}}"}
    absent = default is None or default is False or default == ()
    return {**shown, "help_behavior_hint": ""} if absent else shown


def group(name: str, *more: tuple[str, Any, Any]) -> type:
    """A dataclass of the choices in one group, as tyro shows it."""
    fields = [
        option(field.name, field.type, field.default, field.metadata["help"])
        for field in dataclasses.fields(Config)
        if field.metadata["group"] == name
    ]
    return dataclasses.make_dataclass(name, [*fields, *more], frozen=True, namespace={"__doc__": GROUPS[name]})


What = group("what", option("out", Path | None, None, "The run's folder; by default runs/ and a name of its own."))
ModelChoices = group("model")
Learning = group("learning")
DataChoices = group("data")
TAKEN = (
    option("source", Path | None, None, "Take the choices of this run's folder; options given here win.", "from"),
    option("config", Path | None, None, "Take the choices of this TOML file; options given here win."),
)
RunChoices = group(
    "run",
    *TAKEN,
    option("quiet", bool, False, "No progress on standard error."),
    option("checkpoint_seconds", float, CHECKPOINT_SECONDS, "How old the last checkpoint may get."),
    option("checkpoint_updates", int | None, None, "Write one at every multiple of this many updates as well."),
    option("tensorboard", bool, False, "Write reports for TensorBoard to the run's folder too."),
)
CLASSES = {"what": What, "model": ModelChoices, "learning": Learning, "data": DataChoices, "run": RunChoices}
DeviceChoices = group(
    "devices",
    option(
        "devices",
        int | None,
        None,
        "Share every minibatch among this many devices in all, of this process or of those that srun or mpirun started "
        "with the same command. A CPU core is one.",
    ),
    option("coordinator", str | None, None, "Without such a launcher: HOST:PORT of the first process, for all."),
    option("processes", int | None, None, "How many processes there are then,"),
    option("process", int | None, None, "and which of them this one is, from 0."),
)


def train(words: list[str]) -> None:
    r"""Train a model together with its inference network.

    Without arguments: a small sigmoid belief network on the digits that ship with scikit-learn. The same --out goes on
    where the run stopped; --updates may then be larger. Ctrl-C saves and stops; a second one stops without saving.

    For example:
      nvil train
      nvil train --data my.npy --binarize threshold --hidden 200 200 --out runs/deep
      nvil train --data binarized-mnist --hidden 200 --batch-size 100 --latent-bias -4 \
        --schedule cosine --weight-decay 0.01 --updates 120000
      nvil train --from runs/deep --without normalisation --out runs/ablation
      generate-cases | nvil train --data - --hidden 50
    """
    parsed, config = parse_choices(train, {**CLASSES, "devices": DeviceChoices}, words)
    config.resolved()  # tells mistakes first; the run resolves it by what the data turns out to be
    options = checked(parsed.run)
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
    train_run(
        run,
        dataset,
        quiet=options.quiet,
        checkpoint_seconds=options.checkpoint_seconds,
        checkpoint_updates=options.checkpoint_updates,
        tensorboard=options.tensorboard,
        mesh=mesh,
    )


def checked(options: Any) -> Any:
    """Options of the group "run", if checkpoints can be as often as they say."""
    if not options.checkpoint_seconds >= 0:
        raise UsageError(f"`checkpoint_seconds` must be at least 0, got {options.checkpoint_seconds}.")
    if options.checkpoint_updates is not None and options.checkpoint_updates < 1:
        raise UsageError(f"`checkpoint_updates` must be at least 1, got {options.checkpoint_updates}.")
    return options


def folder_of(out: Path | None, config: Config, *prefix: str) -> Path:
    """Where to write to: as asked, or a folder named for what is trained."""
    source = "stream" if config.data == "-" else Path(config.data).stem
    return Path("runs", "-".join((*prefix, source, config.model, *map(str, config.hidden)))) if out is None else out


def parse_choices(
    command: Callable[..., None], classes: dict[str, type], words: list[str], given: dict[str, Any] | None = None
) -> tuple[Any, Config]:
    """What was said to a command in the groups of options `classes`, and the choices among that.

    `given` are choices from elsewhere; those of --from and --config win over them, and options over all.
    """
    _hint(words, [field.name for kind in classes.values() for field in dataclasses.fields(kind)])
    known = (given or {}) | _given(words)
    arguments = dataclasses.make_dataclass(
        command.__name__,
        [
            (name, Annotated[kind, tyro.conf.arg(name=TITLES.get(name, name))], kind(**_of(kind, known)))
            for name, kind in classes.items()
        ],
        frozen=True,
    )
    parsed = tyro.cli(
        arguments,
        prog=f"nvil {command.__name__}",
        description=inspect.cleandoc(command.__doc__ or ""),
        args=words,
        config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
    )
    config = Config(
        **{
            field.name: getattr(getattr(parsed, field.metadata["group"]), field.name)
            for field in dataclasses.fields(Config)
        }
    )
    return parsed, config


def _given(words: list[str]) -> dict[str, Any]:
    """The choices of the run or file that --from and --config name, before the other options are read."""
    values: dict[str, Any] = {}
    run: dict[str, Any] = {}
    estimator = None
    for i, word in enumerate(words):
        flag, separator, value = word.partition("=")
        value = value if separator or i + 1 == len(words) else words[i + 1]
        if flag == "--estimator":
            estimator = value
        if flag in ("--from", "--config") and value:
            path = Path(value)
            if not path.exists():
                raise UsageError(f"There is no {'run' if flag == '--from' else 'file'} {path}.")
            if flag == "--from" and not path.is_dir():
                raise UsageError(f"{path} is not the folder of a run; for a file of choices, take --config.")
            found = config_file(path)
            run = found if flag == "--from" else run
            values |= found
    estimator = estimator or values.get("estimator")
    if not run or estimator == run["estimator"]:
        return values
    # A run's choices for its own estimator are not for another.
    own = {name for name, owners in OWN_OPTIONS.items() if estimator not in owners} | estimators_own(Config(**run))
    return {name: value for name, value in values.items() if name not in own or value != run.get(name)}


def _of(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    return {field.name: values[field.name] for field in dataclasses.fields(kind) if field.name in values}


def train_run(
    run: "Run",
    dataset: "Dataset",
    *,
    quiet: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    checkpoint_updates: int | None = None,
    tensorboard: bool = False,
    mesh: Any = None,
) -> None:
    """Train, with progress on standard error, and end with results on standard output."""
    from nvil.devices import disconnect

    fit_run(
        run,
        dataset,
        quiet=quiet,
        checkpoint_seconds=checkpoint_seconds,
        checkpoint_updates=checkpoint_updates,
        tensorboard=tensorboard,
        mesh=mesh,
    )
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
    print(
        f"next                  nvil evaluate {run.folder} {'--data FILE' if dataset.test is None else '--samples 100'}"
    )


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


def print_result(run: "Run", dataset: "Dataset") -> "Evaluation | DocumentEvaluation":
    """Print, and return, the test bound, and what could be had without latents."""
    from nvil import data
    from nvil.evaluation import evaluate, evaluate_documents

    pair = run.load_best()
    missing = " or context" if dataset.context else ""
    if run.documents:
        found = documents = evaluate_documents(pair, dataset.test)
        result = documents.evaluation
        without = data.unigram_bound(dataset.train, dataset.test, dataset.context)
        per_document, per_word = documents.perplexity, documents.corpus_perplexity
        print(f"test perplexity       {per_document:8.1f} per document, {per_word:.1f} per word")
        print(
            f"unigram model         {without[0]:8.1f} per document, {without[1]:.1f} per word, without latents{missing}"
        )
        useless = per_document >= without[0] and f"the unigram model ({without[0]:.1f} per document)"
    else:
        found = result = evaluate(pair, dataset.test)
        if run.numbers:
            best = means = data.gaussian_bound(dataset.train, dataset.test, dataset.context)
            by = f"independent Gaussians{missing and ' without context'}, fitted to the training cases"
        else:
            best = data.factorial_bound(dataset.test, dataset.context, dataset.categories)
            by = f"independent variables{missing and ' without context'} at best, fitted to the test cases"
            means = data.independent_bound(dataset.train, dataset.test, dataset.context, dataset.categories)
        print(f"without latents       {best:8.2f} nats per case, {by}")
        useless = result.bound <= means and f"independent variables at their training means ({means:.2f})"
    print(f"test bound            {result.bound:8.2f} nats per case{standard_error(result)}")
    if useless:
        print(f"no better than        {useless}: the latents have learned nothing of use; try {_what_to_try(run)}")
    return found


def _what_to_try(run: "Run") -> str:
    config = run.config
    assert config is not None
    other = []
    if run.vocabulary is not None and config.stop_words == "none":
        other.append("--stop-words english")
    other += ["more --updates", f"a --learning-rate below {config.learning_rate:g}"]
    return f"{', '.join(other)}{', or fewer --words' if run.documents else ', or fewer --hidden units'}"


def resume(run: Positional[Path], updates: int | None = None, quiet: bool = False) -> None:
    """Go on with a run, without repeating its options.

    Args:
        run: The run's folder.
        updates: How many in all, those already done included; by default as many as were asked for before.
        quiet: No progress on standard error.

    """
    from nvil.runs.run import Run

    train_run(*Run.open(run).resumed(updates), quiet=quiet)


def evaluate(
    run: Positional[Path],
    split: str | None = None,
    samples: int | None = None,
    seed: int = 0,
    data: Path | None = None,
    binarize: str | None = None,
    threshold: float | None = None,
    white: float | None = None,
    drop_columns: tuple[str, ...] | None = None,
    json: bool = False,
    estimate: Literal["bound", "importance", "ais", "exact"] = "bound",
    cases: int | None = None,
    simulated: int | None = None,
    temperatures: int | None = None,
) -> None:
    """Estimate the bound of a trained model, or its log-likelihood.

    The bound is the average over samples from the inference network, as in the paper, in nats per case. With importance
    the same samples are weighted into an estimate of log P(x) itself, which the bound is below; many are needed, and
    the effective sample size says whether they were enough. ais is annealed importance sampling, for binary
    latents only, which does without the inference network: on data a lower bound in expectation, on cases of the
    model's own (--simulated) an upper bound too, and their gap says how good either is. exact sums over all states of
    at most 16 latents. For documents there is a perplexity too: per document exp(-mean of log P(x) / L), with L the
    words of document x, as in the paper; per word exp(-sum of log P(x) / sum of L).

    For example:
      nvil evaluate runs/demo --estimate importance --samples 5000
      nvil evaluate runs/demo --estimate ais --cases 100
      nvil evaluate runs/demo --estimate ais --simulated 100

    Args:
        run: The run's folder.
        split: test (the default) or train.
        samples: From the inference network, for every case; by default 10, and 1000 for importance. For ais: chains, by
            default 5.
        seed: The seed of these samples.
        data: A file of other cases, instead of a split.
        binarize: How grey levels in that file become binary: threshold or stochastic; by default as in training.
        threshold: On from this value up; by default as in training.
        white: For stochastic: the value that is certainly on; by default as in training.
        drop_columns: Columns of that file that are not data, by name or place; by default as in training.
        json: One JSON object on standard output.
        estimate: bound, or of the log-likelihood: importance (weighted samples), ais or exact.
        cases: Evaluate this many of the cases, the first; by default all.
        simulated: Instead of data, evaluate this many cases drawn from the model itself.
        temperatures: For ais, by default 1000: twice as many take twice as long and about halve the gap.

    """
    import nvil
    from nvil import evaluation
    from nvil.rows import as_rows
    from nvil.runs.run import Run

    opened = Run.open(run)
    pair = opened.load_best()
    how = {"binarize": binarize, "threshold": threshold, "white": white, "drop_columns": drop_columns}
    if data is None and (given := [name for name, value in how.items() if value is not None]):
        raise UsageError(f"`{given[0]}` is for the cases of a file; give it with `data`.")
    if split is not None and (data is not None or simulated is not None):
        raise UsageError("`split` is of the run's own data; leave it out where other cases take its place.")
    if temperatures is not None and estimate != "ais":
        raise UsageError('`temperatures` are for `estimate="ais"`.')
    for name, value, least in (
        ("cases", cases, 1),
        ("simulated", simulated, 1),
        ("samples", samples, 1),
        ("temperatures", temperatures, 2),
    ):
        if value is not None and value < least:
            raise UsageError(f"`{name}` must be at least {least}, got {value}.")
    if simulated is not None:
        if data is not None or cases is not None:
            raise UsageError("`simulated` cases take the place of data: leave `data` and `cases` out.")
        if opened.facts.context:
            raise UsageError("`simulated` is for models of whole cases, and this one is of columns given others.")
        if estimate == "ais":  # which draws its own
            _evaluate_sandwich(pair, simulated, samples or 5, temperatures or 1000, seed, json)
            return
        chosen, where = nvil.sample(pair, simulated, means=False, seed=seed).x, "simulated"
    else:
        where = (split or "test") if data is None else str(data)
        chosen = opened.split(where) if data is None else cases_of(opened, data, **how)
        chosen = chosen if cases is None else next(as_rows(chosen).fixed().blocks(cases))
    if estimate != "bound":
        _evaluate_likelihood(opened, pair, chosen, where, estimate, samples, temperatures, seed, json)
        return
    more: dict[str, Any] = {}
    samples = 10 if samples is None else samples
    if opened.documents:
        documents = evaluation.evaluate_documents(pair, chosen, samples=samples, seed=seed)
        result = documents.evaluation
        more = {name: value for name, value in documents._asdict().items() if name != "evaluation"}
    else:
        result = evaluation.evaluate(pair, chosen, samples=samples, seed=seed)
    if json:
        print(to_json({"estimate": estimate, **result._asdict(), "split": where, **more}))
        return
    if opened.documents:
        print(f"{where} perplexity {more['perplexity']:.1f} per document, {more['corpus_perplexity']:.1f} per word")
    print(f"{where} bound {result.bound:.3f} nats per case{standard_error(result)}")
    if result.monte_carlo_se is not None:
        print(f"of that, from sampling h: {result.monte_carlo_se:.3f}")
    print(f"{result.cases} cases, {result.samples} samples each")


def _evaluate_likelihood(
    run: "Run",
    pair: Any,
    cases: "Cases",
    where: str,
    estimate: str,
    samples: int | None,
    temperatures: int | None,
    seed: int,
    json: bool,
) -> None:
    from nvil import annealing, evaluation, likelihood

    how, drawn, facts = "exact", "", {}
    if estimate == "exact":
        if samples is not None:
            raise UsageError('`samples` is not for `estimate="exact"`, which sums over all states of the latents.')
        values = likelihood.case_exact(pair, cases)
        result = likelihood.summary(values)
    elif estimate == "importance":
        how, drawn = "importance-weighted estimate", "samples"
        samples = 1000 if samples is None else samples
        values, effective = likelihood.case_importance(pair, cases, samples=samples, seed=seed)
        result = likelihood.summary(values, effective, samples)
    else:
        from nvil.runs.progress import share_done

        samples, temperatures = samples or 5, temperatures or 1000
        how, drawn = (
            "annealed importance sampling, a lower bound in expectation",
            f"chains of {temperatures} temperatures",
        )
        facts = {"temperatures": temperatures, "kind": "lower bound in expectation"}
        with share_done() as progress:
            values, effective = annealing.case_annealed(
                pair, cases, samples=samples, temperatures=temperatures, seed=seed, progress=progress
            )
        result = likelihood.summary(values, effective, samples)
    more: dict[str, Any] = {}
    if run.documents:
        found = evaluation.perplexities(values, evaluation.word_counts(pair, cases))
        more = dict(zip(("perplexity", "corpus_perplexity", "empty_documents"), found, strict=True))
    if json:
        print(to_json({"estimate": estimate, **facts, **result._asdict(), "split": where, **more}))
        return
    if run.documents:
        both = more["perplexity"], more["corpus_perplexity"]
        print(f"{where} perplexity {both[0]:.1f} per document, {both[1]:.1f} per word ({how})")
    error = "" if result.log_likelihood_se is None else f", standard error {result.log_likelihood_se:.2f}"
    print(f"{where} log-likelihood {result.log_likelihood:.3f} nats per case ({how}){error}")
    if result.monte_carlo_se is not None:
        print(f"of that, from sampling h: {result.monte_carlo_se:.3f}")
    if result.samples is None:
        print(f"{result.cases} cases, every state of the latents")
        return
    print(
        f"{result.cases} cases, {result.samples} {drawn} each, worth {result.effective_samples:.1f} on average and "
        f"{result.least_effective_samples:.1f} at least"
    )


def _evaluate_sandwich(pair: Any, cases: int, samples: int, temperatures: int, seed: int, json: bool) -> None:
    from nvil import annealing
    from nvil.runs.progress import share_done

    with share_done() as progress:
        found = annealing.sandwich(
            pair, cases, samples=samples, temperatures=temperatures, seed=seed, progress=progress
        )
    if json:
        facts = {"estimate": "ais", "kind": "sandwich", "temperatures": temperatures, "split": "simulated"}
        sides = {"lower": found.lower._asdict(), "upper": found.upper._asdict()}
        print(to_json({**facts, **sides, "gap": found.gap, "gap_se": found.gap_se}))
        return
    print(
        "simulated log-likelihood, in nats per case, between two bounds in expectation (annealed importance sampling):"
    )
    for name, side in (("lower", found.lower), ("upper", found.upper)):
        error = "" if side.monte_carlo_se is None else f", standard error from sampling h {side.monte_carlo_se:.3f}"
        print(f"  {name} {side.log_likelihood:.3f}{error}")
    error = "" if found.gap_se is None else f", standard error {found.gap_se:.3f}"
    print(f"  gap   {found.gap:.3f}{error}")
    error = (
        ""
        if found.lower.log_likelihood_se is None
        else f"; standard error between cases {found.lower.log_likelihood_se:.2f}"
    )
    print(f"{cases} cases of the model's own, {samples} chains of {temperatures} temperatures each way{error}")


def sample(
    run: Positional[Path],
    count: int = 100,
    out: Path = Path("samples.png"),
    seed: int = 0,
    data: Path | None = None,
) -> None:
    """Draw samples from a trained model.

    A .png shows, for every sample, the probability of each pixel given the sampled latents. A .npz holds the samples
    `x`, their means given the latents `mean`, and the latents `h1`, `h2`, ...; categorical ones, of `x` too, as the
    numbers of their categories, and their `mean` as the probability of each. For documents, in place of `x` and
    `mean`, the counts as a sparse matrix for `scipy.sparse.load_npz`. A .txt, for documents, has one per line, as its
    words with their counts.

    Args:
        run: The run's folder.
        count: How many.
        out: A .png (pictures), .txt (documents) or .npz file.
        seed: The seed of the samples.
        data: For a conditional model: a file of cases whose context to sample given, in turn; by default that of random
            test cases.

    """
    from nvil.runs.run import Run
    from nvil.runs.storage import output_file

    if count < 1:
        raise UsageError(f"`count` must be at least 1, got {count}.")
    opened = Run.open(run)
    opened.like()  # before its data: of a pair from Python, neither is to be had
    output_file(out, (".png", ".txt", ".npz"))
    if data is not None and not opened.facts.context:
        raise UsageError(f"{opened.folder} is not a conditional model; leave `data` out.")
    write_samples(opened, count, out, seed, cases=None if data is None else cases_of(opened, data))
    print(out)


def write_samples(
    run: "Run", count: int, out: Path, seed: int = 0, cases: "Cases | None" = None, test: "Cases | None" = None
) -> None:
    """Sample from the run's best model into a picture, a text or an archive.

    A conditional model is given the context of `cases` in turn, or without them of random test cases.
    """
    import numpy as np

    import nvil
    from nvil.report import pictures
    from nvil.rows import as_rows
    from nvil.runs.storage import save_arrays, save_text

    if out.suffix == ".txt" and not run.documents:
        raise UsageError(f"The cases of {run.folder} are not documents; write samples to a .png or .npz file instead.")
    if out.suffix == ".png" and run.facts.image is None:
        raise UsageError(f"The cases of {run.folder} are not pictures; write samples to an .npz file instead.")
    given = None
    if run.facts.context:
        if cases is not None:
            rows, order = as_rows(cases), np.arange(count)
        else:  # at random, as a file may have them in order
            rows = as_rows(run.split("test") if test is None else test)
            order = np.random.default_rng(seed).permutation(max(count, rows.shape[0]))[:count]
        given = rows.select(order % rows.shape[0]).dense()[:, : run.facts.context]
    x, mean, h = nvil.sample(run.load_best(), count, given=given, seed=seed)
    if out.suffix == ".npz":
        layers = run.like().inference.layers
        latents = {f"h{i}": most_likely(*each) for i, each in enumerate(zip(layers, h, strict=True), 1)}
        visible = run.like().model.layers[0]
        # The context is one-hot too, where the visibles are.
        decoded = {} if run.documents else {"x": most_likely(visible, x), "mean": by_latent(visible, mean)}
        save_arrays(out, {**(sparse_parts(x) if run.documents else decoded), **latents})
    elif out.suffix == ".txt":
        words = np.where(np.arange(x.shape[1]) < (run.facts.context or 0), 0, x)  # a context is no words
        save_text(out, "".join(f"{line}\n" for line in pictures.bags(words, run.vocabulary)))
    else:
        assert run.facts.image is not None
        pictures.save_grid(out, mean, run.facts.image)


def encode(
    run: Positional[Path],
    data: Path,
    out: Path = Path("codes.npz"),
    samples: int = 10,
    binary: bool = False,
    seed: int = 0,
    binarize: str | None = None,
    threshold: float | None = None,
    white: float | None = None,
    drop_columns: tuple[str, ...] | None = None,
) -> None:
    """Encode cases with the inference network.

    Writes `h1`, `h2`, ...: the probability that each latent is on, a row for every case; of categorical latents that of
    each category, so that `h1` has the shape (cases, latents, categories); of Gaussian latents their mean. For layers
    above the first, and for autoregressive layers, it is an average over samples of what they depend on.

    Args:
        run: The run's folder.
        data: A file of cases.
        out: A .npz file.
        samples: To average over; 1 is exact for the first layer of a factorial inference network.
        binary: Round to binary codes instead (on where the probability is at least one half); of categorical latents,
            the number of the likeliest category, from 0; Gaussian ones are not rounded.
        seed: The seed of these samples.
        binarize: How grey levels become binary: threshold or stochastic; by default as in training.
        threshold: On from this value up; by default as in training.
        white: For stochastic: the value that is certainly on; by default as in training.
        drop_columns: Columns of the file that are not data, by name or place; by default as in training.

    """
    import nvil
    from nvil.runs.run import Run
    from nvil.runs.storage import output_file, save_arrays

    if samples < 1:
        raise UsageError(f"`samples` must be at least 1, got {samples}.")
    opened = Run.open(run)
    pair = opened.load_best()
    cases = cases_of(opened, data, binarize=binarize, threshold=threshold, white=white, drop_columns=drop_columns)
    output_file(out, (".npz",))
    codes = zip(pair.inference.layers, nvil.encode(pair, cases, samples=samples, seed=seed), strict=True)
    read = most_likely if binary else by_latent
    save_arrays(out, {f"h{i}": read(layer, values) for i, (layer, values) in enumerate(codes, 1)})
    print(out)


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
    over the parameters; "PyTorch / nvil" of 5 means that PyTorch takes five times as long. What is not installed is
    left out; the extra `peers` of this package installs PyTorch, Pyro and NumPyro. Leave the machine alone meanwhile.

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

    if rounds < 1:
        raise UsageError(f"`rounds` must be at least 1, got {rounds}.")
    if out is not None:
        output_file(out, (".json",))
    if full:
        models, batch_size = tuple(MODELS), (20, 100, 400)
    for name in models:
        choose("model", name, MODELS)
    if min(batch_size) < 1:
        raise UsageError(f"`batch_size` must be at least 1, got {min(batch_size)}.")
    sides = measure.installed()
    for side in measure.SIDES:
        if side not in sides:
            print(f"{side} is not installed and left out.", file=sys.stderr)
    results = []
    print(measure.head(sides))
    cases = [Case(name, batch, rule) for name in models for batch in batch_size for rule in optimiser]
    for i, case in enumerate(cases, start=1):
        print(f"{i} of {len(cases)}: {case.name}, batch {case.batch}, {case.optimiser}", file=sys.stderr)
        results.append(measure.measure_apart(case, sides, rounds))
        print(measure.row(results[-1]), flush=True)  # a later failure loses nothing
    if out is not None:
        save_text(out, to_json({"made_with": made_with(), "results": results}, indent=1) + "\n")


def data(action: Positional[Literal["list", "fetch"]], name: Positional[str | None] = None) -> None:
    """List the named data sets, or fetch one.

    A file in the folder $NVIL_DATA, or in a folder named like the data set in it, is taken first; what is not there is
    downloaded to a cache folder and checked.

    For example:
      nvil data list
      nvil data fetch binarized-mnist

    Args:
        action: list them, or fetch one.
        name: The name of the data set to fetch.

    """
    from nvil.cli import in_flags
    from nvil.data.registry import NAMED

    if action == "list":
        width = max(map(len, NAMED))
        for name, entry in NAMED.items():
            print(f"{name:{width}} {entry.cases} cases, {in_flags(entry.variables)}")
            print(f"{'':{width}} split: {entry.split}")
            here = "on this machine" if entry.here() else f"not on this machine (download: {entry.download})"
            print(f"{'':{width}} {entry.origin}; {here}")
        return
    if name is None:
        raise UsageError("Which one? Give a name that `nvil data list` shows.")
    choose("data set", name, NAMED)
    contents = NAMED[name].load()
    for split, rows in contents.splits.items():
        print(f"{split:10} {rows.shape[0]:>8} cases of {rows.shape[1]} variables")
    for path in NAMED[name].paths():
        print(f"file       {path}")
    print(f"next       nvil train --data {name}")


def topics(
    run: Positional[Path],
    data: Path | None = None,
    words: int = 10,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Show what the latents of a document model stand for.

    For each latent of the first layer, those that tell most first: how much it tells about a document (nats), the share
    of the documents that have it on, the coherence of its words (NPMI: how much they keep company in these documents,
    from -1 over 0, by chance, to 1), and the words whose share grows most when it is on.

    Args:
        run: The run's folder.
        data: A file of documents to measure on; by default the run's test documents.
        words: How many words to show of each topic.
        out: A .csv file, which also has the words that fall and the documents that turn the latent on most.
        json: One JSON object on standard output.

    """
    from nvil.data.loading import names_of
    from nvil.report.summary import printable
    from nvil.runs.run import Run
    from nvil.runs.storage import output_file, save_text
    from nvil.topic_words import topics as find

    opened = Run.open(run)
    if not opened.documents or opened.vocabulary is None:
        raise UsageError(f"{run} is not a model of documents whose words are known, so there are no topics to show.")
    if out is not None:
        output_file(out, (".csv",))
    documents = opened.split("test") if data is None else cases_of(opened, data)
    found = find(opened.load_best(), opened.vocabulary, documents, words=words)
    if out is not None:
        assert opened.config is not None
        of_test = names_of(opened.config.data).get("test")
        names = of_test if data is None else [name for split in names_of(data).values() for name in split]
        save_text(out, found.csv([printable(name) for name in names or ()] or None))
    if json:
        print(to_json(dataclasses.asdict(found)))
    else:
        print(out or found)


def index(run: Positional[Path], data: Path | None = None, out: Path | None = None, layer: int = 1) -> None:
    """Index cases by their binary codes, for search.

    The bits of a code are the latents of one layer: on where the inference network's probability is above its median
    over these cases. Documents count as if they had the usual length.

    For example:
      nvil index runs/topics --data texts/
      nvil search runs/topics "shuttle launch orbit"

    Args:
        run: The run's folder.
        data: A named set, or a file or folder of cases; by default the run's own, training and test cases.
        out: An .npz file; by default index.npz in the run's folder.
        layer: Which layer of latents, counted from the data up.

    """
    from nvil.runs.index import FILE, Index
    from nvil.runs.run import Run
    from nvil.runs.storage import output_file

    opened = Run.open(run)
    path = output_file(run / FILE if out is None else out, (".npz",))
    made = Index.build(opened, data, layer=layer)
    made.save(path)
    bits, different = len(made.thresholds), len({code.tobytes() for code in made.codes})
    print(f"{path}: {len(made.names)} cases, codes of {bits} bits, {different} of them different")


def search(
    run: Positional[Path],
    query: Positional[str | None] = None,
    data: Path | None = None,
    like: str | None = None,
    count: int = 10,
    index: Path | None = None,
    by: Literal["numpy", "faiss"] = "numpy",
    json: bool = False,
) -> None:
    """Find the cases whose codes are nearest to a query's.

    Prints the number of bits in which codes differ, and the name of the case: the file it came from, or its row.

    Args:
        run: The run's folder, with an index (see: nvil index).
        query: A text, for documents.
        data: A file of cases to search for, instead.
        like: The name of a case of the index to search for, instead.
        count: How many to find.
        index: The file of the index; by default index.npz in the run's folder.
        by: numpy counts bits; faiss searches with faiss-cpu, which must be installed.
        json: One JSON object for every query on standard output.

    """
    from nvil.report.summary import printable
    from nvil.runs.index import FILE, Index
    from nvil.runs.run import Run

    if sum(each is not None for each in (query, data, like)) != 1:
        raise UsageError("Say what to search for: a text, `data` or `like`, one of them.")
    opened = Run.open(run)
    loaded = Index.load(run / FILE if index is None else index, opened)
    if query is not None:
        found = [loaded.search_text(opened, query, count, by=by)]
    elif data is not None:
        found = loaded.search(opened, data, count, by=by)
    else:
        assert like is not None
        if like not in loaded.names:
            raise UsageError(f"There is no case {like!r} in the index, whose first one is {loaded.names[0]!r}.")
        row = loaded.names.index(like)
        found = loaded.search_codes(loaded.codes[row : row + 1], count, by=by)
    for i, hits in enumerate(found):
        if json:
            print(to_json({"query": i, "hits": [hit._asdict() for hit in hits]}))
            continue
        if len(found) > 1:
            print(f"case {i}")
        for hit in hits:
            print(f"{hit.distance:5}  {printable(hit.name)}")


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
            eighths of the updates (Tables 1 and 2), rival the models that the paper quotes figures of; the figure has
            only paper.
        jobs: Cells side by side; by default one per core. 0 trains in this very process.
        budget: Minutes after which to save and stop; the same command goes on.
        data: Another data set or file than the preset's, for one cell; the results say so.
        runs: The folder of the run folders.
        results: The folder of the JSON files.
        render: Make README.md and the pictures in the folder of results.
        cells: List the names of the cells.

    """
    from nvil.reproduce import presets

    if jobs is not None and jobs < 0:
        raise UsageError(f"`jobs` must be at least 0, got {jobs}.")
    if budget is not None and not budget > 0:
        raise UsageError(f"`budget` must be above 0, got {budget}.")
    if table is None and not render:
        raise UsageError("Say what to reproduce: table1, table2, table3 or figure1; or --render the results there are.")
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

    def train(run: "Run", dataset: "Dataset") -> None:
        fit_run(run, dataset, quiet=False)

    path = reproduce(cell, runs=runs, results=results, data=data, train=train)
    print(path)


def _reproduce_side_by_side(
    every: Any, runs: Path, results: Path, data: str | None, jobs: int | None, budget: float | None
) -> None:
    from nvil.cli.jobs import shown
    from nvil.errors import TrainingError
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


def standard_error(result: "Evaluation") -> str:
    return "" if result.bound_se is None else f", standard error {result.bound_se:.2f}"


def cases_of(run: "Run", path: Path, **how: Any) -> "Cases":
    """The cases of a file, made binary as the run's own data was, but for what is said of `how`."""
    from nvil.runs.index import load_run_cases

    assert run.config is not None
    given = {name: value for name, value in how.items() if value is not None}
    choices = run.config.choices()
    if given.get("binarize", choices.binarize) != choices.binarize:  # and so what it rests on
        choices = dataclasses.replace(choices, threshold=None, white=None)
    choices = dataclasses.replace(choices, **given)
    choices.checked()
    return load_run_cases(run, path, choices)


def by_latent(layer: Any, values: Any) -> Any:
    """Values with an axis for the categories, where a layer's variables are categorical."""
    return values.reshape(len(values), -1, layer.categories) if hasattr(layer, "categories") else values


def most_likely(layer: Any, values: Any) -> Any:
    """Whether each variable is on, or the number of its category: as bytes, or more where 256 are too few.

    Real numbers stay as they are.
    """
    import numpy as np

    from nvil.domains import NUMBERS

    if layer.domain is NUMBERS:
        return values
    if not hasattr(layer, "categories"):
        return (values >= 0.5).astype(np.uint8)
    return by_latent(layer, values).argmax(axis=-1).astype(np.min_scalar_type(layer.categories - 1))


def sparse_parts(counts: Any) -> dict[str, Any]:
    """Word counts as `scipy.sparse.save_npz` lays them out, so that `load_npz` reads them."""
    import numpy as np
    import scipy.sparse

    matrix: Any = scipy.sparse.csr_array(np.asarray(counts, np.int32))
    parts = {name: getattr(matrix, name) for name in ("data", "indices", "indptr")}
    return {**parts, "shape": np.array(matrix.shape), "format": np.array(b"csr")}


OTHER_TOOLS = {
    "batch": "batch_size",
    "batchsize": "batch_size",
    "bs": "batch_size",
    "checkpoint_every": "checkpoint_updates",
    "clip_norm": "clip",
    "dataset": "data",
    "early_stopping": "patience",
    "ema": "average",
    "epoch": "updates",
    "epochs": "updates",
    "eval_every": "report_every",
    "grad_clip": "clip",
    "hidden_dim": "hidden",
    "hidden_size": "hidden",
    "input": "data",
    "iterations": "updates",
    "layers": "hidden",
    "log_every": "report_every",
    "lr": "learning_rate",
    "lr_decay": "schedule",
    "lr_schedule": "schedule",
    "lr_scheduler": "schedule",
    "max_features": "words",
    "max_grad_norm": "clip",
    "max_steps": "updates",
    "n": "count",
    "num_epochs": "updates",
    "num_samples": "samples",
    "output": "out",
    "output_dir": "out",
    "random_state": "seed",
    "rate": "learning_rate",
    "save_dir": "out",
    "scheduler": "schedule",
    "steps": "updates",
    "units": "hidden",
    "val": "validation",
    "val_size": "validation",
    "vocab": "vocabulary",
    "vocab_size": "words",
    "wd": "weight_decay",
}
"""What other tools call our options, where the names are too far apart to be taken for a slip."""


def _hint(words: Sequence[str], options: Sequence[str]) -> None:
    """Refuse an option that another tool has with the name that it has here."""
    for word in words:
        name = word.partition("=")[0].removeprefix("--").replace("-", "_")
        ours = OTHER_TOOLS.get(name)
        if word.startswith("--") and name not in options and ours in options:
            epochs = ", counted in minibatches" if "epoch" in name else ""
            raise UsageError(f"Unknown option '--{name.replace('_', '-')}'; did you mean `{ours}`{epochs}?")


def _parsed(function: Callable[..., None]) -> Callable[[list[str]], None]:
    for name, parameter in inspect.signature(function).parameters.items():
        kind = parameter.annotation
        plain = typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind
        if parameter.default is not inspect.Parameter.empty:
            shown = _in_help(plain, parameter.default)
            if plain is not kind and "metavar" in shown:  # a positional one that may be left out
                shown["metavar"] = f"[{shown['metavar']}]"
            function.__annotations__[name] = Annotated[kind, tyro.conf.arg(**shown)]

    def parse(words: list[str]) -> None:
        _hint(words, list(inspect.signature(function).parameters))
        tyro.cli(
            function,
            prog=f"nvil {function.__name__}",
            args=words,
            config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
        )

    return parse


def _sweep(words: list[str]) -> None:
    from nvil.cli.sweep import sweep

    sweep(words)


def _compare(words: list[str]) -> None:
    from nvil.cli.compare import compare

    compare(words)


PARSED: dict[str, Callable[[list[str]], None]] = {
    "train": train,
    "sweep": _sweep,
    "compare": _compare,
    **{
        each.__name__: _parsed(each)
        for each in (resume, evaluate, sample, encode, topics, index, search, report, reproduce, bench, data)
    },
}
