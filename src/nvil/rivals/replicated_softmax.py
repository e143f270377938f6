"""Replicated Softmax: the undirected topic model of Salakhutdinov & Hinton (2009), trained by contrastive divergence.

A document of L words is an RBM with L softmax units that share their weights, so that only the counts x matter:

    P(x) = f(x) / Z_L,   f(x) = exp(b x) prod_j (1 + exp(L c_j + x W_j))

    P(h_j = 1 | x) = sigmoid(L c_j + x W_j),   each of the L words ~ softmax(b + W h)

Z_L sums over all V^L ordered documents of L words, so there is one for each length. It is estimated by annealed
importance sampling from a unigram model with log-frequencies b_A, through

    f_t(x) = exp((1 - t) b_A x + t b x) prod_j (1 + exp(t (L c_j + x W_j))),   Z_0,L = 2^units (sum_w exp b_A,w)^L

The authors train with steps of CD that grow from 1 to 5 and give, for 50 units, perplexities of 953 on 20 Newsgroups
and 988 on RCV1: averages over 50 held-out documents.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key

from nvil.errors import above_zero, count_of
from nvil.rivals.annealing import Estimate, log_mean
from nvil.rivals.ascent import falling_adam, updated
from nvil.rivals.checks import Documents, document_lengths, word_counts
from nvil.rivals.early_stopping import Report, train
from nvil.rivals.perplexity import mean_rate
from nvil.rivals.pieces import Pieces, cut, epoch_batches, shuffled_words
from nvil.rivals.rbm import bernoulli, steps_at

BLOCK = 32  # of words, in `sample_words`


@dataclass(frozen=True)
class Settings:
    """The steps of CD grow from 1 to `steps` over the epochs, and the learning rate of Adam falls linearly to zero.

    A validation score, each `interval` epochs, is a quick estimate: `quick_chains` chains and `quick_temperatures`, for
    at most `quick_documents` of the validation documents.
    """

    units: int = 50
    steps: int = 5
    learning_rate: float = 3e-3
    batch: int = 100
    epochs: int = 100
    interval: int = 10
    patience: int = 3
    quick_documents: int = 100
    quick_chains: int = 10
    quick_temperatures: int = 200


class Parameters(NamedTuple):
    """`base` is b_A, the log-frequencies of the words; it is not trained."""

    weights: Float[Array, "words units"]
    word_bias: Float[Array, " words"]
    hidden_bias: Float[Array, " units"]
    base: Float[Array, " words"]


def fit(
    x: Documents,
    settings: Settings | None = None,
    *,
    validation: Documents | None = None,
    seed: int = 0,
    report: Report | None = None,
) -> Parameters:
    """`report` is called with (epoch, quick estimate of the mean over documents of log P per word)."""
    settings = settings or Settings()
    count_of(
        1,
        units=settings.units,
        steps=settings.steps,
        batch=settings.batch,
        epochs=settings.epochs,
        interval=settings.interval,
    )
    above_zero(learning_rate=settings.learning_rate)
    counts = word_counts(x)
    held = counts if validation is None else word_counts(validation, counts.shape[1])
    batch = min(settings.batch, counts.shape[0])
    updates = counts.shape[0] // batch
    parameters = start(counts, settings.units, seed)
    key = jax.random.key(seed)

    def advance(state: tuple[Parameters, optax.OptState], epoch: int) -> tuple[Parameters, optax.OptState]:
        rng = np.random.default_rng([seed, epoch])
        pieces = cut(*shuffled_words(counts, rng), epoch_batches(counts.shape[0], batch, rng))
        steps = jnp.asarray(steps_at(epoch, settings.epochs, settings.steps))
        return _epoch(*state, pieces, steps, jax.random.fold_in(key, epoch), batch, settings)

    def score(state: tuple[Parameters, optax.OptState]) -> float:
        estimate = log_prob(
            state[0],
            held,
            documents=settings.quick_documents,
            chains=settings.quick_chains,
            betas=settings.quick_temperatures,
            seed=seed,
        )
        return mean_rate(estimate.log_prob, document_lengths(held)[estimate.rows])

    return train(
        (parameters, _optimiser(settings, updates).init(parameters)),
        advance,
        score,
        epochs=settings.epochs,
        patience=settings.patience,
        validated=validation is not None,
        report=report,
        interval=settings.interval,
    )[0]


def log_prob(
    parameters: Parameters,
    x: Documents,
    *,
    documents: int | None = 50,
    chains: int = 100,
    betas: int = 1000,
    seed: int = 0,
) -> Estimate:
    """log P of `documents` of the documents, drawn at random (`None`: of all), `rows` saying of which.

    Each has the standard error of its log Z_L. Documents of the same length share one. Long documents need more
    temperatures: with 1000, annealing back from data agreed to 0.1 nats at 58 words of a trained model, but showed
    that log P was too high by up to 4 nats at 200 words.
    """
    counts = word_counts(x, len(parameters.base))
    rows = np.arange(counts.shape[0])
    if documents is not None and documents < len(rows):
        count_of(1, documents=documents)
        rows = np.sort(np.random.default_rng(seed).choice(len(rows), documents, replace=False))
    lengths, which = np.unique(document_lengths(counts)[rows], return_inverse=True)
    log_z, errors = log_partitions(parameters, lengths, chains=chains, betas=betas, seed=seed)
    values = np.concatenate([_log_f_of(parameters, counts[rows[i : i + 500]]) for i in range(0, len(rows), 500)])
    return Estimate(values - log_z[which], errors[which], rows)


def log_partitions(
    parameters: Parameters,
    lengths: Int[np.ndarray, " lengths"],
    *,
    chains: int = 100,
    betas: int = 1000,
    seed: int = 0,
    rows: int = 256,
    slots: int = 16384,
) -> tuple[Float[np.ndarray, " lengths"], Float[np.ndarray, " lengths"]]:
    """log Z_L for documents of each of these lengths by annealed importance sampling, and their standard errors.

    Chains of all lengths run together, so many at a time as have at most `slots` words and are at most `rows`: the
    shapes are always the same, so this compiles once.
    """
    count_of(2, chains=chains, betas=betas)
    every = np.repeat(lengths, chains)
    rows = min(rows, len(every))
    slots = max(min(slots, int(every.sum())), int(every.max()), 1)
    schedule = jnp.linspace(0, 1, betas, dtype=parameters.base.dtype)
    log_weights = np.empty(len(every))
    begin = 0
    while begin < len(every):
        fitting = np.searchsorted(np.cumsum(every[begin : begin + rows]), slots, side="right")
        together = np.zeros(rows, np.int32)
        together[:fitting] = every[begin : begin + fitting]
        key = jax.random.fold_in(jax.random.key(seed), begin)
        found = _log_weights(parameters, schedule, jnp.asarray(together), key, slots)
        log_weights[begin : begin + fitting] = np.asarray(found)[:fitting]
        begin += int(fitting)
    estimates, errors = log_mean(log_weights.reshape(len(lengths), chains))
    log_z0 = lengths * float(jax.nn.logsumexp(parameters.base)) + len(parameters.hidden_bias) * np.log(2)
    return log_z0 + estimates, errors


@jax.jit
def log_f(
    parameters: Parameters, x: Float[Array, "documents words"], lengths: Float[Array, " documents"]
) -> Float[Array, " documents"]:
    """log f(x) = b x + sum_j log(1 + exp(L c_j + x W_j)), P(x) without its constant."""
    hidden = jax.nn.softplus(_active(parameters, x, lengths))
    return x @ parameters.word_bias + jnp.sum(hidden, axis=-1)


def sample_words(
    key: Key[Array, ""], logits: Float[Array, "documents words"], owner: Int[Array, " slots"]
) -> Float[Array, "documents words"]:
    """Counts of words drawn from the softmax of the logits of their document; slot i is a word of document owner_i.

    A slot whose owner is past the last document is not filled.
    """
    documents, vocabulary = logits.shape
    blocks = -(-vocabulary // BLOCK)
    # Which block of words, by bisection of the cumulative sums of blocks; which word of it, by those within.
    p = jnp.pad(jax.nn.softmax(logits), ((0, 0), (0, blocks * BLOCK - vocabulary))).reshape(documents, blocks, BLOCK)
    cumulative = jnp.cumsum(jnp.sum(p, axis=-1), axis=-1)
    draws = jax.random.uniform(key, owner.shape, logits.dtype) * cumulative[owner, -1]
    block = jnp.minimum(_count_below(cumulative, owner, draws), blocks - 1)
    rest = draws - jnp.where(block > 0, cumulative[owner, block - 1], 0)
    within = p[owner, block] @ jnp.triu(jnp.ones((BLOCK, BLOCK), p.dtype))
    word = block * BLOCK + jnp.sum(within <= rest[:, None], axis=-1, dtype=block.dtype)
    word = jnp.minimum(word, jnp.minimum((block + 1) * BLOCK, vocabulary) - 1)  # where rounding went past the end
    return jnp.zeros_like(logits).at[owner, word].add(jnp.ones_like(draws), mode="drop")


def start(counts: Any, units: int, seed: int) -> Parameters:
    """Weights of standard deviation 0.01; the biases of words are the log-frequencies, smoothed by half a count."""
    weights = np.random.default_rng(seed).normal(0, 0.01, (counts.shape[1], units)).astype(np.float32)
    totals = np.asarray(counts.sum(axis=0)).ravel() + 0.5
    base = jnp.asarray(np.log(totals / np.sum(totals)), jnp.float32)
    return Parameters(jnp.asarray(weights), base, jnp.zeros(units, jnp.float32), base)


def gibbs(
    parameters: Parameters,
    x: Float[Array, "documents words"],
    lengths: Float[Array, " documents"],
    owner: Int[Array, " slots"],
    key: Key[Array, ""],
    steps: int | Int[Array, ""],
) -> Float[Array, "documents words"]:
    """`steps` times h ~ P(h | x), x ~ P(x | h)."""

    def step(i: Array, x: Array) -> Array:
        hidden_key, word_key = jax.random.split(jax.random.fold_in(key, i))
        h = bernoulli(hidden_key, _active(parameters, x, lengths))
        return sample_words(word_key, h @ parameters.weights.T + parameters.word_bias, owner)

    return jax.lax.fori_loop(0, steps, step, x)


def _active(
    parameters: Parameters, x: Float[Array, "documents words"], lengths: Float[Array, " documents"]
) -> Float[Array, "documents units"]:
    return x @ parameters.weights + lengths[:, None] * parameters.hidden_bias


def _count_below(
    table: Float[Array, "documents entries"], owner: Int[Array, " slots"], draws: Float[Array, " slots"]
) -> Int[Array, " slots"]:
    """How many entries of the owner's row, which increase, are at most the draw: one binary digit after another."""
    entries = table.shape[1]
    digits = entries.bit_length()

    def digit(i: Array, count: Array) -> Array:
        probe = count + (1 << (digits - 1 - i)).astype(count.dtype)
        below = (probe <= entries) & (table[owner, jnp.minimum(probe, entries) - 1] <= draws)
        return jnp.where(below, probe, count)

    return jax.lax.fori_loop(0, digits, digit, jnp.zeros_like(owner))


def _log_f_of(parameters: Parameters, counts: Any) -> Float[np.ndarray, " documents"]:
    x = jnp.asarray(counts.toarray(), parameters.base.dtype)
    return np.asarray(log_f(parameters, x, jnp.sum(x, axis=-1)), np.float64)


@partial(jax.jit, static_argnames="slots")
def _log_weights(
    parameters: Parameters,
    betas: Float[Array, " betas"],
    lengths: Int[Array, " chains"],
    key: Key[Array, ""],
    slots: int,
) -> Float[Array, " chains"]:
    """The log-weights of chains of documents, each of its own length, with no more than `slots` words in all."""
    weights, bias, _, base = parameters
    owner = jnp.searchsorted(jnp.cumsum(lengths), jnp.arange(slots, dtype=lengths.dtype), side="right")
    lengths = lengths.astype(base.dtype)

    def step(carry: tuple[Array, Array], now: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
        x, log_weights = carry
        i, before, beta = now
        active = _active(parameters, x, lengths)
        gain = jnp.sum(jax.nn.softplus(beta * active) - jax.nn.softplus(before * active), axis=-1)
        gain = gain + (beta - before) * (x @ (bias - base))
        hidden_key, word_key = jax.random.split(jax.random.fold_in(key, i))
        h = bernoulli(hidden_key, beta * active)
        x = sample_words(word_key, (1 - beta) * base + beta * (h @ weights.T + bias), owner)
        return (x, log_weights + gain), None

    # The first step goes from 0 to 0: it gains nothing and draws x from the unigram model.
    steps = (jnp.arange(len(betas)), jnp.concatenate([betas[:1], betas[:-1]]), betas)
    nothing = (jnp.zeros((len(lengths), len(base)), base.dtype), jnp.zeros(len(lengths), base.dtype))
    return jax.lax.scan(step, nothing, steps)[0][1]


def _optimiser(settings: Settings, updates: int) -> optax.GradientTransformation:
    return falling_adam(settings.learning_rate, settings.epochs * updates)


@partial(jax.jit, static_argnames=("batch", "settings"))
def _epoch(
    parameters: Parameters,
    state: optax.OptState,
    pieces: Pieces,
    steps: Int[Array, ""],
    key: Key[Array, ""],
    batch: int,
    settings: Settings,
) -> tuple[Parameters, optax.OptState]:
    optimiser = _optimiser(settings, len(pieces.owner))

    def update(carry: tuple[Parameters, optax.OptState], now: tuple[Array, Pieces]):
        parameters, state = carry
        i, (words, rows_owner) = now
        owner = jnp.where(words >= 0, rows_owner[:, None], batch).reshape(-1)
        x = jnp.zeros((batch, len(parameters.base)), parameters.base.dtype)
        x = x.at[owner, words.reshape(-1)].add(1.0, mode="drop")
        lengths = jnp.sum(x, axis=-1)
        model = gibbs(parameters, x, lengths, owner, jax.random.fold_in(key, i), steps)

        def loss(parameters: Parameters) -> Float[Array, ""]:
            return jnp.mean(log_f(parameters, model, lengths) - log_f(parameters, x, lengths))

        return updated(optimiser, jax.grad(loss)(parameters), state, parameters), None

    return jax.lax.scan(update, (parameters, state), (jnp.arange(len(pieces.owner)), pieces))[0]
