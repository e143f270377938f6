"""Reports for TensorBoard, an extra: `pip install '.[tensorboard]'` in a clone. Its own writer needs no TensorFlow."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nvil.errors import UsageError


class Writer:
    """Writes the numbers of every report to event files in `folder`.

    `updates` are done so far; what an earlier process wrote of later ones is hidden, as they are done again.
    """

    def __init__(self, folder: Path, updates: int):
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise UsageError("`tensorboard` needs TensorBoard: pip install tensorboard") from error
        self._event, self._summary = event_pb2, summary_pb2
        self._open, self._files = lambda: EventFileWriter(str(folder)), None
        self._updates = updates

    def add(self, time: float, values: dict[str, Any]) -> None:
        """Add a line of metrics.jsonl as scalars; the layers of a list get names of their own."""
        if self._files is None:  # nothing is written before there is a report
            self._files = self._open()
            begin = self._event.SessionLog(status=self._event.SessionLog.START)
            self._files.add_event(self._event.Event(step=self._updates + 1, session_log=begin))
        scalars = [self._summary.Summary.Value(tag=tag, simple_value=value) for tag, value in _scalars(values)]
        summary = self._summary.Summary(value=scalars)
        self._files.add_event(self._event.Event(wall_time=time, step=values["updates"], summary=summary))
        self._files.flush()

    def close(self) -> None:
        if self._files is not None:
            self._files.close()


def _scalars(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _scalars(value, f"{prefix}{name}/")
        elif isinstance(value, list):
            yield from _scalars({f"{name}/layer{i}": item for i, item in enumerate(value, 1)}, prefix)
        elif value is not None and prefix + name != "updates":
            yield prefix + name, float(value)
