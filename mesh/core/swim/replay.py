"""Which packets of a sender are new: its boot must not fall, and each seq of a boot counts once.

The boot need only rise from life to life (start time, or a counter on disk). Where it fell, because a disk was wiped or
a clock set back, the refusal tells the sender which boot is known, and it goes above it: no clock is trusted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from mesh.core.swim.limits import MEMBERS_MAX, REPLAY_WINDOW

_MASK = (1 << REPLAY_WINDOW) - 1


class Freshness(Enum):
    FRESH = "fresh"
    REPLAYED = "replayed"
    STALE_BOOT = "stale_boot"


@dataclass(frozen=True, slots=True)
class Heard:
    """The newest packet known of a sender: kept over a restart, so that nothing older is taken afterwards."""

    sender: str
    boot: int
    seq: int


class ReplayGuard:
    """Per sender: boot, highest seq, and a bit for each of the REPLAY_WINDOW seqs up to it."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int, int]] = {}

    def boot_of(self, sender: str) -> int:
        return self._seen[sender][0] if sender in self._seen else 0

    def heard(self) -> list[Heard]:
        return [Heard(sender, boot, top) for sender, (boot, top, _) in self._seen.items()]

    def recall(self, heard: Iterable[Heard]) -> None:
        """Which packets before the newest had come is forgotten; none of them is waited for."""
        self._seen.update({each.sender: (each.boot, each.seq, _MASK) for each in heard})

    def check(self, sender: str, boot: int, seq: int) -> Freshness:
        """Notes the packet as seen when it is fresh."""
        held = self._seen.get(sender)
        if held is None:
            if len(self._seen) >= 2 * MEMBERS_MAX:
                # Names that nobody vouched for can at worst push out old ones, never fill the memory.
                del self._seen[next(iter(self._seen))]
            self._seen[sender] = (boot, seq, 1)
            return Freshness.FRESH
        known, top, bits = held
        if boot < known:
            return Freshness.STALE_BOOT
        if boot > known:
            self._seen[sender] = (boot, seq, 1)
            return Freshness.FRESH
        if seq > top:
            self._seen[sender] = (boot, seq, ((bits << min(seq - top, REPLAY_WINDOW)) | 1) & _MASK)
            return Freshness.FRESH
        bit = 1 << (top - seq) if top - seq < REPLAY_WINDOW else 0
        if not bit or bits & bit:
            return Freshness.REPLAYED
        self._seen[sender] = (boot, top, bits | bit)
        return Freshness.FRESH
