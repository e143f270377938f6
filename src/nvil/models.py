"""The named pairs (P, Q). Everything in the paper is a choice of layers.

Layer sizes are listed from the data up, and `chain` prints them so.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nvil.contracts import Constant, Pair
from nvil.errors import UsageError, choose
from nvil.layers import AutoregressiveBernoulli, Bernoulli, Multinomial, affine
from nvil.networks import BeliefNetwork, InferenceNetwork

Mean = Float[Array | np.ndarray, " visible"]
WITHIN = ("factorial", "autoregressive")


def sbn(
    visible: int,
    hidden: Sequence[int],
    *,
    inference: str = "factorial",
    lengths: Sequence[int] | None = None,
    mean: Mean | None = None,
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
    - `seed`: of the initial weights.

    !!! example

        >>> pair = sbn(784, (200, 200))
        >>> chain(pair)
        'x 784 <- h1 200 <- h2 200'
    """
    return _pair(visible, hidden, "factorial", "factorial", inference, lengths, mean, seed)


def fdarn(
    visible: int,
    hidden: Sequence[int],
    *,
    inference: str = "factorial",
    lengths: Sequence[int] | None = None,
    mean: Mean | None = None,
    seed: int = 0,
) -> Pair:
    """FDARN (Gregor et al., 2013): autoregressive latents, factorial visibles. The arguments are those of `sbn`."""
    return _pair(visible, hidden, "factorial", "autoregressive", inference, lengths, mean, seed)


def darn(
    visible: int,
    hidden: Sequence[int],
    *,
    inference: str = "factorial",
    lengths: Sequence[int] | None = None,
    mean: Mean | None = None,
    seed: int = 0,
) -> Pair:
    """DARN (Gregor et al., 2013): autoregressive latents and visibles. The arguments are those of `sbn`."""
    if lengths is not None:
        raise UsageError("DARN has autoregressive binary visibles, and documents are counts; take fdarn for documents.")
    return _pair(visible, hidden, "autoregressive", "autoregressive", inference, None, mean, seed)


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
    seed: int,
) -> Pair:
    sizes = _sizes(visible, hidden)
    choose("inference network", inference_within, WITHIN)
    center = jnp.full(visible, 0.0) if mean is None else jnp.asarray(mean, float)
    if center.shape != (visible,):
        raise UsageError(f"The mean has shape {center.shape}, but there are {visible} visible units.")
    down, up = jax.random.split(jax.random.key(seed))
    down_keys, up_keys = jax.random.split(down, len(sizes)), jax.random.split(up, len(hidden))

    if lengths is None:
        data = _layer(down_keys[0], visible_within, sizes[1], visible)
    else:
        data = Multinomial(affine(down_keys[0], sizes[1], visible), visible, _lengths(lengths))
    if mean is not None:
        data = eqx.tree_at(lambda layer: layer.logits.bias, data, _visible_bias(center, documents=lengths is not None))
    above = (*sizes[2:], 0)  # the prior's context is empty
    latents = _latent_layers(down_keys[1:], hidden_within, above, hidden)
    inference = _latent_layers(up_keys, inference_within, sizes[:-1], hidden)
    return Pair(BeliefNetwork((data, *latents)), InferenceNetwork(inference, Constant(center)))


def _latent_layers(keys: Key[Array, " layers"], within: str, inputs: Sequence[int], units: Sequence[int]):
    return tuple(_layer(key, within, *sizes) for key, *sizes in zip(keys, inputs, units, strict=True))


def _layer(key: Key[Array, ""], within: str, inputs: int, units: int) -> Bernoulli | AutoregressiveBernoulli:
    logits = affine(key, inputs, units)
    if within == "factorial":
        return Bernoulli(logits, units)
    # Connections within a layer start at zero: an untrained autoregressive layer is the factorial one.
    return AutoregressiveBernoulli(logits, jnp.zeros((units, units), logits.bias.dtype), units)


def _visible_bias(mean: Float[Array, " visible"], *, documents: bool) -> Float[Array, " visible"]:
    if documents:  # a word that is in no training document is as rare as half an occurrence among all of them
        return jnp.log(jnp.maximum(mean, 0.5 * jnp.min(jnp.where(mean > 0, mean, jnp.inf))))
    # A pixel that never changes in the training data must not start at an infinite bias.
    rate = jnp.clip(mean, 1e-2, 1 - 1e-2)
    return jnp.log(rate) - jnp.log1p(-rate)


def _sizes(visible: int, hidden: Sequence[int]) -> tuple[int, ...]:
    if not hidden:
        raise UsageError("A model needs at least one hidden layer; give its size, for example 200.")
    for size in (visible, *hidden):
        if size < 1:
            raise UsageError(f"A layer of size {size} cannot be; every size must be at least 1.")
    return (visible, *hidden)


def _lengths(lengths: Sequence[int]) -> tuple[int, ...]:
    if not lengths or min(lengths) < 1:
        raise UsageError("The lengths of sampled documents must be one or more whole numbers from 1 up.")
    return tuple(lengths)
