"""What one NVIL update costs, as a ratio to the bare matrix products that it cannot do without.

    python benchmarks/update_cost.py

All are timed in turn, in one process on one core, and the ratio is that of the fastest rounds:

- products: the update's matrix products alone, in NumPy (OpenBLAS), outputs preallocated;
- pass: optax's update of all parameters alone, compiled, for gradients that are there already;
- update: everything `nvil.fit` does in an update: drawing the minibatch, sampling, signals, gradients, optimiser.

A product with binary values takes less time the fewer are on (`nvil.products`), so an update is timed on two kinds of
data: where half of the pixels and of the latents are on, which is the worst case, and where 13% of the pixels are, as
in MNIST, and the latents start as sparse as `nvil train` has them.
"""

from timing import bits, fastest, products, update, weight_shapes

# isort: split

import nvil
from nvil import estimators, optimisers

KINDS = {"half on": (0.5, 0.0), "as MNIST": (0.13, -2.0)}
"""The share of pixels that are on, and the biases of the latents."""


def main() -> None:
    data = {share: bits(10_000, 784, share) for share, _ in KINDS.values()}
    kinds = " | ".join(KINDS)
    print(f"| SBN | batch | optimiser | products | pass | update: {kinds} | / (products + pass): {kinds} |")
    print("|---" * 9 + "|")
    for hidden in ((200,), (200, 200)):
        for batch in (20, 100):
            for name, optimiser in (("SGD", optimisers.sgd()), ("Adam", optimisers.adam())):
                wholes, alone, shapes = [], None, None
                for share, bias in KINDS.values():
                    pair = nvil.sbn(784, hidden, latent_bias=bias, mean=data[share].mean())
                    whole, alone = update(pair, data[share], batch, optimiser, estimators.nvil())
                    wholes.append(whole)
                    shapes = weight_shapes(pair)
                bare, own, half, sparse = fastest(products(shapes, batch), alone, *wholes)
                sizes = "-".join(map(str, hidden))
                print(
                    f"| {sizes} | {batch} | {name} | {bare:.0f} us | {own:.0f} us | {half:.0f} us | {sparse:.0f} us "
                    f"| {half / (bare + own):.2f} | {sparse / (bare + own):.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
