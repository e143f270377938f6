"""A model of your own in a run folder: a sigmoid belief network whose decoder is a small neural network.

    python examples/mlp_decoder.py runs/mlp

Stop it at any time, even with kill -9: the same command resumes with bit-identical results.
"""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp

import nvil
from nvil.layers import Affine, affine, bernoulli_log_prob


class Decoder(eqx.Module):
    """P(x, h) = P(x | h) P(h), where the logits of x are those of a network with one layer of tanh units."""

    first: Affine
    second: Affine
    prior: jax.Array  # the logits of P(h)

    def logits(self, h):
        return self.second(jnp.tanh(self.first(h)))

    def log_prob(self, x, h):  # all that training needs: the terms log P(x | h) and log P(h) of each case
        log_x = bernoulli_log_prob(x, self.logits(h))
        log_h = bernoulli_log_prob(h, jnp.broadcast_to(self.prior, h.shape))
        return jnp.stack([log_x, log_h], axis=-1)

    def sample(self, key, cases):  # for nvil.sample and the page
        key_h, key_x = jax.random.split(key)
        h = jax.random.bernoulli(key_h, jax.nn.sigmoid(self.prior), (cases, len(self.prior))).astype(float)
        return jax.random.bernoulli(key_x, self.mean(h)).astype(float), h

    def mean(self, h):
        return jax.nn.sigmoid(self.logits(h))


class Encoder(eqx.Module):
    """Q(h | x), factorial."""

    up: Affine
    center: nvil.Constant  # not trained

    def contexts(self, x, h):  # what the input-dependent baseline sees
        return (x - self.center.value,)

    def sample(self, key, x):
        return jax.random.bernoulli(key, self.mean(x, None)).astype(float)

    def log_prob(self, h, x):
        return bernoulli_log_prob(h, self.up(*self.contexts(x, h)))[..., None]

    def mean(self, x, h):  # for nvil.encode
        return jax.nn.sigmoid(self.up(*self.contexts(x, h)))


def make_pair(visible, latents, units, mean, seed=0):
    keys = jax.random.split(jax.random.key(seed), 3)
    decoder = Decoder(affine(keys[0], latents, units), affine(keys[1], units, visible), jnp.full(latents, -1.0))
    return nvil.Pair(decoder, Encoder(affine(keys[2], visible, latents), nvil.Constant(jnp.asarray(mean, float))))


def main(folder, updates=5000):
    data = nvil.data.load("digits")
    pair = make_pair(64, latents=50, units=100, mean=data.train.mean(axis=0))
    run = nvil.Run.create(folder, pair, data.train, nvil.Learner(batch_size=50), updates=updates, image=(8, 8))
    for report in run.fit():
        print(report)
    best = run.load_best()
    print(nvil.evaluate(best, data.test))
    print(nvil.sample(best, 5).x.shape, "samples;", nvil.encode(best, data.test).shape, "codes")
    print(nvil.report.write_report(run, test=data.test))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/mlp")
