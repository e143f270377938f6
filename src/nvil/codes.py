"""Binary codes, packed eight to a byte, and their nearest neighbours by Hamming distance."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Int, UInt8

from nvil.errors import UsageError, choose

SEARCHES = ("numpy", "faiss")


def pack(bits: Bool[np.ndarray, "cases bits"]) -> UInt8[np.ndarray, "cases bytes"]:
    """Eight bits to a byte; the last byte of a code is filled with zeros."""
    return np.packbits(bits, axis=1)


def nearest(
    codes: UInt8[np.ndarray, "cases bytes"],
    queries: UInt8[np.ndarray, "queries bytes"],
    count: int,
    *,
    by: str = "numpy",
) -> tuple[Int[np.ndarray, "queries count"], Int[np.ndarray, "queries count"]]:
    """The `count` codes with the fewest bits other than those of each query: `(rows, distances)`, nearest first.

    `by` "numpy" counts bits, and of codes at the same distance takes those in the first rows; "faiss" searches with
    faiss's binary index, which may take others of these.
    """
    choose("search", by, SEARCHES)
    count = min(count, len(codes))
    if by == "faiss":
        return _faiss(codes, queries, count)
    words, asked = _words(codes), _words(queries)
    rows = np.empty((len(queries), count), np.int64)
    distances = np.empty_like(rows)
    for i, query in enumerate(asked):
        bits = np.bitwise_count(words ^ query).sum(axis=1, dtype=np.uint16)
        rows[i] = np.argsort(bits, kind="stable")[:count]
        distances[i] = bits[rows[i]]
    return rows, distances


def _words(codes: UInt8[np.ndarray, "cases bytes"]) -> Any:
    """Codes in words of 64 bits, which are counted at once."""
    padded = np.zeros((len(codes), -(-codes.shape[1] // 8) * 8), np.uint8)
    padded[:, : codes.shape[1]] = codes
    return padded.view(np.uint64)


def _faiss(codes: np.ndarray, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    try:
        import faiss  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UsageError("This search needs faiss: pip install faiss-cpu") from error
    index: Any = faiss.IndexBinaryFlat(8 * codes.shape[1])
    index.add(np.ascontiguousarray(codes))
    distances, rows = index.search(np.ascontiguousarray(queries), count)
    return rows.astype(np.int64), distances.astype(np.int64)
