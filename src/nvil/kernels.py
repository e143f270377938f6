"""Our functions in C (`kernels.c`), compiled for the processor at hand when they are first needed, for XLA to call.

What was compiled is kept in the user's cache folder, by the contents of the source, the options and the processor.
Where there is no C compiler, or NVIL_KERNELS is `off`, `available` is false, and XLA computes the same to rounding.
"""

import contextlib
import ctypes
import functools
import logging
import os
import platform
import shutil
import subprocess
import tempfile
import zlib
from importlib import metadata, resources
from pathlib import Path

import jax
import platformdirs

from nvil import processor

log = logging.getLogger("nvil")

NAMES = ("nvil_entries", "nvil_add_rows")
NATIVE = "-mcpu=native" if platform.machine().lower() in ("arm64", "aarch64") else "-march=native"
OPTIONS = ("-std=gnu99", "-O3", NATIVE, "-fno-math-errno", "-ffp-contract=fast", "-fPIC", "-shared")
SECONDS = 60
"""How long a compiler may take; it takes about one."""


@functools.cache
def available() -> bool:
    """Whether XLA can call the functions, which are compiled and registered by the first call."""
    if os.environ.get("NVIL_KERNELS") == "off":
        return False
    try:
        library = _library()
        for name in NAMES:
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        log.debug("XLA has the products with binary values: %s", error)
        return False
    return True


def _library() -> ctypes.CDLL:
    """The compiled functions, those in the cache folder if they can be had."""
    source = _source()
    folder = Path(platformdirs.user_cache_dir("nvil", appauthor=False), "kernels")
    kept = folder / _name(source)
    with contextlib.suppress(OSError):  # it is not there, or was damaged
        return ctypes.CDLL(str(kept))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as own:  # renamed when it is whole: others may look for it
            os.replace(_compile(source, Path(own)), kept)
        return ctypes.CDLL(str(kept))
    except (PermissionError, FileExistsError, NotADirectoryError):  # what was loaded needs its file no longer
        with tempfile.TemporaryDirectory() as own:
            return ctypes.CDLL(str(_compile(source, Path(own))))


def _source() -> bytes:
    return resources.files("nvil").joinpath("kernels.c").read_bytes()


def _name(source: bytes) -> str:
    """Of the file: another one for any other source, options, interface of XLA or kind of processor."""
    made_of = source + " ".join((*OPTIONS, metadata.version("jaxlib"))).encode()
    return f"{processor.kind()}-{zlib.crc32(made_of):08x}.so"


def _compile(source: bytes, folder: Path) -> Path:
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        raise FileNotFoundError("there is no C compiler")
    path = folder / "kernels.so"
    command = [*compiler.split(), *OPTIONS, "-I", jax.ffi.include_dir(), "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=source, check=True, capture_output=True, timeout=SECONDS)
    return path
