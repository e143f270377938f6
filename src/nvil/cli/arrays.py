"""Samples and codes as the arrays of an .npz file."""

from typing import Any


def by_latent(layer: Any, values: Any) -> Any:
    """Values with an axis for the categories, where a layer's variables are categorical."""
    return values.reshape(len(values), -1, layer.categories) if hasattr(layer, "categories") else values


def most_likely(layer: Any, values: Any) -> Any:
    """Whether each variable is on, or the number of its category: as bytes, or more where 256 are too few.

    Real numbers stay as they are.
    """
    import numpy as np

    from nvil.domains import NUMBERS

    if layer.domain is NUMBERS:
        return values
    if not hasattr(layer, "categories"):
        return (values >= 0.5).astype(np.uint8)
    return by_latent(layer, values).argmax(axis=-1).astype(np.min_scalar_type(layer.categories - 1))


def sparse_parts(counts: Any) -> dict[str, Any]:
    """Word counts as `scipy.sparse.save_npz` lays them out, so that `load_npz` reads them."""
    import numpy as np
    import scipy.sparse

    matrix: Any = scipy.sparse.csr_array(np.asarray(counts, np.int32))
    parts = {name: getattr(matrix, name) for name in ("data", "indices", "indptr")}
    return {**parts, "shape": np.array(matrix.shape), "format": np.array(b"csr")}
