"""The named pairs (P, Q). Everything in the paper is a choice of layers.

Layer sizes are listed from the data up, and `chain` prints them so; the paper lists them from the deepest layer down.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypedDict, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nvil.contracts import Constant, Pair, Unset
from nvil.domains import COUNTS, after
from nvil.errors import UsageError, choose
from nvil.layers import (
    ACTIVATIONS,
    Affine,
    AutoregressiveBernoulli,
    AutoregressiveCategorical,
    AutoregressiveGaussian,
    Bernoulli,
    Categorical,
    Gaussian,
    Layer,
    Multinomial,
    Nonlinear,
    Standardised,
    nonlinear,
)
from nvil.networks import BeliefNetwork, InferenceNetwork
from nvil.random import seeded_key
from nvil.rows import Rows, as_rows

Mean = Float[Array | np.ndarray, " visible"]
Biases = float | np.floating | Sequence[float] | np.ndarray
WITHIN = ("factorial", "autoregressive")
VISIBLES = ("bernoulli", "categorical", "gaussian")
LATENTS = ("bernoulli", "categorical", "gaussian")
LATENT_BIAS = -2.0
"""Where the biases of the latents start: sparse, which won on every data set tried (results/search.md)."""


class Choices(TypedDict, total=False):
    """The choices that all named pairs share: keyword arguments, described at `sbn`."""

    visibles: str
    visible_categories: int
    inference: str
    latents: str | Sequence[str]
    categories: int
    between: Sequence[int]
    activation: str
    given: int
    lengths: Sequence[int] | None
    mean: Mean | None
    deviation: Mean | None
    latent_bias: Biases
    seed: int


def sbn(visible: int, hidden: Sequence[int], **choices: Unpack[Choices]) -> Pair:
    """A sigmoid belief network of any depth: every layer of P is factorial given the one above.

    **Arguments:**

    - `visible`: the number of columns of a case: the observed variables or, for documents, the words in the vocabulary.
    - `hidden`: the number of latent variables in each layer, from the data up.
    - `visibles`: "bernoulli" (the default), "categorical" for variables that are each one of several categories,
      one-hot, or "gaussian" for data of real numbers.
    - `visible_categories`: the number of categories (one-hot columns) per categorical visible.
    - `inference`: "factorial" (the default), or "autoregressive" for connections within each layer of Q (Section 4.2,
      Table 2).
    - `latents`: "bernoulli" (the default), "categorical" for latents that are each one of several categories, one-hot,
      or "gaussian"; for all layers, or one for each from the data up.
    - `categories`: the number of categories per categorical latent; 10 by default.
    - `between`: the sizes of deterministic layers between any two stochastic ones, in P and in Q, from the data up,
      such as (200,); by default none, as in the paper. They make the conditionals nonlinear.
    - `activation`: the activation of the `between` layers, "tanh" (the default) or "relu".
    - `given`: makes it a conditional model of a case's other columns given its first `given` ones, which every layer of
      P and of Q then sees; 0 by default. These may hold any numbers, best of about unit size; with Gaussian visibles
      they are seen in units of their `deviation`, less their `mean`, like the others.
    - `lengths`: makes it a document model, with a multinomial visible layer over word counts (Section 4.3); they
      are the lengths that sampled documents may have.
    - `mean`: the mean of the training data. Q and its baselines see the input less this mean, and the visible biases
      start where the untrained model has about this mean. Without it, Q takes the mean of the data it is first trained
      on.
    - `deviation`: the standard deviations of the training data, for Gaussian visibles: P and Q see real numbers less
      the mean, in units of these.
    - `latent_bias`: where the biases of Bernoulli latents start, in P and in Q; one number, or one per layer from the
      data up; -2 by default. Below zero the latents start sparse: fewer are on at once, and a factorial Q misses less
      of how they explain each other away. The paper does not say where it starts them.
    - `seed`: the seed of the initial weights; 0 by default.

    !!! example

        >>> pair = sbn(784, (200, 200))
        >>> chain(pair)
        'x 784 <- h1 200 <- h2 200'
        >>> chain(sbn(784, (200,), between=(100,)))
        'x 784 <- tanh 100 <- h1 200'
        >>> chain(sbn(784, (20,), latents="categorical", categories=8))
        'x 784 <- h1 20x8'
        >>> chain(sbn(784, (200,), given=392))
        'x 392 given 392 <- h1 200'
        >>> chain(sbn(12, (5,), visibles="categorical", visible_categories=3))
        'x 4x3 <- h1 5'
    """
    return _pair(visible, hidden, "factorial", "factorial", **choices)


def fdarn(visible: int, hidden: Sequence[int], **choices: Unpack[Choices]) -> Pair:
    """FDARN (Gregor et al., 2013): autoregressive latents, factorial visibles. The arguments are those of `sbn`."""
    return _pair(visible, hidden, "factorial", "autoregressive", **choices)


def darn(visible: int, hidden: Sequence[int], **choices: Unpack[Choices]) -> Pair:
    """DARN (Gregor et al., 2013): autoregressive latents and visibles. The arguments are those of `sbn`."""
    if choices.get("lengths") is not None:
        raise UsageError("DARN has autoregressive binary visibles, and documents are counts; take fdarn for documents.")
    return _pair(visible, hidden, "autoregressive", "autoregressive", **choices)


def document_model(counts: Any, hidden: Sequence[int], *, model: str = "sbn", **choices: Unpack[Choices]) -> Pair:
    """A document model (Section 4.3) for the documents whose word counts are the rows of `counts`.

    They give the size of the vocabulary, the mean and the lengths of documents. `model` is "sbn" or "fdarn"; the other
    arguments are those of `sbn`.

    !!! example

        >>> chain(document_model(np.array([[2, 0, 1], [0, 3, 1]]), (5,)))
        'x 3 <- h1 5'
    """
    build = {"sbn": sbn, "fdarn": fdarn}[choose("document model", model, ("sbn", "fdarn"))]
    rows = as_rows(counts)
    if len(rows.shape) != 2:
        raise UsageError(f"`counts` must have one document per row, got the shape {rows.shape}.")
    given = _given(choices.get("given", 0), rows.shape[1])
    rows.check(after(given, COUNTS))
    lengths = choices.get("lengths")
    lengths = document_lengths(rows, given) if lengths is None else lengths
    return build(rows.shape[1], hidden, **{"mean": rows.mean(), **choices, "lengths": lengths})


def document_lengths(counts: Rows, given: int = 0) -> tuple[int, ...]:
    """A hundred quantiles of the lengths of documents, their context apart: those that sampled documents have."""
    words = counts.after(given).row_sums()
    if not np.any(words > 0):
        raise UsageError("The documents are all empty, so there are no lengths to learn from.")
    quantiles = np.quantile(words[words > 0], np.linspace(0.005, 0.995, 100))
    return tuple(np.maximum(1, quantiles.round()).astype(int).tolist())  # weights of words may add up to less than one


def chain(pair: Pair) -> str:
    """The layer sizes of P from the data up, as `x 784 <- h1 500 <- h2 200`; `h1 20x8` are 20 of 8 categories each."""
    names = ("x", *(f"h{i}" for i in range(1, len(pair.model.layers))))
    parts = []
    for name, layer in zip(names, pair.model.layers, strict=True):
        each = getattr(layer, "categories", 1)
        parts.append(f"{name} {layer.units // each}{f'x{each}' if each > 1 else ''}")
        own = layer.standard if isinstance(layer, Standardised) else layer
        maps = getattr(own, "logits", getattr(own, "moments", None))
        if isinstance(maps, Nonlinear) and layer is not pair.model.layers[-1]:
            parts += [f"{maps.activation} {each.bias.size}" for each in reversed(maps.between)]
    given = getattr(pair.model, "given", 0)
    parts[0] += f" given {given}" if given else ""
    return " <- ".join(parts)


def categories_of(model: Any) -> int | None:
    """How many columns every visible has, where it is categorical; None for other models."""
    visible = _visible(model)
    return visible.categories if isinstance(visible, Categorical) else None


def lengths_of(model: Any) -> tuple[int, ...] | None:
    """The lengths that sampled documents have; None for models of other data."""
    visible = _visible(model)
    return visible.lengths if isinstance(visible, Multinomial) else None


def has_numbers(model: Any) -> bool:
    """Whether the visibles are real numbers."""
    return isinstance(_visible(model), Gaussian | Standardised)


def _visible(model: Any) -> Any:
    return getattr(model, "layers", (None,))[0]


def _pair(
    visible: int,
    hidden: Sequence[int],
    visible_within: str,
    hidden_within: str,
    *,
    visibles: str = "bernoulli",
    visible_categories: int | None = None,
    inference: str = "factorial",
    latents: str | Sequence[str] = "bernoulli",
    categories: int = 10,
    between: Sequence[int] = (),
    activation: str = "tanh",
    given: int = 0,
    lengths: Sequence[int] | None = None,
    mean: Mean | None = None,
    deviation: Mean | None = None,
    latent_bias: Biases = LATENT_BIAS,
    seed: int = 0,
    **unknown: Any,
) -> Pair:
    for name in unknown:
        choose("keyword argument", name, Choices.__annotations__)
    columns, *hidden = _sizes(visible, hidden)
    visible = columns - _given(given, columns)
    biases = _per_layer(latent_bias, len(hidden))
    kinds = _kinds(latents, len(hidden))
    if _whole_numbers([categories], "`categories`")[0] < 2:
        raise UsageError(f"`categories` must be at least 2, got {categories}.")
    # A categorical variable is as many units as it has categories.
    hidden = [size * (categories if kind == "categorical" else 1) for size, kind in zip(hidden, kinds, strict=True)]
    sizes = (visible, *hidden)
    choose("inference network", inference, WITHIN)
    choose("activation", activation, ACTIVATIONS)
    between = _whole_numbers(_listed("between", between), "The sizes of layers `between`")
    center = _per_column("mean", mean, columns, 0.0)
    gaussian = choose("kind of visibles", visibles, VISIBLES) == "gaussian"
    _check_visible_categories(visibles, visible_categories, visible, documents=lengths is not None)
    if gaussian and lengths is not None:
        raise UsageError("Gaussian visibles are not those of documents: leave out `visibles` or `lengths`.")
    if mean is not None and not gaussian:
        _check_rates(np.asarray(mean)[given:], counts=lengths is not None)
    if deviation is not None and not gaussian:
        raise UsageError('`deviation` is for `visibles="gaussian"`.')
    scale = _per_column("deviation", deviation, columns, 1.0)
    if deviation is not None and not np.all(np.asarray(deviation) > 0):
        raise UsageError("`deviation` must hold positive numbers.")
    down, up = jax.random.split(seeded_key(seed, "weights"))
    down_keys, up_keys = jax.random.split(down, len(sizes)), jax.random.split(up, len(hidden))

    def logits(key: Key[Array, ""], inputs: int, units: int, bias: Any, between: Sequence[int]) -> Affine | Nonlinear:
        return _starting_at(bias, nonlinear(key, inputs, units, between, activation))

    def layers(keys: Any, within: str, inputs: Sequence[int], between: Sequence[int]) -> tuple[Layer, ...]:
        found = []
        for key, below, size, kind, bias in zip(keys, inputs, hidden, kinds, biases, strict=True):
            if kind == "gaussian":  # a mean and a log-deviation for each
                layer = _gaussian(within, logits(key, below, 2 * size, 0.0, between), size)
            elif kind == "categorical":
                layer = _categorical(within, logits(key, below, size, 0.0, between), size, categories)
            else:
                layer = _bernoulli(within, logits(key, below, size, bias, between), size)
            found.append(layer)
        return tuple(found)

    down_between = between[::-1]  # listed from the data up, and P goes down
    shares = lengths is not None or visible_categories is not None
    start = 0.0 if mean is None or gaussian else _visible_bias(center[given:], shares=shares)
    outputs = (2 if gaussian else 1) * visible
    to_data = logits(down_keys[0], sizes[1] + given, outputs, start, down_between)
    if gaussian:
        own = _gaussian(visible_within, to_data, visible)
        data = Standardised(
            standard=own, center=Constant(center[given:]), deviation=Constant(scale[given:]), units=visible
        )
    elif lengths is not None:
        data = Multinomial(logits=to_data, units=visible, lengths=_lengths(lengths))
    elif visible_categories is not None:
        data = _categorical(visible_within, to_data, visible, visible_categories)
    else:
        data = _bernoulli(visible_within, to_data, visible)
    # Every layer sees the context y beside the layer above or below; without y the prior's context is empty.
    above, below = [[size + given for size in each] for each in ((*sizes[2:], 0), sizes[:-1])]
    known = Unset if mean is None else Constant
    units = (Constant(center[:given]), Constant(scale[:given])) if gaussian and given else ()
    return Pair(
        BeliefNetwork((data, *layers(down_keys[1:], hidden_within, above, down_between)), given, *units),
        InferenceNetwork(
            layers(up_keys, inference, below, between),
            known(center),
            given,
            Constant(scale) if gaussian else None,
        ),
    )


def _starting_at(bias: float | Array, logits: Affine | Nonlinear) -> Affine | Nonlinear:
    where = (lambda map: map.bias) if isinstance(logits, Affine) else (lambda map: map.last.bias)
    return eqx.tree_at(where, logits, where(logits) + bias)


def _bernoulli(within: str, logits: Affine | Nonlinear, units: int) -> Bernoulli | AutoregressiveBernoulli:
    if within == "factorial":
        return Bernoulli(logits=logits, units=units)
    # Connections within a layer start at zero: an untrained autoregressive layer is the factorial one.
    return AutoregressiveBernoulli(logits=logits, within=jnp.zeros((units, units)), units=units)


def _categorical(within: str, logits: Affine | Nonlinear, units: int, categories: int) -> Categorical:
    if within == "factorial":
        return Categorical(logits=logits, units=units, categories=categories)
    start = jnp.zeros((units, units))
    return AutoregressiveCategorical(logits=logits, units=units, categories=categories, within=start)


def _gaussian(within: str, moments: Affine | Nonlinear, units: int) -> Gaussian:
    # Deviations start at 1, whatever the context.
    where = (lambda map: map.weights) if isinstance(moments, Affine) else (lambda map: map.last.weights)
    moments = eqx.tree_at(where, moments, where(moments).at[:, units:].set(0.0))
    if within == "factorial":
        return Gaussian(moments=moments, units=units)
    return AutoregressiveGaussian(moments=moments, units=units, within=jnp.zeros((units, units)))


def _per_column(name: str, values: Mean | None, columns: int, default: float) -> Float[Array, " columns"]:
    if values is None:
        return jnp.full(columns, default)
    if np.shape(values) != (columns,):
        raise UsageError(f"The {name} has shape {np.shape(values)}, but there are {columns} visible units.")
    if not np.all(np.isfinite(np.asarray(values))):
        raise UsageError(f"`{name}` must hold finite numbers.")
    return jnp.asarray(values, float)


def _check_rates(mean: np.ndarray, *, counts: bool) -> None:
    wrong = mean[(mean < 0) | (mean > (np.inf if counts else 1 + 1e-6))]
    if len(wrong):
        needed = "must not be negative for documents" if counts else "of binary data must be from 0 to 1"
        raise UsageError(f"The mean {needed}, got {wrong[0]:g}; take that of the data as the model sees it.")


def _given(given: Any, columns: int) -> int:
    if not isinstance(given, int | np.integer) or isinstance(given, bool) or not 0 <= given < columns:
        raise UsageError(f"`given` must be a number of columns from 0 to {columns - 1}, got {given!r}.")
    return int(given)


def _check_visible_categories(visibles: str, categories: Any, visible: int, *, documents: bool) -> None:
    if visibles != "categorical":
        if categories is not None:
            raise UsageError('`visible_categories` is for `visibles="categorical"`.')
        return
    if documents:
        raise UsageError('The visibles of documents are counts of words: leave `visibles="categorical"` out.')
    if categories is None or _whole_numbers([categories], "`visible_categories`")[0] < 2:
        raise UsageError(f"Categorical visibles need `visible_categories` of at least 2, got {categories}.")
    if visible % categories:
        raise UsageError(
            f"Categorical visibles have {categories} columns each, by `visible_categories`, and {visible} columns are "
            "not a multiple of that."
        )


def _kinds(latents: str | Sequence[str], layers: int) -> tuple[str, ...]:
    kinds = (latents,) if isinstance(latents, str) else tuple(latents)
    for kind in kinds:
        choose("kind of latents", kind, LATENTS)
    if len(kinds) not in (1, layers):
        raise UsageError(f"`latents` must be one kind, or one per layer ({layers}), got {len(kinds)}.")
    return kinds * (layers if len(kinds) == 1 else 1)


def _per_layer(latent_bias: Biases, layers: int) -> tuple[float, ...]:
    biases = np.atleast_1d(latent_bias).tolist()
    if len(biases) not in (1, layers):
        raise UsageError(f"`latent_bias` must be one number, or one per layer ({layers}), got {len(biases)}.")
    if not all(math.isfinite(bias) for bias in biases):
        raise UsageError(f"`latent_bias` must be finite, got {latent_bias}.")
    return tuple(float(bias) for bias in biases) * (layers if len(biases) == 1 else 1)


def _visible_bias(mean: Float[Array, " visible"], *, shares: bool) -> Float[Array, " visible"]:
    """Logits of the mean; of a softmax where units have `shares`, as words and categories have."""
    if shares:  # a word that is in no training document is as rare as half an occurrence among all of them
        rarest = jnp.min(jnp.where(mean > 0, mean, jnp.inf))
        return jnp.log(jnp.where(jnp.isinf(rarest), 1, jnp.maximum(mean, 0.5 * rarest)))  # no words at all: all alike
    # A pixel that never changes in the training data must not start at an infinite bias.
    rate = jnp.clip(mean, 1e-2, 1 - 1e-2)
    return jnp.log(rate) - jnp.log1p(-rate)


def _sizes(visible: Any, hidden: Any) -> tuple[int, ...]:
    """All layer sizes, the data's first."""
    sizes = _whole_numbers([visible, *_listed("hidden", hidden)], "Layer sizes")
    if len(sizes) < 2:
        raise UsageError("A model needs at least one hidden layer; give its size, such as (200,).")
    return sizes


def _listed(name: str, sizes: Any) -> Any:
    if isinstance(sizes, int | np.integer):
        raise UsageError(f"`{name}` lists the sizes of layers, from the data up: write ({sizes},), not {sizes}.")
    if not isinstance(sizes, Iterable):
        raise UsageError(f"`{name}` lists the sizes of layers, from the data up, such as (200,); got {sizes!r}.")
    return sizes


def _lengths(lengths: Any) -> tuple[int, ...]:
    if np.ndim(lengths) != 1 or not len(lengths):
        raise UsageError("`lengths` must list at least one length that sampled documents may have, such as [100].")
    return _whole_numbers(lengths, "The lengths of documents")


def _whole_numbers(values: Any, what: str) -> tuple[int, ...]:
    for value in values:
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            raise UsageError(f"{what} must be whole numbers, got {value!r}.")
        if value < 1:
            raise UsageError(f"{what} must be at least 1, got {value}.")
    return tuple(int(value) for value in values)
