"""How the cost of an update grows with the width, depth, minibatch, samples, vocabulary and corpus, each fitted.

    python benchmarks/growth.py

SGD; binary models have 784 visible units, documents 75 distinct words each, of 2000 where nothing else is said. Times
are of the processor, the fastest of several rounds. A fit a + b n is by least squares on relative errors, of which the
largest is shown. Prints the table of docs/performance.md and draws docs/growth.png.
"""

from timing import bits, turns, update

# isort: split

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import nvil
from layer_cost import documents
from nvil import estimators, optimisers

ROUNDS = 7


def main() -> None:
    images = bits(10_000, 784)

    def sbn(hidden: Sequence[int], batch: int = 20, samples: int = 1) -> Callable[[], object]:
        estimator = estimators.nvil(samples=samples)
        return update(nvil.sbn(784, hidden), images, batch, optimisers.sgd(), estimator)[0]

    def of_documents(words: int, thousands: int = 2) -> Callable[[], object]:
        rows = documents(words, thousands // 2)
        return update(nvil.document_model(rows, (50,)), rows, 20, optimisers.sgd(3e-5), estimators.nvil())[0]

    axes: dict[str, tuple[Sequence[int], Callable[[int], Callable[[], object]]]] = {
        "latents, one layer": ((50, 100, 200, 400, 800), lambda n: sbn((n,))),
        "layers of 200": ((1, 2, 3, 4, 5), lambda n: sbn((200,) * n)),
        "cases in a minibatch": ((10, 20, 50, 100, 200, 400), lambda n: sbn((200,), batch=n)),
        "samples per case": ((1, 2, 4, 8), lambda n: sbn((200,), samples=n)),
        "words of documents": ((1000, 2000, 5000, 10_000, 20_000), of_documents),
        "thousands of documents": ((2, 10, 50, 250), lambda n: of_documents(2000, n)),
    }
    print("| n | from | to | update: from | to | fit | off by at most |\n|---|---:|---:|---:|---:|---|---:|")
    figure = Figure(figsize=(9, 5), layout="constrained")
    for (name, (sizes, job)), place in zip(axes.items(), figure.subplots(2, 3).ravel(), strict=True):
        costs = np.array([min(own) for own in turns(*map(job, sizes), rounds=ROUNDS, clock=time.process_time)])
        draw(place, name, np.array(sizes), costs)
    figure.savefig(Path(__file__).parent.parent / "docs" / "growth.png", dpi=110)


def draw(place: Any, name: str, sizes: np.ndarray, costs: np.ndarray) -> None:
    """One row of the table, and one part of the picture."""
    terms = np.stack([np.ones(len(sizes)), sizes], axis=1)
    (fixed, each), *_ = np.linalg.lstsq(terms / costs[:, None], np.ones(len(sizes)), rcond=None)
    fitted = fixed + each * sizes
    off = np.max(np.abs(fitted / costs - 1))
    first, last = sizes[0], sizes[-1]
    print(
        f"| {name} | {first:,} | {last:,} | {costs[0]:.0f} us | {costs[-1]:.0f} us "
        f"| {fixed:.0f} {'-' if each < 0 else '+'} {abs(each):.3g} n us | {off:.0%} |",
        flush=True,
    )
    place.plot(sizes, fitted / 1000, color="0.6", linewidth=1)
    place.plot(sizes, costs / 1000, "o", markersize=4)
    place.set(title=name, xlim=(0, None), ylim=(0, 1.1 * costs.max() / 1000), xlabel="n", ylabel="ms per update")
    place.grid(alpha=0.3)


if __name__ == "__main__":
    main()
