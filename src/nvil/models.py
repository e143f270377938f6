"""The named pairs (P, Q). Everything in the paper is a choice of layers.

Layer sizes are listed from the data up, and `chain` prints them so.
"""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nvil.contracts import Constant, Pair
from nvil.errors import UsageError, choose
from nvil.layers import Affine, AutoregressiveBernoulli, Bernoulli, Multinomial, affine
from nvil.networks import BeliefNetwork, InferenceNetwork
from nvil.random import seeded_key

Mean = Float[Array | np.ndarray, " visible"]
WITHIN = ("factorial", "autoregressive")


def sbn(
    visible: int,
    hidden: Sequence[int],
    *,
    inference: str = "factorial",
    lengths: Sequence[int] | None = None,
    mean: Mean | None = None,
    latent_bias: float | Sequence[float] = 0.0,
    seed: int = 0,
) -> Pair:
    """A sigmoid belief network of any depth: every layer of P is factorial given the one above.

    **Arguments:**

    - `visible`: the number of observed variables; for documents, of words in the vocabulary.
    - `hidden`: the number of latent variables in each layer, from the data up.
    - `inference`: "factorial", or "autoregressive" for connections within each layer of Q (Section 4.2, Table 2).
    - `lengths`: makes it a document model, with a multinomial visible layer over word counts (Section 4.3); they
      are the lengths that sampled documents may have.
    - `mean`: of the training data. Q and its baselines see the input less this mean, and the visible biases start where
      the untrained model has about this mean.
    - `latent_bias`: where the biases of the latents start, in P and in Q; one number, or one per layer from the data
      up. Below zero the latents start sparse: fewer are on at once, and a factorial Q misses less of how they explain
      each other away.
    - `seed`: of the initial weights.

    !!! example

        >>> pair = sbn(784, (200, 200))
        >>> chain(pair)
        'x 784 <- h1 200 <- h2 200'
    """
    return _pair(visible, hidden, "factorial", "factorial", inference, lengths, mean, latent_bias, seed)


def fdarn(
    visible: int,
    hidden: Sequence[int],
    *,
    inference: str = "factorial",
    lengths: Sequence[int] | None = None,
    mean: Mean | None = None,
    latent_bias: float | Sequence[float] = 0.0,
    seed: int = 0,
) -> Pair:
    """FDARN (Gregor et al., 2013): autoregressive latents, factorial visibles. The arguments are those of `sbn`."""
    return _pair(visible, hidden, "factorial", "autoregressive", inference, lengths, mean, latent_bias, seed)


def darn(
    visible: int,
    hidden: Sequence[int],
    *,
    inference: str = "factorial",
    lengths: Sequence[int] | None = None,
    mean: Mean | None = None,
    latent_bias: float | Sequence[float] = 0.0,
    seed: int = 0,
) -> Pair:
    """DARN (Gregor et al., 2013): autoregressive latents and visibles. The arguments are those of `sbn`."""
    if lengths is not None:
        raise UsageError("DARN has autoregressive binary visibles, and documents are counts; take fdarn for documents.")
    return _pair(visible, hidden, "autoregressive", "autoregressive", inference, None, mean, latent_bias, seed)


def chain(pair: Pair) -> str:
    """The layer sizes from the data up, as `x 784 <- h1 500 <- h2 200`."""
    names = ("x", *(f"h{i}" for i in range(1, len(pair.model.layers))))
    return " <- ".join(f"{name} {layer.units}" for name, layer in zip(names, pair.model.layers, strict=True))


def _pair(
    visible: int,
    hidden: Sequence[int],
    visible_within: str,
    hidden_within: str,
    inference_within: str,
    lengths: Sequence[int] | None,
    mean: Mean | None,
    latent_bias: float | Sequence[float],
    seed: int,
) -> Pair:
    sizes = _sizes(visible, hidden)
    biases = _per_layer(latent_bias, len(hidden))
    choose("inference network", inference_within, WITHIN)
    center = jnp.full(visible, 0.0) if mean is None else jnp.asarray(mean, float)
    if center.shape != (visible,):
        raise UsageError(f"The mean has shape {center.shape}, but there are {visible} visible units.")
    down, up = jax.random.split(seeded_key(seed, "weights"))
    down_keys, up_keys = jax.random.split(down, len(sizes)), jax.random.split(up, len(hidden))

    if lengths is None:
        data = _layer(down_keys[0], visible_within, sizes[1], visible)
    else:
        logits = affine(down_keys[0], sizes[1], visible)
        data = Multinomial(logits=logits, units=visible, lengths=_lengths(lengths))
    if mean is not None:
        data = eqx.tree_at(lambda layer: layer.logits.bias, data, _visible_bias(center, documents=lengths is not None))
    above = (*sizes[2:], 0)  # the prior's context is empty
    latents = _latent_layers(down_keys[1:], hidden_within, above, hidden, biases)
    inference = _latent_layers(up_keys, inference_within, sizes[:-1], hidden, biases)
    return Pair(BeliefNetwork((data, *latents)), InferenceNetwork(inference, Constant(center)))


def _latent_layers(
    keys: Key[Array, " layers"], within: str, inputs: Sequence[int], units: Sequence[int], biases: Sequence[float]
) -> tuple[Bernoulli | AutoregressiveBernoulli, ...]:
    return tuple(
        _layer(key, within, below, size, bias)
        for key, below, size, bias in zip(keys, inputs, units, biases, strict=True)
    )


def _layer(
    key: Key[Array, ""], within: str, inputs: int, units: int, bias: float = 0.0
) -> Bernoulli | AutoregressiveBernoulli:
    weights = affine(key, inputs, units)
    logits = Affine(weights.weights, weights.bias + bias)
    if within == "factorial":
        return Bernoulli(logits=logits, units=units)
    # Connections within a layer start at zero: an untrained autoregressive layer is the factorial one.
    within_layer = jnp.zeros((units, units), logits.bias.dtype)
    return AutoregressiveBernoulli(logits=logits, within=within_layer, units=units)


def _per_layer(latent_bias: float | Sequence[float], layers: int) -> tuple[float, ...]:
    biases = (latent_bias,) if isinstance(latent_bias, int | float) else tuple(latent_bias)
    if len(biases) not in (1, layers):
        raise UsageError(f"`latent_bias` must be one number, or one per layer ({layers}), got {len(biases)}.")
    if not all(math.isfinite(bias) for bias in biases):
        raise UsageError(f"`latent_bias` must be finite, got {latent_bias}.")
    return tuple(float(bias) for bias in biases) * (layers if len(biases) == 1 else 1)


def _visible_bias(mean: Float[Array, " visible"], *, documents: bool) -> Float[Array, " visible"]:
    if documents:  # a word that is in no training document is as rare as half an occurrence among all of them
        return jnp.log(jnp.maximum(mean, 0.5 * jnp.min(jnp.where(mean > 0, mean, jnp.inf))))
    # A pixel that never changes in the training data must not start at an infinite bias.
    rate = jnp.clip(mean, 1e-2, 1 - 1e-2)
    return jnp.log(rate) - jnp.log1p(-rate)


def _sizes(visible: int, hidden: Sequence[int]) -> tuple[int, ...]:
    if not hidden:
        raise UsageError("A model needs at least one hidden layer; give its size, such as (200,).")
    for size in (visible, *hidden):
        if size < 1:
            raise UsageError(f"Layer sizes must be at least 1, got {size}.")
    return (visible, *hidden)


def _lengths(lengths: Sequence[int]) -> tuple[int, ...]:
    if not lengths or min(lengths) < 1:
        raise UsageError("The lengths of sampled documents must be one or more whole numbers from 1 up.")
    return tuple(lengths)
