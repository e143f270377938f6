"""Data sets: named ones, the user's own files, and arrays; rows of every kind, and streams."""

from typing import TYPE_CHECKING

from nvil.lazy import lazy

if TYPE_CHECKING:
    from nvil.data.choices import Choices as Choices
    from nvil.data.dataset import Cases as Cases
    from nvil.data.dataset import Dataset as Dataset
    from nvil.data.dataset import factorial_bound as factorial_bound
    from nvil.data.dataset import fingerprint as fingerprint
    from nvil.data.dataset import gaussian_bound as gaussian_bound
    from nvil.data.dataset import independent_bound as independent_bound
    from nvil.data.dataset import unigram_bound as unigram_bound
    from nvil.data.grey import Grey as Grey
    from nvil.data.loading import load as load
    from nvil.data.loading import load_cases as load_cases
    from nvil.data.matrices import save_matrix as save_matrix
    from nvil.data.registry import NAMED as NAMED
    from nvil.data.sparse import SparseRows as SparseRows
    from nvil.data.streams import Stream as Stream

_HOMES = {
    "Choices": "choices",
    "Cases": "dataset",
    "Dataset": "dataset",
    "factorial_bound": "dataset",
    "fingerprint": "dataset",
    "gaussian_bound": "dataset",
    "independent_bound": "dataset",
    "unigram_bound": "dataset",
    "Grey": "grey",
    "load": "loading",
    "load_cases": "loading",
    "save_matrix": "matrices",
    "NAMED": "registry",
    "SparseRows": "sparse",
    "Stream": "streams",
}
__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = lazy(__name__, _HOMES)
