"""A minibatch of sparse rows, which document models take as it is.

Of 10,000 words a document has a hundred, so that a product with its counts is a sum over a hundred rows of weights, and
the gradient of one changes a hundred rows. Only the softmax over all words, and what a centred input does to every
weight, are dense.

On a CPU, in single precision, functions in C go over the entries (`kernels.c`); elsewhere XLA gathers and scatters them
(`SparseCases._fold`), which takes longer.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nvil import kernels

CHUNK = 2048
"""Entries that are added at a time at most, so that the rows of weights they stand for stay in the cache of a core."""


class SparseCases(eqx.Module):
    """Case i holds the entries from `begin[i]` up to `end[i]`, less `center` in every column, if there is one.

    `values` and `columns` are those of all the data: a minibatch copies nothing. Entries are found `piece` at a time.
    """

    begin: Int[Array, " cases"]
    end: Int[Array, " cases"]
    values: Array
    columns: Array
    width: int = eqx.field(static=True)
    piece: int = eqx.field(static=True)
    center: Float[Array, " width"] | None = None
    times: int = eqx.field(static=True, default=1)
    """All cases are there so many times over: once for each sample of their latents."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.times * len(self.begin), self.width

    def __sub__(self, center: Float[Array, " width"]) -> "SparseCases":
        assert self.center is None
        return dataclasses.replace(self, center=center)

    def __matmul__(self, weights: Float[Array, "width outputs"]) -> Float[Array, "cases outputs"]:
        return jnp.tile(_product(weights, self), (self.times, 1))

    def inner(self, other: Float[Array, "cases width"]) -> Float[Array, " cases"]:
        """sum_j x_j other_j of every case."""
        assert self.center is None
        return _inner(other, self)

    def sums(self) -> Float[Array, " cases"]:
        """sum_j x_j of every case: the lengths of documents."""
        assert self.center is None
        return (self @ jnp.ones((self.width, 1)))[:, 0]

    def dense(self) -> Float[Array, "cases width"]:
        """The same as an array."""
        counts = self._fold(
            lambda total, case, column, value: total.at[case, column].add(value, mode="drop"),
            jnp.zeros((len(self.begin), self.width)),
        )
        return jnp.tile(counts if self.center is None else counts - self.center, (self.times, 1))

    def _fold(self, add: Callable[[Array, Array, Array, Array], Array], total: Array) -> Array:
        """`total = add(total, cases, columns, values)` for all entries, a piece at a time.

        The first piece, nearly always the only one, is outside of the loop: XLA then finds the entries once for all
        uses of a minibatch, which it does not for loops. Of a piece, at most `CHUNK` entries are added at a time. Where
        no entry is left, the value is 0 and the column out of bounds.
        """
        last = jnp.cumsum(self.end - self.begin)
        chunks = -(-self.piece // CHUNK)
        each = -(-self.piece // chunks)
        size = chunks * each

        def add_piece(piece: Array | int, total: Array) -> Array:
            entries = self._entries(last, piece * size, size)
            if chunks == 1:
                return add(total, *entries)
            by_chunk = tuple(entry.reshape(chunks, each) for entry in entries)
            return jax.lax.scan(lambda total, chunk: (add(total, *chunk), None), total, by_chunk)[0]

        return jax.lax.fori_loop(1, -(-last[-1] // size), add_piece, add_piece(0, total))

    def _entries(self, last: Int[Array, " cases"], start: Array | int, size: int) -> tuple[Array, Array, Array]:
        """Cases, columns and values of so many entries of the minibatch; case i ends before entry `last[i]`."""
        entry = start + jnp.arange(size, dtype=last.dtype)
        case = jnp.sum(last < start, dtype=last.dtype) + _running_sum(_marks(last - start, size))
        stored = case < len(last)
        case = jnp.minimum(case, len(last) - 1)
        place = jnp.where(stored, entry + (self.end - last)[case], 0)  # among the entries of all the data
        column = jnp.where(stored, self.columns[place].astype(jnp.int32), self.width)
        value = jnp.where(stored, self.values[place], 0).astype(float)
        return case, column, value


def _marks(places: Int[Array, " cases"], size: int) -> Int[Array, " size"]:
    """How many of the places are 0, 1, ..., `size` - 1."""
    inside = jnp.where(places < 0, size, places)  # a negative index would count from the end
    return jnp.zeros(size, places.dtype).at[inside].add(1, mode="drop")


def _running_sum(counts: Int[Array, " size"]) -> Int[Array, " size"]:
    """`jnp.cumsum`, which takes three times as long on a CPU."""
    return jax.lax.associative_scan(jnp.add, counts)


def _called(
    name: str, x: SparseCases, array: Array, result: tuple[int, ...], otherwise: Callable[..., Array], *into: Array
) -> Array:
    """The function of `kernels.c` of the entries of x and an array, or `otherwise`, where that cannot be called.

    A result that is added to what is there is given as `into`.
    """
    stored = str(x.values.dtype) in ("uint8", "uint16", "float32") and str(x.columns.dtype) in ("uint16", "int32")
    kinds = (x.begin.dtype, x.end.dtype, array.dtype)
    if not stored or kinds != (jnp.int32, jnp.int32, jnp.float32) or not kernels.available():
        return otherwise(x, array, *into)

    def ours(x: SparseCases, *arrays: Array) -> Array:
        call = jax.ffi.ffi_call(
            name,
            jax.ShapeDtypeStruct(result, jnp.float32),
            input_output_aliases={5: 0} if into else None,
            vmap_method="sequential",
        )
        return call(x.begin, x.end, x.values, x.columns, *arrays)

    return jax.lax.platform_dependent(x, array, *into, cpu=ours, default=otherwise)


@jax.custom_vjp
def _product(weights: Float[Array, "width outputs"], x: SparseCases) -> Float[Array, "cases outputs"]:
    """x @ weights, whose gradient is x.T @ delta."""

    def by_xla(x: SparseCases, weights: Array) -> Array:
        return x._fold(
            lambda total, case, column, value: total.at[case].add(value[:, None] * weights.at[column].get(mode="clip")),
            jnp.zeros((len(x.begin), weights.shape[1]), weights.dtype),
        )

    total = _called("nvil_sparse_product", x, weights, (len(x.begin), weights.shape[1]), by_xla)
    return total if x.center is None else total - x.center @ weights


def _product_forward(weights: Array, x: SparseCases) -> tuple[Array, SparseCases]:
    return _product(weights, x), x


def _product_backward(x: SparseCases, delta: Float[Array, "cases outputs"]) -> tuple[Array, None]:
    def by_xla(x: SparseCases, delta: Array, gradient: Array) -> Array:
        return x._fold(
            lambda total, case, column, value: total.at[column].add(value[:, None] * delta[case], mode="drop"), gradient
        )

    if x.center is None:
        gradient = jnp.zeros((x.width, delta.shape[1]), delta.dtype)
    else:
        gradient = -x.center[:, None] * jnp.sum(delta, axis=0)
    return _called("nvil_add_sparse_transposed", x, delta, gradient.shape, by_xla, gradient), None


_product.defvjp(_product_forward, _product_backward)


@jax.custom_vjp
def _inner(other: Float[Array, "cases width"], x: SparseCases) -> Float[Array, " cases"]:
    """sum_j x_j other_j of every case, whose gradient is x_j delta."""

    def once(other: Array, x: SparseCases) -> Array:
        return x._fold(
            lambda total, case, column, value: total.at[case].add(value * other.at[case, column].get(mode="clip")),
            jnp.zeros(len(x.begin), other.dtype),
        )

    def by_xla(x: SparseCases, other: Array) -> Array:
        return jax.vmap(once, (0, None))(other.reshape(x.times, -1, x.width), x).ravel()

    return _called("nvil_sparse_inner", x, other, other.shape[:1], by_xla)


def _inner_forward(other: Array, x: SparseCases) -> tuple[Array, SparseCases]:
    return _inner(other, x), x


def _inner_backward(x: SparseCases, delta: Float[Array, " cases"]) -> tuple[Array, None]:
    def once(delta: Array, x: SparseCases) -> Array:
        return x._fold(
            lambda total, case, column, value: total.at[case, column].add(value * delta[case], mode="drop"),
            jnp.zeros((len(x.begin), x.width), delta.dtype),
        )

    def by_xla(x: SparseCases, delta: Array) -> Array:
        return jax.vmap(once, (0, None))(delta.reshape(x.times, -1), x).reshape(x.shape)

    return _called("nvil_sparse_outer", x, delta, x.shape, by_xla), None


_inner.defvjp(_inner_forward, _inner_backward)


def repeated(x: Any, times: int) -> Any:
    """The cases of a minibatch so many times over."""
    if isinstance(x, SparseCases):
        return dataclasses.replace(x, times=times * x.times)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (times, *leaf.shape)).reshape(-1, *leaf.shape[1:]), x)


def takes_sparse(*parts: Any) -> bool:
    """Whether all of these, such as an estimator and a pair's networks, say by `sparse` that x may be `SparseCases`.

    A class has to say so itself: one that is derived from ours may do something else to x.
    """
    return all("sparse" in vars(type(part)) and part.sparse for part in parts)


def dense(contexts: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same with arrays in the place of `SparseCases`."""
    return tuple(each.dense() if isinstance(each, SparseCases) else each for each in contexts)
