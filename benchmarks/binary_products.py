"""What a product with a binary matrix takes, as a share of XLA's product, by how many of its values are one.

    python benchmarks/binary_products.py

Each is x W and x' delta together, with the search for the ones of x, which they share; medians of rounds that take
turns, on one core.
"""

from timing import UPDATES, turns

# isort: split

import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from nvil.products import product

SIZES = ((20, 784, 200), (20, 200, 784), (100, 784, 200), (100, 200, 784), (100, 200, 200), (400, 784, 200))
"""Cases, inputs, outputs."""
SHARES = (0.05, 0.13, 0.25, 0.5)


def main() -> None:
    print(f"| cases | inputs | outputs | XLA | {' | '.join(f'{share:.0%} ones' for share in SHARES)} |")
    print("|---" * (4 + len(SHARES)) + "|")
    for cases, inputs, outputs in SIZES:
        random = np.random.default_rng(0)
        weights, delta = (
            jnp.asarray(random.normal(size=shape), jnp.float32) for shape in ((inputs, outputs), (cases, outputs))
        )
        bits = [jnp.asarray(random.random((cases, inputs)) < share, jnp.float32) for share in SHARES]
        jobs = [repeated(jnp.matmul, bits[0], weights, delta), *(repeated(product, x, weights, delta) for x in bits)]
        theirs, *ours = turns(*jobs, clock=time.process_time)
        ratios = [statistics.median(a / b for a, b in zip(own, theirs, strict=True)) for own in ours]
        each = " | ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"| {cases} | {inputs} | {outputs} | {statistics.median(theirs):.0f} us | {each} |", flush=True)


def repeated(multiply, x, weights, delta):
    """Both products, many times over, each time of an x that XLA cannot know to be the same."""

    @jax.jit
    def run(x):
        def body(_, carry):
            x, _ = carry
            value, pull = jax.vjp(lambda weights: multiply(x, weights), weights)
            (gradient,) = pull(delta)
            return x + 0 * gradient[0, 0], value

        return jax.lax.fori_loop(0, UPDATES, body, (x, delta))

    return lambda: jax.block_until_ready(run(x))


if __name__ == "__main__":
    main()
