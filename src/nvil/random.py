"""Random keys apart from each other, and uniform numbers for sampling layers, fast on a CPU.

`jax.random.uniform` hashes one counter for every number and, on a CPU, loops over the rounds of the hash: updates take
4% to 7% longer with it, and 12% to 23% longer with JAX's `rbg` (`benchmarks/parts.py`). Here the same hash
(Threefry-2x32 with 20 rounds, Salmon et al., 2011) gives two numbers each time and compiles to one fused loop. It is
plain array code, so it runs on any device, and a number depends on the key and its place in the whole array alone,
however that is spread over devices. On an accelerator JAX's own may be as fast: that was not tried.
"""

import math
import zlib

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, UInt32

from nvil.errors import UsageError

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def seeded_key(seed: int, purpose: str) -> Key[Array, ""]:
    """The key of a seed for one purpose, such as "training".

    `split(key)[i]` and `fold_in(key, i)` are the same key in JAX, so two purposes that start from the key of the seed
    itself would meet. The constant folded in here keeps them apart.
    """
    if not 0 <= seed < 2**32:  # JAX would take it modulo 2^32, and two seeds would be one
        raise UsageError(f"`seed` must be at least 0 and less than 2^32, got {seed}.")
    return jax.random.fold_in(jax.random.key(seed), np.uint32(zlib.crc32(purpose.encode())))


def uniform(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*shape"]:
    """Independent draws from (0, 1) in the default floating type: the middles of 2^23 (2^32) equal intervals.

    Neither 0 nor 1 is ever drawn: 0 would turn a unit on whatever its probability.
    """
    *rows, width = shape or (1,)
    counters = _places((*rows, -(-width // 2)))
    # Both words of a hash go to the same row, so devices that have different rows need nothing of each other.
    first, second = threefry(jax.random.key_data(key), counters, jnp.zeros_like(counters))
    bits = jnp.concatenate([first, second], axis=-1)[..., :width].reshape(shape)
    dtype = jnp.zeros(()).dtype
    kept = 23 if dtype == jnp.float32 else 32
    step = jnp.asarray(2.0**-kept, dtype)
    return (bits >> (32 - kept)).astype(dtype) * step + step / 2


def _places(shape: tuple[int, ...]) -> UInt32[Array, "*shape"]:
    """Every element's place in the whole array."""
    axes = (jax.lax.broadcasted_iota(jnp.uint32, shape, axis) for axis in range(len(shape)))
    return sum(
        (own * np.uint32(math.prod(shape[axis + 1 :])) for axis, own in enumerate(axes)), jnp.zeros(shape, jnp.uint32)
    )


def threefry(
    key: UInt32[Array, "2"], x0: UInt32[Array, "*shape"], x1: UInt32[Array, "*shape"]
) -> tuple[UInt32[Array, "*shape"], UInt32[Array, "*shape"]]:
    """Threefry-2x32, 20 rounds: encrypt the counters (x0, x1) under `key`."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for i in range(5):
        for rotation in _ROTATIONS[i % 2]:
            x0 = x0 + x1
            x1 = ((x1 << rotation) | (x1 >> (32 - rotation))) ^ x0
        x0, x1 = x0 + keys[(i + 1) % 3], x1 + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x0, x1
