"""Say what is being compiled where that takes long."""

import contextlib
import logging
import threading
from collections.abc import Iterator

PATIENCE = 1.0
log = logging.getLogger("nvil")


@contextlib.contextmanager
def compiling(what: str) -> Iterator[None]:
    """Log, a second after the block began and before it ends, that `what` is being compiled."""
    timer = threading.Timer(PATIENCE, log.info, (f"Compiling {what} ...",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
