"""log P(x) by annealed importance sampling: exact in expectation, and a sandwich on the model's own cases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvil
from helpers import VISIBLE, first, random_cases, random_pair, randomised, scaled
from nvil import annealing, exact, likelihood

pytestmark = pytest.mark.usefixtures("float64")


def every_path(pair, x, temperatures, monkeypatch, *, back):
    """Of the chains for one case: the probability of every path, that of where it starts left out, and its log-weight.

    In the place of each random flip comes every decision there is; the chains of the compiled function go through one
    path each.
    """
    states = [np.asarray(layer) for layer in pair.model.support()]
    flips = sum(layer.shape[1] for layer in states) * (temperatures - 1)
    decisions = exact.every_choice(2, flips).astype(bool)
    start = np.repeat(np.arange(len(states[0])), len(decisions))
    decisions = np.tile(decisions, (len(states[0]), 1))
    log_prob, made = np.zeros(len(start)), []

    def decide(u, log_odds):
        flip = decisions[:, len(made)]
        made.append(flip)
        log_prob[:] -= np.logaddexp(0, np.where(flip, -1, 1) * np.asarray(log_odds))
        return jnp.asarray(flip)

    monkeypatch.setattr(annealing, "_decide", decide)
    powers = annealing.powers(temperatures)[:: -1 if back else 1]
    with jax.disable_jit():
        _, log_weight = annealing._anneal(
            pair.model,
            jnp.tile(x, (len(start), 1)),
            tuple(jnp.asarray(layer[start]) for layer in states),
            jnp.zeros(len(start)),
            jnp.asarray(powers),
            jnp.asarray(temperatures - 1),
            jax.random.key(0),
        )
    assert len(made) == flips
    return start, np.exp(log_prob), np.asarray(log_weight)


PAIRS = {
    "sbn": lambda: random_pair(2),
    "darn": lambda: randomised(nvil.darn(VISIBLE, (2, 1)), 1),
    "sbn given a column, with layers between": lambda: randomised(nvil.sbn(VISIBLE, (2, 1), given=1, between=(2,)), 3),
    "fdarn of documents": lambda: randomised(nvil.fdarn(VISIBLE, (2, 1), lengths=[4]), 2),
}


@pytest.mark.parametrize("kind", first(2, PAIRS))
def test_the_expected_weight_is_exact_both_ways(kind, monkeypatch):
    pair, temperatures = PAIRS[kind](), 3
    x = jnp.asarray([[1.0, 0.0, 1.0]])
    states = tuple(jnp.asarray(layer) for layer in pair.model.support())
    terms = pair.model.log_prob(jnp.tile(x, (len(states[0]), 1)), states)
    prior, joint = np.exp(jnp.sum(terms[:, 1:], axis=1)), np.exp(jnp.sum(terms, axis=1))
    start, path, log_weight = every_path(pair, x, temperatures, monkeypatch, back=False)
    np.testing.assert_allclose(np.sum(prior[start] * path), 1, rtol=1e-12)
    np.testing.assert_allclose(np.sum(prior[start] * path * np.exp(log_weight)), np.sum(joint), rtol=1e-12)
    start, path, log_weight = every_path(pair, x, temperatures, monkeypatch, back=True)
    posterior = joint / np.sum(joint)
    np.testing.assert_allclose(np.sum(posterior[start] * path * np.exp(log_weight)), 1 / np.sum(joint), rtol=1e-12)


def test_the_sandwich_closes_on_the_exact_value():
    pair = scaled(random_pair(2), 5.0)
    loose = annealing.sandwich(pair, 320, samples=2, temperatures=2)
    tight = annealing.sandwich(pair, 320, samples=2, temperatures=100)
    exactly = likelihood.exact(pair, nvil.sample(pair, 320, means=False).x).log_likelihood
    assert loose.lower.log_likelihood < exactly < loose.upper.log_likelihood
    assert loose.gap > 4.5 * loose.gap_se > 0  # straight from the prior to the posterior
    assert abs(tight.gap) < loose.gap / 10
    for side in tight.lower, tight.upper:  # 1 false alarm in 100,000
        assert abs(side.log_likelihood - exactly) < 4.5 * side.monte_carlo_se < 0.02
    np.testing.assert_allclose(loose.gap, loose.upper.log_likelihood - loose.lower.log_likelihood, rtol=1e-9)


def test_blocks_and_rounds_of_chains_are_all_counted(monkeypatch):
    monkeypatch.setattr(annealing, "ROWS", 4)
    monkeypatch.setattr(annealing, "SEGMENT", 2)
    pair, x, shares = random_pair(2), random_cases(3), []
    found = annealing.annealed(pair, x, samples=10, temperatures=6, progress=shares.append)
    assert (found.cases, found.samples) == (3, 10)
    assert abs(found.log_likelihood - likelihood.exact(pair, x).log_likelihood) < 4.5 * found.monte_carlo_se
    # 3 cases, 4 + 4 + 2 chains, 5 steps in segments of 2
    np.testing.assert_allclose(np.diff(shares, prepend=0), np.tile([2, 2, 1], 9) / 45)


def test_what_cannot_be_is_refused():
    with pytest.raises(nvil.UsageError, match="`temperatures` must be at least 2, got 1"):
        annealing.annealed(random_pair(1), random_cases(1), temperatures=1)
    with pytest.raises(nvil.UsageError, match="`samples` must be at least 1, got 0"):
        annealing.sandwich(random_pair(1), 1, samples=0)
    with pytest.raises(nvil.UsageError, match="no cases"):
        annealing.annealed(random_pair(1), random_cases(0))
    with pytest.raises(nvil.UsageError, match="latents are all binary"):
        annealing.annealed(nvil.Pair(object(), None), random_cases(1))
