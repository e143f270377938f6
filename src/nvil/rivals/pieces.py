"""Minibatches of documents of all lengths in arrays of one shape: each document is cut into rows of 32 words.

A batch has so many rows as its documents need; all batches of an epoch get as many as the one that needs most, rounded
up, so that they can be scanned over and seldom compile anew.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from nvil.rivals.checks import document_lengths

WIDTH = 32


class Pieces(NamedTuple):
    """`words` is -1 where there is no word; `owner` is the place of a row's document within its batch.

    A row without a document has the owner `batch`, one past the last.
    """

    words: Int[Array, "*updates rows width"]
    owner: Int[Array, "*updates rows"]


def shuffled_words(counts: Any, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The words of all documents, each document's in an order drawn at random; and where each document begins."""
    words = np.repeat(counts.indices, counts.data)
    lengths = document_lengths(counts)
    document = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((rng.random(len(words)), document))
    return words[order], np.concatenate([[0], np.cumsum(lengths)])


def cut(
    words: np.ndarray, begins: np.ndarray, batches: Int[np.ndarray, "updates batch"], multiple: int = 128
) -> Pieces:
    """The documents of each batch as rows. A document of -1 is none."""
    updates, batch = batches.shape
    documents = batches.ravel()
    lengths = np.where(documents < 0, 0, begins[documents + 1] - begins[documents])
    needed = -(-lengths // WIDTH).reshape(updates, batch)
    first = (np.cumsum(needed, axis=1) - needed).ravel()
    rows = max(1, -(-int(needed.sum(axis=1).max()) // multiple)) * multiple
    place = np.repeat(np.arange(len(documents)), lengths)
    position = np.arange(len(place)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    row = first[place] + position // WIDTH
    cut_words = np.full((updates, rows, WIDTH), -1, np.int32)
    cut_words[place // batch, row, position % WIDTH] = words[begins[documents[place]] + position]
    owner = np.full((updates, rows), batch, np.int32)
    owner[place // batch, row] = place % batch
    return Pieces(jnp.asarray(cut_words), jnp.asarray(owner))


def epoch_batches(documents: int, batch: int, rng: np.random.Generator) -> Int[np.ndarray, "updates batch"]:
    """All documents in an order drawn at random, in batches; those that do not fill one are left for another epoch."""
    updates = documents // batch
    return rng.permutation(documents)[: updates * batch].reshape(updates, batch)


def all_batches(documents: int, batch: int) -> Int[np.ndarray, "updates batch"]:
    """All documents in their order, in batches; the last is filled up with -1."""
    updates = -(-documents // batch)
    padded = np.full(updates * batch, -1)
    padded[:documents] = np.arange(documents)
    return padded.reshape(updates, batch)
