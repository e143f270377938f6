"""The matrix products that an update cannot do without, in NumPy: for every weight matrix, forward and gradient."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from nvil.bench.cases import Case

BASELINE_UNITS = 100


def shapes(case: Case) -> list[tuple[int, int]]:
    """(inputs, outputs) of every weight matrix of P, Q and the baselines."""
    model = case.model
    sizes = (model.visible, *model.hidden)
    between = list(itertools.pairwise(sizes))
    prior = [(size, size) for size in model.hidden if model.prior == "autoregressive"]
    within = [(size, size) for size in model.hidden if model.inference == "autoregressive"]
    return [(b, a) for a, b in between] + between + prior + within + [(below, BASELINE_UNITS) for below in sizes[:-1]]


def prepare(case: Case, data: Any) -> Callable[[int], None]:
    random = np.random.default_rng(0)
    jobs = []
    for inputs, outputs in shapes(case):
        context, weights, delta = (
            random.random(shape, np.float32)
            for shape in ((case.batch, inputs), (inputs, outputs), (case.batch, outputs))
        )
        jobs.append((context, weights, delta, np.empty_like(delta), np.empty_like(weights)))

    def run(updates: int) -> None:
        for _ in range(updates):
            for context, weights, delta, forward, gradient in jobs:
                np.matmul(context, weights, out=forward)
                np.matmul(context.T, delta, out=gradient)

    return run
