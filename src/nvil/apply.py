"""What a trained pair is for: samples of the model, codes of cases, their reconstructions, and what lies between two.

They are functions of the case and the seed alone: the rows of `x` may come in any order and in any company. (Grey
levels are binarized first, `Rows.fixed`, and that depends on the place of a row.)
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nvil.contracts import Latents, Pair, check_is_pair, given_of, needs
from nvil.errors import UsageError, count_of
from nvil.evaluation import BLOCK, as_float
from nvil.random import seeded_key
from nvil.rows import as_rows, dense_blocks, explained

LEAST = 32
"""Cases in a block at least: fewer take no less time."""


class Samples(NamedTuple):
    """Ancestral samples of a model: the cases, their means given the latents (or None), and the latents."""

    x: Any
    mean: Any
    h: Latents


def sample(pair: Pair, count: int, *, given: Any = None, means: bool = True, seed: int = 0) -> Samples:
    """Draw `count` cases x and their latents h from P(x, h), with E[x | h] unless `means` is false.

    Of a conditional model, `given` holds the context of every case, or one for all, and cases come with theirs. The
    model needs `sample(key, cases)` and `mean(h)` besides the contract, which all of `nvil.models` have.
    """
    check_is_pair(pair)
    count_of(1, count=count)
    needs(pair.model, "sample", *(["mean"] if means else []))
    y = _contexts(getattr(pair.model, "given", 0), given, count)
    return Samples(*jax.tree.map(np.asarray, _sample(pair.model, seeded_key(seed, "sample"), count, y, means)))


def _contexts(columns: int, given: Any, count: int) -> Float[Array, "count given"] | None:
    if not columns:
        if given is not None:
            raise UsageError("The model is not a conditional one; leave `given` out.")
        return None
    if given is None:
        raise UsageError(f"The model is conditional: give the {columns} columns of its context as `given`.")
    y = np.asarray(given, float)
    if y.shape not in ((columns,), (count, columns)) or not np.all(np.isfinite(y)):
        raise UsageError(
            f"`given` must hold finite numbers of the shape ({columns},) or ({count}, {columns}), got {y.shape}."
        )
    return jnp.broadcast_to(as_float(y), (count, columns))


def encode(pair: Pair, x: Any, *, samples: int = 10, seed: int = 0) -> Any:
    """The probability that each latent is on, one array `(cases, units)` per layer, for every row of `x`.

    A categorical latent has a unit, and so a probability, for each category; of Gaussian latents it is the mean.
    For the first layer of a factorial Q it is exact. For layers above it, and units of an autoregressive layer, it is
    an average over `samples` samples of what they depend on. The inference network needs `mean(x, h)` besides the
    contract, and codes come in the form that it gives.
    """
    check_is_pair(pair)
    count_of(1, samples=samples)
    needs(pair.inference, "mean")
    key = seeded_key(seed, "encode")
    return in_blocks(lambda rows: _encode(pair.inference, key, as_float(rows), samples), pair, x)


def reconstruct(pair: Pair, x: Any, *, seed: int = 0) -> Float[np.ndarray, "cases visible"]:
    """E[x | h] for one h ~ Q(h | x) of every row of `x`."""
    check_is_pair(pair)
    needs(pair.model, "mean")
    key = seeded_key(seed, "reconstruct")
    return in_blocks(lambda rows: _reconstruct(pair, key, as_float(rows)), pair, x)


def walk(pair: Pair, x: Any, z: Any, *, steps: int = 8, seed: int = 0) -> Float[np.ndarray, "cases steps visible"]:
    """What the model makes of the latents on the way from each row of `x` to that of `z`, the two ends included.

    With q(x) = E_Q[h | x], what `encode` gives, step t of T is E[x | h] at

        h = (1 - t / (T - 1)) q(x) + t / (T - 1) q(z):

    every latent goes straight from its probability of being on in one case to that in the other. Where P(x | h) has no
    layers between, its logits go in equal steps too. Of a conditional model all steps are given the context of `x`.
    """
    check_is_pair(pair)
    count_of(2, steps=steps)
    needs(pair.model, "mean")
    first, last = as_rows(x).fixed(), as_rows(z).fixed()
    if first.shape != last.shape:
        raise UsageError(f"`x` and `z` must have the same shape, got {first.shape} and {last.shape}.")
    start, end = (encode(pair, rows, seed=seed) for rows in (first, last))
    return np.asarray(_between(pair.model, start, end, as_float(first.dense()), as_float(np.linspace(0, 1, steps))))


def in_blocks(function: Any, pair: Pair, x: Any) -> Any:
    """What `function(rows)` gives for each of the rows of `x`, on its own, in blocks.

    A block that is not full is filled up to a power of two, so that little is compiled for many sizes of data.
    """
    rows = explained(pair, as_rows(x).fixed())
    blocks = []
    for block in dense_blocks(rows, BLOCK):
        cases = len(block)
        padding = np.repeat(block[-1:], min(BLOCK, max(LEAST, 1 << (cases - 1).bit_length())) - cases, axis=0)
        values = function(np.concatenate([block, padding]))
        blocks.append(jax.tree.map(lambda leaf, cases=cases: np.asarray(leaf)[:cases], values))
    if not blocks:
        raise UsageError("There are no cases in the data.")
    return jax.tree.map(lambda *parts: np.concatenate(parts), *blocks)


@eqx.filter_jit
def _sample(model: Any, key: Key[Array, ""], count: int, y: Array | None, means: bool) -> tuple[Any, Any, Latents]:
    context = () if y is None else (y,)
    x, h = model.sample(key, count, *context)
    return x, model.mean(h, *context) if means else None, h


@eqx.filter_jit
def _encode(inference: Any, key: Key[Array, ""], x: Float[Array, "cases _"], samples: int) -> Any:
    def one(x: Float[Array, " _"]) -> Any:
        x = x[None]  # networks take batches; every case is one of its own, with the same key
        total = jax.lax.map(lambda key: inference.mean(x, inference.sample(key, x)), jax.random.split(key, samples))
        return jax.tree.map(lambda values: jnp.mean(values, axis=0)[0], total)

    return jax.vmap(one)(x)


@eqx.filter_jit
def _reconstruct(pair: Pair, key: Key[Array, ""], x: Float[Array, "cases _"]) -> Any:
    def one(x: Float[Array, " _"]) -> Any:
        x = x[None]
        return pair.model.mean(pair.inference.sample(key, x), *given_of(pair.model, x))[0]

    return jax.vmap(one)(x)


@eqx.filter_jit
def _between(
    model: Any, first: Latents, last: Latents, x: Float[Array, "cases _"], shares: Float[Array, " steps"]
) -> Float[Array, "cases steps visible"]:
    """E[x | h] at every step, a share of the way from `first` to `last`."""

    def at(share: Float[Array, ""]) -> Any:
        h = jax.tree.map(lambda start, end: (1 - share) * start + share * end, first, last)
        return model.mean(h, *given_of(model, x))

    return jax.vmap(at, out_axes=1)(shares)
