"""Planned work on network or voters: for a while hosts are granted longer leases, and nobody is given up.

The log keeps how long a lease granted under the hold may still be longer than a usual one (`left_ms`), so that each
leader knows it for all leaders before it. A leader grants longer leases only after the hold is applied on its own
state, and none beyond its own end of the hold; one that takes over counts `left_ms` from its election, as all grants
of others were earlier. So whatever the clocks and however often the leader changes, at the end of the hold, as any
leader counts it, no lease has more left than T_stop. From then on T_lease is waited as always. The price: a change of
leader makes the hold longer by what the last count in the log was old."""

from dataclasses import dataclass
from math import ceil
from typing import Any

from schemas.limits import HOLD_COUNT_MAX_MS, HOLD_COUNT_MIN_MS, HOLD_STRETCH

MS = 1_000_000


@dataclass(slots=True)
class MeshHold:
    """As one leader knows it, on its monotonic clock. number: the log index of HoldMesh; end_ns: from then on no lease
    is longer than usual; granting: False once it was released."""

    number: int
    end_ns: int
    granting: bool
    count_ns: int
    next_ns: int

    def extra_ms(self, now_ns: int) -> int:
        """What a lease granted now has beyond T_stop. It ends before `end_ns`, by the host's clock too."""
        return max(0, int((self.end_ns - now_ns) / (HOLD_STRETCH * MS))) if self.granting else 0

    def left_ms(self, now_ns: int) -> int:
        return max(0, ceil((self.end_ns - now_ns) / MS))

    def count(self, now_ns: int) -> int | None:
        """`left_ms` when it is time to tell the log, else None."""
        if now_ns < self.next_ns:
            return None
        # Its end is told in time, and again until the log has it.
        until_end_ns = self.end_ns - now_ns
        self.next_ns = now_ns + (min(self.count_ns, until_end_ns) if until_end_ns > 0 else HOLD_COUNT_MIN_MS * MS)
        return self.left_ms(now_ns)


def taken(row: dict[str, Any], now_ns: int, before: MeshHold | None) -> MeshHold | None:
    """The hold by its row, on the clock of the leader that has just applied it or been elected. None: there is none."""
    if row["over_ms"] is not None:
        return None
    if before is not None and before.number == row["hold"]:
        before.granting = row["granting"]
        return before
    end_ns = now_ns + row["left_ms"] * MS
    count_ms = min(max(row["for_ms"] // 60, HOLD_COUNT_MIN_MS), HOLD_COUNT_MAX_MS)
    return MeshHold(
        number=row["hold"],
        end_ns=end_ns if before is None else max(end_ns, before.end_ns),
        granting=row["granting"],
        count_ns=count_ms * MS,
        next_ns=now_ns + count_ms * MS,
    )
