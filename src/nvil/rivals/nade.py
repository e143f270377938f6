"""NADE: the neural autoregressive distribution estimator of Larochelle & Murray (2011), trained by Adam.

    P(x) = prod_d P(x_d | x_1..d-1),   P(x_d = 1 | x_1..d-1) = sigmoid(b_d + V_d . h_d)
    h_d = sigmoid(c + sum_e<d x_e W_e)

The pixels come in the order of the columns of `x`. The authors give 88.9 nats for 500 units on binarized MNIST, with an
order drawn at random and minibatches of one case.

All the h_d of a minibatch do not fit into a cache, so there is one step per pixel, which adds x_d W_d to the
activations. The gradient runs back over the pixels and *subtracts* x_d W_d again, so nothing is stored on the way
forth. On one core this is twice as fast as blocks of pixels with masked matrix products.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Num

from nvil.errors import above_zero, count_of
from nvil.rivals.ascent import falling_adam, updated
from nvil.rivals.checks import binary_cases
from nvil.rivals.early_stopping import Report, train


@dataclass(frozen=True)
class Settings:
    """The learning rate falls linearly to zero over all epochs."""

    units: int = 500
    learning_rate: float = 3e-3
    batch: int = 100
    epochs: int = 50
    patience: int = 10


class Parameters(NamedTuple):
    encoder: Float[Array, "pixels units"]
    hidden_bias: Float[Array, " units"]
    decoder: Float[Array, "pixels units"]
    bias: Float[Array, " pixels"]


def fit(
    x: np.ndarray,
    settings: Settings | None = None,
    *,
    validation: np.ndarray | None = None,
    seed: int = 0,
    report: Report | None = None,
) -> Parameters:
    """`report` is called with (epoch, mean log-likelihood per case)."""
    settings = settings or Settings()
    count_of(1, units=settings.units, batch=settings.batch, epochs=settings.epochs)
    above_zero(learning_rate=settings.learning_rate)
    x = binary_cases(x)
    held = x[:1000] if validation is None else binary_cases(validation, x.shape[1])
    batch = min(settings.batch, len(x))
    updates = len(x) // batch
    parameters = start(x, settings.units, seed)
    cases = jnp.asarray(x)

    def advance(state: tuple[Parameters, optax.OptState], epoch: int) -> tuple[Parameters, optax.OptState]:
        order = np.random.default_rng([seed, epoch]).permutation(len(x))[: updates * batch]
        return _epoch(*state, cases, jnp.asarray(order.reshape(updates, batch)), settings)

    return train(
        (parameters, _optimiser(settings, updates).init(parameters)),
        advance,
        lambda state: float(np.mean(log_prob(state[0], held))),
        epochs=settings.epochs,
        patience=settings.patience,
        validated=validation is not None,
        report=report,
    )[0]


def log_prob(
    parameters: Parameters, x: Num[np.ndarray, "cases pixels"], *, block: int = 200
) -> Float[np.ndarray, " cases"]:
    """log P(x), exact, one number per case."""
    x = binary_cases(x, len(parameters.bias))
    parts = [_log_prob(parameters, jnp.asarray(x[i : i + block])) for i in range(0, len(x), block)]
    return np.concatenate([np.asarray(part) for part in parts])


def start(x: np.ndarray, units: int, seed: int) -> Parameters:
    """Uniform weights of the scale of Glorot & Bengio (2010); the biases of the pixels are their base rates."""
    pixels = x.shape[1]
    limit = np.sqrt(6 / (pixels + units))
    encoder, decoder = np.random.default_rng(seed).uniform(-limit, limit, (2, pixels, units)).astype(np.float32)
    rates = (np.sum(x, axis=0) + 0.5) / (len(x) + 1)
    bias = jnp.asarray(np.log(rates) - np.log1p(-rates), jnp.float32)
    return Parameters(jnp.asarray(encoder), jnp.zeros(units, jnp.float32), jnp.asarray(decoder), bias)


@jax.custom_vjp
def logits(parameters: Parameters, x: Float[Array, "cases pixels"]) -> Float[Array, "cases pixels"]:
    """b_d + V_d . h_d for every pixel of every case."""
    return _logits_forward(parameters, x)[0]


def _logits_forward(parameters: Parameters, x: Float[Array, "cases pixels"]) -> tuple[Array, tuple]:
    def pixel(active: Array, row: tuple[Array, ...]) -> tuple[Array, Array]:
        encoder, decoder, bias, value = row
        return active + value[:, None] * encoder, jax.nn.sigmoid(active) @ decoder + bias

    active = jnp.broadcast_to(parameters.hidden_bias, (len(x), len(parameters.hidden_bias)))
    rows = (parameters.encoder, parameters.decoder, parameters.bias, x.T)
    active, columns = jax.lax.scan(pixel, active, rows)
    return columns.T, (parameters, x, active)


def _logits_backward(kept: tuple, gradient: Float[Array, "cases pixels"]) -> tuple[Parameters, Array]:
    parameters, x, active = kept

    def pixel(state: tuple[Array, Array], row: tuple[Array, ...]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        active, by_active = state  # the second is the derivative with respect to the activations of all later pixels
        encoder, decoder, value, by_logit = row
        active = active - value[:, None] * encoder
        hidden = jax.nn.sigmoid(active)
        by_rows = value @ by_active, by_logit @ hidden
        return (active, by_active + by_logit[:, None] * decoder * hidden * (1 - hidden)), by_rows

    rows = (parameters.encoder, parameters.decoder, x.T, gradient.T)
    state, by_rows = jax.lax.scan(pixel, (active, jnp.zeros_like(active)), rows, reverse=True)
    by_parameters = Parameters(by_rows[0], jnp.sum(state[1], axis=0), by_rows[1], jnp.sum(gradient, axis=0))
    return by_parameters, jnp.zeros_like(x)  # cases are data: nobody asks for their gradient


logits.defvjp(_logits_forward, _logits_backward)


@jax.jit
def _log_prob(parameters: Parameters, x: Num[Array, "cases pixels"]) -> Float[Array, " cases"]:
    x = x.astype(parameters.bias.dtype)
    outputs = logits(parameters, x)
    return jnp.sum(x * outputs - jax.nn.softplus(outputs), axis=-1)


def _optimiser(settings: Settings, updates: int) -> optax.GradientTransformation:
    return falling_adam(settings.learning_rate, settings.epochs * updates)


@partial(jax.jit, static_argnames="settings")
def _epoch(
    parameters: Parameters,
    state: optax.OptState,
    cases: Num[Array, "cases pixels"],
    order: Int[Array, "updates batch"],
    settings: Settings,
) -> tuple[Parameters, optax.OptState]:
    optimiser = _optimiser(settings, len(order))

    def update(carry: tuple[Parameters, optax.OptState], rows: Int[Array, " batch"]):
        parameters, state = carry
        gradient = jax.grad(lambda p: -jnp.mean(_log_prob(p, cases[rows])))(parameters)
        return updated(optimiser, gradient, state, parameters), None

    return jax.lax.scan(update, (parameters, state), order)[0]
