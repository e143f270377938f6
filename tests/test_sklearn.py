"""The estimators of `nvil.sklearn` have scikit-learn's manners, and what they give is what the library gives."""

import io
import itertools
import re

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from rich.console import Console
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import nvil
from helpers import SLOW, first
from nvil import likelihood
from nvil.rows import DenseRows
from nvil.runs import progress
from nvil.sklearn import DocumentModel, SigmoidBeliefNetwork, minibatches

# One architecture and one width wherever it will do: programs are compiled once.
SMALL = {"hidden": 3, "updates": 20, "random_state": 0}
WIDTH = 3
BITS = np.random.default_rng(0).integers(0, 2, (40, WIDTH))
COUNTS = np.random.default_rng(1).poisson(2, (40, WIDTH))


OFTEN = (
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimators_unfitted",
    "check_fit_idempotent",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
)
"""The checks of `make test`: the others take longer, most of them to compile for data of a shape of their own."""


def own_checks(estimator):
    every = parametrize_with_checks([estimator])
    names, checks = every.args
    marked = [pytest.param(*each, marks=() if each[1].func.__name__ in OFTEN else SLOW) for each in checks]
    return pytest.mark.parametrize(names, marked, **every.kwargs)


@own_checks(SigmoidBeliefNetwork(hidden=3, updates=20))
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@SLOW
@parametrize_with_checks([DocumentModel(hidden=3, updates=20)])
def test_scikit_learns_own_checks_of_documents(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def network():
    return SigmoidBeliefNetwork(**SMALL).fit(BITS)


@pytest.fixture(scope="module")
def documents():
    return DocumentModel(**SMALL).fit(COUNTS)


def test_codes_are_those_of_the_inference_network(network):
    probabilities = network.transform(BITS)
    np.testing.assert_allclose(probabilities, nvil.encode(network.pair_, BITS, samples=1)[0], rtol=1e-6)
    bits = clone(network).set_params(code="bits").fit(BITS).transform(BITS)
    np.testing.assert_array_equal(bits, probabilities >= 0.5)


def test_the_inverse_of_bits_is_the_mean_of_the_data_given_the_latents(network, documents):
    bits = np.array([[0, 1, 1], [1, 0, 0]])
    for estimator in (network, documents):
        weights = estimator.pair_.model.layers[0].logits
        logits = bits @ np.asarray(weights.weights) + np.asarray(weights.bias)
        one = 1 / (1 + np.exp(-logits)) if estimator is network else np.exp(logits) / np.exp(logits).sum(1)[:, None]
        np.testing.assert_allclose(estimator.inverse_transform(bits), one, rtol=1e-5)
    with pytest.raises(nvil.UsageError, match=r"3 columns, got 2"):
        network.inverse_transform(bits[:, :2])


def test_scores_are_estimates_of_the_bound_and_of_the_log_probability(network):
    """By enumeration; of the sampled ones (fixed seed) the mean of 8 different cases errs by about 1e-3."""
    exact = likelihood.case_exact(network.pair_, BITS)
    np.testing.assert_allclose(clone_fitted(network, estimate="exact").score_samples(BITS), exact, rtol=1e-6)
    weighted = clone_fitted(network, estimate="importance", samples=2000).score(BITS)
    assert weighted == pytest.approx(exact.mean(), abs=5e-3)
    latents = tuple(map(jnp.asarray, network.pair_.model.support()))
    bound = float(nvil.exact.bound(network.pair_, jnp.asarray(BITS, jnp.float32), latents).mean())
    assert bound < exact.mean() - 0.02
    assert clone_fitted(network, samples=2000).score(BITS) == pytest.approx(bound, abs=5e-3)


def test_equal_cases_have_equal_scores_and_others_have_noise_of_their_own(network):
    scores = network.score_samples(np.repeat(BITS[:1], 3, axis=0))
    assert scores[0] == scores[1] == scores[2]
    noise = network.score_samples(BITS[:2]) - clone_fitted(network, samples=1000).score_samples(BITS[:2])
    assert abs(noise[0] - noise[1]) > 1e-6


def clone_fitted(estimator, **params):
    """The same fitted estimator with other parameters, without another fit."""
    other = clone(estimator).set_params(**params)
    for name, value in vars(estimator).items():
        if name not in other.get_params():
            setattr(other, name, value)
    return other


def test_perplexities_are_the_librarys(documents):
    found = nvil.evaluate_documents(documents.pair_, COUNTS, samples=2000)
    many = clone_fitted(documents, samples=2000)
    assert many.perplexity(COUNTS) == pytest.approx(found.perplexity, rel=0.005)
    assert many.perplexity(COUNTS, per="word") == pytest.approx(found.corpus_perplexity, rel=0.005)
    with pytest.raises(nvil.UsageError, match="every document is empty"):
        documents.perplexity(0 * COUNTS)


@pytest.mark.parametrize("kind", [SigmoidBeliefNetwork, DocumentModel])
def test_sparse_and_dense_data_are_learned_from_alike(kind):
    x = BITS if kind is SigmoidBeliefNetwork else COUNTS
    dense, sparse = kind(**SMALL).fit(x), kind(**SMALL).fit(scipy.sparse.csr_matrix(x))
    np.testing.assert_array_equal(dense.transform(x), sparse.transform(scipy.sparse.csr_array(x)))
    np.testing.assert_array_equal(dense.score_samples(x), sparse.score_samples(scipy.sparse.csr_array(x)))


def test_values_are_binarized_by_the_threshold_that_was_given():
    grey = np.random.default_rng(2).uniform(0, 255, (40, WIDTH))
    at_128 = SigmoidBeliefNetwork(binarize=128, **SMALL).fit(grey)
    bits = SigmoidBeliefNetwork(binarize=None, **SMALL).fit(grey > 128)
    np.testing.assert_array_equal(at_128.transform(grey), bits.transform(grey > 128))
    with pytest.raises(nvil.UsageError, match="where 0 and 1 are needed"):
        SigmoidBeliefNetwork(binarize=None, **SMALL).fit(grey)


def test_every_case_is_given_once_in_its_order(monkeypatch):
    """In windows of two minibatches of 4: ten cases, and two of them again to fill the last minibatch."""
    monkeypatch.setattr(minibatches, "MOST_UPDATES", 2)
    cases = np.arange(30).reshape(10, WIDTH)
    source, given = minibatches.InTurn(DenseRows(cases), seed=0), []
    while (window := source.window(len(given) // 4, 4))[1]:
        given += np.asarray(window[0].values)[: 4 * window[1]].tolist()
    assert len(given) == 12
    np.testing.assert_array_equal(given[:10], cases)
    assert all(case in cases.tolist() for case in given[10:])


def test_partial_fit_goes_on_from_call_to_call():
    """Two halves, each of whole minibatches, are the same as the whole: the states go through the same updates."""
    once = SigmoidBeliefNetwork(batch_size=10, **SMALL).partial_fit(BITS[:20])
    for start in (20, 30):
        once.partial_fit(BITS[start : start + 10])
    assert once.n_updates_ == 4
    twice = SigmoidBeliefNetwork(batch_size=10, **SMALL).partial_fit(BITS[:20]).partial_fit(BITS[20:])
    np.testing.assert_array_equal(once.transform(BITS), twice.transform(BITS))
    early = SigmoidBeliefNetwork(batch_size=10, early_stopping=True, **SMALL).partial_fit(BITS[:20])  # holds none out
    np.testing.assert_array_equal(once.transform(BITS), early.partial_fit(BITS[20:]).transform(BITS))
    other = SigmoidBeliefNetwork(batch_size=10, **SMALL).partial_fit(BITS[:20]).partial_fit(BITS[20:][::-1])
    assert not np.array_equal(once.transform(BITS), other.transform(BITS))


def test_a_warm_start_goes_on(network):
    warm = SigmoidBeliefNetwork(warm_start=True, **SMALL).fit(BITS)
    np.testing.assert_array_equal(warm.transform(BITS), network.transform(BITS))
    warm.fit(BITS)
    assert (warm.n_updates_, network.n_updates_) == (40, 20)
    assert not np.array_equal(warm.transform(BITS), network.transform(BITS))
    with pytest.raises(nvil.UsageError, match=r"`hidden` was \(3,\) when it was fitted and is \(4,\) now"):
        warm.set_params(hidden=4).fit(BITS)


def test_early_stopping_keeps_the_best_and_stops():
    """At a learning rate of 1 the bound soon gets worse."""
    stopped = SigmoidBeliefNetwork(
        hidden=3, learning_rate=1.0, updates=2000, early_stopping=True, report_every=10, n_iter_no_change=2
    ).set_params(random_state=0)
    stopped.fit(BITS)
    bounds = [line["validation_bound"] for line in stopped.history_]
    assert stopped.n_updates_ == 10 * len(bounds) < 2000
    assert np.argmax(bounds) == len(bounds) - 3
    assert stopped._checkpoint.best.step == 10 * (len(bounds) - 2)


def test_frames_in_and_frames_out(network):
    frame = pd.DataFrame(BITS, columns=["a", "b", "c"])
    codes = SigmoidBeliefNetwork(**SMALL).set_output(transform="pandas").fit_transform(frame)
    assert list(codes.columns) == [f"sigmoidbeliefnetwork{i}" for i in range(3)]
    np.testing.assert_array_equal(codes.to_numpy(), network.transform(BITS))


def test_the_deepest_layer_goes_up_and_down():
    deep = SigmoidBeliefNetwork(hidden=(4, 2), layer=-1, updates=20, random_state=0).fit(BITS)
    codes = deep.transform(BITS)
    assert codes.shape == (40, 2)
    assert deep.inverse_transform(codes).shape == BITS.shape
    assert len(deep.get_feature_names_out()) == 2


def test_samples_are_of_the_kind_of_the_data(network, documents):
    assert set(np.unique(network.sample(50))) == {0, 1}
    drawn = documents.sample(50, random_state=1)
    assert scipy.sparse.issparse(drawn)
    assert set(drawn.sum(axis=1).ravel().tolist()[0]) <= set(documents._lengths)
    assert (drawn != documents.sample(50, random_state=2)).nnz


@pytest.mark.parametrize("model", first(1, ["darn", "fdarn"]))
def test_autoregressive_models_go_by_name(model, tmp_path):
    """Found by a grid search, kept and loaded: a distribution over all 8 cases, and the library's codes and means."""
    every = np.array(list(itertools.product((0, 1), repeat=WIDTH)))
    search = GridSearchCV(SigmoidBeliefNetwork(estimate="exact", **SMALL), {"model": [model]}, cv=2)
    kept = search.fit(pd.DataFrame(BITS, columns=["a", "b", "c"])).best_estimator_.save(tmp_path / "kept")
    network = SigmoidBeliefNetwork.load(kept).set_output(transform="pandas")
    every = pd.DataFrame(every, columns=["a", "b", "c"])
    first, *_, top = network.pair_.model.layers
    assert isinstance(top, nvil.layers.AutoregressiveBernoulli)
    assert isinstance(first, nvil.layers.AutoregressiveBernoulli) == (model == "darn")
    assert np.exp(network.score_samples(every)).sum() == pytest.approx(1, abs=1e-5)
    codes = network.transform(every)
    np.testing.assert_allclose(codes, nvil.encode(network.pair_, every.to_numpy(), samples=1)[0], rtol=1e-6)
    np.testing.assert_allclose(network.inverse_transform(codes), first.mean(jnp.asarray(codes)), rtol=1e-6)
    assert set(np.unique(network.sample(50))) == {0, 1}


def test_verbose_is_a_line_for_every_report_and_a_bar_on_a_terminal(capsys, monkeypatch):
    SigmoidBeliefNetwork(report_every=10, **SMALL).fit(BITS)
    assert capsys.readouterr() == ("", "")
    SigmoidBeliefNetwork(report_every=10, verbose=1, **SMALL).fit(BITS)
    out, lines = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"(update [12]0  bound -\d+\.\d\d  \d+ updates/s\n){2}", lines)
    shown = io.StringIO()
    monkeypatch.setattr(progress, "stderr", Console(file=shown, force_terminal=True, width=120))
    SigmoidBeliefNetwork(verbose=1, **SMALL).fit(BITS)
    assert re.search(r"100%.*bound -\d+\.\d\d", shown.getvalue())
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["network", "documents"])
def test_what_is_saved_goes_on_as_if_it_had_never_been_away(kind, request, tmp_path):
    estimator, x = request.getfixturevalue(kind), BITS if kind == "network" else COUNTS
    frame = pd.DataFrame(x, columns=["red", "green", "blue"])
    estimator = clone(estimator).set_params(warm_start=True, batch_size=10).fit(frame)
    folder = estimator.save(tmp_path / "kept")
    back = type(estimator).load(folder)
    assert back.get_params() == estimator.get_params()
    assert back.history_ == estimator.history_
    np.testing.assert_array_equal(back.transform(frame), estimator.transform(frame))
    estimator.partial_fit(frame)
    np.testing.assert_array_equal(back.partial_fit(frame).transform(frame), estimator.transform(frame))
    run = nvil.Run.open(folder)  # the command line's view of it
    assert run.documents == (kind == "documents")
    assert run.vocabulary == (("red", "green", "blue") if run.documents else None)
    assert nvil.chain(run.load_best()) == "x 3 <- h1 3"


def test_a_folder_that_is_something_else_is_refused(network, documents, tmp_path):
    network.save(tmp_path)
    documents_folder = documents.save(tmp_path / "documents")
    with pytest.raises(nvil.UsageError, match="holds a DocumentModel, not a SigmoidBeliefNetwork"):
        SigmoidBeliefNetwork.load(documents_folder)
    with pytest.raises(nvil.UsageError, match="does not hold an estimator"):
        DocumentModel.load(tmp_path / "nothing")
    (tmp_path / "estimator.toml").unlink()
    with pytest.raises(nvil.UsageError, match="holds a run"):
        network.save(tmp_path)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"updates": 0}, "`updates` must be a whole number of at least 1, got 0"),
        ({"code": "bit"}, "did you mean 'bits'"),
        ({"layer": 2}, "`layer` must be from 1 to 1"),
        ({"layer": 0}, "`layer` must be from 1 to 1"),
        ({"model": "sbm"}, "did you mean 'sbn'"),
        ({"early_stopping": True, "validation_fraction": 1.0}, "`validation_fraction` must be above 0 and below 1"),
    ],
)
def test_bad_parameters_are_refused_in_a_sentence(params, said):
    with pytest.raises(nvil.UsageError, match=said):
        SigmoidBeliefNetwork(**SMALL | params).fit(BITS)


def test_parameters_that_change_after_fitting_are_checked_where_they_are_used():
    network = SigmoidBeliefNetwork(**SMALL).fit(BITS)
    for params, use, said in (
        ({"layer": 3}, network.transform, "`layer` must be from 1 to 1"),
        ({"code": "bit"}, network.transform, "did you mean 'bits'"),
        ({"samples": 0}, network.score, "`samples` must be a whole number of at least 1, got 0"),
        ({"model": "fdarn"}, network.partial_fit, "`model` was 'sbn' when it was fitted and is 'fdarn' now"),
        ({"hidden": 4}, lambda _: network.save("nowhere"), "`hidden` was"),
    ):
        before = network.get_params()
        network.set_params(**params)
        with pytest.raises(nvil.UsageError, match=said):
            use(BITS)
        network.set_params(**{name: before[name] for name in params})
    assert network.set_params(hidden=4).fit(BITS).transform(BITS[:1]).shape == (1, 4)  # without a warm start, anew


@SLOW
def test_in_a_pipeline_under_a_grid_search():
    digits = load_digits(n_class=2)
    pipeline = make_pipeline(
        SigmoidBeliefNetwork(binarize=7, updates=300, random_state=0), LogisticRegression(max_iter=1000)
    )
    search = GridSearchCV(pipeline, {"sigmoidbeliefnetwork__hidden": [8], "logisticregression__C": [0.1, 1]}, cv=2)
    search.fit(digits.data, digits.target)
    assert search.best_score_ > 0.95


def test_texts_to_topics_in_a_pipeline():
    texts = ["red green blue", "green blue blue red", "one two three", "two three three one"] * 10
    model = make_pipeline(CountVectorizer(), DocumentModel(hidden=3, updates=500, learning_rate=0.03, random_state=0))
    codes = model.fit(texts).transform(texts)
    assert model[-1].perplexity(model[0].transform(texts)) < 4  # of six words, three in any document
    assert np.abs(codes[0] - codes[2]).max() > 0.5
