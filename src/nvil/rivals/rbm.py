"""RBM: a restricted Boltzmann machine, trained by contrastive divergence and evaluated by annealed importance sampling.

    P(v) = f(v) / Z,   f(v) = sum_h exp(v W h + b v + c h) = exp(b v) prod_j (1 + exp(c_j + v W_j))

The gradient of log P is E_data[grad log f] - E_model[grad log f]. CD-k (Hinton, 2002) takes the second expectation from
k steps of Gibbs sampling that start at the data; persistent CD (Tieleman, 2008) from chains that go on from update to
update.

Salakhutdinov & Murray (2008), "On the quantitative analysis of deep belief networks", give 105.5 nats for 500 units and
CD-3, and 86.3 for CD with steps that grow from 1 to 25. They estimate Z by AIS from the base-rate model (no weights,
biases b_A that give each pixel its mean), through

    f_t(v) = exp((1 - t) b_A v + t b v) prod_j (1 + exp(t (c_j + v W_j))),   Z_0 = 2^units prod_d (1 + exp b_A,d)

with 14,500 temperatures t and 100 chains.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, Num

from nvil.errors import above_zero, count_of
from nvil.rivals.annealing import Estimate, log_mean, temperatures
from nvil.rivals.ascent import updated
from nvil.rivals.checks import binary_cases
from nvil.rivals.early_stopping import Report, train


@dataclass(frozen=True)
class Settings:
    """`gradual` lets the steps of Gibbs sampling grow from 1 to `steps` over the epochs.

    The learning rate falls linearly to zero. A validation score needs a partition function: it is a quick estimate,
    of 100 chains and `quick_temperatures`, each `interval` epochs.
    """

    units: int = 500
    steps: int = 25
    gradual: bool = False
    persistent: bool = False
    learning_rate: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 2e-4
    batch: int = 100
    epochs: int = 100
    interval: int = 5
    patience: int = 5
    quick_temperatures: int = 3000


class Parameters(NamedTuple):
    """`base` is b_A, the biases of the base-rate model; it is not trained."""

    weights: Float[Array, "pixels units"]
    visible_bias: Float[Array, " pixels"]
    hidden_bias: Float[Array, " units"]
    base: Float[Array, " pixels"]


class State(NamedTuple):
    parameters: Parameters
    optimiser: optax.OptState
    chains: Float[Array, "batch pixels"]


def fit(
    x: np.ndarray,
    settings: Settings | None = None,
    *,
    validation: np.ndarray | None = None,
    seed: int = 0,
    report: Report | None = None,
) -> Parameters:
    """`report` is called with (epoch, quick estimate of the mean log-likelihood per case)."""
    settings = settings or Settings()
    count_of(
        1,
        units=settings.units,
        steps=settings.steps,
        batch=settings.batch,
        epochs=settings.epochs,
        interval=settings.interval,
    )
    above_zero(learning_rate=settings.learning_rate)
    x = binary_cases(x)
    held = x[:1000] if validation is None else binary_cases(validation, x.shape[1])
    batch = min(settings.batch, len(x))
    updates = len(x) // batch
    cases = jnp.asarray(x)
    key = jax.random.key(seed)

    def advance(state: State, epoch: int) -> State:
        order = np.random.default_rng([seed, epoch]).permutation(len(x))[: updates * batch]
        steps = steps_at(epoch, settings.epochs, settings.steps) if settings.gradual else settings.steps
        order = jnp.asarray(order.reshape(updates, batch))
        return _epoch(state, cases, order, jnp.asarray(steps), jax.random.fold_in(key, epoch), settings)

    def score(state: State) -> float:
        return float(np.mean(log_prob(state.parameters, held, betas=settings.quick_temperatures, seed=seed).log_prob))

    parameters = start(x, settings.units, seed)
    return train(
        State(parameters, _optimiser(settings, updates).init(parameters), cases[:batch].astype(jnp.float32)),
        advance,
        score,
        epochs=settings.epochs,
        patience=settings.patience,
        validated=validation is not None,
        report=report,
        interval=settings.interval,
    ).parameters


def log_prob(
    parameters: Parameters, x: Num[np.ndarray, "cases pixels"], *, chains: int = 100, betas: int = 14500, seed: int = 0
) -> Estimate:
    """log P(x) per case, less an estimate of log Z, whose standard error all cases share."""
    x = binary_cases(x, len(parameters.visible_bias))
    log_z, error = log_partition(parameters, chains=chains, betas=betas, seed=seed)
    parts = [log_f(parameters, jnp.asarray(x[i : i + 1000], parameters.base.dtype)) for i in range(0, len(x), 1000)]
    values = np.concatenate([np.asarray(part, np.float64) for part in parts])
    return Estimate(values - log_z, np.asarray(error), np.arange(len(x)))


def log_partition(
    parameters: Parameters, *, chains: int = 100, betas: int = 14500, seed: int = 0
) -> tuple[float, float]:
    """log Z by annealed importance sampling, and its standard error."""
    count_of(2, chains=chains)
    base = parameters.base
    log_z0 = float(jnp.sum(jax.nn.softplus(base))) + len(parameters.hidden_bias) * np.log(2)
    schedule = jnp.asarray(temperatures(betas), base.dtype)
    estimate, error = log_mean(np.asarray(_log_weights(parameters, schedule, jax.random.key(seed), chains)))
    return float(log_z0 + estimate), float(error)


@jax.jit
def log_f(parameters: Parameters, v: Float[Array, "cases pixels"]) -> Float[Array, " cases"]:
    """log f(v) = b v + sum_j log(1 + exp(c_j + v W_j)), P(v) without its constant."""
    hidden = jax.nn.softplus(v @ parameters.weights + parameters.hidden_bias)
    return v @ parameters.visible_bias + jnp.sum(hidden, axis=-1)


def gibbs(
    parameters: Parameters, v: Float[Array, "cases pixels"], key: Key[Array, ""], steps: int | Int[Array, ""]
) -> Float[Array, "cases pixels"]:
    """`steps` times h ~ P(h | v), v ~ P(v | h)."""

    def step(i: Array, v: Array) -> Array:
        hidden_key, visible_key = jax.random.split(jax.random.fold_in(key, i))
        h = bernoulli(hidden_key, v @ parameters.weights + parameters.hidden_bias)
        return bernoulli(visible_key, h @ parameters.weights.T + parameters.visible_bias)

    return jax.lax.fori_loop(0, steps, step, v)


def contrast(parameters: Parameters, data: Float[Array, "cases pixels"], model: Float[Array, "chains pixels"]) -> Array:
    """mean log f(data) - mean log f(model): its gradient, the states being fixed, is that of CD."""
    return jnp.mean(log_f(parameters, data)) - jnp.mean(log_f(parameters, model))


def bernoulli(key: Key[Array, ""], logits: Float[Array, "cases units"]) -> Float[Array, "cases units"]:
    return (jax.random.uniform(key, logits.shape, logits.dtype) < jax.nn.sigmoid(logits)).astype(logits.dtype)


def steps_at(epoch: int, epochs: int, steps: int) -> int:
    """1 in the first epoch, `steps` in the last, and straight between."""
    return steps if epochs == 1 else round(1 + (steps - 1) * (epoch - 1) / (epochs - 1))


def start(x: np.ndarray, units: int, seed: int) -> Parameters:
    """Weights of standard deviation 0.01; the visible biases are those of the base-rate model."""
    weights = np.random.default_rng(seed).normal(0, 0.01, (x.shape[1], units)).astype(np.float32)
    rates = (np.sum(x, axis=0) + 0.5) / (len(x) + 1)
    base = jnp.asarray(np.log(rates) - np.log1p(-rates), jnp.float32)
    return Parameters(jnp.asarray(weights), base, jnp.zeros(units, jnp.float32), base)


@partial(jax.jit, static_argnames="chains")
def _log_weights(
    parameters: Parameters, betas: Float[Array, " betas"], key: Key[Array, ""], chains: int
) -> Float[Array, " chains"]:
    weights, bias, hidden_bias, base = parameters

    def step(carry: tuple[Array, Array], now: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
        v, log_weights = carry
        i, before, beta = now
        active = v @ weights + hidden_bias
        gain = jnp.sum(jax.nn.softplus(beta * active) - jax.nn.softplus(before * active), axis=-1)
        gain = gain + (beta - before) * (v @ (bias - base))
        hidden_key, visible_key = jax.random.split(jax.random.fold_in(key, i))
        h = bernoulli(hidden_key, beta * active)
        v = bernoulli(visible_key, (1 - beta) * base + beta * (h @ weights.T + bias))
        return (v, log_weights + gain), None

    # The first step goes from 0 to 0: it gains nothing and draws v from the base-rate model.
    steps = (jnp.arange(len(betas)), jnp.concatenate([betas[:1], betas[:-1]]), betas)
    nothing = (jnp.zeros((chains, len(base)), base.dtype), jnp.zeros(chains, base.dtype))
    return jax.lax.scan(step, nothing, steps)[0][1]


def _optimiser(settings: Settings, updates: int) -> optax.GradientTransformation:
    """Gradient ascent with momentum. Only the weights decay, and the base-rate model stays as it is."""
    rate = optax.linear_schedule(settings.learning_rate, 0.0, settings.epochs * updates)
    decayed = Parameters(True, False, False, False)  # pyright: ignore[reportArgumentType]
    return optax.chain(
        optax.add_decayed_weights(-settings.weight_decay, mask=decayed),
        optax.trace(settings.momentum),
        optax.scale_by_schedule(rate),
    )


@partial(jax.jit, static_argnames="settings")
def _epoch(
    state: State,
    cases: Num[Array, "cases pixels"],
    order: Int[Array, "updates batch"],
    steps: Int[Array, ""],
    key: Key[Array, ""],
    settings: Settings,
) -> State:
    optimiser = _optimiser(settings, len(order))

    def update(state: State, now: tuple[Array, Array]) -> tuple[State, None]:
        i, rows = now
        parameters = state.parameters
        data = cases[rows].astype(parameters.base.dtype)
        model = gibbs(parameters, state.chains if settings.persistent else data, jax.random.fold_in(key, i), steps)
        gradient = jax.grad(contrast)(parameters, data, model)
        return State(*updated(optimiser, gradient, state.optimiser, parameters), model), None

    return jax.lax.scan(update, state, (jnp.arange(len(order)), order))[0]
