"""Whose wall clock is wrong. Nothing here decides by wall clocks; people do, when they read logs side by side.

Each agent measures its clock against the leader's, within half a round trip. The leader's own may be the wrong one, so
all are judged against the middle of the mesh: one clock cannot mark the others.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import median

SKEW_RAISED_S, SKEW_CLEARED_S = 2.0, 1.0
"""Apart, so that a clock which drifts across the limit is told of once."""


@dataclass(frozen=True, slots=True)
class Clock:
    """ahead_s: of the leader's clock, negative if behind. within_s: the error is at most that."""

    ahead_s: float
    within_s: float = 0.0


def measured(asked_s: float, leader_s: float, answered_s: float) -> Clock:
    """Unix seconds: own clock when asked and when answered, the leader's in between."""
    return Clock((asked_s + answered_s) / 2 - leader_s, abs(answered_s - asked_s) / 2)


def astray(clocks: Mapping[str, Clock], known: Collection[str] = ()) -> dict[str, float]:
    """`{node: seconds ahead of the middle of the mesh}` of those that are surely off by more than the limit.

    known: nodes that were astray a moment ago."""
    if not clocks:
        return {}
    middle = median(clock.ahead_s for clock in clocks.values())
    found = {}
    for node, clock in clocks.items():
        ahead_s = clock.ahead_s - middle
        limit_s = SKEW_CLEARED_S if node in known else SKEW_RAISED_S
        if abs(ahead_s) - clock.within_s > limit_s:
            found[node] = ahead_s
    return found


def skew_text(ahead_s: float, clocks: int) -> str:
    against = f"the middle of {clocks} clocks" if clocks > 2 else "the other node's clock, by half the difference"
    return f"its clock is {_length(abs(ahead_s))} {'ahead of' if ahead_s > 0 else 'behind'} {against}"


def _length(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
