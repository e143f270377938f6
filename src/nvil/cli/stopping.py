"""How a person stops a long command."""

import contextlib
import dataclasses
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


class StoppedWaitingError(BaseException):
    """A signal came while training waited for the next case of a stream; not for the stream to take for its failure."""


@dataclasses.dataclass
class Stop:
    """The signal that asked for an end, if one did."""

    signal: int | None = None


@contextlib.contextmanager
def stop_on_signals(waiting: Callable[[], bool]) -> Iterator[Stop]:
    """Note Ctrl-C and SIGTERM instead of ending; a second Ctrl-C ends at once.

    While training is `waiting` for a stream that may never go on, the wait ends in `StoppedWaitingError`.
    """
    stop = Stop()

    def note(number: int, _: Any) -> None:
        if stop.signal is not None and number == signal.SIGINT:
            os.write(2, b"\nnvil: Stopped at once; what was saved before is kept.\n")
            os._exit(130)
        stop.signal = number
        os.write(2, b"\nnvil: Saving, then stopping; Ctrl-C again stops at once.\n")
        if waiting():
            raise StoppedWaitingError

    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield stop
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
