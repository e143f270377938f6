"""One run on several devices, of one machine or of many, through JAX's own sharding and `jax.distributed`.

The cases of a minibatch are spread over the devices; parameters and statistics are on each. XLA then splits the very
program that one device runs: the draws of a case do not depend on where it is computed, the learning signal's
statistics are those of the whole minibatch, and only the order of sums differs.

The devices of one process have all of the data each. With several processes, each has its own part of it on its
devices, and XLA fetches the cases of a minibatch from where they are. Every process takes part in every update; the
first one also validates, diagnoses and writes the run's folder, and what it decides goes for all (`agreed`).
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, Key

from nvil.errors import TrainingError, UsageError, count_of
from nvil.rows import Rows

CASES = "cases"
LAUNCHERS = (
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
)
"""Where launchers say how many processes there are, and which of them this one is."""


class SpreadRows(Rows):
    """Rows whose minibatches are spread over the devices of a mesh.

    Every device has all the rows or, where they are in `parts`, as many of them as every other.
    """

    rows: Rows
    mesh: Mesh = eqx.field(static=True)
    parts: bool = eqx.field(static=True)
    cases: int = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.cases, *self.rows.shape[1:]  # not of `rows`, whose parts are padded to equal lengths

    def select(self, rows: Any) -> "SpreadRows":
        chosen = self.rows.select(np.arange(self.cases)[rows])
        return SpreadRows(chosen, self.mesh, self.parts, chosen.shape[0])

    def take(self, rows: Int[Array, " size"], key: Key[Array, ""]) -> Float[Array, "size ..."]:
        return jax.lax.with_sharding_constraint(self.rows.take(rows, key), self._sharding(CASES))

    def minibatch(self, key: Key[Array, ""], size: int, step: Int[Array, ""] | int = 0) -> Float[Array, "size ..."]:
        if self.parts:
            return super().minibatch(key, size, step)
        return jax.lax.with_sharding_constraint(self.rows.minibatch(key, size, step), self._sharding(CASES))

    def dense(self) -> np.ndarray:
        return self.rows.dense()[: self.cases]

    def row_sums(self) -> Float[np.ndarray, " cases"]:
        return self.rows.row_sums()[: self.cases]

    def column_sums(self) -> Float[np.ndarray, " width"]:
        return self.rows.column_sums()

    def on_device(self) -> "SpreadRows":
        rows = jax.tree.map(self._in_parts, self.rows) if self.parts else self.everywhere(self.rows)
        return SpreadRows(rows, self.mesh, self.parts, self.cases)

    def _in_parts(self, values: Any) -> Array:
        """An array whose first axis is shared by the devices; each reads its own part of `values`, a file perhaps."""
        if isinstance(values, jax.Array) and values.sharding == self._sharding(CASES):
            return values
        size = -(-len(values) // self.mesh.size) * self.mesh.size

        def part(place: Any) -> np.ndarray:
            read = np.asarray(values[place])
            begin, end, _ = place[0].indices(size)
            short = end - begin - len(read)
            return np.pad(read, [(0, short), *[(0, 0)] * (read.ndim - 1)]) if short else read

        return jax.make_array_from_callback((size, *values.shape[1:]), self._sharding(CASES), part)

    def everywhere(self, tree: Any) -> Any:
        whole = self._sharding()

        def put(leaf: Any) -> Any:
            if isinstance(leaf, Tracer):
                return jax.lax.with_sharding_constraint(leaf, whole)
            if isinstance(leaf, jax.Array) and leaf.sharding == whole:
                return leaf
            if _is_key(leaf):
                return jax.random.wrap_key_data(put(jax.random.key_data(leaf)))
            values = np.asarray(leaf)  # the same in every process
            return jax.make_array_from_callback(values.shape, whole, lambda place: values[place])

        arrays, static = eqx.partition(tree, eqx.is_array)
        return eqx.combine(jax.tree.map(put, arrays), static)

    def devices(self) -> contextlib.AbstractContextManager[Any]:
        return jax.sharding.use_abstract_mesh(self.mesh.abstract_mesh)

    def _sharding(self, *axes: str) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*axes))


def spread(rows: Any, mesh: Mesh | None, batch_size: int) -> Any:
    """`rows` on the devices of `mesh`, if there is one."""
    if mesh is None:
        return rows
    if not isinstance(rows, Rows):
        raise UsageError("A stream is read by one process, for one device; leave `devices` out, or train on a file.")
    if batch_size % mesh.size:
        raise UsageError(
            f"A minibatch of {batch_size} cases cannot be shared by {mesh.size} devices; make `batch_size` a multiple "
            "of `devices`."
        )
    # A class must say so itself: one that inherits from it may have arrays of another kind.
    parts = jax.process_count() > 1 and bool(vars(type(rows)).get("in_parts"))
    return SpreadRows(rows, mesh, parts, rows.shape[0])


def here(tree: Any) -> Any:
    """What is on every device, as arrays of this process's first."""
    return jax.tree.map(lambda leaf: leaf.addressable_data(0) if isinstance(leaf, jax.Array) else leaf, tree)


def first_process() -> bool:
    """Whether this process writes the folder and speaks for all."""
    return jax.process_index() == 0


def agreed(value: int) -> int:
    """The `value` of the first process."""
    if jax.process_count() == 1:
        return value
    with reaching_all():
        return int(multihost_utils.broadcast_one_to_all(np.int32(value)))


def any_process(value: bool) -> bool:
    """Whether `value` is true in some process."""
    if jax.process_count() == 1:
        return value
    with reaching_all():
        return bool(np.any(multihost_utils.process_allgather(np.int32(value))))


def from_first(tree: Any) -> Any:
    """The arrays of the first process; in the others, `tree` only says their shapes."""
    if jax.process_count() == 1:
        return tree
    arrays, static = eqx.partition(tree, eqx.is_array)
    keys = jax.tree.map(_is_key, arrays)
    plain = jax.tree.map(lambda leaf, key: np.asarray(jax.random.key_data(leaf) if key else leaf), arrays, keys)
    with reaching_all():
        sent = multihost_utils.broadcast_one_to_all(plain)
    return eqx.combine(
        jax.tree.map(lambda leaf, key: jax.random.wrap_key_data(leaf) if key else leaf, sent, keys), static
    )


def connect(
    devices: int, *, coordinator: str | None = None, processes: int | None = None, process: int | None = None
) -> Mesh | None:
    """The mesh of `devices`, of this process and of the others that a launcher started with the same command.

    **Arguments:**

    - `devices`: the number of devices over all processes. On a CPU, each has one thread.
    - `coordinator`: HOST:PORT of the first process; by default as the launcher (SLURM, Open MPI) says.
    - `processes`, `process`: the number of processes, and the index of this one, from 0; by default as the launcher
      says.

    Must be called before JAX has computed anything.
    """
    count_of(1, devices=devices)
    launched = next((pair for pair in LAUNCHERS if all(os.environ.get(name, "").isdecimal() for name in pair)), None)
    if launched is not None and processes is None and process is None:
        processes, process = (int(os.environ[name]) for name in launched)
    if (processes is None) != (process is None) or (coordinator is not None and processes is None):
        raise UsageError("Give `coordinator`, `processes` and `process` together, or start nvil by srun or mpirun.")
    count = processes or 1
    if process is not None and not 0 <= process < count:
        raise UsageError(f"`process` must be from 0 to {count - 1}, got {process}.")
    if devices % count:
        raise UsageError(f"{devices} devices cannot be shared by {count} processes; make `devices` a multiple of them.")
    try:
        jax.config.update("jax_num_cpu_devices", devices // count)
    except RuntimeError as error:
        raise UsageError("Devices must be chosen before JAX has computed anything in this process.") from error
    if count > 1:
        try:
            jax.distributed.initialize(coordinator, count, process, initialization_timeout=120)
        except (ValueError, RuntimeError) as error:
            raise TrainingError(
                f"Process {process} of {count} could not reach the others ({_first_line(error)}); give all the same "
                "`coordinator`, HOST:PORT with a free port on the first process's machine."
            ) from error
    there = jax.devices()
    if len(there) < devices:
        raise UsageError(f"There are {len(there)} {there[0].platform} devices, and `devices` asks for {devices}.")
    return Mesh(np.array(there[:devices]), (CASES,)) if devices > 1 else None


def disconnect() -> bool:
    """Leave the other processes, when all have trained; true in the first, which goes on alone."""
    first = first_process()
    if jax.process_count() > 1:
        jax.distributed.shutdown()
    return first


class LostError(TrainingError):
    """Another process of the run ended, or cannot be reached."""

    def __init__(self, error: Exception):
        super().__init__(
            f"Another process of this run has ended or cannot be reached ({_first_line(error)}). What was saved before "
            "is kept; give the same command again to go on, with another number of processes if need be."
        )


@contextlib.contextmanager
def reaching_all() -> Iterator[None]:
    """Around what all processes do together: where they cannot reach each other, the error is a `LostError`.

    Gloo's failures come as a JaxRuntimeError where they are met while computing, and as a plain ValueError otherwise.
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        met = isinstance(error, jax.errors.JaxRuntimeError) or "Gloo" in str(error)
        if jax.process_count() == 1 or not met:
            raise
        raise LostError(error) from error


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _first_line(error: Exception) -> str:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line if len(line) <= 120 else f"{line[:117]}..."
