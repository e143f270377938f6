"""log P(x) by annealed importance sampling (Neal, 2001): from below on any cases, from above on the model's own.

A chain goes through the distributions f_t(h) ~ P(h) P(x | h)^b_t from the prior (b_0 = 0) to the posterior (b_T = 1),
with a sweep of Gibbs sampling at each, and gathers the weight

    log w = sum_t (b_t+1 - b_t) log P(x | h_t),   E[w] = P(x) exactly, whatever the number of temperatures

so that log 1/K sum_k w_k is at most log P(x) in expectation. The same the other way, from h ~ P(h | x) at b = 1 down to
b = 0, has E[w] = 1 / P(x), so that -log 1/K sum_k w_k is at least log P(x) in expectation. A sample of P(h | x) is at
hand for cases that the model made itself, (x, h) ~ P(x, h): there the two are a sandwich, and their gap says how far
off either can be (Grosse, Ghahramani & Adams, 2015).
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from nvil.apply import sample
from nvil.contracts import Latents, Pair, check_is_pair
from nvil.errors import UsageError, count_of
from nvil.evaluation import as_float
from nvil.layers import Affine, AutoregressiveBernoulli, Bernoulli, Layer, bernoulli_log_prob
from nvil.likelihood import LogLikelihood, summary
from nvil.networks import BeliefNetwork, beside
from nvil.random import seeded_key, uniform
from nvil.rows import as_rows, dense_blocks, explained

ROWS = 128
"""Chains that go side by side, of all cases: with 784 visible units their logits fit in a core's cache."""
SEGMENT = 20
"""Temperatures between two looks of Python: where progress is told and Ctrl-C is heard."""
Progress = Callable[[float], None]
"""Called with the share that is done."""


class Sandwich(NamedTuple):
    """log P(x) per case, in nats, of cases that the model made: at least `lower`, at most `upper` in expectation.

    `gap` is upper less lower, a mean over the cases, and `gap_se` its standard error (None for a single case): in
    expectation neither bound is further than the gap from log P(x).
    """

    lower: LogLikelihood
    upper: LogLikelihood
    gap: float
    gap_se: float | None


def annealed(
    pair: Pair,
    x: Any,
    *,
    samples: int = 5,
    temperatures: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> LogLikelihood:
    """Estimate log P(x) of the rows of `x` from below, by `samples` chains of so many `temperatures` for every case.

    For models whose latents are all binary, up to a few hundred. The inference network is not used.
    """
    found = case_annealed(pair, x, samples=samples, temperatures=temperatures, seed=seed, progress=progress)
    return summary(*found, samples)


def case_annealed(
    pair: Pair,
    x: Any,
    *,
    samples: int = 5,
    temperatures: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Float[np.ndarray, " cases"], Float[np.ndarray, " cases"]]:
    """For every case, the estimate from below and its effective number of samples."""
    check(pair, samples, temperatures)
    x = explained(pair, as_rows(x).fixed())
    if x.shape[0] == 0:
        raise UsageError("There are no cases to evaluate.")
    blocks = ((rows, None) for rows in dense_blocks(x, _cases_at_once(samples)))
    key = seeded_key(seed, "annealing")
    return _log_mean(_chains(pair.model, x.shape[0], blocks, samples, powers(temperatures), key, progress))


def sandwich(
    pair: Pair,
    cases: int = 100,
    *,
    samples: int = 5,
    temperatures: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Sandwich:
    """Bound log P(x) from both sides on so many `cases` of the model's own, those of `nvil.sample` with this seed."""
    check(pair, samples, temperatures)
    count_of(1, cases=cases)
    if getattr(pair.model, "given", 0):
        raise UsageError("The model is conditional, and its cases cannot be drawn without a context.")
    x, _, h = sample(pair, cases, means=False, seed=seed)
    half, other_half = (None, None) if progress is None else _halves(progress)
    below, effective = case_annealed(pair, x, samples=samples, temperatures=temperatures, seed=seed, progress=half)
    size = _cases_at_once(samples)
    blocks = ((x[i : i + size], tuple(layer[i : i + size] for layer in h)) for i in range(0, cases, size))
    key = seeded_key(seed, "annealing back")
    above, effective_above = _log_mean(
        _chains(pair.model, cases, blocks, samples, powers(temperatures)[::-1], key, other_half)
    )
    gaps = -above - below
    return Sandwich(
        summary(below, effective, samples),
        summary(-above, effective_above, samples),
        float(np.mean(gaps)),
        float(np.std(gaps, ddof=1) / cases**0.5) if cases > 1 else None,
    )


def powers(temperatures: int) -> Float[np.ndarray, " temperatures"]:
    """b_0 = 0, ..., b_T = 1."""
    return np.linspace(0, 1, temperatures) ** 2


def check(pair: Pair, samples: int, temperatures: int) -> None:
    """Refuse a model whose latents are not all binary, and numbers that make no chain."""
    count_of(1, samples=samples)
    count_of(2, temperatures=temperatures)
    check_is_pair(pair)
    layers = pair.model.layers[1:] if isinstance(pair.model, BeliefNetwork) else (None,)
    if not all(isinstance(layer, Bernoulli | AutoregressiveBernoulli) for layer in layers):
        raise UsageError(
            "Annealing is for networks whose latents are all binary, which this one's are not: take "
            "the estimate by importance sampling instead."
        )


def _halves(progress: Progress) -> tuple[Progress, Progress]:
    return lambda share: progress(share / 2), lambda share: progress(0.5 + share / 2)


def _cases_at_once(samples: int) -> int:
    return max(1, ROWS // samples)


def _log_mean(
    log_weights: Float[np.ndarray, "cases samples"],
) -> tuple[Float[np.ndarray, " cases"], Float[np.ndarray, " cases"]]:
    """The logarithm of the mean weight, and the effective number of samples."""
    largest = np.max(log_weights, axis=1)
    weights = np.exp(log_weights - largest[:, None])
    return largest + np.log(np.mean(weights, axis=1)), np.sum(weights, axis=1) ** 2 / np.sum(weights**2, axis=1)


def _chains(
    model: BeliefNetwork,
    cases: int,
    blocks: Iterable[tuple[np.ndarray, Latents | None]],
    samples: int,
    powers: Float[np.ndarray, " temperatures"],
    key: Key[Array, ""],
    progress: Progress | None,
) -> Float[np.ndarray, "cases samples"]:
    """The log-weights of all chains. With each block of cases come the latents to start at; without, the prior's."""
    size, together = min(cases, _cases_at_once(samples)), min(samples, ROWS)
    rounds, steps = -(-samples // together), len(powers) - 1
    done, total = 0, -(-cases // size) * rounds * steps
    found = []
    for i, (rows, start) in enumerate(blocks):
        parts = []
        for each in range(rounds):
            prior_key, own = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, i), each))
            x = as_float(_repeated(rows, size, together))
            h = _prior(model, prior_key, x)
            if start is not None:
                h = tuple(as_float(_repeated(layer, size, together)) for layer in start)
            log_weight = jnp.zeros(len(x), x.dtype)
            for begin in range(0, steps, SEGMENT):
                end = min(begin + SEGMENT, steps)
                part = np.resize(powers[begin : end + 1], SEGMENT + 1)  # of one shape, so that nothing compiles twice
                now = jax.random.fold_in(own, begin)
                h, log_weight = _anneal(model, x, h, log_weight, as_float(part), jnp.asarray(end - begin), now)
                done += end - begin
                if progress is not None:
                    log_weight.block_until_ready()
                    progress(done / total)
            parts.append(np.asarray(log_weight, float).reshape(size, together)[: len(rows)])
        found.append(np.concatenate(parts, axis=1)[:, :samples])
    return np.concatenate(found)


def _repeated(rows: np.ndarray, size: int, times: int) -> np.ndarray:
    """Every row so many times; a last block is padded to `size`, so that nothing compiles twice."""
    padded = np.concatenate([rows, np.repeat(rows[-1:], size - len(rows), axis=0)])
    return np.repeat(padded, times, axis=0)


@eqx.filter_jit
def _prior(
    model: BeliefNetwork, key: Key[Array, ""], x: Float[Array, "chains visible"]
) -> tuple[Float[Array, "chains _"], ...]:
    return model.sample(key, len(x), x[:, : model.given] if model.given else None)[1]


@eqx.filter_jit
def _anneal(
    model: BeliefNetwork,
    x: Float[Array, "chains visible"],
    h: tuple[Float[Array, "chains _"], ...],
    log_weight: Float[Array, " chains"],
    powers: Float[Array, " segment"],
    steps: Int[Array, ""],
    key: Key[Array, ""],
) -> tuple[tuple[Float[Array, "chains _"], ...], Float[Array, " chains"]]:
    """Go on by so many temperatures."""

    def step(t: Any, chains: tuple[Any, Array]) -> tuple[Any, Array]:
        h, log_weight = chains
        h = _sweep(model, x, h, powers[t], jax.random.fold_in(key, t))
        likelihood = model.layers[0].log_prob(x[:, model.given :], model.parents(x, h)[0])
        return h, log_weight + (powers[t + 1] - powers[t]) * likelihood

    return jax.lax.fori_loop(0, steps, step, (h, log_weight))


def _sweep(
    model: BeliefNetwork,
    x: Float[Array, "chains visible"],
    h: tuple[Float[Array, "chains _"], ...],
    power: Float[Array, ""],
    key: Key[Array, ""],
) -> tuple[Float[Array, "chains _"], ...]:
    """Draw every latent in turn from its distribution under P(h) P(x | h)^power given all others."""
    y = model.seen(x[:, : model.given])
    values = [x[:, model.given :], *h, h[-1][:, :0]]
    for i in range(1, len(h) + 1):
        below = model.layers[i - 1], values[i - 1], power if i == 1 else jnp.ones_like(power)
        u = uniform(jax.random.fold_in(key, i), values[i].shape[::-1])
        values[i] = _visit_layer(model.layers[i], values[i], beside(values[i + 1], y), *below, y, u)
    return tuple(values[1:-1])


def _visit_layer(
    layer: Any,  # binary, as `check` saw to
    value: Float[Array, "chains units"],
    context: Float[Array, "chains above"],
    below: Layer,
    data: Float[Array, "chains below"],
    power: Float[Array, ""],
    y: Float[Array, "chains given"],
    u: Float[Array, "units chains"],
) -> Float[Array, "chains units"]:
    """Visit the units of a layer, whose log-odds are those of P(value | context) P(data | value, y)^power."""
    units = jnp.arange(layer.units)
    log_likelihood, logits, rows = _likelihood(below, data, value, y)

    def visit(chains: tuple[Any, ...], site: tuple[Any, ...]) -> tuple[tuple[Any, ...], None]:
        value, logits, old = chains
        j, u, own, own_logit, row = site
        sign = 1 - 2 * own
        flipped = jnp.where(units == j, 1 - value, value)
        prior = sign * own_logit
        if type(layer) is not Bernoulli:  # units after it see it too
            prior = layer.log_prob(flipped, context) - layer.log_prob(value, context)
        moved, new = log_likelihood(logits, flipped, sign, row)
        flip = _decide(u, prior + power * (new - old))
        wide = flip[:, None]
        chosen = jax.tree.map(lambda a, b: jnp.where(wide, a, b), (flipped, moved), (value, logits))
        return (*chosen, jnp.where(flip, new, old)), None

    sites = (units, u, value.T, layer.conditional_logits(value, context).T, rows)
    begin = (value, logits, below.log_prob(data, beside(value, y)))
    return jax.lax.scan(visit, begin, sites)[0][0]


def _decide(u: Float[Array, " chains"], log_odds: Float[Array, " chains"]) -> Bool[Array, " chains"]:
    """Whether to flip a unit, given the log-odds of the flipped against the present state."""
    return u < jax.nn.sigmoid(log_odds)


def _likelihood(below: Layer, data: Array, value: Array, y: Array) -> tuple[Callable[..., tuple[Any, Array]], Any, Any]:
    """log P(data | value, y) as units of `value` are flipped, the logits it goes on from, and what a flip adds.

    For binary units with an affine map the flip of unit j is a step along row j of the weights, which saves the product
    with all of them. Other layers start anew at every flip.
    """
    if not (isinstance(below, Bernoulli | AutoregressiveBernoulli) and isinstance(below.logits, Affine)):
        return lambda logits, flipped, sign, row: ((), below.log_prob(data, beside(flipped, y))), (), ()

    def step(logits: Array, flipped: Array, sign: Array, row: Array) -> tuple[Array, Array]:
        moved = logits + sign[:, None] * row
        return moved, bernoulli_log_prob(data, moved)

    return step, below.conditional_logits(data, beside(value, y)), below.logits.weights[: value.shape[1]]
