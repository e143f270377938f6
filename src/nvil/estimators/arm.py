"""ARM and DisARM: the difference of two antithetic samples in the place of a baseline, for Bernoulli units.

ARM is of Yin & Zhou (2019); DisARM of Dong, Mnih & Tucker (2020), found independently as U2G by Yin et al. (2020).
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from nvil.contracts import Estimator, Info, Pair, Parameters
from nvil.errors import count_of
from nvil.estimators.bernoulli import (
    Outcomes,
    branch,
    check_bernoulli,
    every_case,
    every_unit,
    is_on,
    layer_noise,
    logits_of,
    quadrature,
)
from nvil.estimators.samples import for_every_sample, log_probs
from nvil.layers import bernoulli_log_prob, binary_vectors


class ARM(Estimator):
    """Augment-REINFORCE-merge, for a layer with logits a and uniform noise u.

        f = log P(x, h) - log Q(h | x)
        h = [u > 1 - sigmoid(a)],   h' = [u < sigmoid(a)]
        grad a = (f(h) - f(h')) (u - 1/2)
        grad theta = the mean of grad log P(x, h) over all that was sampled

    averaged over pairs. With several layers every layer in turn has an antithetic h', with the layers above it sampled
    anew and those below shared, as both papers do: a pair then costs 1 + layers samples. Unbiased.
    """

    sparse: ClassVar[bool] = True
    samples: int = 1

    def __check_init__(self) -> None:
        count_of(1, samples=self.samples)

    def check(self, pair: Pair) -> None:
        check_bernoulli(type(self).__name__, pair)

    def sample(self, key: Key[Array, ""], pair: Pair, x: Any) -> Any:
        """`(h, others, u)`: latents, for every layer those with its antithetic, and the noise behind `h`."""

        def one(key: Key[Array, ""]) -> Any:
            noise_key, *keys = jax.random.split(key, 1 + len(pair.inference.layers))
            u = layer_noise(noise_key, pair.inference, x)
            (context,) = pair.inference.contexts(x, ())
            h, others = (), ()
            for i, (layer, own) in enumerate(zip(pair.inference.layers, u, strict=True)):
                mean = layer.mean(context)
                above = _sample_above(pair.inference, i, keys[i], x, is_on(1 - own, mean))
                others = (*others, (*h, *above))
                h = (*h, is_on(own, mean))
                context = pair.inference.above(x, h[-1])
            return h, others, u

        return for_every_sample(one, jax.random.split(key, self.samples))

    def gradients_from(self, draws: Any, params: Parameters, x: Any, state: None) -> tuple[Parameters, None, Info]:
        h, others, u = draws
        layers = len(others)

        def objective(params: Parameters) -> tuple[Float[Array, ""], Info]:
            # One by one: what two chains share, the layers below the one that differs, XLA then computes once.
            both = [log_probs(params.pair, x, chain) for chain in (h, *others)]
            log_p, log_q = (jnp.stack([jnp.sum(terms, axis=-1) for terms in each]) for each in zip(*both, strict=True))
            values = jax.lax.stop_gradient(log_p - log_q)
            logits = for_every_sample(lambda h: logits_of(params.inference, x, h), h)
            total = jnp.sum(log_p) / (1 + layers)
            for i in range(layers):
                factor = self.factor(jax.lax.stop_gradient(logits[i]), h[i], others[i][i], u[i])
                total = total + jnp.sum((values[0] - values[1 + i])[..., None] * factor * logits[i])
            return total / self.samples, Info(jnp.mean(values))

        gradients, info = eqx.filter_grad(objective, has_aux=True)(params)
        return gradients, None, info

    def factor(self, logits: Array, value: Array, other: Array, u: Array) -> Float[Array, "samples cases units"]:
        """What f(h) - f(h') is multiplied by."""
        return u - 0.5

    def enumerate_draws(self, pair: Pair, x: Any) -> Outcomes:
        """Every cell of u in which h and h' are constant, with two nodes in each.

        The gradient is linear in u within a cell, so its mean and its variance are exact.
        """
        return every_case(lambda x: _every_pair(pair, x, nodes=2), x, self.samples)


class DisARM(ARM):
    """ARM with u integrated out, given the pair h and h' that it makes.

        grad a = 1/2 (f(h) - f(h')) (h - h') sigmoid(|a|)

    The same expectation as ARM with less variance: units that are equal in h and h' have no gradient. Unbiased.
    """

    sparse: ClassVar[bool] = True

    def factor(self, logits: Array, value: Array, other: Array, u: Array) -> Float[Array, "samples cases units"]:
        return 0.5 * (value - other) * jax.nn.sigmoid(jnp.abs(logits))

    def enumerate_draws(self, pair: Pair, x: Any) -> Outcomes:
        """Every cell of u in which h and h' are constant."""
        return every_case(lambda x: _every_pair(pair, x, nodes=1), x, self.samples)


def arm(*, samples: int = 1) -> ARM:
    """ARM with `samples` antithetic pairs for every case. For factorial Bernoulli inference networks.

    !!! example

        >>> estimator = arm(samples=2)
    """
    return ARM(samples)


def disarm(*, samples: int = 1) -> DisARM:
    """DisARM (U2G) with `samples` antithetic pairs for every case. For factorial Bernoulli inference networks.

    !!! example

        >>> estimator = disarm(samples=2)
    """
    return DisARM(samples)


def _sample_above(inference: Any, i: int, key: Key[Array, ""], x: Any, value: Array) -> tuple[Array, ...]:
    """The `value` of layer i, and samples of the layers above it."""
    layers = inference.layers[i + 1 :]
    values = (value,)
    for own, layer in zip(jax.random.split(key, len(layers)), layers, strict=True):
        values = (*values, layer.sample(own, inference.above(x, values[-1])))
    return values


def _every_pair(pair: Pair, x: Float[Array, "1 visible"], nodes: int) -> Outcomes:
    """Every outcome of one pair for one case."""
    layers = pair.inference.layers
    (context,) = (each[None] for each in pair.inference.contexts(x, ()))
    h, others, us, log_prob = (), (), (), jnp.zeros(1, x.dtype)
    for i, layer in enumerate(layers):
        mean = layer.mean(context)
        low = jnp.minimum(mean, 1 - mean)
        edges = jnp.stack([jnp.zeros_like(low), low, 1 - low, jnp.ones_like(low)])
        u, own = every_unit(*quadrature(edges, nodes))
        (h, others, us), u, log_prob = branch(((h, others, us), log_prob), u, own[..., 0])
        mean = jnp.broadcast_to(layer.mean(pair.inference.above(x, h[-1]) if h else context), u.shape)
        above = (is_on(1 - u, mean),)
        h, us = (*h, is_on(u, mean)), (*us, u)
        for upper in layers[i + 1 :]:
            logits = upper.logits(pair.inference.above(x, above[-1]))
            states = jnp.asarray(binary_vectors(upper.units))[:, None, None]
            states = jnp.broadcast_to(states, (len(states), *logits.shape))
            own = bernoulli_log_prob(states, jnp.broadcast_to(logits, states.shape))
            (h, others, us, above), state, log_prob = branch(((h, others, us, above), log_prob), states, own[..., 0])
            above = (*above, state)
        others = (*others, (*h[:-1], *above))
        context = pair.inference.above(x, h[-1])
    return (h, others, us), log_prob
