"""Our functions in C (`kernels.c`), compiled for the processor at hand when they are first needed, for XLA to call.

What was compiled is kept in the user's cache folder, by the contents of the source, the options and the processor.
Where there is no C compiler, or NVIL_KERNELS is `off`, `available` is false, and XLA computes the same to rounding.
"""

import contextlib
import ctypes
import functools
import logging
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import zlib
from importlib import metadata, resources
from pathlib import Path

import jax
import platformdirs

from nvil import processor

log = logging.getLogger("nvil")

NAMES = (
    "nvil_entries",
    "nvil_add_rows",
    "nvil_sparse_product",
    "nvil_add_sparse_transposed",
    "nvil_sparse_inner",
    "nvil_sparse_outer",
    "nvil_draw_in_order",
)
OPTIONS = ("-std=gnu99", "-O3", "-fno-math-errno", "-ffp-contract=fast", "-fPIC", "-shared")
SECONDS = 60
"""How long a compiler may take; it takes about two."""
_lock = threading.Lock()


def available() -> bool:
    """Whether XLA can call the functions, which are compiled and registered by the first call."""
    with _lock:
        return _registered()


@functools.cache
def _registered() -> bool:
    if os.environ.get("NVIL_KERNELS") == "off":
        return False
    try:
        library = _library()
        for name in NAMES:
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    except (OSError, AttributeError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        log.debug("XLA has the products with binary values and sparse rows: %s", error)
        return False
    return True


def _library() -> ctypes.CDLL:
    """The compiled functions: those in the cache folder if they are whole, else compiled now, and kept there."""
    source = resources.files("nvil").joinpath("kernels.c").read_bytes()
    made_of = source + " ".join((*OPTIONS, metadata.version("jaxlib"))).encode()
    folder = Path(platformdirs.user_cache_dir("nvil", appauthor=False), "kernels")
    kept = folder / f"{processor.kind()}-{zlib.crc32(made_of):08x}.so"
    with contextlib.suppress(OSError):  # it is not there, or must not be loaded from there
        if _whole(kept.read_bytes()):
            return ctypes.CDLL(str(kept))
    with tempfile.TemporaryDirectory() as own:
        path = _compile(source, Path(own))
        library = ctypes.CDLL(str(path))  # which needs its file no longer
        with contextlib.suppress(OSError):  # a full disk, or a folder that cannot be written to
            _keep(path.read_bytes(), kept)
    return library


def _compile(source: bytes, folder: Path) -> Path:
    path = folder / "kernels.so"
    command = [*_compiler(), *OPTIONS, "-I", jax.ffi.include_dir(), "-x", "c", "-", "-o", str(path)]
    for native in (["-march=native"], ["-mcpu=native"], []):  # compilers differ in how they say it
        done = subprocess.run([*command, *native], input=source, capture_output=True, timeout=SECONDS)
        if done.returncode == 0:
            return path
    raise OSError(f"{command[0]} failed: {done.stderr.decode(errors='replace').strip()[:300]}")


def _compiler() -> list[str]:
    if own := os.environ.get("CC"):
        return shlex.split(own)
    # Without Apple's tools, `cc` of a Mac opens a window that offers to install them.
    mac = sys.platform == "darwin"
    if os.name == "nt" or (mac and subprocess.run(["xcode-select", "-p"], capture_output=True).returncode):
        raise FileNotFoundError("there is no C compiler")
    if (found := next(filter(shutil.which, ("cc", "gcc", "clang")), None)) is None:
        raise FileNotFoundError("there is no C compiler")
    return [found]


def _keep(library: bytes, path: Path) -> None:
    """Write it beside, with a checksum at its end, which nobody reads but `_whole`, and rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as own:
        beside = Path(own, path.name)
        with open(beside, "wb") as file:
            file.write(library + zlib.crc32(library).to_bytes(4, "little"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)


def _whole(kept: bytes) -> bool:
    """Whether it has its checksum: what is cut off would end the process that loads it."""
    return len(kept) > 4 and zlib.crc32(kept[:-4]).to_bytes(4, "little") == kept[-4:]
