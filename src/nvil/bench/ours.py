"""Our own side: whole updates, and the optimiser's pass over the parameters alone."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from nvil import estimators, models, optimisers
from nvil.bench.cases import DISTINCT_WORDS, Case
from nvil.contracts import Estimator, Pair, trained
from nvil.learning import Learner
from nvil.rows import as_rows
from nvil.training import empty_tally, train_chunk


def pair_of(case: Case, mean: Any = None) -> Pair:
    model = case.model
    build = models.fdarn if model.prior == "autoregressive" else models.sbn
    lengths = (DISTINCT_WORDS,) if model.documents else None
    return build(model.visible, model.hidden, inference=model.inference, lengths=lengths, mean=mean, latent_bias=0.0)


def learner_of(case: Case, estimator: Estimator | None = None, slower: float = 1.0) -> Learner:
    rate, inference_rate = (rate / slower for rate in case.rates)
    build = {"sgd": optimisers.sgd, "adam": optimisers.adam}[case.optimiser]
    optimiser = build(rate, inference_ratio=inference_rate / rate)
    return Learner(estimator or estimators.nvil(), optimiser, batch_size=case.batch)


def prepare(case: Case, data: Any) -> Callable[[int], float]:
    """Everything `nvil.fit` does in an update, all variance reduction on."""
    return _updates(case, data, learner_of(case))


def prepare_plain(case: Case, data: Any) -> Callable[[int], float]:
    """Without baselines and variance normalisation, local signals alone, at a tenth of the rate: as NumPyro does it."""
    return _updates(case, data, learner_of(case, estimators.reinforce(local=True), slower=10.0))


def _updates(case: Case, data: Any, learner: Learner) -> Callable[[int], float]:
    rows = as_rows(data)
    pair = pair_of(case, rows.mean())
    rows = rows.on_device()
    state = learner.init(pair, rows)
    tally = empty_tally(learner, state, rows)

    def run(updates: int) -> float:
        nonlocal state
        state, chunk = train_chunk(learner, state, rows, updates, tally)
        return float(chunk.info.bound)

    return run


def prepare_optimiser(case: Case, data: Any) -> Callable[[int], None]:
    """The optimiser's pass over all parameters alone, compiled, for gradients that are there already."""
    learner = learner_of(case)
    state = learner.init(pair_of(case), as_rows(data).on_device())
    params = trained(state.params)
    gradients = jax.tree.map(lambda leaf: jnp.full_like(leaf, 1e-3), params)

    @jax.jit
    def passes(number: Any, params: Any, optimiser_state: Any) -> Any:
        def body(_: Any, carry: Any) -> Any:
            updates, new = learner.optimiser.update(gradients, carry[1], carry[0])
            return jax.tree.map(jnp.add, carry[0], updates), new

        return jax.lax.fori_loop(0, number, body, (params, optimiser_state))

    def run(updates: int) -> None:
        jax.block_until_ready(passes(updates, params, state.optimiser))

    return run
