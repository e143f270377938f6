"""A user's own model, not made of our layers, trains too: a mixture, and a net with skip connections."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvil
from helpers import assert_trees_close, first, nvil_with, random_cases, randomised, started
from nvil import exact


class Mixture(eqx.Module):
    """P(x, k) = P(k) prod_j P(x_j | k): a mixture of factorial Bernoulli distributions. One term is enough."""

    weights: jax.Array  # (components,)
    logits: jax.Array  # (components, visible)

    def log_prob(self, x, k):
        logits = self.logits[k]
        log_x = jnp.sum(x * logits - jax.nn.softplus(logits), axis=-1)
        return (jax.nn.log_softmax(self.weights)[k] + log_x)[:, None]


class Softmax(eqx.Module):
    """Q(k | x), a softmax regression; k is a whole number, not a vector of bits."""

    weights: jax.Array  # (visible, components)

    def sample(self, key, x):
        return jax.random.categorical(key, x @ self.weights)

    def log_prob(self, k, x):
        log_prob = jax.nn.log_softmax(x @ self.weights)
        return jnp.take_along_axis(log_prob, k[:, None], axis=-1)

    def contexts(self, x, k):
        return (x,)

    def support(self):
        return np.arange(self.weights.shape[1])


class SkipModel(eqx.Module):
    """P(x | h1, h2) P(h1 | h2) P(h2): the top layer reaches the data too, so log P(x | h) depends on every layer."""

    prior: jax.Array
    between: nvil.layers.Affine
    down: nvil.layers.Affine
    skip: nvil.layers.Affine

    def log_prob(self, x, h):
        h1, h2 = h
        log_x = nvil.layers.bernoulli_log_prob(x, self.down(h1) + self.skip(h2))
        log_h1 = nvil.layers.bernoulli_log_prob(h1, self.between(h2))
        log_h2 = nvil.layers.bernoulli_log_prob(h2, jnp.broadcast_to(self.prior, h2.shape))
        return jnp.stack([log_x + log_h1 + log_h2], axis=-1)  # one term: only the global signal is right here


class SkipInference(eqx.Module):
    """Q(h1 | x) Q(h2 | x, h1)."""

    first: nvil.layers.Affine
    second: nvil.layers.Affine

    def contexts(self, x, h):
        h1 = h[0]
        return x, jnp.concatenate([jnp.broadcast_to(x, (*h1.shape[:-1], x.shape[-1])), h1], axis=-1)

    def sample(self, key, x):
        one, two = jax.random.split(key)
        h1 = jax.random.bernoulli(one, jax.nn.sigmoid(self.first(x))).astype(x.dtype)
        h2_mean = jax.nn.sigmoid(self.second(jnp.concatenate([x, h1], axis=-1)))
        return h1, jax.random.bernoulli(two, h2_mean).astype(x.dtype)

    def log_prob(self, h, x):
        first, second = self.contexts(x, h)
        terms = [
            nvil.layers.bernoulli_log_prob(h[0], self.first(first)),
            nvil.layers.bernoulli_log_prob(h[1], self.second(second)),
        ]
        return jnp.stack(terms, axis=-1)

    def support(self):
        states = nvil.layers.binary_vectors(3)
        return states[:, :2], states[:, 2:]


class SharedInference(eqx.Module):
    """Q(h | x) whose baseline sees features that Q itself learns."""

    features: nvil.layers.Affine
    head: nvil.layers.Affine

    def contexts(self, x, h):
        return (jnp.tanh(self.features(x)),)

    def sample(self, key, x):
        return (jax.random.bernoulli(key, jax.nn.sigmoid(self.head(self.contexts(x, ())[0]))).astype(x.dtype),)

    def log_prob(self, h, x):
        return nvil.layers.bernoulli_log_prob(h[0], self.head(self.contexts(x, h)[0]))[:, None]

    def support(self):
        return (nvil.layers.binary_vectors(2),)


def shared_features():
    affine = nvil.layers.affine
    inference = SharedInference(affine(jax.random.key(1), 3, 4), affine(jax.random.key(2), 4, 2))
    return nvil.Pair(nvil.sbn(3, (2,)).model, inference)


def mixture(components=3, visible=3):
    return nvil.Pair(
        Mixture(jnp.zeros(components), jnp.zeros((components, visible))), Softmax(jnp.zeros((visible, components)))
    )


def skip_net():
    def affine(inputs, outputs):
        return nvil.layers.affine(jax.random.key(0), inputs, outputs)

    return nvil.Pair(
        SkipModel(jnp.zeros(1), affine(1, 2), affine(2, 3), affine(1, 3)), SkipInference(affine(3, 2), affine(5, 1))
    )


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("make", "local"), [(mixture, True), (skip_net, False), (shared_features, True)])
@pytest.mark.parametrize("samples", first(1, [1, 2]))
def test_the_estimator_is_unbiased_for_models_of_ones_own(make, local, samples):
    pair, x = randomised(make(), 1), random_cases(1)
    estimator = nvil_with(order="strict", normalisation=False, local=local, samples=samples, units=3)
    params, state = started(estimator, pair, x)
    result = exact.gradient_moments(estimator, params, x, state)
    desired = eqx.filter_jit(exact.bound_gradient)(pair, x, pair.inference.support())
    assert_trees_close((result.mean.model, result.mean.inference), desired)


def test_a_mixture_learns_its_components():
    patterns = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1]], np.uint8)
    data = np.repeat(patterns, 100, axis=0)
    pair = randomised(mixture(3, 5), 0)
    learner = nvil.Learner(optimiser=nvil.optimisers.adam(0.02, inference_ratio=0.2), batch_size=20)
    *_, report = nvil.fit(pair, data, learner, updates=3000)
    x = jnp.asarray(patterns, float)
    log_likelihood = exact.log_likelihood(report.best.pair.model, x, pair.inference.support())
    assert float(jnp.mean(log_likelihood)) > -1.3  # -log 3 = -1.10 at best, factorial -3.08
