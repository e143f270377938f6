"""What one NVIL update costs, as a ratio to the bare matrix products that it cannot do without.

    python benchmarks/update_cost.py

All are timed in turn, in one process on one core, and the ratio is that of the fastest rounds:

- products: the update's matrix products alone, in NumPy (OpenBLAS), outputs preallocated;
- pass: optax's update of all parameters alone, compiled, for gradients that are there already;
- update: everything `nvil.fit` does in an update: drawing the minibatch, sampling, signals, gradients, optimiser.
"""

from timing import bits, fastest, products, update, weight_shapes

# isort: split

import nvil
from nvil import estimators, optimisers


def main() -> None:
    data = bits(10_000, 784)
    print("| SBN | batch | optimiser | products | pass | update | / products | / (products + pass) |")
    print("|---|---|---|---|---|---|---|---|")
    for hidden in ((200,), (200, 200)):
        pair = nvil.sbn(784, hidden)
        for batch in (20, 100):
            for name, optimiser in (("SGD", optimisers.sgd()), ("Adam", optimisers.adam())):
                whole, alone = update(pair, data, batch, optimiser, estimators.nvil())
                bare, own, full = fastest(products(weight_shapes(pair), batch), alone, whole)
                sizes = "-".join(map(str, hidden))
                print(
                    f"| {sizes} | {batch} | {name} | {bare:.0f} us | {own:.0f} us | {full:.0f} us "
                    f"| {full / bare:.2f} | {full / (bare + own):.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
