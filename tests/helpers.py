"""Small random models and comparisons that the exact tests share."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvil
from nvil import estimators, signals

VISIBLE = 3
SLOW = pytest.mark.slow
HIDDEN = {1: (2,), 2: (2, 1), 3: (2, 1, 1)}


def first(count: int, values):
    """Values of a parameter, all but the first `count` left to `make test-slow`."""
    every = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*each, marks=() if place < count else SLOW) for place, each in enumerate(every)]


def nvil_with(
    *,
    baseline=True,
    running_mean=True,
    normalisation=True,
    local=True,
    samples=1,
    order="paper",
    decay=0.8,
    units=100,
):
    """NVIL with some of the paper's techniques left out."""
    techniques = (
        (baseline, signals.input_dependent_baseline(units)),
        (running_mean, signals.running_mean(decay, order)),
        (normalisation, signals.variance_normalisation(decay, order)),
    )
    used = [technique for wanted, technique in techniques if wanted]
    if not used:
        return estimators.reinforce(samples=samples, local=local)
    return estimators.nvil(*used, samples=samples, local=local)


def random_pair(layers: int, seed: int = 0):
    """An SBN with every parameter drawn from a normal distribution: nothing is zero or symmetric."""
    pair = nvil.sbn(VISIBLE, HIDDEN[layers], mean=np.full(VISIBLE, 0.3))
    return randomised(pair, seed)


def randomised(tree, seed: int):
    """The same tree, or one of shapes, with normal numbers. `device_put` compiles nothing, where `asarray` does."""
    random = np.random.default_rng(seed)

    def normal(leaf):
        known = eqx.is_inexact_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)
        return jax.device_put(random.normal(size=leaf.shape).astype(leaf.dtype)) if known else leaf

    return jax.tree.map(normal, tree)


def random_cases(count: int, seed: int = 0):
    return jax.device_put(np.random.default_rng(seed).integers(0, 2, (count, VISIBLE)).astype(float))


def started(estimator, pair, x, seed: int = 0):
    """Parameters and state in the midst of training: baselines not zero, statistics not those of the batch.

    Only the shapes are the estimator's: to compile its `init` would take as long as the tests.
    """
    baselines, state = eqx.filter_eval_shape(estimator.init, jax.random.key(seed), pair, x)
    baselines, state = randomised(baselines, seed + 1), randomised(state, seed + 2)
    state = jax.tree.map(lambda leaf: jax.device_put(2.5 + 5 * np.abs(np.asarray(leaf))), state)
    return nvil.Parameters(*pair, baselines), state


def drawn_in_order(margin, within):
    """Autoregressive units by their definition, one after another."""
    value = np.zeros_like(margin)
    for j in range(margin.shape[1]):
        value[:, j] = margin[:, j] + value[:, :j] @ within[:j, j] > 0
    return value


def assert_trees_close(actual, desired, tolerance=1e-8):
    left, right = jax.tree.leaves(actual), jax.tree.leaves(desired)
    assert len(left) == len(right) > 0
    for a, b in zip(left, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def scaled(tree, factor):
    return jax.tree.map(lambda leaf: leaf * factor, tree)


@eqx.filter_jit
def weighted_bound_gradient(pair, x, weights):
    """Of E_Q[log P(x | h^1) + sum_i w^i (log P(h^i | h^(i+1)) - log Q(h^i | h^(i-1)))], summed over the cases."""
    h = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), pair.inference.support())

    def bound(pair, case):
        cases = jnp.broadcast_to(case, (len(h[0]), len(case)))
        log_p, log_q = pair.model.log_prob(cases, h), pair.inference.log_prob(h, cases)
        value = log_p[:, 0] + (log_p[:, 1:] - log_q) @ weights
        return jnp.sum(jnp.exp(jnp.sum(log_q, axis=-1)) * value)

    return eqx.filter_grad(lambda pair: sum(bound(pair, case) for case in x))(pair)
