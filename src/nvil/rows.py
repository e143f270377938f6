"""Rows: data as the compiled loop draws it, one case per row.

Whatever trains or evaluates takes a `Source`: rows that are all there (`Rows`), or a stream of them. `as_rows` makes
`DenseRows` of anything like an array; `nvil.data` adds grey levels, sparse word counts and streams.
"""

import abc
import contextlib
import functools
import sys
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nvil.contracts import check_is_pair
from nvil.domains import NUMBERS, Domain
from nvil.errors import UsageError

CHECKED_AT_ONCE = 5000
"""Rows whose values are checked at a time."""
NOT_A_TABLE = (
    "The data is not a table: it must hold numbers, the same number of them in every case. "
    "Cases that come one by one are an iterator, or an nvil.Stream."
)


@runtime_checkable
class Source(Protocol):
    """What training draws from."""

    def case_shape(self) -> tuple[int, ...]:
        """`(width,)` for cases that are rows of numbers."""
        ...

    def check(self, domain: Domain) -> None:
        """Refuse, in a sentence, values outside of `domain`."""
        ...

    def hold_out(self, count: int, seed: int) -> "tuple[Source, Rows]":
        """Take `count` cases out for validation: `(the rest, those)`."""
        ...

    def first(self) -> "Rows":
        """What is known beforehand, to take means and lengths from: all the rows, or the first of a stream."""
        ...

    def window(self, step: int, batch_size: int) -> "tuple[Rows, int]":
        """Rows on the device for the updates from `step` on, and for how many updates they last; 0 at the end."""
        ...


class Rows(eqx.Module):
    """Cases that can be drawn in any order.

    A class whose arrays all have cases, or what cases are made of, along their first axis may say `in_parts = True`:
    with several processes, each then has a part of them on its devices.
    """

    in_parts: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """`(cases, width)`."""

    def case_shape(self) -> tuple[int, ...]:
        return self.shape[1:]

    @abc.abstractmethod
    def select(self, rows: Any) -> "Rows":
        """Some of the rows."""

    @abc.abstractmethod
    def take(self, rows: Int[Array, " size"], key: Key[Array, ""]) -> Any:
        """The given rows as the networks take them; called inside compiled loops. `key` is for rows that vary."""

    @abc.abstractmethod
    def dense(self) -> np.ndarray:
        """All the rows as one array."""

    @abc.abstractmethod
    def row_sums(self) -> Float[np.ndarray, " cases"]:
        """The sum of each row: the lengths of documents."""

    @abc.abstractmethod
    def column_sums(self) -> Float[np.ndarray, " width"]:
        """The sum of each column, in double precision: the counts of words."""

    def after(self, given: int) -> "Rows":
        """The same rows without their first `given` columns."""
        return as_rows(self.dense()[:, given:]) if given else self

    def outside(self, domain: Domain) -> tuple[int, float] | None:
        """The first case with a value outside of `domain`, and that value."""
        for i, block in enumerate(self.blocks(CHECKED_AT_ONCE)):
            values = block.dense()
            wrong = ~domain.allows(values)
            if np.any(wrong):
                first = tuple(np.argwhere(wrong)[0])
                return i * CHECKED_AT_ONCE + int(first[0]), float(values[first])
        return None

    def check(self, domain: Domain) -> None:
        if (found := self.outside(domain)) is not None:
            hint = f"; {domain.hint}" if domain.hint and np.isfinite(found[1]) else ""
            raise UsageError(f"Case {found[0]} (from 0) holds {found[1]:.8g}, where {domain.words} are needed{hint}.")

    def sparse(self) -> "Rows":
        """The same rows for networks that take `nvil.sparse.SparseCases`: drawn as such, if they are stored so."""
        return self

    def compact(self) -> "Rows":
        """The same rows, without stored entries of others."""
        return self

    def fixed(self, seed: int = 0) -> "Rows":
        """The same rows to evaluate on, where every draw must be the same."""
        return self

    def minibatch(self, key: Key[Array, ""], size: int, step: Int[Array, ""] | int = 0) -> Any:
        """Cases drawn at random with replacement (Section 4.1)."""
        which, how = jax.random.split(key)
        return self.take(jax.random.randint(which, (size,), 0, self.shape[0]), how)

    def mean(self) -> Float[np.ndarray, " width"]:
        """The mean of all rows."""
        return self.column_sums() / max(1, self.shape[0])

    def blocks(self, size: int) -> "Iterator[Rows]":
        """The rows in blocks of at most `size`."""
        for start in range(0, self.shape[0], size):
            yield self.select(slice(start, start + size))

    def on_device(self) -> "Rows":
        return jax.tree.map(jnp.asarray, self)

    def everywhere(self, tree: Any) -> Any:
        """`tree` on every device that the rows are on."""
        return tree

    def devices(self) -> contextlib.AbstractContextManager[Any]:
        """Around what is computed of a minibatch, so that it is known on which devices."""
        return contextlib.nullcontext()

    def hold_out(self, count: int, seed: int) -> "tuple[Rows, Rows]":
        """Split `count` random cases off: `(the rest, those)`, each in their old order."""
        cases = self.shape[0]
        check_hold_out(count, cases)
        order = np.random.default_rng(seed).permutation(cases)
        return self.select(np.sort(order[count:])), self.select(np.sort(order[:count])).fixed(seed)

    def first(self) -> "Rows":
        return self

    def window(self, step: int, batch_size: int) -> "tuple[Rows, int]":
        return self.on_device(), sys.maxsize


class DenseRows(Rows):
    """The rows of an array, which may be memory-mapped."""

    values: Any
    in_parts: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def select(self, rows: Any) -> "DenseRows":
        return DenseRows(self.values[rows])

    def take(self, rows: Int[Array, " size"], key: Key[Array, ""]) -> Float[Array, "size ..."]:
        return self.values[rows].astype(float)

    def dense(self) -> np.ndarray:
        return np.asarray(self.values)

    def row_sums(self) -> Float[np.ndarray, " cases"]:
        return np.asarray(self.values).sum(axis=1, dtype=float)

    def column_sums(self) -> Float[np.ndarray, " width"]:
        return np.asarray(self.values).sum(axis=0, dtype=float)


@functools.singledispatch
def as_rows(data: Any) -> Rows:
    """Anything that holds one case per row as `Rows`; `nvil.data` registers the kinds of data it adds."""
    if isinstance(data, jax.Array):
        return DenseRows(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            # A data frame may hold columns of several types.
            array = data.to_numpy(float, na_value=np.nan) if hasattr(data, "iloc") else np.asarray(data)
    except (ValueError, TypeError, np.exceptions.ComplexWarning) as error:
        raise UsageError(NOT_A_TABLE) from error
    if array.dtype == object or array.ndim == 0:
        raise UsageError(NOT_A_TABLE)
    if array.dtype.kind not in "biuf":
        raise UsageError(f"The data holds {array.dtype} values; numbers are needed.")
    return DenseRows(in_common_type(array))


def in_common_type(array: np.ndarray) -> np.ndarray:
    """Numbers in a type that NumPy, SciPy and JAX all compute with: single or double precision, native byte order."""
    own = array.dtype
    if own.kind in "iu" and own.itemsize == 8 and array.size and (array.max() >= 2**31 or array.min() < -(2**31)):
        return array.astype(float)  # a device takes integers in 32 bits, and would cut them without a word
    size = min(max(own.itemsize, 4), 8) if own.kind == "f" else own.itemsize
    common = np.dtype(f"{own.kind}{size}")
    return array if own == common else array.astype(common)


@as_rows.register
def _(data: Rows) -> Rows:
    return data


@functools.singledispatch
def as_source(data: Any) -> Source:
    """Anything that can be trained on as a `Source`."""
    return data if isinstance(data, Source) else as_rows(data)


def explained(pair: Any, source: Any) -> Any:
    """`source`, if the model can explain it: its own `check(source)` says so, else any finite numbers will do."""
    check_is_pair(pair)
    if hasattr(pair.model, "check"):
        pair.model.check(source)
    else:
        source.check(NUMBERS)
    return source


def check_hold_out(count: int, cases: int) -> None:
    """Refuse to hold out more cases than there are to spare."""
    if not 0 <= count < cases:
        raise UsageError(f"Cannot hold out {count} validation cases of {cases}; leave at least one to train on.")


def plain(rows: Rows) -> Any:
    """Rows as users hold them: a dense one as its array, others as they are."""
    return rows.values if type(rows) is DenseRows else rows


def dense_blocks(data: Any, size: int) -> Iterator[np.ndarray]:
    """Rows to evaluate on, as dense arrays of at most `size` rows each."""
    for block in as_rows(data).fixed().blocks(size):
        yield block.dense()
