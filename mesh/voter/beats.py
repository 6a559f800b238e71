"""The rule that a leader without live controllers must not lead."""

from __future__ import annotations

from schemas.limits import BEAT_LOST_MS


class Beats:
    """Times in seconds of one monotonic clock. Counted from the later of the last beat and the start of the lead."""

    def __init__(self, expected: bool, lost_s: float = BEAT_LOST_MS / 1000) -> None:
        self._expected, self._lost_s = expected, lost_s
        self._last = 0.0
        self._leads_since: float | None = None

    def beat(self, now: float) -> None:
        self._last = now

    def leads(self, now: float, leading: bool) -> None:
        self._leads_since = now if leading else None

    def silent_s(self, now: float) -> float:
        """How long nothing has beaten while leading; 0 when nothing needs to."""
        if not self._expected or self._leads_since is None:
            return 0.0
        return now - max(self._last, self._leads_since)

    def lost(self, now: float) -> bool:
        return self.silent_s(now) > self._lost_s
