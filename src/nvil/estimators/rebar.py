"""REBAR: the concrete relaxation as a control variate, so that nothing of its bias is left (Tucker et al., 2017)."""

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nvil.contracts import Estimator, Info, Latents, Pair, Parameters, SignalInfo
from nvil.errors import count_of
from nvil.estimators.bernoulli import (
    Outcomes,
    branch,
    chain,
    check_bernoulli,
    check_temperature,
    every_case,
    every_unit,
    is_on,
    layer_noise,
    logit,
    logits_of,
    quadrature,
)
from nvil.estimators.samples import for_every_sample
from nvil.layers import bernoulli_log_prob
from nvil.signals import local_signals


class REBAR(Estimator):
    """Layer by layer, with logits a and p = sigmoid(a), uniform noise u and v, and trained psi = (eta, temperature).

        z  = a + logit(u),    h = [z > 0]
        z' = a + logit(v'),   v' = v p + 1 - p where h = 1, v (1 - p) where h = 0:   z' is another z given h
        c(z) = the signal l^i with h^i relaxed to sigmoid(z / temperature), and the layers above with their own noise
        grad a = (l^i - eta c(z')) (h - p) + eta (grad c(z) - grad c(z'))
        grad theta = grad log P(x, h)

    averaged over samples, gradients of c being those along z(a) alone. Given h, c(z) and c(z') have the same
    expectation: unbiased for every eta and temperature. Both learn, one of each per layer, to make the mean square of
    grad a small, and with it its variance. log P must be differentiable in h, between 0 and 1 too.
    """

    sparse: ClassVar[bool] = True
    samples: int = 1
    temperature: float = 0.5

    def __check_init__(self) -> None:
        count_of(1, samples=self.samples)
        check_temperature(self.temperature)

    def check(self, pair: Pair) -> None:
        check_bernoulli("REBAR", pair)

    def init(self, key: Key[Array, ""], pair: Pair, x: Any) -> tuple[Any, None]:
        """Eta starts at 1."""
        layers = len(pair.inference.layers)
        return (jnp.ones(layers, float), jnp.full(layers, math.log(self.temperature), float)), None

    def sample(self, key: Key[Array, ""], pair: Pair, x: Any) -> Any:
        """`(u, v)`, uniform noise for every layer, shape `(samples, cases, units)`."""

        def one(key: Key[Array, ""]) -> Any:
            first, second = jax.random.split(key)
            return layer_noise(first, pair.inference, x), layer_noise(second, pair.inference, x)

        return for_every_sample(one, jax.random.split(key, self.samples))

    def gradients_from(self, draws: Any, params: Parameters, x: Any, state: None) -> tuple[Parameters, None, Info]:
        fixed = jax.lax.stop_gradient(params.pair)
        h = for_every_sample(lambda noise: latents_of(fixed, x, noise[0]), draws)

        def along(psi: Any) -> tuple[Float[Array, ""], Any]:
            found = for_every_sample(lambda each: directions(fixed, x, each[0], each[1], psi), (h, draws))
            return -sum((jnp.mean(own**2) for own in found[0]), jnp.zeros(())), found

        psi, (found, signals) = jax.grad(along, has_aux=True)(params.baselines)

        def objective(pair: Pair) -> tuple[Float[Array, ""], Info]:
            log_p = for_every_sample(lambda h: pair.model.log_prob(x, h), h)
            logits = for_every_sample(lambda h: logits_of(pair.inference, x, h), h)
            log_q = sum(
                jax.lax.stop_gradient(bernoulli_log_prob(value, own)) for value, own in zip(h, logits, strict=True)
            )
            total = jnp.sum(log_p) + sum(jnp.sum(d * own) for d, own in zip(found, logits, strict=True))
            raw, signal = signals
            info = Info(
                jnp.mean(jnp.sum(log_p, axis=-1) - log_q),
                SignalInfo(jnp.std(raw, axis=(0, 1)), jnp.mean(signal, axis=(0, 1)), jnp.std(signal, axis=(0, 1))),
            )
            return total / self.samples, info

        gradients, info = eqx.filter_grad(objective, has_aux=True)(params.pair)
        return Parameters(gradients.model, gradients.inference, psi), None, info

    def enumerate_draws(self, pair: Pair, x: Any) -> Outcomes:
        """Not every draw, of which there is a continuum: Gauss-Legendre quadrature with 10 nodes in every cell.

        The cells are those of u in which h is constant, and the whole of v. The error is below 1e-6 where
        1 / temperature is whole, so that the relaxed latents are rational functions of the noise, and no logit is
        large. Keep models to two units.
        """

        def one(x: Float[Array, "1 visible"]) -> Outcomes:
            us, vs, log_prob = (), (), jnp.zeros(1, x.dtype)
            (context,) = (each[None] for each in pair.inference.contexts(x, ()))
            for layer in pair.inference.layers:
                mean = layer.mean(context)
                ends = jnp.zeros_like(mean), jnp.ones_like(mean)
                u, own = every_unit(*quadrature(jnp.stack([ends[0], 1 - mean, ends[1]]), nodes=10))
                (us, vs, mean), u, log_prob = branch(((us, vs, mean), log_prob), u, own[..., 0])
                v, own = every_unit(*quadrature(jnp.stack([jnp.zeros_like(mean), jnp.ones_like(mean)]), nodes=10))
                (us, vs, mean, u), v, log_prob = branch(((us, vs, mean, u), log_prob), v, own[..., 0])
                us, vs, context = (*us, u), (*vs, v), pair.inference.above(x, is_on(u, mean))
            return (us, vs), log_prob

        return every_case(one, x, self.samples)


def latents_of(pair: Pair, x: Any, u: Latents) -> Latents:
    """The latents that the noise `u` makes."""
    return chain(pair.inference, x, lambda i, logits: is_on(u[i], jax.nn.sigmoid(logits)))


def directions(pair: Pair, x: Any, h: Latents, noise: Any, psi: Any) -> tuple[Any, Any]:
    """The gradients of the logits of every layer, with `(l^i, l^i - eta c(z'))` for a look at the signals."""
    u, v = noise
    etas, log_temperatures = psi
    log_p, log_q = pair.model.log_prob(x, h), pair.inference.log_prob(h, x)
    raw = local_signals(log_p[None], log_q[None])[0]
    found, used = [], []
    for i, logits in enumerate(logits_of(pair.inference, x, h)):
        eta, temperature = etas[i], jnp.exp(log_temperatures[i])

        def control(z: Array, i: int = i, temperature: Array = temperature) -> Float[Array, " cases"]:
            return relaxed_signal(pair, x, h, u, i, z, temperature)

        def free(logits: Array, i: int = i) -> Array:
            return logits + logit(u[i])

        def given(logits: Array, i: int = i) -> Array:
            return noise_given(logits, h[i], v[i])

        _, slope = _value_and_slope(lambda logits: control(free(logits)), logits)
        value, conditional_slope = _value_and_slope(lambda logits: control(given(logits)), logits)
        signal = raw[..., i] - eta * value
        found.append(signal[..., None] * (h[i] - jax.nn.sigmoid(logits)) + eta * (slope - conditional_slope))
        used.append(signal)
    return tuple(found), (raw, jnp.stack(used, axis=-1))


def noise_given(logits: Float[Array, "*_"], h: Float[Array, "*_"], v: Float[Array, "*_"]) -> Float[Array, "*_"]:
    """z' = a + logit(v'), with the sigmoid written out, so that no difference of near numbers is left.

    z' = softplus(logit(v) + softplus(a)) where h = 1,   -softplus(softplus(-a) - logit(v)) where h = 0
    """
    sign = 2 * h - 1
    return sign * jax.nn.softplus(jax.nn.softplus(sign * logits) + sign * logit(v))


def relaxed_signal(
    pair: Pair, x: Any, h: Latents, u: Latents, layer: int, z: Array, temperature: Array
) -> Float[Array, " cases"]:
    """c(z): the local signal of `layer` with its latents, and those above, relaxed."""
    values = (*h[:layer], jax.nn.sigmoid(z / temperature))
    for upper, own in zip(pair.inference.layers[layer + 1 :], u[layer + 1 :], strict=True):
        logits = upper.logits(pair.inference.above(x, values[-1]))
        values = (*values, jax.nn.sigmoid((logits + logit(own)) / temperature))
    log_p, log_q = pair.model.log_prob(x, values), pair.inference.log_prob(values, x)
    return local_signals(log_p[None], log_q[None])[0, :, layer]


def _value_and_slope(function: Any, at: Array) -> tuple[Float[Array, " cases"], Float[Array, "cases units"]]:
    value, pull = jax.vjp(function, at)
    return value, pull(jnp.ones_like(value))[0]


def rebar(*, samples: int = 1, temperature: float = 0.5) -> REBAR:
    """REBAR with `samples` of the latents for every case, and a temperature that starts at `temperature`.

    For factorial Bernoulli inference networks.

    !!! example

        >>> estimator = rebar(samples=2)
    """
    return REBAR(samples, float(temperature))
