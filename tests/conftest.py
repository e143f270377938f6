"""Every test runs with shapes and types checked at each call of the package."""

import gc
import importlib.metadata
import os
import shutil
from pathlib import Path

from jaxtyping import install_import_hook

# Tests compile much and run little. The last two, which halve the time, stop a version of XLA that lacks them.
FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
if importlib.metadata.version("jaxlib").startswith("0.10."):
    FLAGS += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ.setdefault("XLA_FLAGS", FLAGS)
# What one process has compiled, no other compiles again, nor the next test run: XLA's programs are found by their very
# contents and flags, so a change of the source never finds an old one.
COMPILED = Path(__file__).parent.parent / ".cache" / "compiled"
LARGEST_CACHE = 500e6
MOST_MAPS = 20_000  # of the 65,530 memory maps that Linux lets a process have
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(COMPILED)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
# Most of the rest is tracing: a tenth of it goes to noting where each operation was written, some to the collector.
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"
gc.set_threshold(200_000, 50, 100)

if "NVIL_UNCHECKED" not in os.environ:  # as in mutants.py, where assertions must find the faults
    install_import_hook("nvil", "beartype.beartype")  # before anything imports nvil

import jax  # noqa: E402
import pytest  # noqa: E402


def pytest_sessionstart():
    first = "PYTEST_XDIST_WORKER" not in os.environ and COMPILED.exists()
    if first and sum(path.stat().st_size for path in COMPILED.iterdir()) > LARGEST_CACHE:
        shutil.rmtree(COMPILED, ignore_errors=True)


def memory_maps():
    """How many this process has; where that is not known, as if too many."""
    maps = Path("/proc/self/maps")
    return maps.read_bytes().count(b"\n") if maps.exists() else MOST_MAPS


@pytest.fixture(autouse=True)
def _bounded_compilations(request):
    """Forget compiled functions when they hold many memory maps, and no sooner: they would be traced again."""
    yield
    session = request.session
    session.tests_done = getattr(session, "tests_done", 0) + 1
    if session.tests_done % 40 == 0 and memory_maps() >= MOST_MAPS:
        jax.clear_caches()


@pytest.fixture
def float64():
    """Exact tests are in double precision, and nothing may be promoted to it in silence (optax's Adam would be)."""
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        yield
