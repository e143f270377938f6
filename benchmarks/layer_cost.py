"""What one update of each of the paper's models costs, and what each way of sampling autoregressive layers.

    python benchmarks/layer_cost.py

Columns as in `update_cost.py`; SGD throughout, batch 20. The second table times the plain loop over units, blocks of
them (both by XLA), and our function in C.
"""

from timing import UPDATES, bits, fastest, products, update, weight_shapes

# isort: split

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

import nvil
from nvil import estimators, optimisers
from nvil.layers import sample_in_blocks, sample_in_order
from nvil.rows import as_rows


def documents(words: int, times: int = 1):
    """Zipfian counts, 75 distinct words per document: 2000 documents, so many times over."""
    random = np.random.default_rng(0)
    rate = 1 / np.arange(1, words + 1)
    columns = np.concatenate([random.choice(words, 75, replace=False, p=rate / rate.sum()) for _ in range(2000)])
    columns = np.tile(columns, times)
    indptr = np.arange(0, len(columns) + 1, 75)
    matrix = scipy.sparse.csr_array((np.ones(len(columns)), columns, indptr), shape=(2000 * times, words))
    return as_rows(matrix).on_device()


def plain_loop(margin, within):
    def step(j, carry):
        total, value = carry
        on = (total[:, j] > 0).astype(total.dtype)
        return total + on[:, None] * within[j][None, :], value.at[:, j].set(on)

    return jax.lax.fori_loop(0, margin.shape[1], step, (margin, jnp.zeros_like(margin)))[1]


def repeated(sample, margin, within):
    """`sample`, UPDATES times in one compiled loop."""

    @jax.jit
    def run(margin, within):
        return jax.lax.fori_loop(0, UPDATES, lambda i, total: total + sample(margin + total * 1e-9, within), margin * 0)

    return lambda: jax.block_until_ready(run(margin, within))


def main() -> None:
    pixels = bits(10_000, 784)
    news, reuters = documents(2000), documents(10_000)
    rows = {
        "SBN 200": (nvil.sbn(784, (200,)), pixels),
        "SBN 200, autoregressive Q": (nvil.sbn(784, (200,), inference="autoregressive"), pixels),
        "fDARN 200": (nvil.fdarn(784, (200,)), pixels),
        "fDARN 500": (nvil.fdarn(784, (500,)), pixels),
        "DARN 400": (nvil.darn(784, (400,)), pixels),
        "document SBN 50, 2000 words": (nvil.sbn(2000, (50,), lengths=(75,)), news),
        "document SBN 50, 10000 words": (nvil.sbn(10_000, (50,), lengths=(75,)), reuters),
    }
    print("| model | products | pass | update | / products | / (products + pass) | / SBN 200 |")
    print("|---|---|---|---|---|---|---|")
    reference = None
    for name, (pair, data) in rows.items():
        whole, alone = update(pair, data, 20, optimisers.sgd(), estimators.nvil())
        bare, own, full = fastest(products(weight_shapes(pair), 20), alone, whole, rounds=8)
        reference = reference or full
        print(
            f"| {name} | {bare:.0f} us | {own:.0f} us | {full:.0f} us | {full / bare:.2f} "
            f"| {full / (bare + own):.2f} | {full / reference:.2f} |",
            flush=True,
        )
    print("\n| units | batch | plain loop | in blocks | in C | loop / C |\n|---|---|---|---|---|---|")
    random = np.random.default_rng(0)
    for units in (200, 500):
        for batch in (20, 100):
            within = jnp.asarray(np.triu(random.normal(size=(units, units)) * 2 / np.sqrt(units), 1), float)
            margin = jnp.asarray(random.logistic(size=(batch, units)), float)
            ways = (plain_loop, sample_in_blocks, sample_in_order)
            plain, blocks, ours = fastest(*(repeated(sample, margin, within) for sample in ways), rounds=5)
            cells = f"{plain:.0f} us | {blocks:.0f} us | {ours:.0f} us | {plain / ours:.1f}"
            print(f"| {units} | {batch} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
