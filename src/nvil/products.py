"""`product(x, weights)`: a matrix product that takes less time for a binary x, as data and latents are.

Bits, and bits less a centre c_j as Q sees the data (Section 4.2), have two values in column j of x, one apart. With m_j
the one nearer to zero and s_j = 1 or -1 the step to the other,

    x = m + s b        x W = m W + b (s W)        x' delta = m (sum of delta)' + s (b' delta)

and b is binary, with few ones: of the pixels of MNIST an eighth, of the latents less. A product with b is a sum of
rows, of the weights or of delta, those that its ones stand for.

On a CPU, in single precision, `kernels.c` looks in every product for such an x, and computes these sums. On data
like MNIST they take about a third of the time of XLA's product, which any other x and any other device has
(docs/performance.md). Results are the same to rounding, of numbers as large as 1 and the weights: m is known to 3e-8.
Weights that are not finite reach only the cases that add them up.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from nvil import kernels

WORTHWHILE = 4096
"""Weights. With fewer, a product is over before the ones of x are found."""
LANES = 16
"""Columns that `kernels.c` adds at a time, at most. It takes no fewer."""


def product(x: Any, weights: Float[Array, "inputs outputs"]) -> Float[Array, "*batch outputs"]:
    """x @ weights, for an array, or for anything else that has this product, such as `SparseCases`."""
    if not isinstance(x, jax.Array) or x.ndim < 2 or x.dtype != weights.dtype or weights.size < WORTHWHILE:
        return x @ weights
    if _spread_by_hand(x) or _spread_by_hand(weights):
        return x @ weights
    rows = x.reshape(-1, x.shape[-1])
    return _on_all_devices(rows, weights).reshape(*x.shape[:-1], weights.shape[-1])


def _on_all_devices(x: Array, weights: Array) -> Array:
    """The product, of which each device computes the rows of its own cases.

    XLA would not spread a function that it does not know, so it is told to: by `Rows.devices`, within a learner's step.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or x.shape[0] % mesh.size:
        return _product.bind(x, weights)
    cases, everywhere = jax.sharding.PartitionSpec(mesh.axis_names), jax.sharding.PartitionSpec()
    spread = jax.shard_map(_product.bind, mesh=mesh, in_specs=(cases, everywhere), out_specs=cases, check_vma=False)
    return spread(x, weights)


def _spread_by_hand(x: Array) -> bool:
    """Whether its sharding is part of its type, as within `jax.shard_map`: XLA's product knows what to do there."""
    sharding = getattr(jax.typeof(x), "sharding", None)
    kinds = getattr(getattr(sharding, "mesh", None), "axis_types", None) or ()
    return any(kind != jax.sharding.AxisType.Auto for kind in kinds)


def _matmul(x: Array, weights: Array) -> Array:
    return x @ weights


def _transposed_matmul(x: Array, delta: Array) -> Array:
    return x.T @ delta


def _sum_rows(x: Array, weights: Array) -> Array:
    """x W, if x is binary."""
    binary, base, step, rows, _ = _entries(x)
    ones = jnp.ones(x.shape[0], x.dtype)
    sums = _sums((x.shape[0], weights.shape[1]), rows, before=step, after=ones, weight=base, scale=ones)
    return jax.lax.cond(binary, sums, lambda table: _matmul(x, table), weights)


def _transposed_sum_rows(x: Array, delta: Array) -> Array:
    """x' delta, if x is binary."""
    binary, base, step, _, columns = _entries(x)
    ones = jnp.ones(x.shape[0], x.dtype)
    sums = _sums((x.shape[1], delta.shape[1]), columns, before=ones, after=step, weight=ones, scale=base)
    return jax.lax.cond(binary, sums, lambda table: _transposed_matmul(x, table), delta)


def _entries(x: Array) -> tuple[Array, Array, Array, tuple[Array, Array], tuple[Array, Array]]:
    """Whether x = m + s b; m and s of each column; where b is 1, by rows and by columns.

    XLA computes them once for all products with one x.
    """
    rows, columns = x.shape
    room = rows * columns + 64
    found = [
        jax.ShapeDtypeStruct((), jnp.bool),
        jax.ShapeDtypeStruct((columns,), x.dtype),
        jax.ShapeDtypeStruct((columns,), x.dtype),
        jax.ShapeDtypeStruct((rows * _blocks(columns) + 1,), jnp.int32),
        jax.ShapeDtypeStruct((room,), jnp.uint8),
        jax.ShapeDtypeStruct((columns * _blocks(rows) + 1,), jnp.int32),
        jax.ShapeDtypeStruct((room,), jnp.uint8),
    ]
    binary, base, step, *lists = jax.ffi.ffi_call("nvil_entries", found)(x)
    return binary, base, step, (lists[0], lists[1]), (lists[2], lists[3])


def _blocks(length: int) -> int:
    return -(-length // 64)


def _sums(
    shape: tuple[int, int], lists: tuple[Array, Array], *, before: Array, after: Array, weight: Array, scale: Array
) -> Callable[[Array], Array]:
    """The function of a table that is scale (weight' table) + after (b (before table)), b being 1 as `lists` say."""

    def sums(table: Array) -> Array:
        return jax.ffi.ffi_call("nvil_add_rows", jax.ShapeDtypeStruct(shape, table.dtype))(
            *lists, table, before, after, weight, scale
        )

    return sums


def _primitive(name: str, matmul: Callable[..., Array], sum_rows: Callable[..., Array], batched: Any) -> Primitive:
    """A function of two matrices that is linear in each: `sum_rows` where that can be, and else `matmul`."""
    primitive = Primitive(name)
    by_xla, by_ours = (mlir.lower_fun(function, multiple_results=False) for function in (matmul, sum_rows))

    def lower_for_cpu(context: Any, x: Any, other: Any) -> Any:
        first, second = context.avals_in
        # A program that is exported may run where our functions are not, and need not know its sizes.
        kept = not context.module_context.lowering_parameters.for_export
        fits = kept and first.dtype == jnp.float32 and 0 < first.size < 2**31 and second.shape[1] >= LANES
        alone = _on_one_device(context.module_context.axis_context)
        return (by_ours if fits and alone and kernels.available() else by_xla)(context, x, other)

    jitted = jax.jit(primitive.bind)

    def apply(*matrices: Any) -> Array:
        with jax.disable_jit(False):  # where it is disabled, this is what the primitive is called by
            return jitted(*matrices)

    primitive.def_impl(apply)
    primitive.def_abstract_eval(
        lambda x, other: x.update(shape=jax.eval_shape(matmul, x, other).shape, weak_type=False)
    )
    mlir.register_lowering(primitive, by_xla)
    mlir.register_lowering(primitive, lower_for_cpu, platform="cpu")
    batching.primitive_batchers[primitive] = batched
    return primitive


def _on_one_device(program: Any) -> bool:
    """Whether a part of a program is for one device: all there is, or any of them within `jax.shard_map`."""
    if (mesh := getattr(program, "mesh", None)) is not None:
        return set(program.manual_axes) == set(mesh.axis_names)
    return getattr(program, "num_devices", 1) == 1


def _batched_product(values: Any, axes: Any) -> tuple[Array, int]:
    x, weights = (_axis_first(value, axis) for value, axis in zip(values, axes, strict=True))
    if axes[1] is not None:
        return jnp.matmul(x, weights), 0
    # With the same weights, several x are one of more rows.
    rows = _product.bind(x.reshape(-1, x.shape[-1]), weights)
    return rows.reshape(*x.shape[:-1], weights.shape[-1]), 0


def _batched_transposed_product(values: Any, axes: Any) -> tuple[Array, int]:
    x, delta = (_axis_first(value, axis) for value, axis in zip(values, axes, strict=True))
    return jnp.matmul(jnp.swapaxes(x, -1, -2), delta), 0


def _axis_first(value: Any, axis: int | None) -> Any:
    return value if axis is None else jnp.moveaxis(value, axis, 0)


_product = _primitive("product", _matmul, _sum_rows, _batched_product)
_transposed_product = _primitive(
    "transposed_product", _transposed_matmul, _transposed_sum_rows, _batched_transposed_product
)
ad.defbilinear(_product, lambda d, x, w: d @ w.T, lambda d, x, w: _transposed_product.bind(x, d))
ad.defbilinear(_transposed_product, lambda d, x, delta: delta @ d.T, lambda d, x, delta: _product.bind(x, d))
# A tangent of x is not binary, and may be far smaller than 1: XLA has its product.
ad.defjvp(_product, lambda t, x, w: t @ w, lambda t, x, w: _product.bind(x, t))
ad.defjvp(_transposed_product, lambda t, x, delta: t.T @ delta, lambda t, x, delta: _transposed_product.bind(x, t))
