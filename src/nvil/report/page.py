"""The page: one HTML file that needs nothing else and no network; the tables of several runs sort by a small script."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from nvil.diagnostics import IN_USE
from nvil.errors import UsageError
from nvil.evaluation import DocumentEvaluation, Evaluation
from nvil.report import explore, figures
from nvil.report.parts import MINUS, Part, bag, facts, number, picture, raised, render, svg, table, titled, with_error
from nvil.report.summary import Summary, printable
from nvil.runs import storage
from nvil.runs.config import OWN_OPTIONS, Config
from nvil.runs.run import Run, made_with
from nvil.runs.sweep import MEASURES, Sweep, in_words
from nvil.topic_words import Topics

MOST_COMPARED = 12
"""Runs of a sweep on its page."""
MODEL_NAMES = {"sbn": "SBN", "fdarn": "fDARN", "darn": "DARN"}
ESTIMATOR_NAMES = {
    "nvil": "NVIL",
    "wake-sleep": "wake-sleep",
    "reinforce": "REINFORCE",
    "vimco": "VIMCO",
    "ovis": "OVIS",
    "reweighted-wake-sleep": "reweighted wake-sleep",
    "rloo": "REINFORCE with a leave-one-out baseline",
    "disarm": "DisARM",
    "arm": "ARM",
    "double-control-variates": "double control variates",
    "muprop": "MuProp",
    "rebar": "REBAR",
    "straight-through": "straight-through (biased)",
    "concrete": "concrete relaxation (biased)",
}
STEP_NAMES = {
    "InputDependentBaseline": "input-dependent baseline",
    "LeaveOneOut": "leave-one-out baseline",
    "RunningMean": "running mean",
    "VarianceNormalisation": "variance normalisation",
}
OTHERS = (
    "latent_bias",
    "baseline",
    "baseline_units",
    "order",
    "decay",
    "warm_up",
    "epsilon",
    "momentum",
    "weight_decay",
    "within_decay",
    "clip",
    "average",
)
"""Choices that are shown where they are not the default."""
SHOWN_TOPICS = 30


def write_report(
    run: Run,
    out: Path | None = None,
    *,
    dataset: Any = None,
    result: Evaluation | DocumentEvaluation | None = None,
    test: Any = None,
    labels: Sequence[Any] | None = None,
) -> Path:
    """Write the page of one run, by default `report.html` in its folder.

    `dataset` and `result` spare work if known; `test` are cases to evaluate on and to show, for a run whose data came
    from Python. `labels` are the classes of the test cases, to colour the map of their codes by, where the data does
    not say.
    """
    out = run.folder / "report.html" if out is None else out
    storage.save_text(out, report_page(Summary(run, dataset=dataset, result=result, test=test, labels=labels)))
    return out


def write_comparison(
    runs: Sequence[Run],
    out: Path,
    *,
    results: Sequence[Evaluation | DocumentEvaluation | None] | None = None,
    overview: Part | None = None,
    notes: Sequence[str] = (),
) -> Path:
    """Write the page of several runs: their curves on shared axes and their results in a table.

    `results` spare work if known, one for each run; `overview` and `notes` go before all else.
    """
    known = results or [None] * len(runs)
    summary: list[Summary] = []
    datasets: dict[Any, Any] = {}
    for run, result in zip(runs, known, strict=True):  # data that several share is read once
        data = None if run.config is None else (run.config.data, run.config.choices(), run.facts.fingerprint)
        summary.append(Summary(run, dataset=datasets.get(data), result=result))
        datasets[data] = None if data is None else summary[-1].dataset
    if len({each.name for each in summary}) < len(summary):  # then the folders they are in tell them apart
        for each in summary:
            each.name = printable(str(each.run.folder))
    storage.save_text(out, comparison_page(summary, overview=overview, notes=notes))
    return out


def write_sweep(sweep: Sweep, out: Path | None = None) -> Path:
    """Write the page of a sweep, by default `comparison.html` in its folder: its table, and its runs compared.

    Of many runs, those with the best validation bounds are compared.
    """
    points = {point.name: point for point in sweep.points()}
    every = [row for row in sweep.runs() if row["state"] == "done"]
    if not every:
        raise UsageError(f"No run of {sweep.folder} is done yet.")
    every.sort(key=lambda row: math.inf if row["validation_bound"] is None else -row["validation_bound"])
    best = {row["run"] for row in every[:MOST_COMPARED]}
    compared = [points[name] for name in points if name in best]
    notes = [f"{row['run']} {row['state']}." for row in sweep.runs() if row["state"] != "done"]
    if len(every) > len(compared):
        notes.insert(0, f"Of {len(every)} runs, the {len(compared)} with the best validation bounds are compared.")
    return write_comparison(
        [Run.open(sweep.folder / point.name) for point in compared],
        sweep.folder / "comparison.html" if out is None else out,
        results=[sweep.evaluation(point) for point in compared],
        overview=_sweep_table(sweep),
        notes=notes,
    )


def _sweep_table(sweep: Sweep) -> Part:
    lines = sweep.table()
    names = [name for name in MEASURES if any(row[name] is not None for row in lines)]
    axes = [name for name in sweep.grid if name != "seed"]
    header = [*(name.replace("_", " ") for name in axes), "runs", *(name.replace("_", " ") for name in names)]
    rows = [
        [
            *(printable(in_words(row[name])) for name in axes),
            f"{row['done']}" if row["done"] == row["runs"] else f"{row['done']} of {row['runs']}",
            *("" if row[name] is None else with_error(row[name], row[f"{name}_se"]) for name in names),
        ]
        for row in lines
    ]
    caption = "Mean over seeds ± its standard error; bounds in nats per case, of which higher is better."
    return Part(table(header, rows, numbers=range(len(axes), len(header)), sortable=True), caption, wide=True)


def report_page(summary: Summary) -> str:
    """The page of one run as HTML."""
    learned = (
        (_samples(summary), "Samples"),
        (_reconstructions(summary), "Reconstructions"),
        (_latents(summary), "What the latents stand for"),
        (_units(summary), "Units in use"),
    )
    around = (
        (explore.walks(summary), "From one case to another"),
        (explore.neighbours(summary), "Nearest by code"),
        (explore.code_map(summary), "A map of the codes"),
    )
    return render(
        title=summary.name,
        subtitle=f"{_long_name(summary.run)} trained by {_estimator_name(summary.run)} on {_data_name(summary.run)}",
        cards=_cards(summary),
        notes=_notes(summary),
        sections=[
            ("Training", [_description(summary), *_curve(summary)]),
            ("What it learned", [titled(part, title) for part, title in learned if part]),
            ("The codes of test cases", [titled(part, title) for part, title in around if part]),
            ("Diagnostics", _diagnostics(summary)),
            ("How to make it again", [_command(summary), _versions([summary])]),
        ],
    )


def comparison_page(summary: Sequence[Summary], *, overview: Part | None = None, notes: Sequence[str] = ()) -> str:
    """The page of several runs as HTML."""
    notes = [*notes, *(f"{each.name}: {note}" for each in summary for note in _notes(each))]
    if len({(each.run.facts.fingerprint, each.run.facts.context) for each in summary}) > 1:
        notes.insert(0, "These runs were not trained on the same data: their bounds cannot be compared.")
    samples = [(_samples(each, pictures=30, documents=3), each.name) for each in summary]
    drawn = [titled(part, name) for part, name in samples if part]
    # One caption, of the last, where all are alike.
    drawn = [
        dataclasses.replace(part, caption="") if part.caption == after.caption else part
        for part, after in itertools.pairwise(drawn)
    ] + drawn[-1:]
    data = sorted({_data_name(each.run) for each in summary})
    return render(
        title=f"{len(summary)} runs compared",
        subtitle=f"{', '.join(each.name for each in summary)} on {', '.join(data)}",
        cards=[],
        notes=notes,
        sections=[
            ("The sweep", [overview] if overview else []),
            ("The bound during training", _curves(summary)),
            ("Results", [_results(summary)]),
            ("What differs", [_differences(summary)]),
            ("Samples", drawn),
            (
                "How to make them again",
                [titled(_command(each), each.name) for each in summary] + [_versions(summary)],
            ),
        ],
    )


def _cards(summary: Summary) -> list[tuple[str, str, str]]:
    """The results in short: label, value, and a note on what it is."""
    cards = []
    result, without = summary.result, summary.without_latents
    if summary.perplexities is not None:
        perplexities = summary.perplexities.perplexity, summary.perplexities.corpus_perplexity
        cards.append(_perplexity_card("Test perplexity", perplexities, "lower is better"))
    if isinstance(without, tuple):
        cards.append(_perplexity_card("Unigram perplexity", without, "without latents"))
    if result is None:
        cards.append(("Test bound", "not known", printable(summary.why_no_result)))
    else:
        note = f"nats per case ± standard error; {result.cases:,} test cases, {result.samples} samples of h each"
        cards.append(("Test bound", with_error(result.bound, result.bound_se), note))
    if isinstance(without, float):
        note = "nats per case, of a factorial model fitted to these very cases"
        if summary.run.numbers:
            note = "nats per case, of independent Gaussians fitted to the training cases"
        note += ", which sees no context" if summary.context else ""
        cards.append(("Without latents" if summary.run.numbers else "Best without latents", number(without), note))
    if summary.best is not None:
        note = f"at update {summary.best[0]:,}, whose parameters are kept"
        if summary.kept is not None and summary.kept < summary.best[0]:
            note = f"at update {summary.best[0]:,}; the parameters on this page are those kept at {summary.kept:,}"
        many = 1 if summary.run.config is None else summary.run.config.objective_samples
        note += f"; the bound of {many} samples, above that of one" if many > 1 else ""
        cards.append(("Best validation bound", with_error(summary.best[1], summary.best_se), note))
    if summary.unit_kl is not None:
        used = sum(int(np.sum(layer > IN_USE)) for layer in summary.unit_kl)
        units = sum(len(layer) for layer in summary.unit_kl)
        cards.append(("Units in use", f"{used:,} of {units:,}", f"latents that carry more than {IN_USE} nats"))
    return cards


def _perplexity_card(label: str, values: tuple[float, float], note: str) -> tuple[str, str, str]:
    per_word = f"{number(values[1], 1)} per word, where long ones count for more"
    return label, number(values[0], 1), f"per document, where each counts alike; {per_word}; {note}"


def _notes(summary: Summary) -> list[str]:
    """What the reader should know before believing the page."""
    notes = []
    if summary.updates_asked and 0 < summary.updates_done < summary.updates_asked:
        notes.append(f"The run is at update {summary.updates_done:,} of {summary.updates_asked:,}.")
    if not summary.updates_done:
        notes.append("The run has no report yet.")
    if summary.unusable_lines:
        lines = "1 line" if summary.unusable_lines == 1 else f"{summary.unusable_lines:,} lines"
        notes.append(f"{lines} of metrics.jsonl could not be used and are left out.")
    if summary.why_no_data:
        notes.append(f"The data is not available, so the parts that need it are left out. {summary.why_no_data}")
    if summary.why_no_parameters:
        notes.append(
            f"The parameters are not available, so the parts that need them are left out. {summary.why_no_parameters}"
        )
    return [printable(note) for note in notes]


def _description(summary: Summary) -> Part:
    run, config = summary.run, summary.run.config
    kind, each = "words" if run.documents else "variables", run.facts.visible_categories or 1
    sizes = f"cases of {run.facts.visible // each:,} {kind}"
    sizes += f", the first {run.facts.context // each:,} of them given" if run.facts.context else ""
    if summary.dataset is not None:
        train, validation, test = summary.dataset.sizes(run.plan.validation or 0)
        sizes = f"{train:,} training, {validation:,} validation and {test:,} test {sizes}"
        sizes += f" ({summary.dataset.note})" if summary.dataset.note else ""
    rows = [("Model", _long_name(run)), ("Layers", f"{summary.layers}, from the data up")]
    if config is not None:
        many = config.objective_samples > 1
        samples = "1 sample" if config.samples == 1 else f"{config.samples} samples"
        left_out = f", without {', '.join(config.without)}" if config.without else ""
        rate, ratio = config.learning_rate or 0.0, config.inference_ratio or 0.0
        schedule = "" if config.schedule == "constant" else f", {config.schedule} to {config.final_rate:g}"
        rows += [
            ("Inference network", f"{config.inference} within its layers"),
            *([("Latents", ", ".join(config.latents))] if config.latents != Config.latents else []),
            ("Estimator", f"{_estimator_name(run)}, {samples} of the latents per case{left_out}"),
            *([("Objective", f"the bound of {samples}, of minibatches and in validation")] if many else []),
            ("Optimiser", f"{config.optimiser}, batch size {config.batch_size}, seed {config.seed}"),
            ("Learning rate", f"{rate:g} for the model, {rate * ratio:g} for the inference network{schedule}"),
        ]
        others = [f"{name} {' '.join(values)}" for name, values in config.options(all=False) if name in OTHERS]
        rows += [("Other choices", ", ".join(others).replace("_", " "))] if others else []
    elif run.own is not None:
        rows += [
            ("Estimator", run.own.estimator),
            ("Batch size", f"{run.own.batch_size}, seed {run.plan.seed}"),
        ]
    rows += [
        ("Updates", f"{summary.updates_done:,}{f' of {asked:,}' if (asked := summary.updates_asked) else ''}"),
        ("Data", f"{_data_name(run)}: {sizes}"),
        ("Data fingerprint", run.facts.fingerprint),
    ]
    return Part(facts(rows))


def _curve(summary: Summary) -> list[Part]:
    bounds = summary.series("bound")
    bounds = bounds[np.isfinite(bounds)]
    if not len(bounds):
        return []
    alt = (
        f"The bound of minibatches goes from {number(bounds[0])} to {number(bounds[-1])} "
        f"in {summary.updates_done:,} updates."
    )
    caption = "Higher is better: the bound is at most the log-probability, in nats, that the model gives a case"
    if summary.best is None:
        caption += "; this run held no validation cases out, and its last parameters are kept."
    else:
        alt += f" The best validation bound is {number(summary.best[1])}, at update {summary.best[0]:,}."
        caption += ". The ring marks the parameters that are kept; where validation falls and minibatches still rise, "
        caption += "the model overfits. The band is the standard error of the validation bound: how far it may be from "
        caption += "that of all such cases."
    if summary.run.documents and summary.best is not None:
        # The bound of a document grows with its length: few validation documents are far from the minibatches.
        names = ("validation_bound", "bound")
        plots = [svg(lambda axes, name=name: figures.curve([summary], axes, name), alt, (4.6, 2.1)) for name in names]
        return [Part(Markup("\n").join(plots), caption)]
    return [Part(svg(lambda axes: figures.curve([summary], axes), alt, (4.6, 3.0)), caption)]


def _curves(summary: Sequence[Summary]) -> list[Part]:
    drawn = [each for each in summary if np.any(np.isfinite(each.series("bound")))]
    if not drawn:
        return []
    ends = "; ".join(f"{each.name} ends at {number(each.series('bound')[-1])}" for each in drawn)
    alt = f"Bounds of {len(drawn)} runs: {ends}."
    room = 0.17 * max(0, len(drawn) - 7)  # for the names
    # Letters keep their size when drawn for a wide and for a narrow window; the page shows one of the two.
    sizes = {"desk": (8.4, 3.4 + room), "phone": (4.8, 3.0 + room)}
    plots = [
        Markup('<div class="{}">{}</div>').format(window, svg(lambda axes: figures.curve(drawn, axes), alt, size))
        for window, size in sizes.items()
    ]
    body = Markup("\n").join(plots)
    caption = "Higher is better, and a line that rises further to the left learns faster"
    rings = "; rings mark the parameters that each run kept." if all(each.best for each in drawn) else "."
    return [Part(body, caption + rings, wide=True)]


def _samples(summary: Summary, *, pictures: int = 100, documents: int = 8) -> Part | None:
    if summary.samples is None:
        return None
    x, mean = summary.samples
    if summary.run.documents:
        caption = (
            "Each row is a document that the model made up: the words that its sampled latents raise most, which "
            "should belong together, and the most telling of the words then drawn, with their counts."
        )
        rows = [[raised(summary, mean[i]), bag(summary, x[i])] for i in range(documents)]
        return Part(table(["What sampled latents say", "Words of a sampled document"], rows), caption, wide=True)
    if summary.run.facts.image is not None:
        caption = (
            "Each picture is a sample: its pixels are drawn one after another, given sampled latents."
            if summary.as_drawn
            else "Each picture is a sample: the darker a pixel, the likelier it is on given the sampled latents."
        )
        if summary.context:
            caption += " Each is given the context of a test case."
        shown = mean[:pictures]
        return Part(picture(shown, summary.run.facts.image, f"{len(shown)} samples in a grid."), caption)
    if summary.run.numbers:
        header = summary.header(min(x.shape[1], 12))
        rows = [[f"{value:.3g}" for value in case[: len(header)]] for case in x[:10]]
        caption = "Each row is a sample, each cell a variable."
        return Part(table(header, rows, numbers=range(len(header))), caption, wide=summary.names is not None)
    if summary.center is None:
        return None  # there is nothing to hold samples against
    point = "variable" if summary.run.facts.visible_categories is None else "category of a variable"
    alt = f"Share of ones in the training data against the share in samples, a point for each {point}."
    caption = f"Each point is a {point}: on the line, samples have it on as often as the training data does."
    return Part(svg(lambda axes: figures.marginals(summary, axes), alt, (4.4, 3.0)), caption)


def _reconstructions(summary: Summary) -> Part | None:
    cases, means = summary.cases, summary.reconstructions
    if means is None or cases is None:
        return None
    if summary.run.documents:
        rows = [[bag(summary, case), raised(summary, mean)] for case, mean in zip(cases[:8], means[:8], strict=True)]
        caption = (
            "Left a test document, its most telling words first; right the words that its latents, as the inference "
            "network drew them, raise most over their usual share: both should be about the same things."
        )
        return Part(table(["Words of a test document", "What its latents say"], rows), caption, wide=True)
    if summary.run.facts.image is not None:
        height, width = summary.run.facts.image
        shown = figures.paired_pictures(summary)
        assert shown is not None
        caption = (
            "Above a test case, below what the model makes of the latents that the inference network drew for it: the "
            "more alike, the more the latents hold."
        )
        alt = f"{len(shown)} test cases, each above its reconstruction."
        return Part(picture(shown, (2 * height, width), alt), caption)
    if (each := summary.run.facts.visible_categories) is not None:
        return _reconstructed_categories(summary, cases[:10], means[:10], each)
    columns = min(summary.run.facts.visible, 12)
    form, what = ("{:.3g} → {:.3g}", "mean") if summary.run.numbers else ("{:.0f} → {:.2f}", "probability of being on")
    rows = [
        [form.format(value, share) for value, share in zip(case[:columns], mean[:columns], strict=True)]
        for case, mean in zip(cases[:10], means[:10], strict=True)
    ]
    caption = (
        f"Each row is a test case, each cell one of its variables: its value, and its {what} given the latents that "
        "the inference network drew."
    )
    return Part(table(summary.header(columns), rows, numbers=range(columns)), caption, wide=summary.names is not None)


def _reconstructed_categories(summary: Summary, cases: np.ndarray, means: np.ndarray, categories: int) -> Part:
    one_hot, rates = (each.reshape(len(each), -1, categories)[:, :12] for each in (cases, means))
    of_own, likeliest = np.sum(one_hot * rates, axis=-1), rates.argmax(axis=-1)
    rows = [
        [f"{own} → {other} ({rate:.2f})" for own, other, rate in zip(*case, strict=True)]
        for case in zip(one_hot.argmax(axis=-1), likeliest, of_own, strict=True)
    ]
    caption = (
        "Each row is a test case, each cell one of its variables: its category, the likeliest one given the latents "
        "that the inference network drew, and the probability that its own then has."
    )
    columns = one_hot.shape[1]
    return Part(table(summary.header(columns), rows, numbers=range(columns)), caption, wide=summary.names is not None)


def _latents(summary: Summary) -> Part | None:
    weights = summary.weights
    if weights is None:
        return None
    order = "those that carry most first" if summary.unit_kl is not None else "those with the largest weights first"
    if summary.topics is not None:
        return _topics(summary.topics, order)
    each = summary.categories
    what, of_h1 = ("latent unit", "units of h1") if each == 1 else ("category of a latent", "categories of h1")
    when = "one up" if summary.gaussian else "on"
    if summary.run.documents:
        rows = []
        for unit, row in zip(summary.unit_order[:30].tolist(), weights[:30], strict=True):
            share = summary.usual * np.exp(row - row.max())
            share /= share.sum()
            ordered = [summary.vocabulary[i] for i in summary.raised_order(share)]
            rows.append([*_unit(summary, unit), " ".join(ordered[:8]), " ".join(ordered[:-6:-1])])
        caption = (
            f"Each row is a {what} and the words whose share changes most when it is {when}, all else as usual: read a "
            f"row as a topic ({len(rows)} of {len(weights)} {of_h1}, {order}; shares are compared by their square "
            "roots, so that rare words count too)."
        )
        header = ["Unit", "Nats", "Words it makes more likely", "Less likely"]
        return Part(table(header, rows, numbers=(0, 1), words=(2, 3)), caption, wide=True)
    if summary.run.facts.image is not None:
        shown = figures.weight_pictures(summary)
        assert shown is not None
        caption = (
            f"Each picture is a {what}: when it is {when}, dark pixels become more likely and light ones less, and mid "
            f"grey ones stay ({len(shown)} of {len(weights)} {of_h1}, {order}, each on a scale of its own; pixels "
            "that hardly ever change in the data are left grey)."
        )
        return Part(picture(shown, summary.run.facts.image, f"Weights of {len(shown)} units in a grid."), caption)
    if summary.names is not None:
        rows = [
            [*_unit(summary, unit), *_changed(summary, row)]
            for unit, row in zip(summary.unit_order[:30].tolist(), weights[:30], strict=True)
        ]
        over = "" if summary.run.facts.visible_categories is None else " over the mean of the variable's categories"
        caption = (
            f"Each row is a {what} and the variables that change most when it is {when}, at most six either way, with "
            f"what it adds to their logits{over}; less than a tenth of its largest weight is left out "
            f"({len(rows)} of {len(weights)} {of_h1}, {order})."
        )
        header = ["Unit", "Nats", "Makes more likely", "Less likely"]
        return Part(table(header, rows, numbers=(0, 1), words=(2, 3)), caption, wide=True)
    alt = f"Weights of {min(figures.ROWS, len(weights))} latent units to {summary.run.facts.visible} columns."
    columns = "columns of the data"
    if (categories := summary.run.facts.visible_categories) is not None:
        columns = f"columns, {categories} for the categories of each variable in turn,"
    caption = (
        f"Each row is a {what} of h1, {order}: when it is {when}, dark {columns} become more likely and light ones "
        "less."
    )
    return Part(svg(lambda axes: figures.weights(summary, axes), alt, (4.4, 3.0)), caption)


def _unit(summary: Summary, unit: int) -> list[str]:
    """A unit of the first layer, and the nats that it, or the latent of which it is a category, carries."""
    each = summary.categories
    kl = "" if summary.unit_kl is None else f"{summary.unit_kl[0][unit // each]:.2f}"
    return [f"{unit}" if each == 1 else f"{unit // each}: {unit % each}", kl]


def _changed(summary: Summary, weights: np.ndarray) -> list[str]:
    """The variables that a unit raises most, and those that it lowers most, each with its weight."""
    names, each = summary.names or (), summary.run.facts.visible_categories
    columns = names if each is None else [f"{name}={i}" for name in names for i in range(each)]
    named = columns[len(columns) - len(weights) :]  # without what they are modelled given
    order = np.argsort(-weights, kind="stable")
    least = 0.1 * np.abs(weights).max()
    most = [[i for i in order[:6] if weights[i] > least], [i for i in order[:-7:-1] if weights[i] < -least]]
    signed = [f"{weight:+.2g}".replace("-", MINUS) for weight in weights]
    return [", ".join(f"{named[i]} {signed[i]}" for i in some) for some in most]


def _topics(topics: Topics, order: str) -> Part:
    rows = []
    for topic in topics.topics[:SHOWN_TOPICS]:
        numbers = ["", "", ""]
        if topic.nats is not None:
            numbers = [f"{topic.nats:.2f}", f"{topic.prevalence:.1%}", number(topic.coherence or 0.0)]
        rows.append([f"{topic.unit}", *numbers, " ".join(topic.words), " ".join(topic.lowered[:5])])
    measured = ""
    if topics.coherence is not None:
        measured = (
            " On is the share of test documents that have it on. NPMI tells how much its words keep company in these, "
            f"from {MINUS}1 over 0, by chance, to 1: {number(topics.coherence)} on average over all units."
        )
    caption = (
        "Each row is a latent unit and the words whose share changes most when it is on, all else as usual: read a row "
        f"as a topic ({len(rows)} of {len(topics)} units of h1, {order}; shares are compared by their square roots, so "
        f"that rare words count too).{measured} Of the words of all units, {topics.diversity:.0%} are different."
    )
    header = ["Unit", "Nats", "On", "NPMI", "Words it makes more likely", "Less likely"]
    return Part(table(header, rows, numbers=(0, 1, 2, 3), words=(4, 5)), caption, wide=True)


def _units(summary: Summary) -> Part | None:
    if summary.unit_kl is None or summary.cases is None:
        return None
    alt = "; ".join(
        f"layer h{i}: {int(np.sum(layer > IN_USE))} of {len(layer)} units in use, {layer.sum():.1f} nats in all"
        for i, layer in enumerate(summary.unit_kl, 1)
    )
    config = summary.run.config
    upper = [np.mean(layer > IN_USE) for layer in summary.unit_kl[1:]]
    cold = config is not None and config.estimator in OWN_OPTIONS["warm_up"] and not config.warm_up
    lost = cold and len(upper) > 1 and any(share < 0.5 for share in upper)
    lost = ", or that upper layers lost them early, which --warm-up can prevent" if lost else ""
    caption = (
        f"How much each unit tells about a case, in nats (KL from Q to the prior, mean of {len(summary.cases)} test "
        f"cases), most first: units below {IN_USE} are not in use, and a long tail there means more units than the "
        f"data needs{lost}."
    )
    return Part(svg(lambda axes: figures.units(summary, axes), alt, (4.4, 3.0)), caption)


def _diagnostics(summary: Summary) -> list[Part]:
    parts = []

    def add(draw: Callable[[Summary, Axes], None], values: np.ndarray, title: str, caption: str) -> None:
        if np.any(np.isfinite(values)):
            last = values[np.any(np.isfinite(values), axis=1)][-1]
            alt = f"{title} over updates; last {', '.join(f'{value:.3g}' for value in last)}."
            parts.append(Part(svg(lambda axes: draw(summary, axes), alt, (4.4, 2.6)), caption, title=title))

    add(
        figures.signal_deviation,
        summary.layer_series("signal.deviation"),
        "Standard deviation of the learning signal",
        "Raw is the signal as it comes, used is what is left after baselines and normalisation: the further apart the "
        "two, the more noise is kept out of the inference network's gradient.",
    )
    add(
        figures.signal_mean,
        summary.layer_series("signal.mean"),
        "Mean of the learning signal",
        "After the baselines the mean should stay near zero: far from it every sample is reinforced, or discouraged, "
        "alike, which is noise.",
    )
    add(
        figures.gradient_norms,
        summary.network_series("gradient_norms"),
        "Norms of the gradients",
        "The size of each network's gradient at every report: sudden jumps announce trouble, against which a smaller "
        "learning rate helps.",
    )
    add(
        figures.gradient_snr,
        summary.network_series("diagnostics.gradient_snr"),
        "Signal-to-noise of the gradients",
        "The mean of each network's gradient over its standard deviation between minibatches: the lower, the more "
        "updates a step in the right direction takes.",
    )
    return parts + _removed(summary) + _speed(summary)


def _speed(summary: Summary) -> list[Part]:
    timing = summary.timing
    if not len(timing["updates"]):
        return []
    paces = timing["updates_per_second"]
    usual = f"{np.median(paces):,.{0 if np.median(paces) >= 10 else 1}f}"
    training = _duration(np.sum(np.diff(timing["updates"], prepend=0) / paces))
    alt = f"Updates per second from {paces.min():.3g} to {paces.max():.3g}, usually {usual}."
    whole = _duration(timing["seconds"].sum())
    caption = (
        f"Usually {usual} updates per second: {training} of training, and {whole} with compiling, "
        "validation and reports. Where it dips, the machine had other work."
    )
    return [Part(svg(lambda axes: figures.speed(summary, axes), alt, (4.4, 2.6)), caption, title="Training speed")]


def _duration(seconds: float) -> str:
    """As a person says it: 12 seconds, 3.5 minutes, 2.1 hours."""
    for size, unit in ((3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} seconds" if seconds < 10 else f"{seconds:.0f} seconds"


def _removed(summary: Summary) -> list[Part]:
    """The share of the signal's variance that each baseline removes, over the last quarter of the reports."""
    recent = slice(-max(1, len(summary.updates) // 4), None)
    prefix = "diagnostics.signal_variance."
    steps = [name.removeprefix(prefix) for name in summary.metrics if name.startswith(prefix)]  # in their order
    after = {
        step: _known_mean(summary.layer_series(f"{prefix}{step}")[recent])
        for step in steps
        if step not in ("RunningMean", "VarianceNormalisation")  # they shift and scale
    }
    if len(after) < 2 or next(iter(after)) != "raw" or not np.all(after["raw"] > 0):
        return []
    left = list(after.values())
    shares = {
        f"{STEP_NAMES.get(step, printable(step))} removes": (before - now) / left[0]
        for step, before, now in zip(list(after)[1:], left, left[1:], strict=False)
    }
    rows = [["raw variance (nats²)", *(f"{value:,.1f}" for value in left[0])]]
    for name, values in (shares | {"left": left[-1] / left[0]}).items():
        rows.append([name, *(f"{value:.1%}".replace("-", MINUS) for value in values)])
    header = ["Layer", *(f"h{i}" for i in range(1, 1 + len(left[0])))]
    caption = (
        "The share of the learning signal's variance between cases that a baseline takes away (mean of the last "
        "quarter of the reports): the less is left, the less noise in the gradient."
    )
    if "RunningMean" in steps:
        caption += " The running mean takes the signal's mean away, which the figures above show."
    return [Part(table(header, rows, numbers=range(1, len(header))), caption, title="What the baselines remove")]


def _known_mean(values: np.ndarray) -> np.ndarray:
    """The mean over reports of the values that are known; not a number where none is."""
    known = np.isfinite(values)
    counts = known.sum(axis=0)
    return np.where(counts > 0, np.where(known, values, 0).sum(axis=0) / np.maximum(counts, 1), np.nan)


def _results(summary: Sequence[Summary]) -> Part:
    documents = any(each.run.documents for each in summary)
    header = ["Run", "Model", "Layers", "Estimator", "Updates", "Best validation bound", "Test bound"]
    header += ["Test perplexity"] if documents else []
    rows = []
    for each in summary:
        row = [
            each.name,
            _model_name(each.run),
            each.layers,
            _estimator_name(each.run),
            f"{each.updates_done:,}",
            "none" if each.best is None else number(each.best[1]),
            "not known" if each.result is None else with_error(each.result.bound, each.result.bound_se),
        ]
        if documents:
            row.append("not known" if each.perplexities is None else number(each.perplexities.perplexity, 1))
        rows.append(row)
    sizes = {(each.result.cases, each.result.samples) for each in summary if each.result is not None}
    made = "".join(f"; {cases:,} test cases, {samples} samples of h each" for cases, samples in sorted(sizes))
    caption = f"Bounds in nats per case ± one standard error{made}: higher is better."
    body = table(header, rows, numbers=range(4, len(header)), whole=(0, 2, 3), sortable=True)
    return Part(body, caption, wide=True)


def _differences(summary: Sequence[Summary]) -> Part:
    settings = [each.run.choices() for each in summary]
    names = dict.fromkeys(name for setting in settings for name in setting)
    rows = [
        [name.replace("_", " "), *(_value(setting.get(name, "")) for setting in settings)]
        for name in names
        if len({repr(setting.get(name)) for setting in settings}) > 1
    ]
    if not rows:
        return Part(Markup("<p>Nothing: these runs have the same config.</p>"))
    header = ["Option", *(each.name for each in summary)]
    return Part(table(header, rows), "Every choice in which the runs differ; all others are the same.", wide=True)


def _command(summary: Summary) -> Part:
    """The command, an option never broken in two."""
    if summary.run.config is None:
        return Part(Markup("<p>This run was made from Python, by the code that calls nvil.Run.create.</p>"))
    words = [Markup("<span>{}</span>").format(printable(option)) for option in summary.run.command(all=True)]
    return Part(Markup("<pre><code>{}</code></pre>").format(Markup(" ").join(words)), wide=True)


def _versions(summary: Sequence[Summary]) -> Part:
    trained = sorted(
        {", ".join(_version(name, value) for name, value in each.run.made_with.items()) for each in summary}
    )
    here = ", ".join(_version(name, value) for name, value in made_with().items())
    return Part(
        facts([*(("Trained with", each or "not known") for each in trained), ("Page made with", here)]), wide=True
    )


def _version(name: str, value: str) -> str:
    """`value` of `name`, where a value does not speak for itself."""
    return value if name in ("platform", "device") else f"{'nvil' if name == 'version' else name} {value}"


def _value(value: Any) -> str:
    return " ".join(f"{each}" for each in value) if isinstance(value, tuple) else printable(f"{value}")


def _model_name(run: Run) -> str:
    if run.config is not None:
        return MODEL_NAMES[run.config.model]
    return "a model of its own" if run.pair is None else type(run.pair.model).__name__


def _long_name(run: Run) -> str:
    return "Sigmoid belief network" if run.config is not None and run.config.model == "sbn" else _model_name(run)


def _estimator_name(run: Run) -> str:
    if run.config is not None:
        return ESTIMATOR_NAMES[run.config.estimator]
    return "" if run.own is None else run.own.estimator.partition("(")[0]


def _data_name(run: Run) -> str:
    return "data from Python" if run.config is None else printable(Path(run.config.data).name)
