"""Training: a `TrainState`, a pure `train_step`, thousands of steps in one compiled loop, and reports between them.

Everything random in update t is a function of (seed, t): the minibatch and the samples. So a run cut into chunks,
stopped or resumed anywhere goes through the same states.
"""

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from nvil import optimisers
from nvil.contracts import Estimator, Info, Pair, Parameters, SignalInfo, trained
from nvil.errors import TrainingError, UsageError
from nvil.estimators import nvil
from nvil.evaluation import evaluate
from nvil.rows import InOrder, as_rows, fixed, on_device, select, take
from nvil.streams import Stream

CHUNK_SECONDS = 1.0


class TrainState(NamedTuple):
    """All that training carries from one update to the next."""

    params: Parameters
    optimiser: Any
    estimator: Any
    key: Key[Array, ""]
    step: Int[Array, ""]


class Best(NamedTuple):
    """The parameters with the best validation bound so far: early stopping as in Section 4.1."""

    pair: Pair
    bound: float
    step: int


class Tally(NamedTuple):
    """The sum of what the updates since the last report told, and how many they are."""

    info: Info
    updates: Int[Array, ""]


class Checkpoint(NamedTuple):
    """All that is needed to go on to the same reports: the state, the tally of an unfinished interval, the best."""

    state: TrainState
    tally: Tally
    best: Best


@dataclasses.dataclass(frozen=True)
class Report:
    """What happened since the last report; averages are over the updates in between.

    - `updates`: done so far.
    - `bound`: of the minibatches, per case.
    - `validation_bound`: of the validation cases, now; None without validation.
    - `signal`: mean and deviation of the learning signal of each layer; None where the estimator has none.
    - `gradient_norms`: of model, inference network and baselines in the last update.
    - `updates_per_second`: of training alone, compilation and validation left out.
    - `state`: to go on from, with `fit(..., state=report.state, best=report.best)`.
    - `best`: the best parameters so far; without validation, the current ones.
    - `diagnostics`: of `nvil.diagnostics`, in the reports of a `Run`.
    """

    updates: int
    bound: float
    validation_bound: float | None
    signal: SignalInfo | None
    gradient_norms: tuple[float, float, float]
    updates_per_second: float
    state: TrainState = dataclasses.field(repr=False)
    best: Best = dataclasses.field(repr=False)
    diagnostics: Any = None

    def __str__(self) -> str:
        validation = "" if self.validation_bound is None else f"  validation {self.validation_bound:.2f}"
        return (
            f"update {self.updates}  bound {self.bound:.2f}{validation}"
            f"  best {self.best.bound:.2f}  {self.updates_per_second:.0f} updates/s"
        )


def minibatch(key: Key[Array, ""], data: Any, size: int, step: Int[Array, ""] | int = 0) -> Float[Array, "size ..."]:
    """Training cases drawn at random with replacement (Section 4.1), or the next ones of a stream."""
    draw_key = jax.random.fold_in(key, 1)
    if isinstance(data, InOrder):
        return take(data.data, (step - data.first) * size + jnp.arange(size), draw_key)
    return take(data, jax.random.randint(key, (size,), 0, data.shape[0]), draw_key)


def start(
    pair: Pair,
    data: Any,
    *,
    estimator: Estimator,
    optimiser: optax.GradientTransformation,
    batch_size: int,
    seed: int,
) -> TrainState:
    """The state before the first update."""
    root, data_key, init_key = jax.random.split(jax.random.key(seed), 3)
    x = minibatch(data_key, on_device(data), batch_size)
    baselines, estimator_state = _init(estimator, init_key, pair, x)
    params = Parameters(*pair, baselines)
    optimiser_state = optimiser.init(trained(params))
    return TrainState(params, optimiser_state, estimator_state, root, jnp.asarray(0, jnp.int32))


@eqx.filter_jit
def _init(estimator: Estimator, key: Key[Array, ""], pair: Pair, x: Any) -> tuple[Any, Any]:
    return estimator.init(key, pair, x)


def train_step(
    state: TrainState,
    data: Any,
    *,
    estimator: Estimator,
    optimiser: optax.GradientTransformation,
    batch_size: int,
) -> tuple[TrainState, Info, Parameters]:
    """One update: `(new state, info, gradients)`. Pure; all its randomness comes from the state's key and step."""
    data_key, draw_key = jax.random.split(jax.random.fold_in(state.key, state.step))
    x = minibatch(data_key, data, batch_size, state.step)
    gradients, estimator_state, info = estimator.gradients(draw_key, state.params, x, state.estimator)
    # The gradients point uphill and optax walks downhill.
    descent = jax.tree.map(jnp.negative, trained(gradients))
    updates, optimiser_state = optimiser.update(descent, state.optimiser, trained(state.params))
    params = eqx.apply_updates(state.params, updates)
    new = TrainState(params, optimiser_state, estimator_state, state.key, state.step + 1)
    return new, info, gradients


class Chunk(NamedTuple):
    """What a chunk of updates tells.

    - `info`: mean over the updates since the last report, those before the chunk included.
    - `gradient_norms`: of the chunk's last update.
    - `tally`: to give to the next chunk.
    - `finite`: whether the bound and all parameters are.
    """

    info: Info
    gradient_norms: Float[Array, "3"]
    tally: Tally
    finite: Bool[Array, ""]


def empty_tally(
    state: TrainState, data: Any, *, estimator: Estimator, optimiser: optax.GradientTransformation, batch_size: int
) -> Tally:
    """The tally after a report."""
    settings = {"estimator": estimator, "optimiser": optimiser, "batch_size": batch_size}
    info = eqx.filter_eval_shape(lambda: train_step(state, data, **settings)[1])
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), info)
    return Tally(zeros, jnp.asarray(0, jnp.int32))


def make_train_chunk(
    *, estimator: Estimator, optimiser: optax.GradientTransformation, batch_size: int
) -> Callable[[TrainState, Any, int, Tally], tuple[TrainState, Chunk]]:
    """`train_chunk(state, data, updates, tally)`: many updates without returning to Python.

    The number of updates is not compiled in, so every chunk length runs the same code, and sums go on from those of the
    chunk before: where a chunk ends changes no bit of what is computed. The loop ends early at an update whose bound is
    not finite.
    """
    return lambda state, data, updates, tally: _train_chunk(
        state, data, jnp.asarray(updates, jnp.int32), tally, estimator, optimiser, batch_size
    )


@eqx.filter_jit  # of the module, not of `make_train_chunk`, so that equal settings compile once in a process
def _train_chunk(
    state: TrainState,
    data: Any,
    updates: Int[Array, ""],
    tally: Tally,
    estimator: Estimator,
    optimiser: optax.GradientTransformation,
    batch_size: int,
) -> tuple[TrainState, Chunk]:
    arrays, static = eqx.partition(state, eqx.is_array)

    def go_on(carry):
        _, total, _, done = carry
        return (done < updates) & jnp.isfinite(total.bound)

    def body(carry):
        arrays, total, norms, done = carry
        settings = {"estimator": estimator, "optimiser": optimiser, "batch_size": batch_size}
        state, info, gradients = train_step(eqx.combine(arrays, static), data, **settings)
        # The norms cost a pass over all parameters: taken once a chunk.
        norms = jax.lax.cond(done == updates - 1, _norms, lambda _: norms, gradients)
        total = jax.tree.map(jnp.add, total, info)
        return eqx.filter(state, eqx.is_array), total, norms, done + 1

    begin = (arrays, tally.info, jnp.zeros(3), jnp.asarray(0, jnp.int32))
    arrays, total, norms, done = jax.lax.while_loop(go_on, body, begin)
    leaves = jax.tree.leaves(eqx.filter(arrays.params, eqx.is_inexact_array))
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
    done = tally.updates + done
    mean = jax.tree.map(lambda leaf: leaf / done.astype(leaf.dtype), total)
    chunk = Chunk(mean, norms, Tally(total, done), finite & jnp.isfinite(total.bound))
    return eqx.combine(arrays, static), chunk


def fit(
    pair: Pair,
    data: Any,
    *,
    estimator: Estimator | None = None,
    optimiser: optax.GradientTransformation | None = None,
    updates: int = 10_000,
    batch_size: int = 20,
    validation: int | Any = 100,
    validation_samples: int = 10,
    report_every: int = 1000,
    seed: int = 0,
    state: TrainState | None = None,
    best: Best | None = None,
) -> Iterator[Report]:
    """Train `pair` on the rows of `data` and yield a `Report` every `report_every` updates.

    **Arguments:**

    - `pair`: from `sbn`, or any `Pair(model, inference)` that meets `nvil.contracts`.
    - `data`: one case a row; an array, a data frame, a SciPy sparse matrix, or rows from `nvil.data`. An iterator or an
      `nvil.Stream` is learned from online: every case is seen once, `updates` permitting, and none is stored.
    - `estimator`: `nvil()` by default.
    - `optimiser`: `optimisers.adam()` by default; `optimisers.sgd()` is the paper's.
    - `updates`: in all, those of a resumed `state` included.
    - `validation`: how many cases to split off `data` at random, or an array of cases of its own; 0 for none.
    - `seed`: of minibatches, samples and the validation split.
    - `state`, `best`: from a `Report`, to go on from there through the very same states. (Every report is a look at the
      validation bound, so a stop between two multiples of `report_every` adds one.)

    !!! example

        >>> import numpy as np
        >>> from nvil import sbn
        >>> x = np.random.default_rng(0).integers(0, 2, (500, 16))
        >>> for report in fit(sbn(16, (8,), mean=x.mean(0)), x, updates=200, report_every=100):
        ...     print(report.updates)
        100
        200
        >>> trained = report.best.pair
    """
    estimator = nvil() if estimator is None else estimator
    optimiser = optimisers.adam() if optimiser is None else optimiser
    for _, report in chunks(
        pair,
        Stream(data) if isinstance(data, Iterator) else data,
        estimator=estimator,
        optimiser=optimiser,
        updates=updates,
        batch_size=batch_size,
        validation=validation,
        validation_samples=validation_samples,
        report_every=report_every,
        seed=seed,
        state=state,
        best=best,
    ):
        if report is not None:
            yield report


def chunks(
    pair: Pair,
    data: Any,
    *,
    estimator: Estimator,
    optimiser: optax.GradientTransformation,
    updates: int,
    batch_size: int,
    validation: int | Any,
    validation_samples: int = 10,
    report_every: int,
    seed: int,
    state: TrainState | None = None,
    tally: Tally | None = None,
    best: Best | None = None,
    cut_every: int | None = None,
) -> Iterator[tuple[Checkpoint, Report | None]]:
    """Train in chunks of about a second, or less to end at reports and multiples of `cut_every`.

    After every chunk comes a `Checkpoint` to go on from, with a `Report` every `report_every` updates. The clock says
    where chunks end, and nothing else: reports and states are the same bits for every cut.
    """
    for name, value, least in (
        ("updates", updates, 0),
        ("batch_size", batch_size, 1),
        ("report_every", report_every, 1),
    ):
        if value < least:
            raise UsageError(f"{name} must be at least {least}, not {value}.")
    source, held_out = split_validation(data, validation, seed=seed)
    data, left = _window(source, 0 if state is None else int(state.step), batch_size)
    if not left:
        raise UsageError(f"The stream ended before it filled a minibatch of {batch_size} cases.")
    settings = {"estimator": estimator, "optimiser": optimiser, "batch_size": batch_size}
    current = start(pair, data, seed=seed, **settings) if state is None else state
    since = empty_tally(current, data, **settings) if tally is None else tally
    best = best or Best(pair, -math.inf, int(current.step))
    good = Checkpoint(current, since, best)  # to go back to, should parameters stop being finite
    train_chunk = make_train_chunk(**settings)
    if int(current.step) < updates:  # compile, so that the clock below reads training alone
        jax.block_until_ready(train_chunk(current, data, 0, since))

    size, timed, seconds = 1, 0, 0.0
    while (done := int(current.step)) < updates:
        # Reports stand at multiples of `report_every`, wherever a run was resumed.
        ends = (
            report_every - done % report_every,
            updates - done,
            *([cut_every - done % cut_every] if cut_every else []),
        )
        count = min(size, left, *ends)
        began = time.perf_counter()
        current, chunk = jax.block_until_ready(train_chunk(current, data, count, since))
        took = time.perf_counter() - began
        timed, seconds = timed + count, seconds + took
        size = max(1, min(8 * size, int(count * CHUNK_SECONDS / took)))
        done, left = int(current.step), left - count
        if not chunk.finite:
            raise DivergedError(done, good)
        if not left:
            data, left = _window(source, done, batch_size)
            updates = updates if left else done  # the stream is at its end
        since = chunk.tally
        report = None
        if done % report_every == 0 or done == updates:
            bound = None
            if held_out.shape[0]:
                bound = evaluate(current.params.pair, held_out, samples=validation_samples, seed=done).bound
                if not math.isfinite(bound):
                    raise DivergedError(done, good)
                if bound > best.bound:
                    best = Best(current.params.pair, bound, done)
            else:
                best = Best(current.params.pair, float(chunk.info.bound), done)
            report = Report(
                updates=done,
                bound=float(chunk.info.bound),
                validation_bound=bound,
                signal=jax.tree.map(np.asarray, chunk.info.signal),
                gradient_norms=tuple(chunk.gradient_norms.tolist()),
                updates_per_second=timed / seconds,
                state=current,
                best=best,
            )
            since = jax.tree.map(jnp.zeros_like, since)
            good = Checkpoint(current, since, best)
            timed, seconds = 0, 0.0
        yield Checkpoint(current, since, best), report


def _window(source: Any, step: int, batch_size: int) -> tuple[Any, int]:
    """Data on the device for the updates from `step` on, and for how many of them it will do."""
    if not isinstance(source, Stream):
        return on_device(source), sys.maxsize
    rows, updates = source.window(batch_size)
    return InOrder(jnp.asarray(rows), jnp.asarray(step, jnp.int32)), updates


class DivergedError(TrainingError):
    """Parameters or bound stopped being finite.

    `checkpoint` is from the last report, when all was well, or from where training was resumed since.
    """

    def __init__(self, update: int, checkpoint: Checkpoint):
        self.update, self.checkpoint = update, checkpoint
        super().__init__(
            f"The bound or the parameters stopped being finite by update {update}; the state of update "
            f"{int(checkpoint.state.step)} is kept. A smaller learning rate usually helps."
        )


def check_validation(cases: int, validation: int) -> None:
    """Refuse to hold out more cases than there are to spare."""
    if not 0 <= validation < cases:
        raise UsageError(f"Cannot hold out {validation} validation cases of {cases}; leave at least one to train on.")


def split_validation(data: Any, validation: int | Any, *, seed: int) -> tuple[Any, Any]:
    """Take `validation` random cases out of `data`: `(training cases, validation cases)`."""
    if isinstance(data, Stream):  # held out from its start
        return data, data.take(int(validation)) if isinstance(validation, int | np.integer) else np.asarray(validation)
    data = as_rows(data)
    if not isinstance(validation, int | np.integer):
        return data, fixed(as_rows(validation), seed)
    cases = data.shape[0]
    check_validation(cases, int(validation))
    order = np.random.default_rng(seed).permutation(cases)
    return select(data, np.sort(order[validation:])), fixed(select(data, np.sort(order[:validation])), seed)


def _norms(gradients: Parameters) -> Float[Array, "3"]:
    return jnp.stack([jnp.asarray(optax.tree.norm(group), float) for group in gradients])
