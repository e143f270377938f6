"""The rival models: exact where they can be enumerated, and learning from tiny data."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import betaln, digamma, gammaln, logsumexp

from nvil.errors import UsageError
from nvil.rivals import (
    docnade,
    lda,
    mixture,
    nade,
    perplexities,
    perplexity_errors,
    rbm,
    replicated_softmax,
    unigram,
)
from nvil.rivals.annealing import log_mean, temperatures
from nvil.rivals.early_stopping import train
from nvil.rivals.pieces import WIDTH, Pieces, all_batches, cut, epoch_batches, shuffled_words

EVERY_CASE = np.array(list(itertools.product((0, 1), repeat=6)), np.uint8)


# compiled once, not operation by operation
softmax_log_f, lda_bound = jax.jit(replicated_softmax.log_f), jax.jit(lda.bound)
log_f, log_softmax, softmax = jax.jit(rbm.log_f), jax.jit(jax.nn.log_softmax), jax.jit(jax.nn.softmax)


def draws(*shape, seed=0, scale=1.0):
    numbers = scale * np.random.default_rng(seed).normal(size=shape)
    return jax.device_put(numbers.astype(jax.dtypes.canonicalize_dtype(float)))


def counts_of(documents, words):
    table = np.zeros((len(documents), words), np.int64)
    for row, document in zip(table, documents, strict=True):
        np.add.at(row, list(document), 1)
    return sp.csr_array(table)


def every_document(words, length):
    return list(itertools.product(range(words), repeat=length))


def two_kinds_of_cases(cases=200, pixels=12):
    """Half of the cases have the first pixels on, half the last, with a tenth of the pixels flipped."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, 2, (cases, 1))
    clean = np.where(np.arange(pixels) < pixels // 2, first, 1 - first)
    return np.where(rng.random((cases, pixels)) < 0.1, 1 - clean, clean).astype(np.uint8)


def two_kinds_of_documents(documents=200, words=12):
    """Half of the documents are of the first words, half of the last, 1 to 20 words long; one is empty."""
    rng = np.random.default_rng(0)
    half = words // 2
    drawn = [rng.integers(0, half, rng.integers(1, 21)) + half * (i % 2) for i in range(documents - 1)]
    return counts_of([*drawn, []], words)


def base_rate_log_prob(x, held):
    rates = (x.sum(axis=0) + 0.5) / (len(x) + 1)
    return np.mean(held @ np.log(rates) + (1 - held) @ np.log1p(-rates))


def unigram_rate(x, held):
    lengths = np.asarray(held.sum(axis=1)).ravel()
    return -np.log(perplexities(unigram.log_prob(unigram.fit(x), held), lengths).per_document)


# --- mixture


def test_mixture_sums_to_one(float64):
    parameters = mixture.Parameters(log_softmax(draws(3)), draws(3, 6, scale=3.0))
    np.testing.assert_allclose(np.sum(np.exp(mixture.log_prob(parameters, EVERY_CASE, block=7))), 1, rtol=1e-12)


def test_mixture_log_prob_by_hand():
    parameters = mixture.Parameters(jnp.log(jnp.array([0.25, 0.75])), jnp.log(jnp.array([[1.0, 3.0], [4.0, 1.0]])))
    # p = [[1/2, 3/4], [4/5, 1/2]], x = (1, 0)
    expected = np.log(0.25 * 1 / 2 * 1 / 4 + 0.75 * 4 / 5 * 1 / 2)
    np.testing.assert_allclose(mixture.log_prob(parameters, np.array([[1, 0]])), [expected], rtol=1e-6)


@pytest.mark.parametrize("smoothing", [1e-6, 0.5])
def test_em_never_lowers_what_it_climbs(float64, smoothing):
    x = np.random.default_rng(1).integers(0, 2, (50, 6)).astype(np.uint8)
    parameters = mixture.Parameters(log_softmax(draws(3)), draws(3, 6))
    blocks = jnp.asarray(np.concatenate([x, np.ones((10, 6), np.uint8)]).reshape(3, 20, 6))
    weights = jnp.asarray((np.arange(60) < 50).astype(float).reshape(3, 20))
    values = []
    for _ in range(30):
        values.append(np.sum(mixture.log_prob(parameters, x)) + mixture.log_prior(parameters, smoothing))
        parameters = mixture.em_step(parameters, blocks, weights, jnp.asarray(smoothing))
    assert np.all(np.diff(values) > -1e-9)
    assert values[-1] > values[0] + 1
    np.testing.assert_allclose(jnp.sum(jnp.exp(parameters.log_weights)), 1)


def test_em_with_one_component_counts(float64):
    x = np.array([[1, 0], [1, 1], [0, 0]], np.uint8)
    start = mixture.Parameters(jnp.zeros(1), draws(1, 2))
    after = mixture.em_step(start, jnp.asarray(x)[None], jnp.ones((1, 3)), jnp.asarray(0.5))
    np.testing.assert_allclose(jax.nn.sigmoid(after.logits), [[2.5 / 4, 1.5 / 4]], rtol=1e-12)


def test_mixture_learns():
    x, held = np.split(two_kinds_of_cases(), [150])
    settings = mixture.Settings(components=2, epochs=20, block=40)
    reported = []
    parameters = mixture.fit(x, settings, validation=held, report=lambda *event: reported.append(event))
    found = np.mean(mixture.log_prob(parameters, held))
    assert found > base_rate_log_prob(x, held) + 3
    np.testing.assert_allclose(found, max(bound for _, bound in reported), rtol=1e-6)
    again = mixture.fit(x, settings, validation=held)
    np.testing.assert_array_equal(again.logits, parameters.logits)


# --- NADE


def nade_parameters(pixels=6, units=4):
    return nade.Parameters(
        draws(pixels, units), draws(units, seed=1), draws(pixels, units, seed=2), draws(pixels, seed=3)
    )


def plain_nade(parameters, x):
    """Pixel after pixel from the equations, without any state."""
    before = jnp.tril(jnp.ones((x.shape[1], x.shape[1])), -1)
    active = jnp.einsum("nd,ed,du->neu", x, before, parameters.encoder) + parameters.hidden_bias
    logits = jnp.einsum("neu,eu->ne", jax.nn.sigmoid(active), parameters.decoder) + parameters.bias
    return jnp.sum(jax.nn.log_sigmoid(jnp.where(x == 1, logits, -logits)), axis=-1)


def test_nade_sums_to_one(float64):
    np.testing.assert_allclose(np.sum(np.exp(nade.log_prob(nade_parameters(), EVERY_CASE, block=20))), 1, rtol=1e-12)


def test_nade_and_its_gradient_are_those_of_the_equations(float64):
    x = jnp.asarray(EVERY_CASE[::5], float)
    parameters = nade_parameters()
    np.testing.assert_allclose(nade.log_prob(parameters, EVERY_CASE[::5]), plain_nade(parameters, x), rtol=1e-10)

    def total(p):
        outputs = nade.logits(p, x)
        return jnp.sum(jnp.arange(1.0, len(x) + 1) * jnp.sum(x * outputs - jax.nn.softplus(outputs), axis=-1))

    expected = jax.jit(jax.grad(lambda p: jnp.sum(jnp.arange(1.0, len(x) + 1) * plain_nade(p, x))))(parameters)
    found = jax.jit(jax.grad(total))(parameters)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10), found, expected)


def test_nade_learns():
    x, held = np.split(two_kinds_of_cases(), [150])
    settings = nade.Settings(units=8, epochs=20, batch=10, learning_rate=0.02)
    parameters = nade.fit(x, settings, validation=held)
    assert np.mean(nade.log_prob(parameters, held)) > base_rate_log_prob(x, held) + 2
    jax.tree.map(np.testing.assert_array_equal, nade.fit(x, settings, validation=held), parameters)


# --- RBM


def rbm_parameters(scale=1.0):
    base = draws(6, seed=4, scale=0.3)
    return rbm.Parameters(draws(6, 4, scale=scale), draws(6, seed=1), draws(4, seed=2), base)


def test_rbm_log_f_sums_over_hidden_units(float64):
    parameters = rbm_parameters()
    weights, visible_bias, hidden_bias, _ = map(np.asarray, parameters)
    hidden = np.array(list(itertools.product((0.0, 1.0), repeat=4)))
    energies = EVERY_CASE @ weights @ hidden.T + (EVERY_CASE @ visible_bias)[:, None]
    expected = logsumexp(energies + hidden @ hidden_bias, axis=1)
    np.testing.assert_allclose(log_f(parameters, EVERY_CASE.astype(float)), expected, rtol=1e-12)


def test_rbm_annealing_agrees_with_enumeration(float64):
    parameters = rbm_parameters()
    exact = logsumexp(log_f(parameters, EVERY_CASE.astype(float)))
    estimate = rbm.log_prob(parameters, EVERY_CASE, chains=200, betas=200)
    assert 0 < estimate.standard_error < 0.05
    log_z, error = rbm.log_partition(parameters, chains=200, betas=200)
    assert abs(log_z - exact) < 4 * error
    np.testing.assert_allclose(logsumexp(estimate.log_prob), exact - log_z, atol=1e-10)
    # From the base-rate model to itself every weight is 1.
    base = parameters._replace(weights=jnp.zeros((6, 4)), hidden_bias=jnp.zeros(4), visible_bias=parameters.base)
    np.testing.assert_allclose(rbm.log_partition(base, chains=200, betas=200)[0], _log_z(base), rtol=1e-12)


def test_one_sweep_of_annealing_is_plain_importance_sampling(float64):
    """With two temperatures the weights are f(v) / f_0(v) under the base-rate model: many chains, known variance."""
    parameters = rbm_parameters(0.5)
    every = jnp.asarray(EVERY_CASE, float)
    log_z, error = rbm.log_partition(parameters, chains=20000, betas=2)
    log_base = np.asarray(every @ parameters.base - jnp.sum(jax.nn.softplus(parameters.base)))
    ratio = np.exp(np.asarray(log_f(parameters, every)) - log_base - _log_z(parameters))
    exact_error = np.sqrt((np.sum(np.exp(log_base) * ratio**2) - 1) / 20000)
    np.testing.assert_allclose(error, exact_error, rtol=0.05)
    assert abs(log_z - _log_z(parameters)) < 4 * exact_error


def _log_z(parameters):
    return logsumexp(log_f(parameters, EVERY_CASE.astype(float)))


def test_contrast_with_exact_samples_is_the_likelihood_gradient(float64):
    """Where the model's states are all states, each as often as it is likely, CD's gradient is the exact one."""
    data = jnp.asarray(EVERY_CASE[[3, 17, 40]], float)
    every = jnp.asarray(EVERY_CASE, float)
    parameters = rbm_parameters()._replace(weights=jnp.zeros((6, 4)), visible_bias=jnp.zeros(6))  # all as likely

    def log_likelihood(p):
        return jnp.mean(rbm.log_f(p, data)) - jax.nn.logsumexp(rbm.log_f(p, every))

    found = jax.jit(jax.grad(rbm.contrast))(parameters, data, every)
    expected = jax.jit(jax.grad(log_likelihood))(parameters)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), found, expected)
    assert jnp.max(jnp.abs(found.weights)) > 0.1


def test_gibbs_sampling_leaves_the_model_as_it_is():
    parameters = rbm_parameters()
    exact = np.exp(np.asarray(log_f(parameters, EVERY_CASE.astype(np.float32)), np.float64))
    exact /= exact.sum()
    rng = np.random.default_rng(0)
    v = jnp.asarray(EVERY_CASE[rng.choice(64, 40000, p=exact)], jnp.float32)
    after = jax.jit(rbm.gibbs)(parameters, v, jax.random.key(0), jnp.asarray(2))
    frequencies = np.bincount(np.asarray(after @ (2.0 ** jnp.arange(5, -1, -1))).astype(int), minlength=64) / 40000
    np.testing.assert_array_less(np.abs(frequencies - exact), 4.5 * np.sqrt(exact / 40000) + 1e-4)
    assert np.mean(np.asarray(after) != np.asarray(v)) > 0.05


@pytest.mark.parametrize(
    "kind", [{"steps": 3, "gradual": True}, {"steps": 1, "persistent": True, "learning_rate": 0.02}]
)
def test_rbm_learns(kind):
    x, held = np.split(two_kinds_of_cases(), [150])
    settings = rbm.Settings(
        **{"units": 4, "epochs": 20, "batch": 10, "interval": 20, "learning_rate": 0.1, "quick_temperatures": 100}
        | kind
    )
    parameters = rbm.fit(x, settings, validation=held)
    estimate = rbm.log_prob(parameters, held, betas=100)
    assert np.mean(estimate.log_prob) > base_rate_log_prob(x, held) + 2
    np.testing.assert_array_equal(parameters.base, rbm.start(x, 4, 0).base)


def test_steps_grow_to_the_last_epoch():
    assert [rbm.steps_at(epoch, 5, 25) for epoch in range(1, 6)] == [1, 7, 13, 19, 25]
    assert rbm.steps_at(1, 1, 25) == 25


# --- annealing


def test_log_mean_and_its_error():
    value, error = log_mean(np.log([[1.0, 3.0], [1e-300, 1e-300]]))
    np.testing.assert_allclose(value, [np.log(2), np.log(1e-300)])
    np.testing.assert_allclose(error, [1 / 2, 0])  # standard deviation sqrt 2, mean of two, divided by the mean


def test_temperatures_are_those_of_salakhutdinov_and_murray():
    betas = temperatures(14501)
    np.testing.assert_allclose(betas[[0, 500, 4500, 14500]], [0, 0.5, 0.9, 1])
    assert np.all(np.diff(betas) > 0)


# --- unigram and perplexities


def test_unigram_by_hand():
    x = sp.csr_matrix([[2, 0, 1], [1, 0, 0]])
    parameters = unigram.fit(x)
    np.testing.assert_allclose(np.exp(parameters.log_frequencies), [3.5 / 5.5, 0.5 / 5.5, 1.5 / 5.5])
    np.testing.assert_allclose(unigram.log_prob(parameters, x)[0], 2 * np.log(3.5 / 5.5) + np.log(1.5 / 5.5))


def test_perplexities_by_hand():
    log_probs, lengths = np.log([1 / 8, 1.0, 1 / 9]), np.array([3, 0, 1])
    found = perplexities(log_probs, lengths)
    np.testing.assert_allclose(found, [np.sqrt(2 * 9), (8 * 9) ** (1 / 4)])
    with pytest.raises(UsageError, match="No document"):
        perplexities(log_probs[1:2], lengths[1:2])


def test_perplexity_errors_are_those_of_repeated_samples():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 30, (1500, 50))
    log_probs = -lengths * rng.normal(2, 0.3, lengths.shape)
    repeated = np.array([perplexities(*pair) for pair in zip(log_probs, lengths, strict=True)])
    claimed = np.array([perplexity_errors(*pair) for pair in zip(log_probs, lengths, strict=True)])
    np.testing.assert_allclose(np.mean(claimed, axis=0), np.std(repeated, axis=0), rtol=0.08)


# --- LDA


def lda_parameters(topics=2, words=3):
    return lda.Parameters(softmax(draws(topics, words, scale=1.5)), jnp.asarray(0.7))


def exact_lda(parameters, document):
    """log sum_z P(z) prod_i topics[z_i, word_i], P(z) that of the Dirichlet-multinomial."""
    topics, alpha = np.asarray(parameters.topics), float(parameters.alpha)
    terms = []
    for z in itertools.product(range(len(topics)), repeat=len(document)):
        n = np.bincount(z, minlength=len(topics))
        prior = gammaln(alpha * len(n)) - gammaln(alpha * len(n) + len(z)) + np.sum(gammaln(alpha + n) - gammaln(alpha))
        terms.append(prior + np.sum(np.log(topics[list(z), list(document)])))
    return logsumexp(terms)


def test_lda_bound_is_the_elbo_by_brute_force(float64):
    """E_q[log P(x, z, theta) - log q(z) q(theta)], by sums over z and integrals over theta, for two topics."""
    parameters, document = lda_parameters(), (0, 2, 2, 1)
    x = jnp.asarray(counts_of([document], 3).toarray(), float)
    gamma = np.array([1.3, 2.4])
    topics, alpha = np.asarray(parameters.topics), 0.7
    nodes, node_weights = np.polynomial.legendre.leggauss(400)
    theta = (1 + np.sin(nodes * np.pi / 2)) / 2  # so that the ends of the interval do no harm
    node_weights = node_weights * np.cos(nodes * np.pi / 2) * np.pi / 4
    log_thetas = np.log([theta, 1 - theta])
    q = np.exp((gamma - 1) @ log_thetas - betaln(*gamma)) * node_weights
    np.testing.assert_allclose(np.sum(q), 1, rtol=1e-6)
    phi = np.exp(digamma(gamma))[:, None] * topics
    phi = phi / phi.sum(axis=0)
    elbo = np.sum(q * ((alpha - gamma) @ log_thetas - betaln(alpha, alpha) + betaln(*gamma)))
    for z in itertools.product(range(2), repeat=4):
        share = np.prod(phi[list(z), list(document)])
        log_joint = np.sum(q * np.sum(log_thetas[list(z)], axis=0)) + np.sum(np.log(topics[list(z), list(document)]))
        elbo += share * (log_joint - np.log(share))
    np.testing.assert_allclose(lda_bound(parameters, x, gamma[None]), [elbo], rtol=1e-5)


def test_lda_bound_and_estimate_against_enumeration(float64):
    parameters = lda_parameters(3)
    documents = [(0, 2, 2, 1), (1,), (2, 2, 2, 2, 2)]
    exact = np.array([exact_lda(parameters, document) for document in documents])
    x = counts_of([*documents, ()], 3)
    bound = lda.log_prob(parameters, x)
    assert np.all(bound[:3] < exact)
    assert np.all(bound[:3] > exact - 1.5)
    np.testing.assert_allclose(bound[3], 0, atol=1e-9)
    estimate = lda.importance_log_prob(parameters, x, samples=500)
    assert np.all(np.abs(estimate.log_prob[:3] - exact) < 4 * estimate.standard_error[:3])
    assert np.all(estimate.standard_error[:3] < 0.05)
    # gamma at its fixed point is the best gamma
    dense = jnp.asarray(x.toarray(), float)
    best = lda.posterior(parameters, dense)
    for change in (0.9, 1.1):
        assert np.all(lda_bound(parameters, dense, best * change) < lda_bound(parameters, dense, best))


def test_lda_with_one_topic_is_the_unigram_model(float64):
    parameters = lda_parameters(1)
    x = counts_of([(0, 2, 2)], 3)
    expected = x @ np.log(np.asarray(parameters.topics[0]))
    np.testing.assert_allclose(lda.log_prob(parameters, x), expected, rtol=1e-10)


def test_lda_learns():
    x = two_kinds_of_documents()
    x, held = x[:150], x[150:]
    settings = lda.Settings(topics=2, batch=30, epochs=8)
    parameters = lda.fit(x, settings, validation=held)
    lengths = np.asarray(held.sum(axis=1)).ravel()
    assert -np.log(perplexities(lda.log_prob(parameters, held), lengths).per_document) > unigram_rate(x, held) + 0.2


# --- documents cut into rows


def test_pieces_hold_every_word_in_order():
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 9, n) for n in (5, 0, 3 * WIDTH + 1, WIDTH, 1)]
    begins = np.concatenate([[0], np.cumsum([len(document) for document in documents])])
    words, owner = cut(np.concatenate(documents), begins, np.array([[2, 1, 0], [4, 3, -1]]), multiple=1)
    assert owner.shape == (2, 5)
    for update, batch in enumerate([[2, 1, 0], [4, 3]]):
        for place, document in enumerate(batch):
            found = np.asarray(words[update])[np.asarray(owner[update]) == place].ravel()
            np.testing.assert_array_equal(found[found >= 0], documents[document])
    assert np.all(np.asarray(words)[np.asarray(owner) == 3] == -1)


def test_shuffled_words_keep_counts_and_change_order():
    counts = counts_of([(0, 1, 2, 3, 4, 5, 6, 7), (), (1, 1, 2)], 8)
    words, begins = shuffled_words(counts, np.random.default_rng(0))
    np.testing.assert_array_equal(begins, [0, 8, 8, 11])
    np.testing.assert_array_equal(np.sort(words[:8]), np.arange(8))
    assert np.any(words[:8] != np.arange(8))
    np.testing.assert_array_equal(np.sort(words[8:]), [1, 1, 2])


def test_batches():
    np.testing.assert_array_equal(all_batches(5, 2), [[0, 1], [2, 3], [4, -1]])
    found = epoch_batches(5, 2, np.random.default_rng(0))
    assert found.shape == (2, 2)
    assert len(set(found.ravel())) == 4


# --- DocNADE


ordered_log_prob = jax.jit(docnade.ordered_log_prob, static_argnums=2)


def docnade_parameters(words, units=3):
    weights = docnade.Weights(
        draws(words, units), draws(units, seed=1), draws(words, units, seed=2), draws(words, seed=3)
    )
    return docnade.Parameters(weights, jnp.asarray(np.random.default_rng(0).permutation(words), jnp.int32))


def in_rows(documents):
    begins = np.concatenate([[0], np.cumsum([len(document) for document in documents])])
    return cut(np.concatenate(documents), begins, np.arange(len(documents))[None], multiple=1)


def plain_docnade(parameters, document):
    """Word after word, turn after turn, from the equations."""
    weights, leaves = parameters
    total, active = 0.0, np.asarray(weights.hidden_bias)
    for word in document:
        h = 1 / (1 + np.exp(-active))
        path = bin(int(leaves[word]) + len(leaves))[2:]  # the root's 1, then 0 for left and 1 for right
        for depth in range(1, len(path)):
            node = int(path[:depth], 2)
            logit = float(weights.node_bias[node] + weights.nodes[node] @ h)
            total += -np.log1p(np.exp(-logit if path[depth] == "1" else logit))
        active = active + np.asarray(weights.words[word])
    return total


@pytest.mark.parametrize("words", [1, 5, 8])
def test_docnade_sums_to_one(float64, words):
    documents = every_document(words, 2)
    rows, owner = in_rows(documents)
    found = ordered_log_prob(docnade_parameters(words), Pieces(rows[0], owner[0]), len(documents))
    np.testing.assert_allclose(np.sum(np.exp(found)), 1, rtol=1e-12)


def test_docnade_is_that_of_the_equations(float64):
    parameters = docnade_parameters(5)
    documents = [np.random.default_rng(n).integers(0, 5, n) for n in (3, 2 * WIDTH + 7, 1, WIDTH)]
    words, owner = in_rows(documents)
    found = ordered_log_prob(parameters, Pieces(words[0], owner[0]), 4)
    np.testing.assert_allclose(found, [plain_docnade(parameters, document) for document in documents], rtol=1e-10)


def test_docnade_averages_over_orders(float64):
    parameters = docnade_parameters(4)
    x = counts_of([(0, 3), (), (2,)], 4)
    both = plain_docnade(parameters, (0, 3)), plain_docnade(parameters, (3, 0))
    found = docnade.log_prob(parameters, x, orders=100, batch=2)
    np.testing.assert_allclose(found[1:], [0, plain_docnade(parameters, (2,))], rtol=1e-10)
    share = (found[0] - both[1]) / (both[0] - both[1])  # of the first of the two orders
    assert 0.3 < share < 0.7


def test_docnade_learns():
    x = two_kinds_of_documents()
    x, held = x[:150], x[150:]
    settings = docnade.Settings(units=4, epochs=15, batch=10, learning_rate=0.03)
    parameters = docnade.fit(x, settings, validation=held)
    lengths = np.asarray(held.sum(axis=1)).ravel()
    assert -np.log(perplexities(docnade.log_prob(parameters, held), lengths).per_document) > unigram_rate(x, held) + 0.2


# --- Replicated Softmax


def softmax_parameters(words=4, units=3):
    base = log_softmax(draws(words, seed=4, scale=0.3))
    return replicated_softmax.Parameters(
        draws(words, units), draws(words, seed=1), draws(units, seed=2, scale=0.3), base
    )


def test_replicated_softmax_log_f_sums_over_hidden_units(float64):
    parameters = softmax_parameters()
    x = counts_of([(0, 3, 3), (1,)], 4).toarray().astype(float)
    hidden = np.array(list(itertools.product((0.0, 1.0), repeat=3)))
    lengths = x.sum(axis=1)
    energies = x @ parameters.weights @ hidden.T + (x @ parameters.word_bias)[:, None]
    energies = energies + lengths[:, None] * (hidden @ parameters.hidden_bias)
    found = softmax_log_f(parameters, x, lengths)
    np.testing.assert_allclose(found, logsumexp(energies, axis=1), rtol=1e-12)


def test_replicated_softmax_annealing_agrees_with_enumeration(float64):
    """Each length has its own constant, a sum over all ordered documents of that length."""
    parameters = softmax_parameters()
    lengths = np.array([0, 1, 2, 4])
    exact = []
    for length in lengths:
        x = counts_of(every_document(4, length), 4).toarray().astype(float)
        exact.append(logsumexp(softmax_log_f(parameters, x, x.sum(axis=-1))))
    # chains of several lengths run at once, some lengths in two parts
    found, errors = replicated_softmax.log_partitions(parameters, lengths, chains=200, betas=100, rows=150, slots=300)
    assert np.all(np.abs(found - exact) < 4 * errors + 1e-9)
    assert np.all(errors < 0.05)
    assert np.all(errors[1:] > 0)


@pytest.mark.parametrize("documents", [None, 2, 50])
def test_replicated_softmax_log_prob_knows_its_rows(monkeypatch, documents):
    """With known constants in place of estimates: each document gets that of its own length."""

    def known(parameters, lengths, **_):
        return 10.0 * lengths, 0.1 * lengths

    monkeypatch.setattr(replicated_softmax, "log_partitions", known)
    parameters = softmax_parameters()
    x = counts_of([(0, 3, 3), (1,), (), (2, 2, 1), (0, 1)], 4)
    found = replicated_softmax.log_prob(parameters, x, documents=documents)
    assert len(set(found.rows)) == len(found.rows) == (2 if documents == 2 else 5)
    dense = x.toarray()[found.rows].astype(np.float32)
    lengths = dense.sum(axis=-1)
    expected = softmax_log_f(parameters, dense, lengths) - 10 * lengths
    np.testing.assert_allclose(found.log_prob, expected, rtol=1e-5)
    np.testing.assert_allclose(found.standard_error, 0.1 * lengths, rtol=1e-6)


def test_words_are_drawn_as_often_as_they_are_likely():
    logits = draws(2, 100, scale=1.5)
    owner = jnp.asarray(np.repeat([0, 1, 2], [30000, 20000, 500]), jnp.int32)
    counts = np.asarray(jax.jit(replicated_softmax.sample_words)(jax.random.key(0), logits, owner))
    np.testing.assert_array_equal(counts.sum(axis=1), [30000, 20000])
    expected = np.asarray(jax.nn.softmax(logits)) * [[30000], [20000]]
    np.testing.assert_array_less(np.abs(counts - expected), 4.5 * np.sqrt(expected) + 1)


def test_replicated_softmax_learns():
    x = two_kinds_of_documents()
    x, held = x[:150], x[150:]
    settings = replicated_softmax.Settings(units=4, epochs=20, interval=20, batch=10, learning_rate=0.02, steps=3)
    settings = dataclasses.replace(settings, quick_temperatures=50)
    reported = {}
    parameters = replicated_softmax.fit(x, settings, validation=held, report=reported.__setitem__)
    assert reported[20] > unigram_rate(x, held) + 0.2
    np.testing.assert_array_equal(parameters.base, replicated_softmax.start(x, 4, 0).base)


# --- the contract


def test_training_keeps_the_best_state_and_gives_up():
    scores = {1: -5.0, 2: -3.0, 3: -4.0, 4: -3.5, 5: 0.0}
    seen = []

    def run(**settings):
        seen.clear()
        return train(
            0, lambda _, epoch: epoch, scores.get, epochs=5, report=lambda *event: seen.append(event), **settings
        )

    assert run(patience=2, validated=True) == 2
    assert seen == [(1, -5.0), (2, -3.0), (3, -4.0), (4, -3.5)]
    assert run(patience=3, validated=True) == 5
    assert run(patience=1, validated=False) == 5
    assert run(patience=2, validated=True, interval=2) == 5
    assert [epoch for epoch, _ in seen] == [2, 4, 5]
    scores[3] = float("nan")
    with pytest.raises(UsageError, match="nan after epoch 3"):
        run(patience=2, validated=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mixture.fit(np.array([[0, 2]])), "binary"),
        (
            lambda: mixture.fit(np.zeros((3, 2)), mixture.Settings(components=0)),
            "`components` must be at least 1, got 0",
        ),
        (lambda: mixture.fit(np.zeros((3, 2)), mixture.Settings(smoothing=0.0)), "`smoothing` must be above 0"),
        (lambda: nade.fit(np.zeros((3, 2)), validation=np.zeros((3, 4))), "2 pixels, but the cases have 4"),
        (lambda: nade.fit(np.zeros(3)), "one case a row"),
        (lambda: rbm.fit(np.zeros((3, 2)), rbm.Settings(steps=0)), "`steps` must be at least 1"),
        (lambda: unigram.fit(sp.csr_array([[0.5, 1.0]])), "whole numbers"),
        (lambda: unigram.fit(sp.csr_array([[-1, 1]])), "none below 0"),
        (
            lambda: docnade.fit(sp.csr_array([[1, 1]]), validation=sp.csr_array([[1]])),
            "2 words, but the documents have 1",
        ),
        (lambda: lda.fit(sp.csr_array([[1, 1]]), lda.Settings(document_prior=0.0)), "`document_prior` must be above 0"),
        (
            lambda: replicated_softmax.fit(sp.csr_array([[1, 1]]), replicated_softmax.Settings(units=0)),
            "`units` must be",
        ),
    ],
)
def test_what_cannot_be_done_is_said(call, message):
    with pytest.raises(UsageError, match=message):
        call()
