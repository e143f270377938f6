"""Each transformation against the lines of Algorithm 1, computed by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nvil.signals import (
    Chain,
    InputDependentBaseline,
    RunningMean,
    VarianceNormalisation,
    global_signal,
    local_signals,
)

pytestmark = pytest.mark.usefixtures("float64")
KEY = jax.random.key(0)


def signal(seed=0, layers=2):
    return jnp.asarray(np.random.default_rng(seed).normal(-90, 7, (1, 5, layers)))


def test_local_signals_keep_all_terms_from_their_layer_up():
    log_p = jnp.asarray([[[1.0, 20.0, 300.0, 4000.0]]])  # log P(x|h1), P(h1|h2), P(h2|h3), P(h3)
    log_q = jnp.asarray([[[0.5, 0.25, 0.125]]])
    np.testing.assert_array_equal(local_signals(log_p, log_q), [[[4321 - 0.875, 4320 - 0.375, 4300 - 0.125]]])
    np.testing.assert_array_equal(global_signal(log_p, log_q), [[[4321 - 0.875]]])


@pytest.mark.parametrize("order", ["paper", "strict"])
def test_algorithm_1_line_by_line(order):
    chain = Chain((InputDependentBaseline(4), RunningMean(0.8, order), VarianceNormalisation(0.8, order)))
    contexts = (jnp.ones((5, 3)), jnp.asarray(np.random.default_rng(1).normal(size=(1, 5, 2))))
    psi, state = chain.init(KEY, signal(1), contexts)
    psi = jax.tree.map(lambda leaf: leaf + 0.3, psi)
    got, baseline, new_state = chain.update(signal(2), contexts, psi, state)

    # by hand, in NumPy
    c, v = np.asarray(state[1]), np.asarray(state[2])
    outputs = []
    for (hidden, output), context in zip(psi[0], contexts, strict=True):
        units = np.tanh(np.asarray(context) @ np.asarray(hidden.weights) + np.asarray(hidden.bias))
        outputs.append(np.broadcast_to((units @ np.asarray(output.weights) + np.asarray(output.bias))[..., 0], (1, 5)))
    big_c = np.stack(outputs, -1)
    l = np.asarray(signal(2)) - big_c  # noqa: E741 (the paper's letter)
    c_new = 0.8 * c + 0.2 * l.mean((0, 1))
    v_new = 0.8 * v + 0.2 * l.var((0, 1))
    use_c, use_v = (c_new, v_new) if order == "paper" else (c, v)
    np.testing.assert_allclose(baseline, big_c, rtol=1e-12)
    np.testing.assert_allclose(got, (l - use_c) / np.maximum(1, np.sqrt(use_v)), rtol=1e-10)
    np.testing.assert_allclose(new_state[1], c_new, rtol=1e-12)
    np.testing.assert_allclose(new_state[2], v_new, rtol=1e-10)


def test_statistics_start_at_those_of_the_first_signals():
    """So that the first update gets a centred signal of unit deviation, not a kick of the size of the bound."""
    chain = Chain((InputDependentBaseline(4), RunningMean(), VarianceNormalisation()))
    contexts = (jnp.ones((5, 3)), jnp.ones((1, 5, 2)))
    _, state = chain.init(KEY, signal(), contexts)
    np.testing.assert_allclose(state[1], np.mean(signal(), (0, 1)))
    np.testing.assert_allclose(state[2], np.var(signal(), (0, 1)))


def test_a_faint_signal_is_not_amplified():
    faint = jnp.asarray([[[0.1], [-0.1]]])
    normalise = VarianceNormalisation()
    _, state = normalise.init(KEY, faint, ())
    got, _, _ = normalise.update(faint, (), None, state)
    np.testing.assert_array_equal(got, faint)


def test_the_empty_chain_changes_nothing():
    chain = Chain()
    psi, state = chain.init(KEY, signal(), ())
    got, baseline, _ = chain.update(signal(), (), psi, state)
    np.testing.assert_array_equal(got, signal())
    np.testing.assert_array_equal(baseline, 0)
