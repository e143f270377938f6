"""What one NVIL update costs, as a ratio to the bare matrix products that it cannot do without.

    python benchmarks/update_cost.py

Both are timed in turn, in one process on one core, and the ratio is that of the fastest rounds:

- products: the update's matrix products alone, in NumPy (OpenBLAS), outputs preallocated;
- optimiser: optax's update of all parameters alone, compiled, for gradients that are there already;
- update: everything `nvil.fit` does in an update: drawing the minibatch, sampling, signals, gradients, optimiser.
"""

import os

os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})  # one core, before any library counts them

import itertools
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import nvil
from nvil import optimisers
from nvil.training import make_train_chunk, start

VISIBLE, CASES, BASELINE_UNITS, ROUNDS, UPDATES = 784, 10_000, 100, 15, 100


def products(hidden: tuple[int, ...], batch: int) -> Callable[[], None]:
    """The products of one update: for every affine map, forward and the gradient of its weights."""
    sizes = (VISIBLE, *hidden)
    pairs = list(itertools.pairwise(sizes))
    shapes = [(upper, lower) for lower, upper in pairs]  # P
    shapes += [(lower, upper) for lower, upper in pairs]  # Q
    shapes += [(lower, BASELINE_UNITS) for lower in sizes[:-1]]  # baselines
    random = np.random.default_rng(0)
    jobs = []
    for inputs, outputs in shapes:
        context, weights, delta = (
            random.random(shape, np.float32) for shape in ((batch, inputs), (inputs, outputs), (batch, outputs))
        )
        jobs.append((context, weights, delta, np.empty_like(delta), np.empty_like(weights)))

    def run() -> None:
        for _ in range(UPDATES):
            for context, weights, delta, forward, gradient in jobs:
                np.matmul(context, weights, out=forward)
                np.matmul(context.T, delta, out=gradient)

    return run


def update(hidden, batch, optimiser, estimator) -> tuple[Callable[[], object], Callable[[], object]]:
    """The full update, and the optimiser's share of it alone."""
    data = jnp.asarray(np.random.default_rng(0).integers(0, 2, (CASES, VISIBLE), np.uint8))
    settings = {"estimator": estimator, "optimiser": optimiser, "batch_size": batch}
    state = start(nvil.sbn(VISIBLE, hidden), data, seed=0, **settings)
    chunk = make_train_chunk(**settings)

    @jax.jit
    def alone(params, optimiser_state, gradients):
        def body(_, carry):
            params, optimiser_state = carry
            updates, optimiser_state = optimiser.update(gradients, optimiser_state, params)
            return jax.tree.map(jnp.add, params, updates), optimiser_state

        return jax.lax.fori_loop(0, UPDATES, body, (params, optimiser_state))

    gradients = jax.tree.map(lambda leaf: jnp.full_like(leaf, 1e-3), state.params)
    return (
        lambda: jax.block_until_ready(chunk(state, data, UPDATES)),
        lambda: jax.block_until_ready(alone(state.params, state.optimiser, gradients)),
    )


def fastest(*jobs: Callable[[], object]) -> list[float]:
    """Microseconds an update of each job, in its fastest round; the rounds of the jobs take turns."""
    times = [[] for _ in jobs]
    for job in jobs:
        job()
    for _ in range(ROUNDS):
        for job, own in zip(jobs, times, strict=True):
            began = time.perf_counter()
            job()
            own.append((time.perf_counter() - began) / UPDATES * 1e6)
    return [min(own) for own in times]


def main() -> None:
    table = Table(title="One update, 784 visible units, one core, microseconds")
    for column in (
        "SBN",
        "batch",
        "optimiser",
        "products",
        "optimiser",
        "update",
        "/ products",
        "/ (products + optimiser)",
    ):
        table.add_column(column, justify="right")
    for hidden in ((200,), (200, 200)):
        for batch in (20, 100):
            for name, optimiser in (("SGD", optimisers.sgd()), ("Adam", optimisers.adam())):
                whole, alone = update(hidden, batch, optimiser, nvil.nvil())
                bare, own, full = fastest(products(hidden, batch), alone, whole)
                sizes = "-".join(map(str, hidden))
                cells = (f"{bare:.0f}", f"{own:.0f}", f"{full:.0f}", f"{full / bare:.2f}", f"{full / (bare + own):.2f}")
                table.add_row(sizes, str(batch), name, *cells)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
