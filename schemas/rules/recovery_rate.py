"""How many interruptions of groups ended without a person: counted from the rows of the groups that are still known.

An interruption is a lost node or a failure of the infrastructure that took a running group down. It ended by itself
where the group ran again. What is still under way counts neither way, and neither does the last one of a group that a
person stopped: it may have been waiting then."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.rules.failure_classes import INFRASTRUCTURE, NODE_LOST
from schemas.states import COMPLETED, FAILED, PAUSED, PAUSING, RUNNING

_RAN_AGAIN = (RUNNING, PAUSING, PAUSED, COMPLETED)


@dataclass(frozen=True, slots=True)
class RecoveryRate:
    """interruptions: that are over; recovered: of these, without a person; groups: that were looked at."""

    groups: int
    interruptions: int
    recovered: int

    def __add__(self, other: "RecoveryRate") -> "RecoveryRate":
        return RecoveryRate(
            self.groups + other.groups, self.interruptions + other.interruptions, self.recovered + other.recovered
        )

    @property
    def rate(self) -> float | None:
        return self.recovered / self.interruptions if self.interruptions else None

    @property
    def text(self) -> str:
        if self.rate is None:
            looked = f"{self.groups:,} known groups" if self.groups != 1 else "1 known group"
            return f"recovered without a person: no data, no interruption of {looked} is over"
        # Rounded down: 199 of 200 is not all of them.
        percent = self.recovered * 100 // self.interruptions
        return f"recovered without a person: {self.recovered:,} of {self.interruptions:,} interruptions, {percent} %"


def recovery_rate(groups: Iterable[Mapping[str, Any]]) -> RecoveryRate:
    """groups: rows of the state, each once."""
    looked = recovered = lasting = 0
    for group in groups:
        looked += 1
        again, not_again = _counted(group)
        recovered, lasting = recovered + again, lasting + not_again
    return RecoveryRate(looked, recovered + lasting, recovered)


def _counted(group: Mapping[str, Any]) -> tuple[int, int]:
    restarts, status = group["restarts"], group["status"]
    if status in _RAN_AGAIN:
        return restarts, 0
    if status != FAILED:
        return max(restarts - 1, 0), 0
    if group.get("waits_since_ms") is not None:
        # It never ran again after the last one, or never at all.
        return max(restarts - 1, 0), min(restarts, 1)
    named = (group["failure"] or {}).get("class")
    return restarts, int(named == NODE_LOST or named in INFRASTRUCTURE)
