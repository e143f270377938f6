"""Compiled programs are kept in the user's cache folder, so that a config compiles once on a machine.

JAX finds a program by its contents, its flags and the version of the compiler, so a program that was read is the one
that would have been compiled, and results are bit-identical. The variables of JAX's own have the last word:
JAX_COMPILATION_CACHE_DIR is another folder, and JAX_ENABLE_COMPILATION_CACHE=false turns the cache off.
"""

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from nvil import processor

LARGEST = 500_000_000
"""Bytes in the folder; those programs that were not read for longest go first. A config takes about one million."""


@contextlib.contextmanager
def kept_programs() -> Iterator[None]:
    """Have JAX, which must not have been imported yet, keep what it compiles, where there is a folder to write to.

    A program that cannot be read, such as one that a killed process was writing, would be compiled again every time:
    the folder is emptied instead.
    """
    folder = _folder()
    own = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(folder)) != str(folder)
    if own or not _prepared(folder):
        yield
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.01")
    with warnings.catch_warnings():
        show = warnings.showwarning

        def noted(message: Warning | str, *more: object, **named: object) -> None:
            if "Error reading persistent compilation cache entry" in str(message):
                _remove(folder, 0)
            elif "Error writing persistent compilation cache entry" not in str(message):  # a full disk
                show(message, *more, **named)  # pyright: ignore[reportArgumentType]

        warnings.showwarning = noted
        yield


def _folder() -> Path:
    """Of this kind of processor, for which XLA compiles."""
    return Path(platformdirs.user_cache_dir("nvil", appauthor=False), "compiled", processor.kind())


def _prepared(folder: Path) -> bool:
    """Whether programs can be kept in `folder`, which is there and not too large then."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove(folder, LARGEST)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _remove(folder: Path, largest: int) -> None:
    """Remove programs until those that are left, the last used, have at most `largest` bytes."""
    found = []
    for path in folder.glob("*-cache"):
        with contextlib.suppress(FileNotFoundError):  # another process removes too
            status = path.stat()
            found.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    size = sum(bytes for _, bytes, _ in found)
    for _, bytes, path in sorted(found):
        if size <= largest:
            break
        path.unlink(missing_ok=True)
        size -= bytes
