"""One run in two processes: the run of one, up to the order of sums; and what is left when a process is killed."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.sparse
from jax.sharding import Mesh

import nvil
import nvil.runs.run
from nvil.cli import main
from nvil.devices import CASES, SpreadRows
from processes import plain_diagnose

CHOICES = ("--hidden", "6", "4", "--batch-size", "10", "--report-every", "20", "--validation", "20")
WORKER = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import jax
import nvil
from nvil.devices import SpreadRows
from processes import plain_diagnose
nvil.Learner.diagnose = plain_diagnose
whole = SpreadRows.on_device

def on_device(self):
    shared = whole(self)
    with open(f"{jax.process_index()}.rows", "a") as file:
        print(*(len(shard.data) for shard in shared.rows.values.addressable_shards), file=file)
    return shared

SpreadRows.on_device = on_device
from nvil.cli import main
main(sys.argv[1:])
"""

PRODUCTS = """
import jax

jax.config.update("jax_num_cpu_devices", 3)

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

import nvil
from nvil import kernels
from nvil.devices import CASES, SpreadRows
from nvil.products import product
from nvil.rows import as_rows

random = np.random.default_rng(0)
mesh = Mesh(np.array(jax.devices()), (CASES,))
rows = SpreadRows(as_rows((random.random((12, 100)) < 0.2).astype(np.uint8)), mesh, parts=False, cases=12).on_device()
weights, delta = random.integers(-8, 9, (100, 64)), random.integers(-8, 9, (6, 64))
weights, delta = (rows.everywhere(jnp.asarray(each, jnp.float32)) for each in (weights, delta))

@jax.jit
def both(rows, weights, delta):
    x = rows.minibatch(jax.random.key(0), 6)

    def value(weights):
        forward = product(x, weights)
        several = jax.vmap(product, (0, None))(jnp.stack([x, 1 - x]), weights)
        return jnp.sum(forward * delta) + jnp.sum(several[1] * delta), (x, forward, several, product(x[:4], weights))

    with rows.devices():
        gradient, found = jax.grad(value, has_aux=True)(weights)
    return gradient, *found

gradient, x, forward, several, some = jax.device_get(both(rows, weights, delta))
np.testing.assert_array_equal(forward, x @ weights)
np.testing.assert_array_equal(several, np.stack([x, 1 - x]) @ weights)
np.testing.assert_array_equal(some, x[:4] @ weights)
np.testing.assert_array_equal(gradient, x.T @ delta + (1 - x).T @ delta)
program = both.lower(rows, weights, delta).compile().as_text()
assert ("nvil_add_rows" in program) == kernels.available()
assert "f32[2,64]{1,0} custom-call" in program or not kernels.available()  # two of the six cases on each
pair, learner = nvil.sbn(100, (64,)), nvil.Learner(batch_size=6)
state = learner.init(rows.everywhere(pair), rows)
assert ("nvil_add_rows" in jax.jit(learner.step).lower(state, rows).as_text()) == kernels.available()
print("equal")
"""

PARTS = """
import re

import jax

jax.config.update("jax_num_cpu_devices", 3)

import equinox as eqx
import numpy as np
import scipy.sparse
from jax.sharding import Mesh

from nvil.data.grey import Grey
from nvil.data.sparse import sparse_rows
from nvil.devices import CASES, SpreadRows
from nvil.rows import as_rows

random = np.random.default_rng(0)
counts = sparse_rows(scipy.sparse.csr_array(random.poisson(0.3, (20, 40)).astype(np.uint8)))
mesh = Mesh(np.array(jax.devices()), (CASES,))
draw = eqx.filter_jit(lambda rows, key: rows.minibatch(key, 6))
exchange = re.compile(r"\\w+\\[([\\d,]*)\\]\\S* (?:all|collective|reduce)-(?:gather|reduce|scatter|to-all|permute)\\(")
for rows in (
    as_rows(random.random((20, 5)).astype(np.float32)),
    Grey(random.integers(0, 256, (20, 5), dtype=np.uint8), 255.0),
    counts,
    counts.select(np.arange(3, 17)),
):
    shared, alone = SpreadRows(rows, mesh, parts=True, cases=rows.shape[0]).on_device(), rows.on_device()
    assert shared.shape == rows.shape
    for leaf, whole in zip(jax.tree.leaves(shared.rows), jax.tree.leaves(rows), strict=True):
        assert {shard.data.shape[0] for shard in leaf.addressable_shards} == {-(-len(whole) // 3)}
    window, _ = shared.window(0, 6)
    assert all(ours is theirs for ours, theirs in zip(*map(jax.tree.leaves, (window, shared)), strict=True))
    np.testing.assert_array_equal(shared.dense(), rows.dense())
    np.testing.assert_array_equal(shared.row_sums(), rows.row_sums())
    np.testing.assert_array_equal(shared.select(slice(-2, None)).dense(), rows.dense()[-2:])
    for seed in range(20):
        ours = draw(shared, jax.random.key(seed))
        assert {shard.data.shape[0] for shard in ours.addressable_shards} == {2}
        np.testing.assert_array_equal(ours, draw(alone, jax.random.key(seed)))
    sizes = exchange.findall(draw.lower(shared, jax.random.key(0)).compile().compiled.as_text())
    exchanged = [np.prod([int(size) for size in each.split(",")]) for each in sizes]
    smallest = min(leaf.size for leaf in jax.tree.leaves(shared.rows) if leaf.size > 30)  # than a minibatch's offsets
    assert exchanged and max(exchanged) < smallest  # cases of a minibatch, not the data
print("equal")
"""


def test_rows_in_parts_give_the_minibatches_of_rows_on_one_device():
    done = subprocess.run([sys.executable, "-c", PARTS], capture_output=True, text=True, timeout=300)
    assert done.stdout == "equal\n", done.stderr


def test_each_device_has_the_products_of_its_own_cases():
    done = subprocess.run([sys.executable, "-c", PRODUCTS], capture_output=True, text=True, timeout=300)
    assert done.stdout == "equal\n", done.stderr


def test_with_parts_diagnostics_are_of_some_cases(monkeypatch):
    monkeypatch.setattr(nvil.runs.run, "MOST_DIAGNOSED", 3)
    counts = np.random.default_rng(0).poisson(0.5, (8, 30))
    train = nvil.rows.as_rows(scipy.sparse.csr_array(counts))
    mesh = Mesh(np.array(jax.devices()[:1]), (CASES,))
    some = nvil.runs.run._to_diagnose(train, SpreadRows(train, mesh, parts=True, cases=8).on_device())
    assert some.shape == (3, 30)
    assert len(some.values) == np.count_nonzero(some.dense()) < len(train.values)
    assert all(np.any(np.all(case == counts, axis=1)) for case in some.dense())
    every = nvil.runs.run._to_diagnose(train, SpreadRows(train, mesh, parts=False, cases=8).on_device())
    np.testing.assert_array_equal(every.dense(), counts)


def start(process: int, port: int) -> subprocess.Popen:
    where = ("--devices", "2", "--coordinator", f"127.0.0.1:{port}", "--processes", "2", "--process", str(process))
    command = ["train", *CHOICES, *where, "--updates", "1000000", "--checkpoint-seconds", "0", "--out", "run"]
    with open(f"{process}.err", "w") as error:
        return subprocess.Popen(
            [sys.executable, "-c", WORKER, os.path.dirname(__file__), *command],
            stderr=error,
            stdout=subprocess.DEVNULL,
        )


def reports(folder: str) -> list[dict]:
    path = Path(folder, "metrics.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow
def test_two_processes_train_as_one_and_a_killed_one_ends_the_run_whole(tmp_path, monkeypatch):
    """The same numbers to 1e-3 after 40 updates in single precision; sums in another order differ by 1e-7 each."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nvil.Learner, "diagnose", plain_diagnose)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    first, second = (start(process, port) for process in (0, 1))
    try:
        waited = time.monotonic()
        while len(reports("run")) < 3 and first.poll() is None and time.monotonic() - waited < 400:
            time.sleep(0.2)
        second.kill()
        assert first.wait(120) == 1, Path("0.err").read_text()
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
    error = Path("0.err").read_text().strip().splitlines()[-1]
    assert error.startswith("nvil: Another process of this run has ended or cannot be reached (")
    assert error.endswith("give the same command again to go on, with another number of processes if need be.")

    main(["train", *CHOICES, "--updates", "40", "--out", "alone", "--quiet"])
    alone, together = reports("alone"), reports("run")
    train = nvil.data.load("digits").train.shape[0] - 20
    for process in (0, 1):  # each has half of the rows on its device
        assert set(Path(f"{process}.rows").read_text().splitlines()) == {str(-(-train // 2))}
    for one, both in zip(alone, together[:2], strict=True):
        for name in ("updates", "bound", "validation_bound"):
            assert both[name] == pytest.approx(one[name], rel=1e-3)
        for name in ("raw_deviation", "mean", "deviation"):
            np.testing.assert_allclose(both["signal"][name], one["signal"][name], rtol=1e-3, atol=1e-3)

    # the same run goes on in one process
    run, _ = nvil.Run.open("run").resumed()
    before = run.updates()
    assert before >= together[-1]["updates"]
    for _ in run.fit(after_chunk=lambda _: True):
        pass
    assert run.updates() > before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--devices", "0"), "--devices must be at least 1, got 0."),
        (("--devices", "2"), "Devices must be chosen before JAX has computed anything in this process."),
        (
            ("--devices", "3", "--coordinator", "localhost:1", "--processes", "2", "--process", "0"),
            "3 devices cannot be shared by 2 processes; make --devices a multiple of them.",
        ),
        (
            ("--devices", "2", "--coordinator", "localhost:1", "--processes", "2", "--process", "2"),
            "--process must be from 0 to 1, got 2.",
        ),
        (
            ("--devices", "2", "--coordinator", "localhost:1"),
            "Give --coordinator, --processes and --process together, or start nvil by srun or mpirun.",
        ),
        (
            ("--processes", "2"),
            "--coordinator, --processes and --process are for a run on several --devices; say how many.",
        ),
    ],
)
def test_mistakes_get_a_sentence(words, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert jax.devices()  # JAX has begun
    with pytest.raises(SystemExit) as caught:
        main(["train", *words])
    assert caught.value.code == 2
    assert capsys.readouterr().err == f"nvil: {sentence}\n"
