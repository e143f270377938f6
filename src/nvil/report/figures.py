"""The figures of a run, each drawn on a given matplotlib `Axes`.

!!! example

    >>> import nvil
    >>> from matplotlib.figure import Figure
    >>> from nvil.report import figures
    >>> def curves(*folders: str) -> Figure:
    ...     figure = Figure(layout="constrained")
    ...     figures.curve([nvil.Run.open(folder) for folder in folders], figure.subplots())
    ...     return figure

Where several figures of one run are drawn, give them `nvil.report.Summary(run)` in place of the run: what they share
is then worked out once.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from nvil import apply
from nvil.diagnostics import IN_USE
from nvil.errors import UsageError
from nvil.report import pictures
from nvil.report.summary import MOST_CLASSES, NETWORKS, Summary
from nvil.runs.run import Run

COLOURS = ("#1f5f9e", "#b8431f", "#3a7d32", "#7a4a9c", "#8a6d00", "#00767a")
STYLES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2, 1, 1, 1, 2)), (0, (2, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P")
POINTS = 400
ROWS = 40
SMALL = 9


def curve(runs: Sequence[Run | Summary], axes: Axes, name: str | None = None) -> None:
    """The bound over updates, the best validation bound marked.

    Of one run, the bound of its minibatches and of its validation cases, or only that which `name` says ("bound",
    "validation_bound"). Of several, the validation bound of each, or the minibatches' of all if one has none.
    """
    summary = [_summary(run) for run in runs]
    if not any(np.any(np.isfinite(each.series("bound"))) for each in summary):
        raise UsageError("There is no report to draw a curve of.")
    validated = all(each.best for each in summary)
    if len(summary) == 1:
        (only,) = summary
        names = {"bound": "minibatches", "validation_bound": "validation"}
        lines = [(only.updates, only.series(key), names[key]) for key in names if name in (None, key)]
        label = "bound (nats per case)"
    else:
        name = name or ("validation_bound" if validated else "bound")
        ends = told_apart([each.name for each in summary])
        lines = [(each.updates, each.series(name), end) for each, end in zip(summary, ends, strict=True)]
        label = f"{'validation bound' if name == 'validation_bound' else 'bound of minibatches'} (nats per case)"
    if len(summary) == 1 and name != "bound":
        # First, as the names of the lines stand where the limits put them.
        _error_band(axes, summary[0], COLOURS[[end for _, _, end in lines].index("validation")])
    _lines(axes, lines, markers=len(summary) > 1)
    for each in summary if validated and name != "bound" else ():
        assert each.best is not None
        axes.plot(*each.best, marker="o", markersize=9, fillstyle="none", color="black", markeredgewidth=1.2)
        if len(summary) == 1:
            text = f"ring: best {each.best[1]:.2f} at update {each.best[0]:,}"
            axes.set_title(text.replace("-", "\N{MINUS SIGN}"), loc="right", fontsize=SMALL)
    axes.set_ylabel(label)
    _over_updates(axes)


def estimator_curves(found: Sequence[Mapping[str, Any]], axes: Axes, over: str) -> None:
    """The bound of one sample against "updates" or "seconds", a line for every estimator of `nvil compare`.

    What lies far below where the lowest ends is not shown.
    """
    curves = [{name: np.array(values, float) for name, values in each["curve"].items()} for each in found]
    ends = np.array([curve["bound"][-1] for curve in curves])
    low, high = np.nanmin(ends), max(np.nanmax(curve["bound"]) for curve in curves)
    room = 0.05 * (high - low) + 0.1
    axes.set_ylim(low - 5 * room, high + room)
    lines = [(curve[over], curve["bound"], each["name"]) for curve, each in zip(curves, found, strict=True)]
    _lines(axes, lines, markers=True)
    axes.set_ylabel("validation bound (nats per case)")
    _over_updates(axes)
    axes.set_xlabel("updates" if over == "updates" else "seconds of training")


def _error_band(axes: Axes, summary: Summary, colour: str) -> None:
    """The validation bound give or take its standard error, which is about the cases, not about the updates."""
    bounds, errors = summary.series("validation_bound"), summary.series("validation_se")
    known = np.isfinite(bounds) & np.isfinite(errors)
    low, high = (bounds - errors)[known], (bounds + errors)[known]
    axes.fill_between(summary.updates[known], low, high, color=colour, alpha=0.15, linewidth=0)


def units(run: Run | Summary, axes: Axes) -> None:
    """The KL divergence of every latent unit from its prior, by rank, for each layer."""
    summary = _summary(run)
    kl = summary.unit_kl
    if kl is None:
        raise UsageError(summary.why_no_parameters or summary.why_no_data)
    lines = []
    for i, layer in enumerate(kl, 1):
        ranks = np.arange(1, len(layer) + 1, dtype=float)
        lines.append((ranks, -np.sort(-layer), f"h{i}: {np.sum(layer > IN_USE)} of {len(layer)} in use"))
    widest = max(len(layer) for layer in kl)
    _lines(axes, lines, legend=True, drawstyle="steps-mid")
    axes.axhline(IN_USE, color="0.5", linewidth=0.8)
    axes.set_xlim(0, widest + 1)
    axes.set_ylim(0, (1.1 + 0.1 * len(kl)) * max(IN_USE, *(layer.max() for layer in kl)))  # the legend is above
    axes.set_xlabel("unit, by rank")
    axes.set_ylabel("KL (nats)")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    _tidy(axes)


def signal_deviation(run: Run | Summary, axes: Axes) -> None:
    """The standard deviation of each learning signal, raw and as used."""
    summary = _summary(run)
    lines = []
    for kind, name in (("raw", "raw_deviation"), ("used", "deviation")):
        for i, values in enumerate(summary.layer_series(f"signal.{name}").T, 1):
            lines.append((summary.updates, values, f"h{i} {kind}"))
    _lines(axes, lines, logarithmic=True)
    axes.set_ylabel("standard deviation (nats)")
    _over_updates(axes)


def signal_mean(run: Run | Summary, axes: Axes) -> None:
    """The mean of the learning signal of every layer as it is used, which the baselines should keep near zero."""
    summary = _summary(run)
    means = summary.layer_series("signal.mean").T
    axes.axhline(0, color="0.5", linewidth=0.8)  # first, as the names of the lines stand where the limits put them
    _lines(axes, [(summary.updates, values, f"h{i}") for i, values in enumerate(means, 1)])
    axes.set_ylabel("mean of the used signal")
    _over_updates(axes)


def gradient_norms(run: Run | Summary, axes: Axes) -> None:
    """The norm of the gradient of each network."""
    _per_network(_summary(run), axes, "gradient_norms", "norm of the gradient", logarithmic=True)


def gradient_snr(run: Run | Summary, axes: Axes) -> None:
    """The signal-to-noise ratio of the gradient of each network."""
    _per_network(_summary(run), axes, "diagnostics.gradient_snr", "signal-to-noise ratio")


def speed(run: Run | Summary, axes: Axes) -> None:
    """Updates per second of training, validation and reports left out."""
    summary = _summary(run)
    if not len(summary.timing["updates"]):
        raise UsageError(f"{summary.run.folder} has no timing.jsonl to draw its speed from.")
    axes.set_ylim(0, 1.15 * summary.timing["updates_per_second"].max())
    _lines(axes, [(summary.timing["updates"], summary.timing["updates_per_second"], "")])
    axes.set_ylabel("updates per second")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
    _over_updates(axes)


def code_map(run: Run | Summary, axes: Axes) -> None:
    """Test cases on the plane of `Summary.code_map`, in the colours of their classes where these are known."""
    summary = _summary(run)
    places = summary.code_map
    if places is None:
        raise UsageError(summary.why_no_parameters or summary.why_no_data or "There are too few codes for a map.")
    classes = shown_classes(summary)
    labels = np.array(summary.labels if classes else [""] * len(places))
    for i, name in enumerate(classes or [""]):
        other = i + i // len(COLOURS)  # where colours come round again, markers do not
        x, y = places[labels == name].T
        axes.plot(
            x,
            y,
            linestyle="",
            color=COLOURS[i % len(COLOURS)],
            marker=MARKERS[other % len(MARKERS)],
            markersize=4,
            markeredgewidth=0,
            label=_plain(_shortened(name, 26)),
        )
    if classes:
        longest = max(map(len, classes))
        columns = 5 if longest <= 5 else 3 if longest <= 16 else 2
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "handletextpad": 0.1, "labelspacing": 0.3}
        axes.legend(frameon=False, fontsize=SMALL, markerscale=1.4, ncols=columns, **below)
    axes.set_axis_off()


def shown_classes(summary: Summary) -> list[str]:
    """The classes of the cases on a map, numbers in their order; none where they are too many to tell apart."""
    classes = sorted(set(summary.labels or ()), key=lambda name: (name.isdigit() and len(name), name))
    return classes if 1 < len(classes) <= MOST_CLASSES else []


def samples(run: Run | Summary, axes: Axes) -> None:
    """A grid of samples: the probability of every pixel given sampled latents, or for DARN sampled pixels."""
    summary = _summary(run)
    _picture(summary, axes, summary.samples and summary.samples[1], summary.run.facts.image)


def reconstructions(run: Run | Summary, axes: Axes) -> None:
    """Test cases, each above what the model makes of it."""
    summary = _summary(run)
    image = summary.run.facts.image
    _picture(summary, axes, paired_pictures(summary), image and (2 * image[0], image[1]))


def walks(run: Run | Summary, axes: Axes) -> None:
    """Test cases on the left and on the right, and what the model makes of the way from one to the other."""
    summary = _summary(run)
    _strips(summary, axes, walk_pictures(summary), last_apart=True)


def neighbours(run: Run | Summary, axes: Axes) -> None:
    """Test cases on the left, and beside each the training cases nearest to it by code."""
    summary = _summary(run)
    _strips(summary, axes, neighbour_pictures(summary))


def weights(run: Run | Summary, axes: Axes) -> None:
    """The weights of the first layer's units: a picture of each, or one row of a map where cases are not pictures."""
    summary = _summary(run)
    if summary.run.facts.image:
        _picture(summary, axes, weight_pictures(summary), summary.run.facts.image)
        return
    values = summary.weights
    if values is None:
        raise UsageError(summary.why_no_parameters)
    rows = values[:ROWS]
    limit = np.abs(rows).max() or 1.0
    drawn = axes.imshow(rows, cmap="gray_r", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    assert axes.figure is not None
    bar = axes.figure.colorbar(drawn, ax=axes)
    bar.set_label("weight", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    axes.set_xlabel("column of the data")
    axes.set_ylabel("latent unit, by rank")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.tick_params(labelsize=SMALL)


def marginals(run: Run | Summary, axes: Axes) -> None:
    """How often every variable is on in the training data and in samples from the model."""
    summary = _summary(run)
    if summary.pair is None or summary.samples is None:
        raise UsageError(summary.why_no_parameters)
    if summary.center is None:
        raise UsageError("The inference network has no `center`, the mean of the training data.")
    trained = summary.center[summary.context :]
    axes.plot([0, 1], [0, 1], color="0.5", linewidth=0.8)
    axes.plot(
        trained, summary.samples[1].mean(axis=0)[summary.context :], "o", color=COLOURS[0], markersize=5, alpha=0.7
    )
    axes.set_xlabel("on in the training data (share)")
    axes.set_ylabel("on in samples (share)")
    axes.set_xlim(-0.03, 1.03)
    axes.set_ylim(-0.03, 1.03)
    _tidy(axes)


def weight_pictures(summary: Summary, count: int = 100) -> np.ndarray | None:
    """The weights of the units that carry most, as ink in [0, 1]: a unit's largest is black, minus that is white."""
    if summary.weights is None:
        return None
    shown = summary.weights[:count]
    if summary.center is not None:
        # What the data says nothing about keeps its first weights, or drifts: noise that would draw the eye.
        mean = summary.center[summary.context :]
        shown = np.where(mean * (1 - mean) > 1e-3, shown, 0)
    limit = np.maximum(np.quantile(np.abs(shown), 0.99, axis=1, keepdims=True), 1e-9)
    ink = np.clip(0.5 + 0.5 * shown / limit, 0, 1)
    return np.pad(ink, ((0, 0), (summary.context, 0)), constant_values=0.5)  # a context may be part of the picture


def paired_pictures(summary: Summary, count: int = 50) -> np.ndarray | None:
    """Test cases with their reconstructions below, as one picture each."""
    if summary.reconstructions is None or summary.cases is None:
        return None
    shown = summary.reconstructions[:count]
    pixels = math.prod(summary.run.facts.image or shown.shape[1:])
    return np.concatenate([summary.cases[: len(shown), -pixels:], shown[:, -pixels:]], axis=1)


def walk_pictures(summary: Summary, count: int = 6, steps: int = 8) -> np.ndarray | None:
    """Rows of pictures: a test case, the steps of `nvil.walk` to another, and that other."""
    if summary.pair is None or summary.cases is None or summary.codes is None or len(summary.cases) < 2:
        return None
    last = summary.cases[1 : 2 * count : 2]
    first = summary.cases[::2][: len(last)]
    between = np.asarray(apply.walk(summary.pair, first, last, steps=steps), float)
    return np.concatenate([first[:, None], between, last[:, None]], axis=1)


def neighbour_pictures(summary: Summary, count: int = 6) -> np.ndarray | None:
    """Rows of pictures: a test case, and the training cases nearest to it by code, nearest first."""
    if summary.neighbours is None or summary.cases is None:
        return None
    near = summary.neighbours.cases[:count]
    return np.concatenate([summary.cases[: len(near), None], near], axis=1)


def _summary(run: Run | Summary) -> Summary:
    return run if isinstance(run, Summary) else Summary(run)


def _per_network(summary: Summary, axes: Axes, name: str, label: str, *, logarithmic: bool = False) -> None:
    lines = [(summary.updates, summary.series(f"{name}.{network}"), network) for network in NETWORKS]
    _lines(axes, lines, logarithmic=logarithmic)
    axes.set_ylabel(label)
    _over_updates(axes)


def _picture(summary: Summary, axes: Axes, cases: np.ndarray | None, image: tuple[int, int] | None) -> None:
    if image is None:
        raise UsageError(f"The cases of {summary.run.folder} are not pictures.")
    if cases is None:
        raise UsageError(summary.why_no_parameters or summary.why_no_data)
    axes.imshow(pictures.grid(cases, image), cmap="gray", vmin=0, vmax=1)
    axes.set_axis_off()


def _strips(summary: Summary, axes: Axes, rows: np.ndarray | None, *, last_apart: bool = False) -> None:
    """Rows of pictures, the first of each apart from the others, and the last too if asked to."""
    if rows is None or summary.run.facts.image is None:
        _picture(summary, axes, None, summary.run.facts.image)
        return
    columns = rows.shape[1]
    apart = (1, columns - 1) if last_apart else (1,)
    canvas = pictures.grid(rows.reshape(-1, rows.shape[-1]), summary.run.facts.image, columns=columns, apart=apart)
    axes.imshow(canvas, cmap="gray", vmin=0, vmax=1)
    axes.set_axis_off()


def _lines(
    axes: Axes,
    lines: Sequence[tuple[np.ndarray, np.ndarray, str]],
    *,
    markers: bool = False,
    legend: bool = False,
    logarithmic: bool = False,
    **style: Any,
) -> None:
    """Draw lines that differ in colour, dashes and, if wanted, markers; each has its name at its end or in a legend."""
    if logarithmic:
        axes.set_yscale("log")
    ends = []
    for i, (x, y, name) in enumerate(lines):
        other = i + i // len(COLOURS)  # where colours come round again, dashes and markers do not
        known = np.isfinite(y) & ((y > 0) | (not logarithmic))
        if not np.any(known):
            continue
        x, y = x[known], y[known]
        kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), POINTS)).round().astype(int))
        alone = len(kept) == 1  # a line of one point would not be seen
        (line,) = axes.plot(
            x[kept],
            y[kept],
            color=COLOURS[i % len(COLOURS)],
            linestyle=STYLES[other % len(STYLES)],
            linewidth=1.6,
            marker=MARKERS[other % len(MARKERS)] if markers or alone else None,
            markersize=4.5,
            markevery=(i % 4, max(1, len(kept) // 8)) if len(kept) > 8 else None,
            label=_plain(name),
            **style,
        )
        ends.append((float(y[-1]), name, line.get_color()))
    if logarithmic:
        low, high = axes.get_ylim()
        steps = (1, 1.5, 2, 3, 5, 7) if high < 10 * low else (1, 2, 5) if high < 1000 * low else (1,)
        axes.yaxis.set_major_locator(LogLocator(subs=steps, numticks=9))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    if legend:
        axes.legend(frameon=False, fontsize=SMALL, loc="upper right", handlelength=3)
    else:
        _label_ends(axes, ends)


def _label_ends(axes: Axes, ends: list[tuple[float, str, Any]]) -> None:
    """Names to the right of the lines' ends, moved apart where they would touch."""
    assert axes.figure is not None
    gap = 1.25 * SMALL * axes.figure.dpi / 72 / axes.bbox.height
    to_axes = axes.transScale + axes.transLimits
    x = axes.get_xlim()[1]
    places = sorted((float(to_axes.transform((x, y))[1]), name, colour) for y, name, colour in ends)
    heights = np.array([place for place, _, _ in places])
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + gap)
    heights -= np.mean(heights - [place for place, _, _ in places]) if len(heights) else 0.0
    for y, (_, name, colour) in zip(heights, places, strict=True):
        axes.annotate(
            _shortened(name),
            (1, float(y)),
            xycoords="axes fraction",
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=SMALL,
            annotation_clip=False,
            parse_math=False,
        )


def told_apart(names: Sequence[str]) -> list[str]:
    """Names of which some are too long for a figure without what all begin and end with, such as those of a sweep."""
    if all(_shortened(name) == name for name in names):
        return list(names)
    parts = [re.split(r"(?<=[=,/])", name) for name in names]
    for end, rest in ((0, slice(1, None)), (-1, slice(None, -1))):
        while min(map(len, parts)) > 1 and len({each[end] for each in parts}) == 1:
            parts = [each[rest] for each in parts]
    return ["".join(each).rstrip("=,/") for each in parts]


def _shortened(name: str, length: int = 18) -> str:
    return name if len(name) <= length else f"{name[: length - 1]}…"


def _plain(name: str) -> str:
    """A legend entry that is shown as it is: no formula, and not hidden for starting with an underscore."""
    return " " + name.replace("$", r"\$")


def _over_updates(axes: Axes) -> None:
    axes.set_xlabel("updates")
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
    _tidy(axes)


def short_count(value: float) -> str:
    """20000 as 20k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SMALL)
    axes.xaxis.label.set_fontsize(SMALL)
    axes.yaxis.label.set_fontsize(SMALL)
    axes.grid(axis="y", color="0.5", alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
