"""Runs: a folder that survives, for anything that trains; and the command line's recipe for one."""

from typing import TYPE_CHECKING

from nvil.lazy import lazy

if TYPE_CHECKING:
    from nvil.runs.config import Config as Config
    from nvil.runs.run import Run as Run
    from nvil.runs.sweep import Sweep as Sweep

_HOMES = {"Config": "config", "Run": "run", "Sweep": "sweep"}
__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = lazy(__name__, _HOMES)
