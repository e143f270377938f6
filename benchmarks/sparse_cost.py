"""What an update of a document model costs with dense and with sparse minibatches, beside its dense products.

    python benchmarks/sparse_cost.py

SBN 50, all three variance reduction techniques; documents of 75 distinct words. Times are of the processor, and ratios
are medians over rounds that take turns, so that other work on the same core counts for less.
"""

from timing import products, turns, update, weight_shapes

# isort: split

import statistics
import time

import nvil
from layer_cost import documents
from nvil import estimators, optimisers
from nvil.data import SparseRows


class Dense(SparseRows):
    """Sparse rows whose minibatches are made dense, whoever draws them."""

    def sparse(self) -> "Dense":
        return self


def main() -> None:
    print("| words | batch | optimiser | products | dense | sparse | dense / products | sparse / products |")
    print("|---|---|---|---|---|---|---|---|")
    for words in (2000, 10_000):
        rows = documents(words)
        dense = Dense(rows.values, rows.columns, rows.begin, rows.end, rows.width, rows.usual)
        pair = nvil.document_model(rows, (50,))
        for batch, name in ((20, "SGD"), (100, "SGD"), (400, "SGD"), (20, "Adam")):
            optimiser = {"SGD": optimisers.sgd(3e-6), "Adam": optimisers.adam()}[name]
            jobs = [update(pair, data, batch, optimiser, estimators.nvil())[0] for data in (dense, rows)]
            times = turns(products(weight_shapes(pair), batch), *jobs, rounds=5, clock=time.process_time)
            cells = [f"{min(own):.0f} us" for own in times]
            cells += [
                f"{statistics.median(a / b for a, b in zip(own, times[0], strict=True)):.2f}" for own in times[1:]
            ]
            print(f"| {words} | {batch} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
