"""Cases that come one after another and are seen once: online learning, as in Section 2.

Nothing is stored but a window of cases for the next updates, the validation cases held out from the start, and the
first cases, which tell what the data looks like.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int, Key

from nvil.domains import BINARY, COUNTS, NUMBERS, Domain
from nvil.errors import UsageError, choose, count_of
from nvil.rows import DenseRows, Rows, as_rows, as_source

Kind = Literal["binary", "counts", "numbers"]
DOMAINS = {"binary": BINARY, "counts": COUNTS, "numbers": NUMBERS}
FIRST = 1000
"""The cases that means and document lengths are taken from; they are trained on as well."""
WINDOW_BYTES = 1 << 25


class InOrder(DenseRows):
    """A window of a stream: each case is drawn once, in order, from update `begin` on."""

    begin: Int[Array, ""]

    def minibatch(self, key: Key[Array, ""], size: int, step: Int[Array, ""] | int = 0) -> Float[Array, "size ..."]:
        return self.take((step - self.begin) * size + jnp.arange(size), key)


class Stream:
    """An iterator over cases, each a row of numbers, with its first cases known.

    **Arguments:**

    - `cases`: rows of numbers, or of a SciPy sparse matrix; all of the same width.
    - `kind`: "binary", "counts" or, for a model of your own, "numbers".
    """

    def __init__(self, cases: Iterable[Any], kind: Kind = "binary"):
        choose("kind of stream", kind, DOMAINS)
        self.kind: Kind = kind
        self._rest = self._checked(cases)
        self._domain = DOMAINS[kind]  # of the model, once it has said so
        self.waiting = False  # for the next case
        self.failure: Exception | None = None  # to be raised when the cases before it have been trained on
        self._windows = 0
        self._first: list[np.ndarray] = []
        self._number = 0
        self._width: int | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Of what is known of it: the first cases."""
        return len(self.peek(FIRST)), self.width

    def case_shape(self) -> tuple[int, ...]:
        return (self.width,)

    @property
    def width(self) -> int:
        if self._width is None and not len(self.peek(1)):
            raise UsageError("The stream ended before its first case.")
        assert self._width is not None
        return self._width

    def check(self, domain: Domain) -> None:
        """Every case is checked against the stream's own domain and against `domain` as it comes; those known, now."""
        order = tuple(DOMAINS.values())  # from the narrowest to the widest
        if domain in order and order.index(DOMAINS[self.kind]) > order.index(domain):
            raise UsageError(f"The stream is of {self.kind}, and the model explains only {domain.words}.")
        self._domain = domain
        for number, row in enumerate(self._first, self._number - len(self._first) + 1):
            _refuse_outside(domain, row, number)

    def first(self) -> Rows:
        return DenseRows(self.peek(FIRST))

    def peek(self, count: int) -> np.ndarray:
        """The next `count` cases, without taking them from the stream.

        Where a later case than the first ones is bad, the stream ends before it, and `failure` is what was wrong.
        """
        self.waiting = True
        try:
            self._first += itertools.islice(self._rest, max(0, count - len(self._first)))
        except Exception as error:
            if self._number <= FIRST:
                raise
            self.failure = error
        finally:
            self.waiting = False
        cases = self._first[:count]
        return np.stack(cases) if cases else np.zeros((0, self._width or 0), self.dtype)

    def take(self, count: int) -> np.ndarray:
        """The next `count` cases, or as many as are left, and they are gone from the stream."""
        cases = self.peek(count)
        del self._first[:count]
        return cases

    def hold_out(self, count: int, seed: int) -> "tuple[Stream, Rows]":
        """The first `count` cases are for validation; they are gone from the stream."""
        count_of(0, validation=count)
        return self, DenseRows(self.take(count))

    def window(self, step: int, batch_size: int) -> tuple[Rows, int]:
        """Cases for the next updates; always as many rows, so that nothing compiles twice.

        Cases at the end of the stream that do not fill a minibatch are left out.
        """
        updates = max(1, WINDOW_BYTES // (batch_size * self.width * self.dtype.itemsize))
        updates = min(updates, max(1, 10_000 // batch_size))
        cases = self.take(updates * batch_size)
        if self.failure is not None and len(cases) < batch_size and not self._windows:
            raise self.failure
        self._windows += 1
        padding = np.zeros((updates * batch_size - len(cases), self.width), self.dtype)
        rows = np.concatenate([cases.reshape(-1, self.width), padding])
        return InOrder(jnp.asarray(rows), jnp.asarray(step, jnp.int32)), len(cases) // batch_size

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.uint8 if self.kind == "binary" else np.float32)

    def _checked(self, cases: Iterable[Any]) -> Iterator[np.ndarray]:
        for case in cases:
            self._number += 1
            try:
                dense = case.toarray() if scipy.sparse.issparse(case) else np.asarray(case)
            except (ValueError, TypeError) as error:
                raise UsageError(f"Case {self._number} of the stream is not a row of numbers.") from error
            if dense.dtype.kind not in "biuf":
                raise UsageError(f"Case {self._number} of the stream holds {dense.dtype} values; numbers are needed.")
            row = dense.ravel()
            if not len(row):
                raise UsageError(f"Case {self._number} of the stream has no values.")
            self._width = len(row) if self._width is None else self._width
            if len(row) != self._width:
                raise UsageError(
                    f"Case {self._number} of the stream has {len(row)} values, not {self._width} as before."
                )
            hint = ' (for others: Stream(cases, "counts") or Stream(cases, "numbers"))' if self.kind == "binary" else ""
            _refuse_outside(DOMAINS[self.kind], row, self._number, hint)
            _refuse_outside(self._domain, row, self._number)
            yield row.astype(self.dtype)


def _refuse_outside(domain: Domain, row: np.ndarray, number: int, hint: str = "") -> None:
    allowed = domain.allows(row)
    if not np.all(allowed):
        raise UsageError(f"Case {number} of the stream holds {row[~allowed][0]:g}; {domain.words} are needed{hint}.")


@as_rows.register(Stream)
@as_rows.register(Iterator)
def _(data: Any) -> Rows:
    raise UsageError("A stream is only for training; here the cases must be there all at once, as rows of an array.")


@as_source.register
def _(data: Stream) -> Stream:
    return data


@as_source.register(Iterator)
def _(data: Any) -> Stream:
    return Stream(data)
