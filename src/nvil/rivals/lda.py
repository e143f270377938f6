"""LDA: latent Dirichlet allocation (Blei, Ng & Jordan, 2003), trained by scikit-learn's online variational Bayes.

    theta ~ Dirichlet(alpha),   z_i ~ theta,   word i ~ topics[z_i]

Training (Hoffman, Blei & Bach, 2010) gives a Dirichlet distribution for each topic; here its mean *is* the topic. So
the model of a document has no other unknowns than its own theta and z, and its variational bound, with q(theta) =
Dirichlet(gamma) and the best q(z), is

    log P(x) >= sum_w x_w log sum_k exp(e_k) topics_kw + sum_k (alpha - gamma_k) e_k
                + log Gamma(K alpha) - K log Gamma(alpha) + sum_k log Gamma(gamma_k) - log Gamma(sum_k gamma_k),
    e_k = E[log theta_k] = digamma(gamma_k) - digamma(sum_l gamma_l)

gamma_k = alpha + exp(e_k) sum_w x_w topics_kw / (sum_l exp(e_l) topics_lw), repeated to its fixed point. scikit-learn's
own `perplexity` also counts the divergence of the topics from their prior, and takes E[log topics]; neither is part of
the probability of a document.

The bound makes LDA look worse than it is: `importance_log_prob` estimates log P(x) itself. q(theta) alone would be a
bad proposal, too narrow, so that a few weights would decide everything: the draws come in equal parts from Dirichlet
distributions that lead from q(theta) to P(theta), and their weights are bounded (Owen & Zhou, 2000).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float
from sklearn.decomposition import LatentDirichletAllocation

from nvil.errors import above_zero, count_of
from nvil.rivals.annealing import Estimate, log_mean
from nvil.rivals.checks import Documents, document_lengths, word_counts
from nvil.rivals.early_stopping import Report, train
from nvil.rivals.perplexity import mean_rate


@dataclass(frozen=True)
class Settings:
    """Priors of `None` are 1 / topics. The weight of an update of the topics falls as (offset + updates) ^ -decay."""

    topics: int = 50
    document_prior: float | None = None
    topic_prior: float | None = None
    batch: int = 256
    decay: float = 0.7
    offset: float = 10.0
    epochs: int = 50
    patience: int = 3


class Parameters(NamedTuple):
    topics: Float[Array, "topics words"]
    alpha: Float[Array, ""]


def fit(
    x: Documents,
    settings: Settings | None = None,
    *,
    validation: Documents | None = None,
    seed: int = 0,
    report: Report | None = None,
) -> Parameters:
    """`report` is called with (epoch, mean over documents of their bound per word)."""
    settings = settings or Settings()
    count_of(1, topics=settings.topics, batch=settings.batch, epochs=settings.epochs)
    prior = 1 / settings.topics
    alpha = prior if settings.document_prior is None else settings.document_prior
    topic_prior = prior if settings.topic_prior is None else settings.topic_prior
    above_zero(document_prior=alpha, topic_prior=topic_prior)
    counts = word_counts(x)
    held = counts[:500] if validation is None else word_counts(validation, counts.shape[1])
    model = LatentDirichletAllocation(
        settings.topics,
        doc_topic_prior=alpha,
        topic_word_prior=topic_prior,
        learning_method="online",
        learning_decay=settings.decay,
        learning_offset=settings.offset,
        batch_size=settings.batch,
        total_samples=counts.shape[0],
        random_state=seed,
    )

    def advance(_: Parameters, epoch: int) -> Parameters:
        model.partial_fit(counts[np.random.default_rng([seed, epoch]).permutation(counts.shape[0])])
        return topic_means(model.components_, alpha)

    return train(
        topic_means(np.ones((settings.topics, counts.shape[1])), alpha),
        advance,
        lambda parameters: mean_rate(log_prob(parameters, held), document_lengths(held)),
        epochs=settings.epochs,
        patience=settings.patience,
        validated=validation is not None,
        report=report,
    )


def topic_means(dirichlets: Float[np.ndarray, "topics words"], alpha: float) -> Parameters:
    """Each topic is the mean of its Dirichlet distribution."""
    topics = dirichlets / np.sum(dirichlets, axis=1, keepdims=True)
    return Parameters(jnp.asarray(topics, jnp.float32), jnp.asarray(alpha, jnp.float32))


def log_prob(parameters: Parameters, x: Documents, *, block: int = 256) -> Float[np.ndarray, " documents"]:
    """The lower bound on log P(x), one number per document."""
    counts = word_counts(x, parameters.topics.shape[1])
    parts = [bound(parameters, part, posterior(parameters, part)) for part in _dense(parameters, counts, block)]
    return np.concatenate([np.asarray(part) for part in parts])


def importance_log_prob(
    parameters: Parameters, x: Documents, *, samples: int = 100, block: int = 256, seed: int = 0
) -> Estimate:
    """log P(x) = log E[P(x | theta) P(theta) / r(theta)], theta ~ r, estimated with 4 `samples` draws per document.

    r is the mean of Dirichlet(alpha + t (gamma - alpha)) for t = 1, 1/2, 1/4, 0. The average of the estimate is below
    log P(x).
    """
    count_of(2, samples=samples)
    counts = word_counts(x, parameters.topics.shape[1])
    values, errors = [], []
    for i, part in enumerate(_dense(parameters, counts, block)):
        random = np.random.default_rng([seed, i])
        places = proposals(parameters, posterior(parameters, part))
        draws = (_log_gammas(random, np.asarray(places)) for _ in range(samples))
        log_weights = [np.asarray(_log_weight(parameters, part, places, drawn)) for drawn in draws]
        value, error = log_mean(np.stack(log_weights, axis=-1))
        values.append(value)
        errors.append(error)
    return Estimate(np.concatenate(values), np.concatenate(errors), np.arange(counts.shape[0]))


@jax.jit
def posterior(parameters: Parameters, x: Float[Array, "documents words"]) -> Float[Array, "documents topics"]:
    """gamma at its fixed point: until no document's mean change is above 1e-4, or for 500 steps."""
    topics, alpha = parameters

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        gamma, _, i = state
        share = jnp.exp(_expected_log(gamma))
        updated = alpha + share * ((x / jnp.maximum(share @ topics, _tiny(share))) @ topics.T)
        return updated, jnp.max(jnp.mean(jnp.abs(updated - gamma), axis=-1)), i + 1

    def going(state: tuple[Array, Array, Array]) -> Array:
        return (state[1] > 1e-4) & (state[2] < 500)

    even = alpha + jnp.sum(x, axis=-1, keepdims=True) / len(topics)
    gamma = jnp.broadcast_to(even, (len(x), len(topics)))
    return jax.lax.while_loop(going, step, (gamma, jnp.asarray(jnp.inf, gamma.dtype), jnp.asarray(0)))[0]


@jax.jit
def bound(
    parameters: Parameters, x: Float[Array, "documents words"], gamma: Float[Array, "documents topics"]
) -> Float[Array, " documents"]:
    """The lower bound on log P(x), for any gamma."""
    alpha = jnp.broadcast_to(parameters.alpha, gamma.shape)
    expected = _expected_log(gamma)
    return _log_words(parameters, x, expected) + _log_density(alpha, expected) - _log_density(gamma, expected)


def proposals(
    parameters: Parameters, gamma: Float[Array, "documents topics"]
) -> Float[Array, "proposals documents topics"]:
    """The Dirichlet distributions of which r is the mean."""
    return jnp.stack([parameters.alpha + t * (gamma - parameters.alpha) for t in (1, 0.5, 0.25, 0)])


def _log_gammas(random: np.random.Generator, shapes: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Logarithms of gamma variates, which themselves would underflow: G(a) = G(a + 1) U^(1/a).

    NumPy draws them far faster than JAX does on a CPU.
    """
    uniform = 1 - random.random(shapes.shape)
    return (np.log(random.standard_gamma(shapes + 1)) + np.log(uniform) / shapes).astype(shapes.dtype)


@jax.jit
def _log_weight(
    parameters: Parameters,
    x: Float[Array, "documents words"],
    proposals: Float[Array, "proposals documents topics"],
    log_gammas: Float[Array, "proposals documents topics"],
) -> Float[Array, " documents"]:
    """The mean weight of one draw from each of the proposals, so that all have the same share."""
    alpha = jnp.broadcast_to(parameters.alpha, proposals.shape[1:])

    def weight(log_gammas: Float[Array, "documents topics"]) -> Float[Array, " documents"]:
        log_theta = log_gammas - jax.nn.logsumexp(log_gammas, axis=-1, keepdims=True)
        densities = jax.vmap(_log_density, (0, None))(proposals, log_theta)
        log_r = jax.nn.logsumexp(densities, axis=0) - np.log(len(proposals))
        return _log_words(parameters, x, log_theta) + _log_density(alpha, log_theta) - log_r

    return jax.nn.logsumexp(jax.vmap(weight)(log_gammas), axis=0) - np.log(len(proposals))


def _log_words(
    parameters: Parameters, x: Float[Array, "documents words"], log_theta: Float[Array, "documents topics"]
) -> Float[Array, " documents"]:
    """sum_w x_w log sum_k theta_k topics_kw."""
    p = jnp.exp(log_theta) @ parameters.topics
    return jnp.sum(x * jnp.log(jnp.maximum(p, _tiny(p))), axis=-1)


def _log_density(
    gamma: Float[Array, "documents topics"], log_theta: Float[Array, "documents topics"]
) -> Float[Array, " documents"]:
    """log Dirichlet(theta; gamma) + sum_k log theta_k: that sum is the same for all gamma and cancels in ratios."""
    constant = gammaln(jnp.sum(gamma, axis=-1)) - jnp.sum(gammaln(gamma), axis=-1)
    return constant + jnp.sum(gamma * log_theta, axis=-1)


def _expected_log(gamma: Float[Array, "documents topics"]) -> Float[Array, "documents topics"]:
    return digamma(gamma) - digamma(jnp.sum(gamma, axis=-1, keepdims=True))


def _tiny(like: Array) -> float:
    return float(jnp.finfo(like.dtype).tiny)


def _dense(parameters: Parameters, counts: Any, block: int):
    for i in range(0, counts.shape[0], block):
        yield jnp.asarray(counts[i : i + block].toarray(), parameters.topics.dtype)
