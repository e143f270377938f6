"""Semantic hashing: the cases of a data set as binary codes of a trained model, to be searched by Hamming distance.

    index = Index.build(run, "20news-bydate.tar.gz")
    for hit in index.search_text(run, "shuttle launch orbit"):
        print(hit.distance, hit.name)

A bit is on where Q(h_k = 1 | x) is above its median over the cases, so that each parts them in two halves. Documents,
and texts to search for, count as if they had the usual length: of a few words alone, Q would say little more than the
prior. Salakhutdinov & Hinton (2009) search documents by such codes, from a model trained otherwise.
"""

import dataclasses
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from jaxtyping import Float, UInt8

from nvil import apply
from nvil.codes import nearest, pack
from nvil.contracts import Pair
from nvil.data import text
from nvil.data.loading import names_of
from nvil.data.sparse import as_matrix, sparse_rows
from nvil.errors import UsageError, count_of
from nvil.rows import as_rows
from nvil.runs import checkpoints, storage
from nvil.runs.cases import load_run_cases
from nvil.runs.run import Run

FILE = "index.npz"
ARRAYS = {"format": "i", "parameters": "U", "layer": "i", "codes": "u", "thresholds": "f", "names": "U"}


class Hit(NamedTuple):
    """A case that was found: its name, its row, and in how many bits its code differs."""

    name: str
    row: int
    distance: int


@dataclasses.dataclass(frozen=True)
class Index:
    """The codes of cases by the best parameters of a run.

    - `parameters`: the checksum of these; other parameters make other codes.
    - `layer`: of the latents, from 1.
    - `thresholds`: of each bit.
    """

    parameters: str
    layer: int
    codes: UInt8[np.ndarray, "cases bytes"]
    thresholds: Float[np.ndarray, " bits"]
    names: tuple[str, ...]

    @staticmethod
    def build(run: Run, data: Any = None, *, layer: int = 1) -> "Index":
        """The index of a named set, a file or folder of cases, or of cases; by default of the run's own data."""
        if data is None and run.config is not None:
            data = run.place()
        pair = run.load_best()
        if not 1 <= layer <= len(pair.inference.layers):
            raise UsageError(f"`layer` must be from 1 to {len(pair.inference.layers)}, got {layer}.")
        on = probabilities(run, pair, load_run_cases(run, data), layer)
        thresholds = np.median(on, axis=0).astype(np.float32)
        found = names_of(data) if isinstance(data, str | Path) else {}
        names = [name for split in found.values() for name in split] or [str(i) for i in range(len(on))]
        return Index(_checksum(run), layer, pack(on > thresholds), thresholds, tuple(names))

    def search(self, run: Run, cases: Any, count: int = 10, *, by: str = "numpy") -> list[list[Hit]]:
        """The cases nearest to each of `cases`, a file or rows of the kind that the run was trained on."""
        on = probabilities(run, run.load_best(), load_run_cases(run, cases), self.layer)
        return self.search_codes(pack(on > self.thresholds), count, by=by)

    def search_text(self, run: Run, query: str, count: int = 10, *, by: str = "numpy") -> list[Hit]:
        """The documents nearest to a text, whose words are counted as those of the training documents were."""
        if not run.documents or run.vocabulary is None:
            raise UsageError(f"The cases of {run.folder} are not texts; give cases to search for, not a text.")

        def documents() -> Iterator[str]:
            yield query

        counted = text.count({"all": documents}, words=1, vocabulary=run.vocabulary, where="The query")
        if not counted.splits["all"].sum():
            raise UsageError(f"No word of the query is one of the {len(run.vocabulary)} that {run.folder} counts.")
        return self.search(run, counted.splits["all"], count, by=by)[0]

    def search_codes(self, codes: UInt8[np.ndarray, "queries bytes"], count: int, *, by: str) -> list[list[Hit]]:
        """The cases nearest to given codes."""
        count_of(1, count=count)
        rows, distances = nearest(self.codes, codes, count, by=by)
        return [
            [Hit(self.names[row], int(row), int(distance)) for row, distance in zip(*found, strict=True)]
            for found in zip(rows, distances, strict=True)
        ]

    def save(self, path: Path) -> None:
        arrays = {name: np.asarray(getattr(self, name)) for name in ARRAYS if name != "format"}
        storage.save_arrays(path, {"format": np.asarray(storage.FORMAT), **arrays})

    @staticmethod
    def load(path: Path, run: Run) -> "Index":
        """The index that `save` wrote, if it is of the parameters that the run has now."""
        if not path.exists():
            there = "" if path == run.folder / FILE else f" --out {shlex.quote(str(path))}"
            folder = shlex.quote(str(run.folder))
            raise UsageError(f"There is no index {path}; make one with: nvil index {folder}{there}")
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in ARRAYS}
        except Exception as error:  # NumPy and zipfile raise almost anything on a damaged file
            raise UsageError(f"{path} is not an index that nvil wrote, or is damaged.") from error
        storage.check_format(path, arrays["format"])
        codes, thresholds, names = (arrays[name] for name in ("codes", "thresholds", "names"))
        fits = (
            all(arrays[name].dtype.kind == kind for name, kind in ARRAYS.items())
            and (codes.ndim, thresholds.ndim, names.ndim) == (2, 1, 1)
            and codes.dtype == np.uint8
            and codes.shape == (len(names), -(-len(thresholds) // 8))
            and len(names) > 0
        )
        if not fits:
            raise UsageError(f"{path} is not an index that nvil wrote, or is damaged.")
        index = Index(
            str(arrays["parameters"]), int(arrays["layer"]), codes, thresholds.astype(np.float32), tuple(names.tolist())
        )
        if index.parameters != _checksum(run):
            raise UsageError(
                f"{path} was made with other parameters than {run.folder} has now; make it again with: nvil index "
                f"{run.folder}"
            )
        return index


def probabilities(run: Run, pair: Pair, cases: Any, layer: int) -> Float[np.ndarray, "cases units"]:
    """Q's probability that each latent of the layer is on."""
    rows = as_rows(cases)
    if run.facts.lengths is not None:
        given = run.facts.context or 0
        words = rows.after(given).row_sums()
        scale = np.median(run.facts.lengths) / np.where(words > 0, words, 1)
        counts = as_matrix(rows).astype(np.float32)
        scaled = scipy.sparse.diags_array(scale.astype(np.float32)) @ counts[:, given:]
        rows = sparse_rows(scipy.sparse.hstack([counts[:, :given], scaled], format="csr") if given else scaled)
    # Without its model, which would refuse fractions of words.
    return apply.encode(Pair(None, pair.inference), rows)[layer - 1]


def _checksum(run: Run) -> str:
    return storage.read_metadata(run.folder / checkpoints.BEST).get("sha256", "")
