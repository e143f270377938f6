"""Samples, codes and reconstructions of a trained pair, and walks between cases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nvil
from helpers import randomised
from nvil import exact
from nvil.random import seeded_key, uniform

CASE = np.array([[1, 0, 1, 1]], np.uint8)


def pair_of(make, inference, hidden=(3, 2)):
    return randomised(make(4, hidden, inference=inference, mean=np.full(4, 0.4)), 0)


@pytest.mark.parametrize("inference", ["factorial", "autoregressive"])
@pytest.mark.parametrize("make", [nvil.sbn, nvil.darn])
def test_codes_and_reconstructions_are_functions_of_the_case(make, inference):
    """The same whatever the row, and whatever else is in the block."""
    pair = pair_of(make, inference)
    random = np.random.default_rng(0).integers(0, 2, (37, 4)).astype(np.uint8)
    crowd = np.concatenate([random[:20], CASE, random[20:], CASE])
    for apply in (lambda x: nvil.encode(pair, x, samples=3), lambda x: (nvil.reconstruct(pair, x),)):
        for alone, among in zip(apply(CASE), apply(crowd), strict=True):
            np.testing.assert_allclose(among[20], alone[0], rtol=1e-5)
            np.testing.assert_array_equal(among[20], among[-1])


@pytest.mark.parametrize("inference", ["factorial", "autoregressive"])
def test_codes_are_the_posterior_means_of_q(inference):
    """Against enumeration, within five standard errors; more samples come closer."""
    pair = pair_of(nvil.sbn, inference)
    latents = tuple(jnp.asarray(each, float) for each in pair.inference.support())
    x = jnp.asarray(CASE, float)
    probability = jnp.exp(exact.inference_log_prob(pair.inference, x, latents))[0]
    codes = nvil.encode(pair, CASE, samples=4000)
    for layer, code in zip(latents, codes, strict=True):
        np.testing.assert_allclose(code[0], probability @ layer, atol=5 * 0.5 / 4000**0.5)
    few = [nvil.encode(pair, CASE, samples=1, seed=seed)[1][0] for seed in (1, 2)]
    assert not np.array_equal(*few)


def test_the_first_layer_of_a_factorial_q_needs_one_sample():
    pair = pair_of(nvil.sbn, "factorial")
    one, many = (nvil.encode(pair, CASE, samples=samples)[0] for samples in (1, 50))
    np.testing.assert_allclose(one, many, rtol=1e-6)


def test_samples_have_their_latents_and_means():
    pair = pair_of(nvil.sbn, "factorial")
    x, mean, h = nvil.sample(pair, 7, seed=3)
    assert [each.shape for each in (x, mean, *h)] == [(7, 4), (7, 4), (7, 3), (7, 2)]
    np.testing.assert_allclose(mean, pair.model.mean(tuple(map(jnp.asarray, h))), rtol=1e-5)
    np.testing.assert_array_equal(nvil.sample(pair, 7, seed=3).x, x)
    assert not np.array_equal(nvil.sample(pair, 7, seed=4).h[0], h[0])
    assert nvil.sample(pair, 2, means=False).mean is None


def test_a_walk_goes_straight_between_the_logits_of_its_ends():
    pair = pair_of(nvil.sbn, "factorial")
    other = 1 - CASE
    x, z = np.concatenate([CASE, other]), np.concatenate([other, CASE])
    there, back = nvil.walk(pair, x, z, steps=5)
    np.testing.assert_allclose(back, there[::-1], atol=1e-6)
    h = tuple(map(jnp.asarray, nvil.encode(pair, CASE)))
    np.testing.assert_allclose(there[0], pair.model.mean(h)[0], atol=1e-6)
    logits = np.log(there) - np.log1p(-there)
    np.testing.assert_allclose(np.diff(logits, axis=0), np.tile((logits[-1] - logits[0]) / 4, (4, 1)), atol=1e-4)
    assert np.abs(logits[-1] - logits[0]).max() > 0.1


def test_a_walk_keeps_the_context_that_it_starts_from():
    pair = randomised(nvil.sbn(4, (3,), mean=np.full(4, 0.4), given=2), 0)
    walked = nvil.walk(pair, CASE, 1 - CASE, steps=3)
    np.testing.assert_array_equal(walked[0, :, :2], np.tile(CASE[0, :2], (3, 1)))
    assert np.abs(walked[0, 0] - walked[0, -1]).max() > 0.01


class Bare:
    """Only what training needs."""

    def log_prob(self, x, h):
        return x[:, :1]


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda pair: nvil.sample(pair, 0), "`count` must be at least 1, got 0"),
        (lambda pair: nvil.encode(pair, CASE, samples=0), "`samples` must be at least 1, got 0"),
        (lambda pair: nvil.encode(pair, CASE[:0]), "no cases"),
        (lambda pair: nvil.walk(pair, CASE, CASE, steps=1), "`steps` must be at least 2, got 1"),
        (lambda pair: nvil.walk(pair, CASE, CASE[[0, 0]]), r"must have the same shape, got \(1, 4\) and \(2, 4\)"),
        (lambda _: nvil.sample(nvil.Pair(Bare(), Bare()), 3), r"Bare has no sample\(\)"),
        (lambda _: nvil.encode(nvil.Pair(Bare(), Bare()), CASE), r"Bare has no mean\(\)"),
    ],
)
def test_mistakes_get_a_sentence(ask, sentence):
    with pytest.raises(nvil.UsageError, match=sentence):
        ask(pair_of(nvil.sbn, "factorial"))


def test_purposes_have_keys_of_their_own():
    """`split(key)[i]` is `fold_in(key, i)`, so keys of one parent would meet."""
    root = jax.random.key(5)
    purposes = ("weights", "start", "training", "evaluation", "sample", "encode", "reconstruct", "units")
    keys = [root, *jax.random.split(root, 10), *(jax.random.fold_in(root, i) for i in range(10, 20))]
    keys += [seeded_key(5, purpose) for purpose in purposes]
    assert len({tuple(jax.random.key_data(key).tolist()) for key in keys}) == len(keys)


def test_uniform_numbers_are_never_0_or_1(monkeypatch):
    """Even for the hash's extreme values."""
    from nvil import random

    extremes = jnp.asarray([0, 2**32 - 1], jnp.uint32)
    monkeypatch.setattr(random, "threefry", lambda *_: (extremes[:1], extremes[1:]))
    low, high = uniform(jax.random.key(0), (2,))
    assert 0 < low < 2**-23
    assert 1 - 2**-23 < high < 1
