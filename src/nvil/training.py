"""Training: thousands of a learner's steps in one compiled loop, and reports between them.

Everything random in update t is a function of (seed, t): the minibatch and the samples. So a run cut into chunks,
stopped or resumed anywhere goes through the same states.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nvil.compiling import compiling
from nvil.contracts import Constant, Info, Pair, Parameters, SignalInfo, TrainState, Unset
from nvil.devices import agreed, first_process, here
from nvil.errors import TrainingError, UsageError, count_of
from nvil.evaluation import Evaluation
from nvil.learning import Learner, default_validation, gradient_norms
from nvil.random import seeded_key
from nvil.rows import Rows, Source, as_rows, as_source, explained

CHUNK_SECONDS = 1.0


class Best(NamedTuple):
    """The parameters with the best validation bound so far, which the paper keeps (Section 4.1)."""

    pair: Pair
    bound: float
    step: int


class Tally(NamedTuple):
    """The sum of the infos of the updates since the last report, and how many there were."""

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
    - `validation_bound`, `validation_se`: of the validation cases, now, and its standard error; None without
      validation.
    - `signal`: mean and standard deviation of each learning signal; None where the estimator has none.
    - `gradient_norms`: of model, inference network and baselines in the last update.
    - `updates_per_second`: of training alone, compilation and validation left out.
    - `checkpoint`: to go on from, with `fit(..., resume=report)`.
    - `diagnostics`: of `nvil.diagnostics`, in the reports of a `Run`.
    """

    updates: int
    bound: float
    validation_bound: float | None
    validation_se: float | None
    signal: SignalInfo | None
    gradient_norms: tuple[float, float, float]
    updates_per_second: float
    checkpoint: Checkpoint = dataclasses.field(repr=False)
    diagnostics: Any = None

    @property
    def state(self) -> TrainState:
        return self.checkpoint.state

    @property
    def best(self) -> Best:
        """The best parameters so far; without validation, the current ones."""
        return self.checkpoint.best

    def __str__(self) -> str:
        validation = ""
        if self.validation_bound is not None:
            validation = f"  validation {self.validation_bound:.2f}  best {self.best.bound:.2f}"
        return f"update {self.updates}  bound {self.bound:.2f}{validation}  {self.updates_per_second:.0f} updates/s"


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


@eqx.filter_jit  # traced once, for the shapes of a tally and for the loop, into which XLA inlines it
def _step(learner: Learner, state: TrainState, rows: Rows) -> tuple[TrainState, Info, Parameters]:
    return learner.step(state, rows)


def empty_tally(learner: Learner, state: TrainState, rows: Rows) -> Tally:
    """The tally after a report."""
    info = eqx.filter_eval_shape(lambda: _step(learner, state, rows)[1])
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), info)
    return Tally(zeros, jnp.asarray(0, jnp.int32))


def train_chunk(
    learner: Learner, state: TrainState, rows: Rows, updates: int, tally: Tally
) -> tuple[TrainState, Chunk]:
    """Many updates without returning to Python.

    The number of updates is not compiled in, so every chunk length runs the same code, and sums go on from those of the
    chunk before: where a chunk ends changes no bit of what is computed. The loop ends early at an update whose bound is
    not finite.
    """
    return _train_chunk(learner, state, rows, rows.everywhere(jnp.asarray(updates, jnp.int32)), tally)


@eqx.filter_jit  # of the module, so that equal learners compile once in a process
def _train_chunk(
    learner: Learner, state: TrainState, rows: Rows, updates: Int[Array, ""], tally: Tally
) -> tuple[TrainState, Chunk]:
    arrays, static = eqx.partition(state, eqx.is_array)

    def go_on(carry):
        _, total, _, done = carry
        return (done < updates) & jnp.isfinite(total.bound)

    def body(carry):
        arrays, total, norms, done = carry
        state, info, gradients = _step(learner, eqx.combine(arrays, static), rows)
        # The norms cost a pass over all parameters: taken once a chunk.
        norms = jax.lax.cond(done == updates - 1, gradient_norms, lambda _: norms, gradients)
        total = jax.tree.map(jnp.add, total, info)
        # On several devices, XLA would be free to spread what is carried on.
        return *rows.everywhere((eqx.filter(state, eqx.is_array), total, norms)), done + 1

    begin = (arrays, tally.info, jnp.zeros(3), jnp.asarray(0, jnp.int32))
    arrays, total, norms, done = jax.lax.while_loop(go_on, body, begin)
    leaves = jax.tree.leaves(eqx.filter(arrays.params, eqx.is_inexact_array))
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
    done = tally.updates + done
    mean = jax.tree.map(lambda leaf: leaf / done.astype(leaf.dtype), total)
    chunk = rows.everywhere(Chunk(mean, norms, Tally(total, done), finite & jnp.isfinite(total.bound)))
    return eqx.combine(arrays, static), chunk


def fit(
    pair: Any,
    data: Any,
    learner: Any = None,
    *,
    updates: int = 30_000,
    validation: int | Any | None = None,
    validation_samples: int = 10,
    report_every: int = 1000,
    patience: int | None = None,
    seed: int = 0,
    resume: Report | None = None,
) -> Iterator[Report]:
    """Train `pair` on the rows of `data` and yield a `Report` every `report_every` updates.

    **Arguments:**

    - `pair`: from `sbn`, or any `Pair(model, inference)` that meets `nvil.contracts`.
    - `data`: one case per row; an array, a data frame, a SciPy sparse matrix, or rows from `nvil.data`. An iterator or
      an `nvil.Stream` is learned from online: every case is seen once, `updates` permitting, and none is stored.
    - `learner`: the estimator, the optimiser and the size of minibatches; `Learner()` by default.
    - `updates`: in all, those before `resume` included.
    - `validation`: how many cases to split off `data` at random, or cases of their own; 0 for none. By default a
      twentieth of the cases, from 100 to 1000, but at most a fifth.
    - `patience`: stop after this many reports without a better validation bound; by default never.
    - `seed`: of minibatches, samples and the validation split.
    - `resume`: a `Report`, to go on from there through the very same states. (Every report is a look at the validation
      bound, so a stop between two multiples of `report_every` adds one.)

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
    if not isinstance(learner, Learner | None):
        raise UsageError(f"`learner` must be an nvil.Learner, got {type(learner).__name__}.")
    learner = learner or Learner()
    source, validation = checked(pair, data, validation)
    learner.estimator.check(pair)
    check_lengths(updates, report_every, patience)
    count_of(1, validation_samples=validation_samples)
    count_of(0, seed=seed)
    train, held_out = hold_out(source, validation, seed)
    _check_patience(patience, held_out)
    pair = centred(pair, train)
    if resume is not None:
        _check_resumed(resume, pair, learner, train.first())
    every = chunks(
        pair,
        train,
        held_out,
        learner,
        updates=updates,
        validation_samples=validation_samples,
        report_every=report_every,
        patience=patience,
        seed=seed,
        checkpoint=None if resume is None else resume.checkpoint,
    )
    # Mistakes are told here, by the call; training begins with the first report that is asked for.
    return (report for _, report in every if report is not None)


def check_lengths(updates: int, report_every: int, patience: int | None) -> None:
    """Refuse numbers of updates that no training has."""
    count_of(0, updates=updates)
    count_of(1, report_every=report_every, patience=patience)


def _check_patience(patience: int | None, held_out: Rows) -> None:
    if patience is not None and not held_out.shape[0]:
        raise UsageError("`patience` is for a better validation bound, and there are no validation cases.")


def _check_resumed(resume: Any, pair: Pair, learner: Learner, rows: Rows) -> None:
    """Refuse to go on from a state that this pair and learner do not have."""
    if not isinstance(resume, Report):
        raise UsageError(f"`resume` must be a report of nvil.fit, got {type(resume).__name__}.")
    few = rows.select(slice(0, 1)).compact().on_device()
    own = eqx.filter_eval_shape(lambda: learner.init(pair, few))
    if _shapes(own) != _shapes(resume.state):
        raise UsageError("`resume` is a report of another pair or learner; go on with those that it began with.")


def _shapes(tree: Any) -> Any:
    leaves, structure = jax.tree.flatten(eqx.filter(tree, lambda leaf: hasattr(leaf, "shape")))
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def centred(pair: Pair, train: Source) -> Pair:
    """`pair` with the mean of the training cases in its inference network, if that was built without one."""
    center = getattr(pair.inference, "center", None)
    if not isinstance(center, Unset):
        return pair
    mean = Constant(jnp.asarray(train.first().mean(), center.value.dtype))
    return pair._replace(inference=eqx.tree_at(lambda inference: inference.center, pair.inference, mean))


def checked(pair: Pair, data: Any, validation: int | Any | None) -> tuple[Source, int | Rows]:
    """`data` and the validation cases, or how many to hold out, if the model can explain them."""
    source = explained(pair, as_source(data))
    if isinstance(source, Rows) and not source.shape[0]:
        raise UsageError("There are no cases to train on.")
    if validation is None:
        return source, default_validation(source.first().shape[0])
    if isinstance(validation, int | float | np.number):
        count_of(0, validation=validation)
        return source, int(validation)
    return source, explained(pair, as_rows(validation))


def hold_out(source: Source, validation: int | Any, seed: int) -> tuple[Source, Rows]:
    """`(training cases, validation cases)`: that many taken out of `source`, or cases of their own."""
    if isinstance(validation, int):
        return source.hold_out(validation, seed)
    return source, as_rows(validation).fixed(seed)


def chunks(
    pair: Pair,
    source: Source,
    held_out: Rows,
    learner: Learner,
    *,
    updates: int,
    validation_samples: int = 10,
    report_every: int,
    patience: int | None = None,
    seed: int,
    checkpoint: Checkpoint | None = None,
    cut_every: int | None = None,
) -> Iterator[tuple[Checkpoint, Report | None]]:
    """Train in chunks of about a second, or less to end at reports and multiples of `cut_every`.

    After every chunk comes a `Checkpoint` to go on from, with a `Report` every `report_every` updates. The clock says
    where chunks end, and nothing else: reports and states are the same bits for every cut.
    """
    check_lengths(updates, report_every, patience)
    _check_patience(patience, held_out)
    rows, left = source.window(0 if checkpoint is None else int(checkpoint.state.step), learner.batch_size)
    if not left:
        raise UsageError(f"The stream ended before it filled a minibatch of {learner.batch_size} cases.")
    if checkpoint is None:
        with compiling("the first statistics"):
            begin = learner.init(rows.everywhere(pair), rows, seed=seed)
        checkpoint = Checkpoint(begin, empty_tally(learner, begin, rows), Best(pair, -math.inf, 0))
    elif not jnp.array_equal(checkpoint.state.key, seeded_key(seed, "training")):
        raise UsageError(f"Training began with another seed than {seed}; go on with the seed it began with.")
    state, tally = rows.everywhere((checkpoint.state, checkpoint.tally))
    checkpoint = Checkpoint(state, tally, checkpoint.best)
    current, since, best = good = checkpoint  # `good`: to go back to, should parameters stop being finite
    if _done(int(current.step), updates, best, patience, report_every):
        return
    with compiling("the training loop"):  # before any clock runs
        jax.block_until_ready(train_chunk(learner, current, rows, 0, since))

    size, timed, seconds, reported = 1, 0, 0.0, False
    while not _done(done := int(current.step), updates, best, patience, report_every):
        if not left:
            rows, left = source.window(done, learner.batch_size)
            if not left:
                break
        # Reports stand at multiples of `report_every`, wherever a run was resumed.
        ends = [every - done % every for every in (report_every, cut_every) if every]
        count = min(agreed(size), left, updates - done, *ends)  # clocks differ
        began = time.perf_counter()
        current, chunk = jax.block_until_ready(train_chunk(learner, current, rows, count, since))
        took = time.perf_counter() - began
        timed, seconds = timed + count, seconds + took
        size = max(1, min(8 * size, int(count * CHUNK_SECONDS / took)))
        done, left = int(current.step), left - count
        if not chunk.finite:
            raise DivergedError(done, good)
        since = chunk.tally
        report = None
        due = done % report_every == 0 or done == updates
        if not left and not due:  # the end of a stream is due a report, and no other waits for the next cases
            rows, left = source.window(done, learner.batch_size)
            due, updates = (False, updates) if left else (True, done)
        if due:
            learned = here(learner.learned(current))
            with contextlib.nullcontext() if reported else compiling("the validation bound"):
                found = _validated(learner, learned, held_out, validation_samples, done)
            if found is None:
                best = Best(learned, float(chunk.info.bound), done)
            elif not agreed(math.isfinite(found.bound)):
                raise DivergedError(done, good)
            elif agreed(found.bound > best.bound):
                best = Best(learned, found.bound, done)
            since = rows.everywhere(jax.tree.map(jnp.zeros_like, since))
            good = Checkpoint(current, since, best)
            report = _report(chunk, found, timed / seconds, good)
            timed, seconds, reported = 0, 0.0, True
        yield Checkpoint(current, since, best), report
    if not left and (failure := getattr(source, "failure", None)) is not None:
        raise failure


def _validated(learner: Learner, pair: Pair, held_out: Rows, samples: int, seed: int) -> Evaluation | None:
    """The validation bound, which only the first of several processes knows; None without validation cases."""
    if not held_out.shape[0]:
        return None
    if not first_process():
        return Evaluation(0.0, None, None, samples, held_out.shape[0])
    return learner.validate(pair, held_out, samples=samples, seed=seed)


def _report(chunk: Chunk, found: Evaluation | None, updates_per_second: float, checkpoint: Checkpoint) -> Report:
    return Report(
        updates=int(checkpoint.state.step),
        bound=float(chunk.info.bound),
        validation_bound=None if found is None else found.bound,
        validation_se=None if found is None else found.bound_se,
        signal=jax.tree.map(np.asarray, chunk.info.signal),
        gradient_norms=tuple(chunk.gradient_norms.tolist()),
        updates_per_second=updates_per_second,
        checkpoint=checkpoint,
    )


def _done(step: int, updates: int, best: Best, patience: int | None, report_every: int) -> bool:
    """Whether all updates are done, or `patience` reports have passed without a better validation bound."""
    impatient = patience is not None and step % report_every == 0 and step - best.step >= patience * report_every
    return step >= updates or (impatient and math.isfinite(best.bound))


class DivergedError(TrainingError):
    """Parameters or bound stopped being finite.

    `checkpoint` is from the last report, when all was well, or from where training was resumed since.
    """

    def __init__(self, update: int, checkpoint: Checkpoint):
        self.update, self.checkpoint = update, checkpoint
        good = int(checkpoint.state.step)
        kept = f"; the state of update {good} is kept" if good else ", before the first report"
        help = "A smaller learning rate usually helps."
        if update <= 1:  # the rate has done little yet
            help += " If not, a log-probability of the model or the inference network is not finite from the start."
        super().__init__(f"The bound or the parameters stopped being finite by update {update}{kept}. {help}")
