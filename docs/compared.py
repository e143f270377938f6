"""Write what `nvil compare` found on binarized MNIST to docs/estimators.md, and draw docs/compared.png.

    python docs/compared.py runs/compare-sbn-200 runs/compare-3-layer

The page has the commands that make these folders.
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt

from nvil.report import figures
from nvil.report.page import ESTIMATOR_NAMES
from nvil.report.parts import number

PAGE = Path(__file__).with_name("estimators.md")
HEADER = "| | samples | cases per update | updates | seconds | bound | log P(x) | signal to noise, Q |"


def table(found) -> str:
    """The best estimate of log P(x) first."""
    lines = [HEADER, "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for each in sorted(found["estimators"], key=lambda each: -each["log_likelihood"]):
        ratio = each["gradient"]["signal_to_noise"]["inference"]
        samples = f"{each['samples']} pair" if each["name"] in ("arm", "disarm") else each["samples"]
        lines.append(
            f"| {ESTIMATOR_NAMES[each['name']]} | {samples} | {each['batch_size']} | {each['updates']:,} | "
            f"{each['seconds']:.0f} | {number(each['bound'], 1)} | {number(each['log_likelihood'], 1)} | {ratio:.3f} |"
        )
    return "\n".join([*lines, *(f"\nLeft out: {name}. {why}" for name, why in found["left_out"].items())])


def main() -> None:
    page = PAGE.read_text()
    for name, folder in zip(("compared", "compared deep"), sys.argv[1:], strict=True):
        found = json.loads((Path(folder) / "comparison.json").read_text())
        begin, end = f"<!-- {name}, made by compared.py -->\n\n", f"\n\n<!-- end of {name} -->"
        before, rest = page.split(begin)
        page = before + begin + table(found) + end + rest.split(end)[1]
        if name == "compared":
            figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
            for own, over in zip(axes, ("seconds", "updates"), strict=True):
                figures.estimator_curves(found["estimators"], own, over)
            figure.savefig(PAGE.with_name("compared.png"), dpi=110)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
