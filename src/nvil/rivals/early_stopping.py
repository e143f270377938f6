"""Train epoch by epoch and keep the parameters that do best on validation cases (Section 4.1)."""

import math
from collections.abc import Callable
from typing import TypeVar

from nvil.errors import UsageError

State = TypeVar("State")
Report = Callable[[int, float], object]


def train(
    state: State,
    advance: Callable[[State, int], State],
    score: Callable[[State], float],
    *,
    epochs: int,
    patience: int,
    validated: bool,
    report: Report | None,
    interval: int = 1,
) -> State:
    """Call `advance(state, epoch)` for epochs 1, 2, ... and `score(state)` each `interval` epochs.

    With validation cases: the state of the best score, as soon as `patience` scores in a row are no better than the
    best or all epochs are done. Without: the last state. `report` is called with (epoch, score) after each score.
    """
    best, best_score, waited = state, -math.inf, 0
    for epoch in range(1, epochs + 1):
        state = advance(state, epoch)
        if (epoch % interval and epoch != epochs) or not (validated or report):
            continue
        latest = score(state)
        if not math.isfinite(latest):
            raise UsageError(f"The bound is {latest} after epoch {epoch}; a lower learning rate may help.")
        if report:
            report(epoch, latest)
        if latest > best_score:
            best, best_score, waited = state, latest, 0
        else:
            waited += 1
            if validated and waited >= patience:
                break
    return best if validated else state
