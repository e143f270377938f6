"""How a pair learns: an estimator of gradients, an optimiser, and the size of minibatches, as one `Learner`.

Its `init` and `step` are pure functions of a `TrainState`:

    learner = nvil.Learner(estimators.nvil(), optimisers.sgd(3e-4), batch_size=20)
    state = learner.init(pair, rows, seed=0)
    state, info, gradients = learner.step(state, rows)

and `nvil.fit` runs thousands of such steps in one compiled loop.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from nvil.contracts import Estimator, Info, Pair, Parameters, TrainState, check_pair, trained
from nvil.diagnostics import Diagnostics, diagnose
from nvil.errors import UsageError, count_of
from nvil.estimators import nvil
from nvil.evaluation import Evaluation, evaluate
from nvil.optimisers import adam
from nvil.random import seeded_key
from nvil.rows import Rows
from nvil.sparse import takes_sparse

AVERAGE_EVERY = 10
"""Updates per step of the average: each step is a pass over all parameters, too slow for every update."""


class Learner(eqx.Module):
    """An estimator, an optimiser and the size of a minibatch.

    **Arguments:**

    - `estimator`: `estimators.nvil()` by default.
    - `optimiser`: an optax optimiser over `contracts.Parameters`; `optimisers.adam()` by default.
    - `batch_size`: cases per update; 20 in the paper.
    - `average`: validate and use the parameters averaged over the last fraction of the updates so far, such as 0.1;
      None for the current parameters.
    """

    estimator: Estimator
    optimiser: optax.GradientTransformation
    batch_size: int
    average: float | None

    def __init__(
        self,
        estimator: Any = None,
        optimiser: Any = None,
        *,
        batch_size: int = 50,
        average: float | None = None,
    ):
        self.estimator = nvil() if estimator is None else estimator
        self.optimiser = adam() if optimiser is None else optimiser
        self.batch_size = batch_size
        self.average = average
        if not isinstance(self.estimator, Estimator):
            raise UsageError(f"{estimator!r} is not an estimator; take one of nvil.estimators, such as nvil().")
        if not (hasattr(self.optimiser, "init") and hasattr(self.optimiser, "update")):
            raise UsageError(f"{optimiser!r} is not an optimiser; take one of nvil.optimisers or of optax.")
        count_of(1, batch_size=batch_size)
        if average is not None and not 0 < average <= 1:
            raise UsageError(f"`average` must be above 0 and at most 1, got {average}.")

    def init(self, pair: Pair, rows: Rows, *, seed: int = 0) -> TrainState:
        """The state before the first update; a minibatch of `rows` gives the first statistics."""
        self.estimator.check(pair)
        x = eqx.filter_eval_shape(lambda rows: rows.minibatch(jax.random.key(0), self.batch_size), rows)
        check_pair(pair, x)
        pair = jax.tree.map(_strong, pair)
        key = seeded_key(seed, "training")
        baselines, estimator_state, optimiser_state = _init(self, seeded_key(seed, "start"), pair, rows)
        average = None if self.average is None else pair
        params = Parameters(*pair, baselines)
        return TrainState(params, optimiser_state, estimator_state, average, key, jnp.asarray(0, jnp.int32))

    def step(self, state: TrainState, rows: Rows) -> tuple[TrainState, Info, Parameters]:
        """One update: `(new state, info, gradients)`. Its randomness comes from the state's key and step alone."""
        data_key, draw_key = jax.random.split(jax.random.fold_in(state.key, state.step))
        rows = rows.sparse() if takes_sparse(self.estimator, *state.params.pair) else rows
        x = rows.minibatch(data_key, self.batch_size, state.step)
        with rows.devices():
            gradients, estimator_state, info = self.estimator.gradients(draw_key, state.params, x, state.estimator)
        # The gradients point uphill and optax walks downhill.
        descent = jax.tree.map(jnp.negative, trained(gradients))
        updates, optimiser_state = self.optimiser.update(descent, state.optimiser, trained(state.params))
        params = eqx.apply_updates(state.params, updates)
        step = state.step + 1
        average = state.average if self.average is None else self._averaged(state.average, params.pair, step)
        return TrainState(params, optimiser_state, estimator_state, average, state.key, step), info, gradients

    def _averaged(self, average: Pair, pair: Pair, step: Array) -> Pair:
        """Move the average towards `pair` by 1/k, where k is the number of averaged steps in the last fraction."""
        assert self.average is not None
        arrays, static = eqx.partition(average, eqx.is_inexact_array)
        new = eqx.filter(pair, eqx.is_inexact_array)
        parts = jnp.maximum(1.0, self.average * step.astype(float) / AVERAGE_EVERY)

        def move(old: Array, new: Array) -> Array:
            return old + (new - old) / parts.astype(old.dtype)

        def moved(pairs: tuple[Any, Any]) -> Any:
            return jax.tree.map(move, *pairs)

        # Until the first averaged step, the average is the current parameters.
        due = (step % AVERAGE_EVERY == 0) | (step < AVERAGE_EVERY)
        arrays = jax.lax.cond(due, moved, lambda pairs: pairs[0], (arrays, new))
        return eqx.combine(arrays, static)

    def learned(self, state: TrainState) -> Pair:
        """The pair that is validated, kept and used: the averaged one, if there is an average."""
        return state.params.pair if self.average is None else state.average

    def validate(self, pair: Pair, x: Any, *, samples: int = 10, seed: int = 0) -> Evaluation:
        """The estimator's own objective on the rows of `x`: the bound, unless the estimator climbs another."""
        return evaluate(pair, x, samples=samples, seed=seed, objective=self.estimator.objective)

    def diagnose(self, state: TrainState, rows: Rows) -> Diagnostics:
        """Signals, gradients and units at `state`, measured apart from the updates."""
        return diagnose(self.estimator, self.batch_size, state, rows)


def _strong(leaf: Any) -> Any:
    """An array of the type that the loop returns: a weak type (`jnp.full(3, 0.1)`) would compile the loop twice."""
    return jnp.asarray(leaf, leaf.dtype) if isinstance(leaf, jax.Array) and not _is_key(leaf) else leaf


def _is_key(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def gradient_norms(gradients: Parameters) -> Float[Array, "3"]:
    """The norms of the gradients of the model, the inference network and the baselines."""
    return jnp.stack([jnp.asarray(optax.tree.norm(group), float) for group in gradients])


def default_validation(cases: int) -> int:
    """How many cases to hold out by default: a twentieth, from 100 to 1000, but at most a fifth."""
    return min(1000, max(100, cases // 20), cases // 5)


@eqx.filter_jit  # all in one, because many small functions take longer to compile
def _init(learner: Learner, key: Key[Array, ""], pair: Pair, rows: Rows) -> tuple[Any, Any, Any]:
    data_key, init_key = jax.random.split(key)
    x = rows.minibatch(data_key, learner.batch_size)
    baselines, estimator_state = learner.estimator.init(init_key, pair, x)
    return baselines, estimator_state, learner.optimiser.init(trained(Parameters(*pair, baselines)))
