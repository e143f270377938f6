"""Topics of document models: which words, how coherent, how different; counted by hand on a few documents."""

import dataclasses
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import nvil
from nvil.topic_words import diversity, npmi

WORDS = ["god", "bible", "faith", "orbit", "moon", "nasa"]
DOCUMENTS = np.array([[2, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 3, 1], [0, 0, 0, 1, 0, 1]])


@pytest.fixture(scope="module")
def pair():
    """Unit 0 is about the last three words and is on where "orbit" is; unit 1 does nothing."""
    pair = nvil.document_model(DOCUMENTS, (2,))
    weights = jnp.zeros((2, 6)).at[0, 3:].set(jnp.array([2.0, 3.0, 1.0]))
    up = jnp.zeros((6, 2)).at[3, 0].set(40.0)
    pair = eqx.tree_at(lambda pair: pair.model.layers[0].logits.weights, pair, weights)
    pair = eqx.tree_at(lambda pair: pair.inference.layers[0].logits.weights, pair, up)
    return eqx.tree_at(lambda pair: pair.inference.layers[0].logits.bias, pair, jnp.array([0.0, -2.0]))


def test_a_topic_is_the_words_that_its_unit_raises(pair):
    found = nvil.topics(pair, WORDS, DOCUMENTS, words=3, shown=2)
    assert [topic.unit for topic in found] == [0, 1]  # the one that tells most first
    topic = found[0]
    assert set(topic.words) == {"moon", "orbit", "nasa"}
    assert topic.words[0] == "moon"
    assert set(topic.lowered) == {"god", "bible", "faith"}
    assert topic.documents == (2, 3)
    assert topic.prevalence == pytest.approx(0.5, abs=1e-6)


def test_the_coherence_of_a_topic_by_hand(pair):
    """Of four documents two hold orbit and nasa, and one of them moon: P(a, b) = 1/2 for one pair, 1/4 for two."""
    together = math.log(0.5 / 0.25) / -math.log(0.5)
    apart = math.log(0.25 / 0.125) / -math.log(0.25)
    wanted = (together + 2 * apart) / 3
    for documents in (DOCUMENTS, scipy.sparse.csr_array(DOCUMENTS)):
        found = nvil.topics(pair, WORDS, documents, words=3)
        assert found[0].coherence == pytest.approx(wanted)


def test_words_that_never_meet_and_words_that_always_do():
    documents = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 1]])
    assert npmi(np.array([[1, 2]]), documents) == [-1]
    assert npmi(np.array([[0, 0]]), documents) == [1]
    assert np.isnan(npmi(np.array([[0], [1]]), documents)).all()  # a single word goes with no other
    np.testing.assert_allclose(npmi(np.array([[0, 1]]), documents), 0, atol=1e-12)


def test_diversity_is_the_share_of_different_words():
    assert diversity(np.array([[0, 1], [2, 3]])) == 1
    assert diversity(np.array([[0, 1], [1, 0]])) == 0.5


def test_without_documents_the_words_are_there_and_nothing_is_measured(pair):
    found = nvil.topics(pair, WORDS, words=3)
    assert set(found[0].words) == {"moon", "orbit", "nasa"}
    assert (found.coherence, found[0].nats, found[0].documents) == (None, None, None)
    assert "moon" in str(found)


def test_topics_as_text_as_a_frame_and_as_a_file(pair):
    found = nvil.topics(pair, WORDS, DOCUMENTS, words=3)
    assert str(found).splitlines()[1].split()[:1] == ["0"]
    assert "mean NPMI" in str(found)
    frame = found.frame()
    assert list(frame.index) == [0, 1]
    assert frame.loc[0, "words"] == found[0].words
    lines = found.csv([f"doc{i}" for i in range(4)]).splitlines()
    assert lines[0].split(",") == [field.name for field in dataclasses.fields(nvil.topic_words.Topic)]
    assert lines[1].startswith("0,moon ")
    assert lines[1].endswith("doc2 doc3 doc0 doc1")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vocabulary": WORDS[:-1]}, "`vocabulary` has 5 words, and the model counts 6"),
        ({"words": 1}, "`words` must be at least 2, got 1"),
        ({"pair": nvil.sbn(6, (2,))}, "Topics are those of a document model"),
    ],
)
def test_what_has_no_topics_is_refused(pair, change, said):
    with pytest.raises(nvil.UsageError, match=said):
        nvil.topics(**{"pair": pair, "vocabulary": WORDS} | change)
