"""One process per run folder.

The package `filelock` locks in the same way, but does not say which process holds the lock, leaves its file behind in
a finished run, and follows a symbolic link in its place.
"""

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from nvil.errors import UsageError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None

log = logging.getLogger("nvil")
PAUSE = 0.05
"""Seconds before a lock that another process holds is tried once more."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep every other process out of `folder` until the block ends.

    The kernel drops the lock with the process that holds it, however that ends; a file that a dead owner left is taken
    over. The owner's PID is in the file.
    """
    path = folder / "lock"
    descriptor = _lock(path)
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        try:
            path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Whether a process that is alive trains in `folder`."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return False
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return fcntl is None
    except OSError:  # it is, or, on some network file systems, it cannot be known
        return True
    finally:
        os.close(descriptor)


def _lock(path: Path) -> int:
    refused = False
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            if fcntl is None:
                raise OSError(0, "this system has no file locks")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.read(descriptor, 20).decode(errors="replace").strip()
            os.close(descriptor)
            if not refused:  # perhaps by `is_locked`, which holds the file for an instant
                refused = True
                time.sleep(PAUSE)
                continue
            raise UsageError(
                f"Another process (PID {owner or 'unknown'}) is training in {path.parent}; "
                "wait for it, stop it, or choose another `folder`."
            ) from error
        except OSError as error:  # some network file systems
            log.warning("%s cannot be locked (%s); let no other process train in it.", path.parent, error.strerror)
            return descriptor
        # The last owner may have removed the file between our opening and our locking it.
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
        os.close(descriptor)
