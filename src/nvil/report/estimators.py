"""What `nvil compare` found, as one page and as a table of text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nvil.report import figures
from nvil.report.page import ESTIMATOR_NAMES, MODEL_NAMES
from nvil.report.parts import Part, facts, number, render, svg, table, with_error
from nvil.report.summary import printable
from nvil.runs import storage

Found = Mapping[str, Any]
"""What `nvil.runs.comparison.compare` returns."""


def write_estimators(found: Found, out: Path) -> Path:
    """Write the page."""
    storage.save_text(out, estimators_page(found))
    return out


def estimators_page(found: Found) -> str:
    """The page as HTML."""
    every = found["estimators"]
    model = f"{MODEL_NAMES[found['model']]} {'-'.join(map(str, found['hidden']))}"
    left_out = [(name, reason) for name, reason in found["left_out"].items()]
    return render(
        title=f"{len(every)} estimators compared",
        subtitle=f"{model} on {printable(Path(found['data']).name)}, {_time(found['seconds'])} of training each",
        cards=[],
        notes=[],
        sections=[
            ("The bound in the same time", [_curves(found, "seconds"), _curves(found, "updates")]),
            ("What they came to", [_results(found)]),
            ("Noise of the gradients", [_noise(found)]),
            ("Left out", [Part(facts(left_out), wide=True)] if left_out else []),
        ],
    )


def text_table(found: Found) -> str:
    """The results as lines of text, the best estimate of log P(x) first."""
    header = ("", "samples", "batch", "updates", "seconds", "bound", "log P(x)", "variance, Q", "signal/noise, Q")
    rows: list[tuple[str, ...]] = [header]
    for each in _by_likelihood(found):
        gradient = each["gradient"]
        rows.append(
            (
                each["name"],
                f"{each['samples']}",
                f"{each['batch_size']}",
                f"{each['updates']:,}",
                f"{each['seconds']:.1f}",
                f"{each['bound']:.2f}",
                f"{each['log_likelihood']:.2f}",
                f"{gradient['variance']['inference']:.3g}",
                _ratio(gradient["signal_to_noise"]["inference"]),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _by_likelihood(found: Found) -> list[Any]:
    return sorted(found["estimators"], key=lambda each: -each["log_likelihood"])


def _curves(found: Found, over: str) -> Part:
    every = found["estimators"]
    ends = "; ".join(f"{each['name']} ends at {number(each['curve']['bound'][-1])}" for each in every)
    size = (4.8, 3.0 + 0.17 * max(0, len(every) - 7))
    body = svg(lambda axes: figures.estimator_curves(every, axes, over), f"Bounds against {over}: {ends}.", size)
    if over == "seconds":
        caption = (
            "Higher is better. All are judged by the bound of one sample on the same "
            f"{found['validation_cases']:,} validation cases, whichever objective they climb; compiling and "
            "validation are not in the time."
        )
    else:
        caption = (
            f"An update computes log P for {found['latents_per_update']} samples of the latents, whatever the "
            "estimator: with K samples per case the minibatch has 1/K of the cases."
        )
    return Part(body, caption)


def _results(found: Found) -> Part:
    header = ["Estimator", "Samples per case", "Cases per update", "Updates", "Seconds", "Bound", "log P(x)"]
    rows = [
        [
            ESTIMATOR_NAMES[each["name"]],
            f"{each['samples']}",
            f"{each['batch_size']}",
            f"{each['updates']:,}",
            f"{each['seconds']:,.1f}",
            with_error(each["bound"], each["bound_se"]),
            number(each["log_likelihood"]),
        ]
        for each in _by_likelihood(found)
    ]
    caption = (
        f"In nats per case, of the parameters that each run kept, on {found['likelihood_cases']:,} of the validation "
        "cases: the bound of one sample ± one standard error for "
        f"other cases, and the importance-weighted estimate of log P(x) from {found['likelihood_samples']:,} samples, "
        "which does not favour those who climb the bound of one sample. Samples of ARM and DisARM are antithetic pairs."
    )
    return Part(table(header, rows, numbers=range(1, len(header)), whole=(0,), sortable=True), caption, wide=True)


def _noise(found: Found) -> Part:
    header = ["Estimator", "Variance, Q", "from latents", "Signal to noise, Q", "Variance, P", "Signal to noise, P"]
    rows = []
    for each in found["estimators"]:
        variance, latents, ratio = (each["gradient"][name] for name in ("variance", "from_latents", "signal_to_noise"))
        rows.append(
            [
                ESTIMATOR_NAMES[each["name"]],
                f"{variance['inference']:.3g}",
                f"{min(1, latents['inference'] / variance['inference']):.0%}" if variance["inference"] else "",
                _ratio(ratio["inference"]),
                f"{variance['model']:.3g}",
                _ratio(ratio["model"]),
            ]
        )
    caption = (
        f"Of one update's gradient per case, at the parameters that {found['fixed_point']} kept, with each estimator's "
        "own baselines fitted to these first: the variance, summed over the entries, over minibatches and samples of "
        "the latents; the share of it that sampling the latents alone makes; and the norm of the mean gradient over "
        "the standard deviation. NVIL divides its gradient of Q by the deviation of the signal, and some climb other "
        "objectives: the ratio compares across these, the variance does not."
    )
    return Part(table(header, rows, numbers=range(1, len(header)), whole=(0,), sortable=True), caption, wide=True)


def _ratio(value: float | None) -> str:
    return "no noise" if value is None else f"{value:.3f}"


def _time(seconds: float) -> str:
    return f"{seconds / 60:g} minutes" if seconds >= 120 else f"{seconds:g} seconds"
