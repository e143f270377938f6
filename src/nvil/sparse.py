"""A minibatch of sparse rows, which document models take as it is.

Of 10,000 words a document has a hundred, so that a product with its counts is a sum over a hundred rows of weights, and
the gradient of one changes a hundred rows. Only the softmax over all words, and what a centred input does to every
weight, are dense.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class SparseCases(eqx.Module):
    """Case i holds the entries from `begin[i]` up to `end[i]`, less `center` in every column, if there is one.

    `values` and `columns` are those of all the data: a minibatch copies nothing. Entries are added `piece` at a time.
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
        return jax.vmap(_inner, (0, None))(other.reshape(self.times, -1, self.width), self).ravel()

    def sums(self) -> Float[Array, " cases"]:
        """sum_j x_j of every case: the lengths of documents."""
        assert self.center is None
        once = self._fold(lambda total, case, _, value: total.at[case].add(value), jnp.zeros(len(self.begin)))
        return jnp.tile(once, self.times)

    def dense(self) -> Float[Array, "cases width"]:
        """The same as an array."""
        counts = self._fold(
            lambda total, case, column, value: total.at[case, column].add(value, mode="drop"),
            jnp.zeros((len(self.begin), self.width)),
        )
        return jnp.tile(counts if self.center is None else counts - self.center, (self.times, 1))

    def _fold(self, add: Callable[[Array, Array, Array, Array], Array], total: Array) -> Array:
        """`total = add(total, cases, columns, values)` for all entries, a piece at a time.

        The first piece, nearly always the only one, is outside of the loop: XLA then computes what is common to the
        uses of a minibatch once, which it does not for loops. Where no entry is left, the value is 0 and the column out
        of bounds.
        """
        last = jnp.cumsum(self.end - self.begin)
        shift = self.end - last  # entry e of the minibatch is entry e + shift of all, for the shift of its case

        def add_piece(piece: Array | int, total: Array) -> Array:
            entry = piece * self.piece + jnp.arange(self.piece, dtype=last.dtype)
            case = jnp.searchsorted(last, entry, side="right", method="compare_all")
            stored = case < len(last)
            case = jnp.minimum(case, len(last) - 1)
            place = jnp.where(stored, entry + shift[case], 0)
            column = jnp.where(stored, self.columns[place].astype(jnp.int32), self.width)
            value = jnp.where(stored, self.values[place], 0).astype(float)
            return add(total, case, column, value)

        return jax.lax.fori_loop(1, -(-last[-1] // self.piece), add_piece, add_piece(0, total))


@jax.custom_vjp
def _product(weights: Float[Array, "width outputs"], x: SparseCases) -> Float[Array, "cases outputs"]:
    """x @ weights, whose gradient is x.T @ delta."""
    total = jnp.zeros((len(x.begin), weights.shape[1]), weights.dtype)
    total = x._fold(
        lambda total, case, column, value: total.at[case].add(value[:, None] * weights.at[column].get(mode="clip")),
        total,
    )
    return total if x.center is None else total - x.center @ weights


def _product_forward(weights: Array, x: SparseCases) -> tuple[Array, SparseCases]:
    return _product(weights, x), x


def _product_backward(x: SparseCases, delta: Float[Array, "cases outputs"]) -> tuple[Array, None]:
    if x.center is None:
        gradient = jnp.zeros((x.width, delta.shape[1]), delta.dtype)
    else:
        gradient = -x.center[:, None] * jnp.sum(delta, axis=0)
    return x._fold(
        lambda total, case, column, value: total.at[column].add(value[:, None] * delta[case], mode="drop"), gradient
    ), None


_product.defvjp(_product_forward, _product_backward)


@jax.custom_vjp
def _inner(other: Float[Array, "cases width"], x: SparseCases) -> Float[Array, " cases"]:
    total = jnp.zeros(len(x.begin), other.dtype)
    return x._fold(
        lambda total, case, column, value: total.at[case].add(value * other.at[case, column].get(mode="clip")), total
    )


def _inner_forward(other: Array, x: SparseCases) -> tuple[Array, SparseCases]:
    return _inner(other, x), x


def _inner_backward(x: SparseCases, delta: Float[Array, " cases"]) -> tuple[Array, None]:
    gradient = jnp.zeros((len(x.begin), x.width), delta.dtype)
    return x._fold(
        lambda total, case, column, value: total.at[case, column].add(value * delta[case], mode="drop"), gradient
    ), None


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
