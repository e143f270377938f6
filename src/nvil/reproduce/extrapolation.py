"""When a curve that is still rising would pass a figure, by what its last doublings of the updates gained."""

import math
from typing import Any, NamedTuple


class Pace(NamedTuple):
    """The validation bound after n/8, n/4, n/2 and n of n updates, and how the gain of a doubling changes.

    - `gain`: of the last doubling, in nats.
    - `ratio`: of that to the gain of the doubling before it, at most 1.
    """

    updates: tuple[int, ...]
    bounds: tuple[float, ...]
    gain: float
    ratio: float


def pace(curve: dict[str, list[Any]]) -> Pace | None:
    """The pace of a result's curve; None where it is too short, or no longer rises."""
    known = [each for each in zip(curve["updates"], curve["validation_bound"], strict=True) if each[1] is not None]
    last = known[-1][0] if known else 0
    # The nearest reports, as curves of any interval have no report at just these updates.
    points = [min(known, key=lambda each, at=last / part: abs(each[0] - at)) for part in (8, 4, 2, 1)] if known else []
    if len(set(points)) < 4:
        return None
    updates, bounds = zip(*points, strict=True)
    gain, before = bounds[3] - bounds[2], bounds[2] - bounds[1]
    if gain <= 0 or before <= 0:
        return None
    return Pace(updates, bounds, gain, min(1.0, gain / before))


def updates_until(pace: Pace, missing: float) -> float:
    """How many updates it would take to gain `missing` nats more, if every doubling gains `ratio` of the one before.

    m doublings gain gain (ratio + ... + ratio^m); infinite where no number of them is enough.
    """
    gain, ratio = pace.gain, pace.ratio
    if ratio == 1:
        doublings = missing / gain
    else:
        left = 1 - missing * (1 - ratio) / (gain * ratio)
        if left <= 0:
            return math.inf
        doublings = math.log(left) / math.log(ratio)
    return pace.updates[-1] * 2**doublings
