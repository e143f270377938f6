"""A layer is a conditional distribution: `sample`, `log_prob` and `mean`, given a context.

Both the model P and the inference network Q are chains of layers. Leading axes are batch axes. A layer without
parents, such as the prior P(h^n), is a layer whose context has no units: an array of shape `(*batch, 0)`.
"""

import abc
import itertools
import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nvil import kernels
from nvil.contracts import Constant
from nvil.domains import BINARY, COUNTS, NUMBERS, Domain, after, one_hot
from nvil.errors import UsageError
from nvil.products import product
from nvil.random import uniform
from nvil.rows import Source
from nvil.sparse import SparseCases

Context = Float[Array, "*batch inputs"] | SparseCases
LogitsMap = Callable[[Context], Float[Array, "*batch units"]]


class Affine(eqx.Module):
    """The paper's map from a context to logits: `context @ weights + bias`."""

    weights: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __call__(self, context: Context) -> Float[Array, "*batch outputs"]:
        return product(context, self.weights) + self.bias


def affine(key: Key[Array, ""], inputs: int, outputs: int) -> Affine:
    """An `Affine` map with uniform weights in +-sqrt(6 / (inputs + outputs)) and zero bias.

    The paper does not say how it starts its weights; this is the choice of Glorot & Bengio (2010).
    """
    limit = np.sqrt(6.0 / (inputs + outputs)).item()
    weights = jax.random.uniform(key, (inputs, outputs), minval=-limit, maxval=limit)
    return Affine(weights, jnp.zeros(outputs, weights.dtype))


ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu}


class Nonlinear(eqx.Module):
    """A map from a context to logits through deterministic layers: last(f(... f(between[0](context)))), f tanh or relu.

    The conditional is still that of the layer that has these logits; only its parameters are a nonlinear function.
    """

    between: tuple[Affine, ...]
    last: Affine
    activation: str = eqx.field(static=True)

    def __call__(self, context: Context) -> Float[Array, "*batch outputs"]:
        for layer in self.between:
            context = ACTIVATIONS[self.activation](layer(context))
        return self.last(context)


def nonlinear(
    key: Key[Array, ""], inputs: int, outputs: int, between: Sequence[int] = (), activation: str = "tanh"
) -> Affine | Nonlinear:
    """A map through deterministic layers of the sizes `between`, listed from the context on; without any, `affine`.

    A map of an empty context, that of a prior, has nothing to be a function of, and is affine: a bias.
    """
    if not between or not inputs:
        return affine(key, inputs, outputs)
    sizes = (inputs, *between, outputs)
    keys = jax.random.split(key, len(sizes) - 1)
    *maps, last = (affine(own, *ends) for own, ends in zip(keys, itertools.pairwise(sizes), strict=True))
    return Nonlinear(tuple(maps), last, activation)


class Layer(eqx.Module):
    """The contract of every layer: a distribution over `value` (*batch, units) given `context` (*batch, inputs)."""

    units: eqx.AbstractVar[int]
    """The size of the value; a static field."""

    domain: ClassVar[Domain] = NUMBERS
    """The values it explains, which data is checked against. A subclass that wants others says so here."""

    @abc.abstractmethod
    def sample(self, key: Key[Array, ""], context: Context) -> Float[Array, "*batch units"]:
        """Draw one value for every case of the batch."""

    @abc.abstractmethod
    def log_prob(self, value: Float[Array, "*batch units"], context: Context) -> Float[Array, "*batch"]:
        """log P(value | context), one number per case."""

    @abc.abstractmethod
    def mean(self, context: Context) -> Float[Array, "*batch units"]:
        """E[value | context]."""

    def conditional_mean(self, value: Float[Array, "*batch units"], context: Context) -> Float[Array, "*batch units"]:
        """E[value_j | value_1..j-1, context] of every unit j; for independent units, `mean`."""
        return self.mean(context)

    def check(self, source: Source, given: int = 0) -> None:
        """Refuse data of another width, or with values outside of the layer's domain.

        Cases begin with `given` columns that are not the layer's own, and may hold any finite numbers.
        """
        if (shape := source.case_shape()) != (given + self.units,):
            found = shape[0] if len(shape) == 1 else f"the shape {shape}"
            context = f", and {given} units of context" if given else ""
            raise UsageError(
                f"The model has {self.units} visible units{context}, so each case must have {given + self.units} "
                f"values, not {found}."
            )
        source.check(after(given, self.domain))

    def support(self) -> Float[np.ndarray, "states units"]:
        """Every value the layer can take. Only `nvil.exact` needs it, and only discrete layers have it."""
        raise UsageError(f"The values of a {type(self).__name__} layer cannot be enumerated.")


class Bernoulli(Layer):
    """Factorial Bernoulli units: the layers of a sigmoid belief network.

    log P(v | context) = sum_j v_j a_j - log(1 + exp a_j),   a = logits(context)
    """

    domain: ClassVar[Domain] = BINARY
    logits: LogitsMap
    units: int = eqx.field(static=True)

    def sample(self, key: Key[Array, ""], context: Context) -> Float[Array, "*batch units"]:
        mean = self.mean(context)
        return (uniform(key, mean.shape) < mean).astype(mean.dtype)

    def log_prob(self, value: Float[Array, "*batch units"], context: Context) -> Float[Array, "*batch"]:
        return bernoulli_log_prob(value, self.logits(context))

    def conditional_logits(self, value: Float[Array, "*batch units"], context: Context) -> Float[Array, "*batch units"]:
        """The logits of every unit given the context and the units before it."""
        return self.logits(context)

    def mean(self, context: Context) -> Float[Array, "*batch units"]:
        return jax.nn.sigmoid(self.logits(context))

    def support(self) -> Float[np.ndarray, "states units"]:
        return binary_vectors(self.units)


class AutoregressiveBernoulli(Layer):
    """Bernoulli units, each depending on those before it: the latents of fDARN and DARN, structured posteriors for Q.

    log P(v | context) = sum_j log P(v_j | v_1..j-1, context) with logits a = logits(context) + v @ W, W strictly upper
    triangular. All conditionals come from one masked matrix product; sampling is sequential (`sample_in_order`).
    """

    domain: ClassVar[Domain] = BINARY
    logits: LogitsMap
    within: Float[Array, "units units"]
    units: int = eqx.field(static=True)

    def sample(self, key: Key[Array, ""], context: Context) -> Float[Array, "*batch units"]:
        logits = self.logits(context)
        draws = uniform(key, logits.shape)
        # u < sigmoid(a) is a > logit(u): no exponential inside the sequential part
        margin = logits - (jnp.log(draws) - jnp.log1p(-draws))
        value = sample_in_order(margin.reshape(-1, self.units), self._masked())
        return value.reshape(logits.shape)

    def log_prob(self, value: Float[Array, "*batch units"], context: Context) -> Float[Array, "*batch"]:
        return bernoulli_log_prob(value, self.conditional_logits(value, context))

    def conditional_logits(self, value: Float[Array, "*batch units"], context: Context) -> Float[Array, "*batch units"]:
        """The logits of every unit given the context and the units before it."""
        return self.logits(context) + product(value, self._masked())

    def conditional_mean(self, value: Float[Array, "*batch units"], context: Context) -> Float[Array, "*batch units"]:
        return jax.nn.sigmoid(self.conditional_logits(value, context))

    def mean(self, context: Context) -> Float[Array, "*batch units"]:
        """E[value | context], *estimated*: the average of P(v_j = 1 | v_1..j-1, context) over 64 fixed samples of v."""
        return _sampled_mean(self, context)

    def support(self) -> Float[np.ndarray, "states units"]:
        return binary_vectors(self.units)

    def _masked(self) -> Float[Array, "units units"]:
        return _to_later_units(self.within)


class Multinomial(Layer):
    """Word counts of a document given the latents, the visible layer of the document models (Section 4.3).

    log P(v | context) = sum_w v_w log softmax(logits(context))_w

    This is the probability of the words in their order: the multinomial coefficient is left out. The model does not
    explain a document's length; `sample` draws it from `lengths`, each as likely.
    """

    domain: ClassVar[Domain] = COUNTS
    logits: LogitsMap
    units: int = eqx.field(static=True)
    lengths: tuple[int, ...] = eqx.field(static=True)

    def sample(self, key: Key[Array, ""], context: Context) -> Float[Array, "*batch units"]:
        length_key, word_key = jax.random.split(key)
        logits = self.logits(context)
        longest = max(self.lengths)
        lengths = jax.random.choice(length_key, jnp.asarray(self.lengths), logits.shape[:-1])
        cumulative = jnp.cumsum(jax.nn.softmax(logits), axis=-1).reshape(-1, self.units)
        draws = uniform(word_key, (cumulative.shape[0], longest)) * cumulative[:, -1:]
        words = jax.vmap(lambda table, draw: jnp.searchsorted(table, draw, side="right"))(cumulative, draws)
        written = jnp.arange(longest) < lengths.reshape(-1, 1)
        rows = jnp.arange(cumulative.shape[0])[:, None]
        counts = jnp.zeros_like(cumulative).at[rows, words].add(written.astype(cumulative.dtype), mode="drop")
        return counts.reshape(logits.shape)

    def log_prob(self, value: Float[Array, "*batch units"] | SparseCases, context: Context) -> Float[Array, "*batch"]:
        logits = self.logits(context)
        normaliser = jax.nn.logsumexp(logits, axis=-1)
        if isinstance(value, SparseCases):
            return value.inner(logits) - value.sums() * normaliser
        return jnp.sum(value * logits, axis=-1) - jnp.sum(value, axis=-1) * normaliser

    def mean(self, context: Context) -> Float[Array, "*batch units"]:
        return float(np.mean(self.lengths)) * jax.nn.softmax(self.logits(context))

    def support(self) -> Float[np.ndarray, "states units"]:
        """The counts of every document there is, in any order of its words, so that probabilities sum to one."""
        if len(self.lengths) != 1:
            raise UsageError("Only documents of one length can be enumerated.")
        one_hot = np.eye(self.units)
        words = itertools.product(range(self.units), repeat=self.lengths[0])
        return np.stack([one_hot[list(document)].sum(axis=0) for document in words])


class Categorical(Layer):
    """Independent variables, each one of K categories: one-hot, so that a value has K units for each variable.

    log P(v | context) = sum_g sum_k v_gk log softmax(a_g)_k,   a = logits(context)
    """

    domain: ClassVar[Domain] = BINARY
    logits: LogitsMap
    units: int = eqx.field(static=True)
    categories: int = eqx.field(static=True)

    def sample(self, key: Key[Array, ""], context: Context) -> Float[Array, "*batch units"]:
        logits = self.by_variable(self.logits(context))
        return self._chosen(logits, uniform(key, logits.shape[:-1])).reshape(*logits.shape[:-2], self.units)

    def log_prob(self, value: Float[Array, "*batch units"], context: Context) -> Float[Array, "*batch"]:
        log_rate = self.log_rates(value, context)
        return jnp.sum(self.by_variable(value) * log_rate, axis=(-2, -1))

    def mean(self, context: Context) -> Float[Array, "*batch units"]:
        logits = self.logits(context)
        return jax.nn.softmax(self.by_variable(logits)).reshape(logits.shape)

    def log_rates(
        self, value: Float[Array, "*batch units"], context: Context
    ) -> Float[Array, "*batch variables categories"]:
        """The log-probability of every category of every variable, given the context and the variables before it."""
        return jax.nn.log_softmax(self.by_variable(self.logits(context)))

    def by_variable(self, value: Float[Array, "*batch units"]) -> Float[Array, "*batch variables categories"]:
        return value.reshape(*value.shape[:-1], self.units // self.categories, self.categories)

    def _chosen(self, logits: Float[Array, "*batch K"], draw: Float[Array, "*batch"]) -> Float[Array, "*batch K"]:
        """The one-hot category that a uniform number stands for."""
        below = jnp.cumsum(jax.nn.softmax(logits), axis=-1)[..., :-1]
        return jax.nn.one_hot(jnp.sum(draw[..., None] > below, axis=-1), self.categories, dtype=logits.dtype)

    def check(self, source: Source, given: int = 0) -> None:
        super().check(source, given)
        source.check(after(given, one_hot(self.categories)))

    def support(self) -> Float[np.ndarray, "states units"]:
        one_hot = np.eye(self.categories)
        variables = self.units // self.categories
        states = itertools.product(range(self.categories), repeat=variables)
        return np.stack([one_hot[list(state)].ravel() for state in states])


class AutoregressiveCategorical(Categorical):
    """Categorical variables, each depending on those before it.

    As `AutoregressiveBernoulli`: a = logits(context) + v @ W, where W joins a variable only to those after it.
    """

    within: Float[Array, "units units"]

    def sample(self, key: Key[Array, ""], context: Context) -> Float[Array, "*batch units"]:
        logits = self.logits(context)
        size = self.categories
        draws = uniform(key, (*logits.shape[:-1], self.units // size))

        def step(j: Array, carried: tuple[Array, Array]) -> tuple[Array, Array]:
            total, value = carried
            own = jax.lax.dynamic_slice_in_dim(total, j * size, size, axis=-1)
            chosen = self._chosen(own, jax.lax.dynamic_index_in_dim(draws, j, axis=-1, keepdims=False))
            total = total + chosen @ jax.lax.dynamic_slice_in_dim(self._masked(), j * size, size)
            return total, jax.lax.dynamic_update_slice_in_dim(value, chosen, j * size, axis=-1)

        return jax.lax.fori_loop(0, self.units // size, step, (logits, jnp.zeros_like(logits)))[1]

    def log_rates(
        self, value: Float[Array, "*batch units"], context: Context
    ) -> Float[Array, "*batch variables categories"]:
        return jax.nn.log_softmax(self.by_variable(self.logits(context) + product(value, self._masked())))

    def conditional_mean(self, value: Float[Array, "*batch units"], context: Context) -> Float[Array, "*batch units"]:
        return jnp.exp(self.log_rates(value, context)).reshape(value.shape)

    def mean(self, context: Context) -> Float[Array, "*batch units"]:
        """E[value | context], *estimated*, as that of `AutoregressiveBernoulli`."""
        return _sampled_mean(self, context)

    def _masked(self) -> Float[Array, "units units"]:
        variable = np.arange(self.units) // self.categories
        return jnp.where(variable[:, None] < variable, self.within, 0)


class Gaussian(Layer):
    """Independent Gaussian units, which can be reparameterised (Section 3.1): v = m + s e, e ~ N(0, 1).

    log P(v | context) = sum_j -1/2 ((v_j - m_j) / s_j)^2 - log s_j - 1/2 log 2 pi,   (m, a) = moments(context)

    The deviation is log s = 5 tanh(a / 5), which is a where that is small, and keeps s between 1/148 and 148: without a
    bound, an outlying context could make it overflow.
    """

    LARGEST: ClassVar[float] = 5.0
    """The bound of a log-deviation."""

    moments: LogitsMap
    units: int = eqx.field(static=True)

    def sample(self, key: Key[Array, ""], context: Context) -> Float[Array, "*batch units"]:
        mean, log_deviation = self.mean_and_log_deviation(context)
        return mean + jnp.exp(log_deviation) * jax.random.normal(key, mean.shape, mean.dtype)

    def log_prob(self, value: Float[Array, "*batch units"], context: Context) -> Float[Array, "*batch"]:
        mean, log_deviation = self.mean_and_log_deviation(context)
        noise = (value - mean) * jnp.exp(-log_deviation)
        return -jnp.sum(0.5 * noise**2 + log_deviation, axis=-1) - 0.5 * math.log(2 * math.pi) * self.units

    def mean(self, context: Context) -> Float[Array, "*batch units"]:
        return self.mean_and_log_deviation(context)[0]

    def mean_and_log_deviation(
        self, context: Context
    ) -> tuple[Float[Array, "*batch units"], Float[Array, "*batch units"]]:
        mean, free = jnp.split(self.moments(context), 2, axis=-1)
        return mean, self.LARGEST * jnp.tanh(free / self.LARGEST)

    def conditional_moments(
        self, value: Float[Array, "*batch units"], context: Context
    ) -> tuple[Float[Array, "*batch units"], Float[Array, "*batch units"]]:
        """The mean and log-deviation of every unit given the context and the units before it."""
        return self.mean_and_log_deviation(context)

    def reparameterised(self, value: Float[Array, "*batch units"], context: Context) -> Float[Array, "*batch units"]:
        """The same value as a function of the layer's parameters and its context, the noise behind it being fixed."""
        mean, log_deviation = self.mean_and_log_deviation(context)
        noise = jax.lax.stop_gradient((value - mean) * jnp.exp(-log_deviation))
        return mean + jnp.exp(log_deviation) * noise


class AutoregressiveGaussian(Gaussian):
    """Gaussian units, each with a mean that is linear in those before it: together, a Gaussian of full covariance.

    v = m + v W + s e, W strictly upper triangular, and so v = (m + s e) (I - W)^-1: unlike a binary layer, it is drawn,
    and has its mean, by one triangular solve. The determinant of I - W is 1.
    """

    within: Float[Array, "units units"]

    def sample(self, key: Key[Array, ""], context: Context) -> Float[Array, "*batch units"]:
        return self._solved(super().sample(key, context))

    def log_prob(self, value: Float[Array, "*batch units"], context: Context) -> Float[Array, "*batch"]:
        return super().log_prob(value - value @ self._masked(), context)

    def mean(self, context: Context) -> Float[Array, "*batch units"]:
        return self._solved(super().mean(context))

    def conditional_mean(self, value: Float[Array, "*batch units"], context: Context) -> Float[Array, "*batch units"]:
        return self.conditional_moments(value, context)[0]

    def conditional_moments(
        self, value: Float[Array, "*batch units"], context: Context
    ) -> tuple[Float[Array, "*batch units"], Float[Array, "*batch units"]]:
        mean, log_deviation = self.mean_and_log_deviation(context)
        return mean + value @ self._masked(), log_deviation

    def reparameterised(self, value: Float[Array, "*batch units"], context: Context) -> Float[Array, "*batch units"]:
        return self._solved(super().reparameterised(value - value @ self._masked(), context))

    def _solved(self, own: Float[Array, "*batch units"]) -> Float[Array, "*batch units"]:
        """own (I - W)^-1."""
        to_own = jnp.eye(self.units, dtype=own.dtype) - self._masked()
        rows = own.reshape(-1, self.units).T
        return jax.scipy.linalg.solve_triangular(to_own, rows, trans="T", unit_diagonal=True).T.reshape(own.shape)

    def _masked(self) -> Float[Array, "units units"]:
        return _to_later_units(self.within)


class Standardised(Layer):
    """Real numbers in the data's own units: `standard` is the layer of those less `center`, in units of `deviation`.

    log P(v | context) = log P'((v - center) / deviation | context) - sum_j log deviation_j
    """

    standard: Gaussian
    center: Constant
    deviation: Constant
    units: int = eqx.field(static=True)

    def sample(self, key: Key[Array, ""], context: Context) -> Float[Array, "*batch units"]:
        return self._in_own_units(self.standard.sample(key, context))

    def log_prob(self, value: Float[Array, "*batch units"], context: Context) -> Float[Array, "*batch"]:
        _, deviation = self._units()
        return self.standard.log_prob(self._standardised(value), context) - jnp.sum(jnp.log(deviation))

    def mean(self, context: Context) -> Float[Array, "*batch units"]:
        return self._in_own_units(self.standard.mean(context))

    def conditional_mean(self, value: Float[Array, "*batch units"], context: Context) -> Float[Array, "*batch units"]:
        return self._in_own_units(self.standard.conditional_mean(self._standardised(value), context))

    def _units(self) -> tuple[Float[Array, " units"], Float[Array, " units"]]:
        return jax.lax.stop_gradient((self.center.value, self.deviation.value))

    def _standardised(self, value: Float[Array, "*batch units"]) -> Float[Array, "*batch units"]:
        center, deviation = self._units()
        return (value - center) / deviation

    def _in_own_units(self, value: Float[Array, "*batch units"]) -> Float[Array, "*batch units"]:
        center, deviation = self._units()
        return center + deviation * value


def _to_later_units(within: Float[Array, "units units"]) -> Float[Array, "units units"]:
    """The connections within a layer that count: from a unit to those after it."""
    return jnp.triu(within, 1)


def _sampled_mean(layer: Layer, context: Context) -> Float[Array, "*batch units"]:
    """The average of E[value_j | value_1..j-1, context] over 64 fixed samples of the values before."""

    def conditional(key: Key[Array, ""]) -> Float[Array, "*batch units"]:
        return layer.conditional_mean(layer.sample(key, context), context)

    return jnp.mean(jax.lax.map(conditional, jax.random.split(jax.random.key(0), 64)), axis=0)


def sample_in_order(
    margin: Float[Array, "cases units"], within: Float[Array, "units units"]
) -> Float[Array, "cases units"]:
    """The binary v with v_j = 1 where margin_j + sum_k<j v_k within_kj > 0, unit after unit.

    On a CPU, in single precision, a function in C adds the rows of the units that are on (`kernels.c`); elsewhere, and
    on several devices, XLA has `sample_in_blocks`. Its derivatives are zero.
    """
    margin, within = jax.lax.stop_gradient((margin, within))
    if margin.dtype != jnp.float32 or not jax.sharding.get_abstract_mesh().empty or not kernels.available():
        return sample_in_blocks(margin, within)
    shape = jax.ShapeDtypeStruct(margin.shape, margin.dtype)
    ours = jax.ffi.ffi_call("nvil_draw_in_order", shape, vmap_method="sequential")
    return jax.lax.platform_dependent(margin, within, cpu=ours, default=sample_in_blocks)


def sample_in_blocks(
    margin: Float[Array, "cases units"], within: Float[Array, "units units"], block: int | None = None
) -> Float[Array, "cases units"]:
    """As `sample_in_order`, by operations of XLA.

    Within a block of units a loop adds one row of weights at a time; what a block does to the next ones is a matrix
    product. The result is that of the plain loop over all units, up to five times sooner (`benchmarks/layer_cost.py`,
    which also chose the default size of a block).
    """
    cases, units = margin.shape
    block = block or (64 if cases <= 32 else 32)
    value = margin[:, :0]
    for begin in range(0, units, block):
        end = min(begin + block, units)
        own = within[begin:end, begin:end]

        def step(j: Array, total: Array, own: Array = own) -> Array:
            on = (jax.lax.dynamic_slice_in_dim(total, j, 1, axis=1) > 0).astype(total.dtype)
            return total + on * jax.lax.dynamic_slice_in_dim(own, j, 1, axis=0)

        # Row j of `own` is zero up to j, so no step changes a unit that has been decided.
        total = jax.lax.fori_loop(0, end - begin, step, margin[:, begin:end] + value @ within[:begin, begin:end])
        value = jnp.concatenate([value, (total > 0).astype(total.dtype)], axis=1)
    return value


GROUP = 16
"""Units that share one logarithm in `bernoulli_log_prob`."""


@jax.custom_jvp
def bernoulli_log_prob(
    value: Float[Array, "*batch units"], logits: Float[Array, "*batch units"]
) -> Float[Array, "*batch"]:
    """sum_j v_j a_j - log(1 + exp a_j), without overflow for any finite logit a_j.

    The second term is max(a_j, 0) - log max(s_j, 1 - s_j) with s = sigmoid(a), which is at hand: Q samples from it, and
    v - s is the derivative. The maximum is at least 1/2, so that 16 units need one logarithm, that of their product.
    """
    rate = jax.nn.sigmoid(logits)
    likelier = jnp.maximum(rate, 1 - rate)
    grouped = likelier.shape[-1] // GROUP * GROUP
    groups = likelier[..., :grouped].reshape(*likelier.shape[:-1], GROUP, grouped // GROUP)
    logs = jnp.sum(jnp.log(jnp.prod(groups, axis=-2)), axis=-1) + jnp.log(jnp.prod(likelier[..., grouped:], axis=-1))
    return jnp.sum(value * logits - jnp.maximum(logits, 0), axis=-1) + logs


@bernoulli_log_prob.defjvp
def _bernoulli_log_prob_jvp(primals, tangents):
    (value, logits), (value_tangent, logits_tangent) = primals, tangents
    tangent = value_tangent * logits + (value - jax.nn.sigmoid(logits)) * logits_tangent
    return bernoulli_log_prob(value, logits), jnp.sum(tangent, axis=-1)


def binary_vectors(units: int) -> Float[np.ndarray, "states units"]:
    """All 2^units binary vectors, one per row."""
    return np.array(list(itertools.product((0.0, 1.0), repeat=units))).reshape(2**units, units)
