"""What a signal per latent buys: the figures of "Signals per latent" in estimators.md, exact but for those of SBN 200.

In a factorial Q(h | x) = prod_j q_j(h_j | x) the log q_k(h_k | x) of unit k is independent of h_j, and so is its
log p_k(h_k) under a factorial prior: E[(log p_k - log q_k) grad log q_j] = 0 for k != j. Unit j's signal may be

    l_j = log P(x | h) + log p_j(h_j) - log q_j(h_j)

and the gradient stays unbiased, which is checked here by enumeration. Run: python docs/unit_signals.py [RUN OF AN SBN]
"""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import nvil
from nvil import exact
from nvil.contracts import trained
from nvil.rows import dense_blocks


@eqx.filter_jit
def moments(pair, x, h, weights):
    """For one signal and for one per unit: the mean gradient of Q's logits, and its variance summed over the units.

    `h` are samples (samples, cases, units) of the given `weights`; each signal has the best constant baseline per case.
    """
    (q,), (visible, prior) = pair.inference.layers, pair.model.layers
    a = q.logits(pair.inference.contexts(x, ())[0])
    b = prior.logits(x[:, :0])
    own = (h * b - jax.nn.softplus(b)) - (h * a - jax.nn.softplus(a))
    likelihood = visible.log_prob(jnp.broadcast_to(x, (len(h), *x.shape)), h)[..., None]
    found = []
    for signal in (likelihood + jnp.sum(own, axis=-1, keepdims=True), likelihood + own):
        baseline = jnp.sum(weights[..., None] * signal, axis=0)
        gradient = (signal - baseline) * (h - jax.nn.sigmoid(a))
        mean = jnp.sum(weights[..., None] * gradient, axis=0)
        variance = jnp.sum(weights[..., None] * (gradient - mean) ** 2, axis=0)
        found.append((mean, jnp.mean(jnp.sum(variance, axis=-1))))
    return found


def small() -> None:
    """x 8 <- h 6, trained on the exact bound of 12 random cases."""
    x = jnp.asarray(np.random.default_rng(0).integers(0, 2, (12, 8)), float)
    pair = nvil.sbn(8, (6,), mean=x.mean(0), latent_bias=-1.0)
    states = pair.inference.support()
    h = jnp.broadcast_to(states[0][:, None], (len(states[0]), len(x), 6))
    optimiser = optax.adam(0.03)

    @eqx.filter_jit
    def step(pair, state):
        gradient = eqx.filter_grad(lambda pair: -jnp.sum(exact.bound(pair, x, states)))(pair)
        updates, state = optimiser.update(trained(gradient), state)
        return eqx.apply_updates(pair, updates), state

    @eqx.filter_jit
    def divergence(pair):
        return jnp.mean(exact.log_likelihood(pair.model, x, states) - exact.bound(pair, x, states))

    state = optimiser.init(trained(pair))
    print("| updates | KL from Q to the posterior | one signal | a signal per unit |\n|---|---|---|---|")
    for i in range(3001):
        if i in (0, 30, 100, 300, 1000, 3000):
            weights = jnp.exp(exact.inference_log_prob(pair.inference, x, states)).T
            (one, variance), (per_unit, variance_per_unit) = moments(pair, x, h, weights)
            np.testing.assert_allclose(per_unit, one, rtol=1e-8, atol=1e-10)  # both unbiased
            print(f"| {i:,} | {divergence(pair):.4f} | {variance:.3g} | {variance_per_unit:.3g} |", flush=True)
        pair, state = step(pair, state)


def large(folder: str) -> None:
    """A trained run and its untrained start, by 200 samples for each of 40 test cases."""
    run = nvil.Run.open(folder)
    x = jnp.asarray(next(dense_blocks(run.split("test"), 40)), float)
    assert run.config is not None
    for name, pair in (("untrained", run.config.build_pair(x.shape[1], x.mean(0))), ("trained", run.load_best())):
        draws = jax.vmap(lambda key, pair=pair: pair.inference.sample(key, x)[0])
        h = draws(jax.random.split(jax.random.key(0), 200))
        (_, variance), (_, per_unit) = moments(pair, x, h, jnp.full(h.shape[:2], 1 / len(h)))
        print(f"{folder}, {name}: one signal {variance:.3g}, a signal per unit {per_unit:.3g}", flush=True)


if __name__ == "__main__":
    with jax.enable_x64(True):
        small()
    for folder in sys.argv[1:]:
        large(folder)
