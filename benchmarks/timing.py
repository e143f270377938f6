"""What the benchmarks share: bare matrix products, whole updates, and fair turns on one core.

Import this first: it pins the process to one core before any library counts them.
"""

import os
import sys

if "numpy" in sys.modules:
    raise RuntimeError("import timing before NumPy, or its threads will not be pinned")
os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})

import time
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np

from nvil.contracts import trained
from nvil.learning import Learner
from nvil.rows import as_rows
from nvil.training import empty_tally, train_chunk

ROUNDS, UPDATES, BASELINE_UNITS = 15, 100, 100


def products(shapes: Iterable[tuple[int, int]], batch: int) -> Callable[[], None]:
    """The products an update cannot do without: for every (inputs, outputs), forward and the weights' gradient."""
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


def weight_shapes(pair) -> list[tuple[int, int]]:
    """The weight matrices of P, Q and the default baselines."""
    matrices = [leaf.shape for leaf in jax.tree.leaves(trained(pair)) if leaf.ndim == 2 and leaf.shape[0]]
    inputs = [layer.logits.weights.shape[0] for layer in pair.inference.layers]
    return matrices + [(size, BASELINE_UNITS) for size in inputs]


def update(pair, data, batch, optimiser, estimator) -> tuple[Callable[[], object], Callable[[], object]]:
    """Everything `nvil.fit` does in an update, and the optimiser's share of it alone."""
    learner = Learner(estimator, optimiser, batch_size=batch)
    state = learner.init(pair, data)
    tally = empty_tally(learner, state, data)

    @jax.jit
    def alone(params, optimiser_state, gradients):
        def body(_, carry):
            params, optimiser_state = carry
            updates, optimiser_state = optimiser.update(gradients, optimiser_state, params)
            return jax.tree.map(jnp.add, params, updates), optimiser_state

        return jax.lax.fori_loop(0, UPDATES, body, (params, optimiser_state))

    def run() -> None:
        _, chunk = jax.block_until_ready(train_chunk(learner, state, data, UPDATES, tally))
        if not chunk.finite:
            raise RuntimeError("training diverged, and updates that are left out take no time")

    params = trained(state.params)
    gradients = jax.tree.map(lambda leaf: jnp.full_like(leaf, 1e-3), params)
    return (
        run,
        lambda: jax.block_until_ready(alone(params, state.optimiser, gradients)),
    )


def fastest(*jobs: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """Microseconds per update of each job, in its fastest round; the rounds of the jobs take turns."""
    return [min(own) for own in turns(*jobs, rounds=rounds)]


def turns(
    *jobs: Callable[[], object], rounds: int = ROUNDS, clock: Callable[[], float] = time.perf_counter
) -> list[list[float]]:
    """Microseconds per update of each job, in every round; the rounds of the jobs take turns."""
    times = [[] for _ in jobs]
    for job in jobs:
        job()
    for _ in range(rounds):
        for job, own in zip(jobs, times, strict=True):
            began = clock()
            job()
            own.append((clock() - began) / UPDATES * 1e6)
    return times


def bits(cases: int, width: int, share: float = 0.5):
    """Made-up data, with that share of ones."""
    return as_rows((np.random.default_rng(0).random((cases, width)) < share).astype(np.uint8)).on_device()
