"""What is wrong with cases, documents or settings is said before any work starts."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from nvil.errors import UsageError

Documents = sp.csr_matrix | sp.csr_array


def binary_cases(x: Any, pixels: int | None = None) -> np.ndarray:
    """`x` as an array of bytes, each 0 or 1, one case a row."""
    x = np.asarray(x)
    if x.ndim != 2 or 0 in x.shape:
        raise UsageError(f"Cases must be a table with one case a row, got an array of shape {x.shape}.")
    if pixels is not None and x.shape[1] != pixels:
        raise UsageError(f"The model has {pixels} pixels, but the cases have {x.shape[1]}.")
    if not ((x == 0) | (x == 1)).all():
        raise UsageError("Cases must be binary: 0s and 1s only.")
    return x.astype(np.uint8)


def word_counts(x: Any, vocabulary: int | None = None) -> Any:
    """`x` as a CSR array of 32-bit counts, one document a row, without stored zeros."""
    if not sp.issparse(x) or x.ndim != 2 or 0 in x.shape:
        raise UsageError(f"Documents must be a sparse matrix with one document a row, got {type(x).__name__}.")
    if vocabulary is not None and x.shape[1] != vocabulary:
        raise UsageError(f"The model has {vocabulary} words, but the documents have {x.shape[1]}.")
    given: Any = sp.csr_array(x)
    counts = given.astype(np.int32)
    if (counts.data < 0).any() or (counts.data != given.data).any():
        raise UsageError("Word counts must be whole numbers, none below 0.")
    counts.sum_duplicates()
    counts.eliminate_zeros()
    return counts


def document_lengths(counts: Any) -> np.ndarray:
    return np.asarray(counts.sum(axis=1)).ravel()
