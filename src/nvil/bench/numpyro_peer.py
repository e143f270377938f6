"""NumPyro: TraceGraph_ELBO, many updates in one compiled scan.

It leaves out of a latent's learning signal what that latent cannot influence, but has no baselines and no variance
normalisation: less work per update than the others, for gradients of a higher variance.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, TraceGraph_ELBO

from nvil.bench.cases import Case, dense


class AutoregressiveBernoulli(dist.Distribution):
    """Binary units, each depending on those before it; NumPyro has none."""

    support = dist.constraints.independent(dist.constraints.boolean, 1)

    def __init__(self, logits: Any, within: Any):
        self.logits, self.within = logits, jnp.triu(within, 1)
        super().__init__(logits.shape[:-1], logits.shape[-1:], validate_args=False)

    def sample(self, key: Any, sample_shape: Any = ()) -> Any:
        draws = jax.random.uniform(key, self.logits.shape, minval=1e-7)
        margin = jax.lax.stop_gradient(self.logits) - jax.scipy.special.logit(draws)

        def step(j: Any, total: Any) -> Any:
            on = jax.lax.dynamic_slice_in_dim(total, j, 1, axis=-1) > 0
            return total + on * jax.lax.stop_gradient(self.within)[j]

        return (jax.lax.fori_loop(0, margin.shape[-1], step, margin) > 0).astype(margin.dtype)

    def log_prob(self, value: Any) -> Any:
        logits = self.logits + value @ self.within
        return jnp.sum(value * logits - jax.nn.softplus(logits), axis=-1)


def prepare(case: Case, data: Any) -> Callable[[int], float]:
    model_of = case.model
    rows = jnp.asarray(dense(data))
    center = jnp.mean(rows.astype(jnp.float32), axis=0)
    sizes = (model_of.visible, *model_of.hidden)
    top = len(model_of.hidden) - 1
    rate = jnp.clip(center, 1e-2, 1 - 1e-2)
    start = jnp.log(jnp.maximum(center, 1e-4)) if model_of.documents else jnp.log(rate) - jnp.log1p(-rate)
    glorot = jax.nn.initializers.glorot_uniform()

    def affine(name: str, context: Any, outputs: int, bias: Any = None) -> Any:
        weights = numpyro.param(f"{name}.weights", lambda key: glorot(key, (context.shape[-1], outputs)))
        return context @ weights + numpyro.param(f"{name}.bias", jnp.zeros(outputs) if bias is None else bias)

    def latent(name: str, logits: Any, kind: str) -> Any:
        if kind == "factorial":
            return dist.Bernoulli(logits=logits).to_event(1)
        units = logits.shape[-1]
        return AutoregressiveBernoulli(logits, numpyro.param(f"{name}.within", jnp.zeros((units, units))))

    def model(x: Any) -> None:
        with numpyro.plate("cases", len(x)):
            bias = numpyro.param("p.prior", jnp.zeros(sizes[-1]))
            logits = jnp.broadcast_to(bias, (len(x), sizes[-1]))
            h = numpyro.sample(f"h{top}", latent(f"p{top}", logits, model_of.prior))
            for i in reversed(range(top)):
                h = numpyro.sample(f"h{i}", latent(f"p{i}", affine(f"p{i}", h, sizes[i + 1]), model_of.prior))
            logits = affine("p.x", h, sizes[0], start)
            if model_of.documents:
                visible = dist.Multinomial(total_count=x.sum(-1).astype(int), logits=logits, validate_args=False)
            else:
                visible = dist.Bernoulli(logits=logits).to_event(1)
            numpyro.sample("x", visible, obs=x)

    def guide(x: Any) -> None:
        value = x - center
        with numpyro.plate("cases", len(x)):
            for i, size in enumerate(sizes[1:]):
                own = latent(f"q{i}", affine(f"q{i}", value, size), model_of.inference)
                value = numpyro.sample(f"h{i}", own).astype(jnp.float32)

    rate, inference_rate = (rate / 10 for rate in case.rates)  # at ours it may diverge, as Pyro does
    build = {"sgd": optax.sgd, "adam": optax.adam}[case.optimiser]
    optimiser = optax.multi_transform(
        {"p": build(rate), "q": build(inference_rate)}, lambda params: {name: name[0] for name in params}
    )
    svi = SVI(model, guide, optimiser, TraceGraph_ELBO())
    state = svi.init(jax.random.key(0), rows[: case.batch].astype(jnp.float32))

    @jax.jit
    def chunk(key: Any, state: Any, updates: Any) -> Any:
        def step(i: Any, carry: Any) -> Any:
            state, total = carry
            index = jax.random.randint(jax.random.fold_in(key, i), (case.batch,), 0, len(rows))
            state, loss = svi.update(state, rows[index].astype(jnp.float32))
            return state, total + loss

        return jax.lax.fori_loop(0, updates, step, (state, 0.0))

    keys = iter(np.random.default_rng(0).integers(2**31, size=10_000))

    def run(updates: int) -> float:
        nonlocal state
        state, total = chunk(jax.random.key(next(keys)), state, updates)
        return -float(total) / (updates * case.batch)

    return run
