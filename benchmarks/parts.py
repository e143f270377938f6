"""What the parts that we wrote ourselves gain over those of the libraries, in whole updates.

    python benchmarks/parts.py

Two of our parts have a ready-made counterpart: Adam's pass over the parameters (`optax.adam`), and the uniform numbers
that latents are sampled with (`jax.random.uniform`, by JAX's default generator and by its `rbg`). Each row has the time
of an update with ours, and that with the other over it: the median over rounds that take turns, of processor time. The
row called noise sets ours against itself, compiled twice: how far its ratio is from 1 is what noise amounts to.
"""

from timing import bits, turns, update

# isort: split

import statistics
import time
from collections.abc import Callable
from unittest import mock

import jax
import jax.numpy as jnp
import optax

import nvil
from nvil import estimators, layers, optimisers


def rbg_uniform(key, shape):
    return jax.random.uniform(jax.random.wrap_key_data(jnp.tile(jax.random.key_data(key), 2), impl="rbg"), shape)


def prepared(pair, data, batch: int, optimiser, uniform: Callable = layers.uniform) -> Callable[[], object]:
    """Everything of an update, compiled anew with `uniform`: a new chain is an optimiser that was not seen before."""
    with mock.patch.object(layers, "uniform", uniform):
        whole, _ = update(pair, data, batch, optax.chain(optimiser), estimators.nvil())
        whole()
    return whole


def main() -> None:
    data = bits(10_000, 784)
    print("| SBN | batch | ours | in its place | update with ours | with the other |")
    print("|---|---|---|---|---:|---:|")
    for hidden in ((200,), (200, 200)):
        for batch in (20, 100):
            pair = nvil.sbn(784, hidden)
            sgd, sizes = optimisers.sgd(), "-".join(map(str, hidden))
            comparisons = (
                ("Adam", "optax", (optimisers.adam(),), (optax.adam(3e-3),)),
                ("uniform", "JAX's", (sgd,), (sgd, jax.random.uniform)),
                ("uniform", "`rbg`", (sgd,), (sgd, rbg_uniform)),
                ("noise", "itself", (sgd,), (sgd,)),
            )
            for part, instead, *sides in comparisons:
                ours, other = turns(
                    *(prepared(pair, data, batch, *side) for side in sides), rounds=25, clock=time.process_time
                )
                ratio = statistics.median(b / a for a, b in zip(ours, other, strict=True))
                print(f"| {sizes} | {batch} | {part} | {instead} | {min(ours):.0f} us | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
