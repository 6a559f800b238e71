"""Alerts as they rise and clear. Kept by whoever judges; another judge finds the same from the same signals."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

RAISED, CLEARED = "raised", "cleared"
_CLEARED_KEPT = 200
_CLEARED_MS = 3_600_000
AlertKey = tuple[str, str, int]
"""(rule, group or node id, attempt)"""


@dataclass(frozen=True, slots=True)
class Alert:
    """About a group, or about a node: then group_id is empty and attempt 0."""

    rule: str
    group_id: str
    attempt: int
    level: str
    text: str
    advice: str
    since_ms: int
    state: str = RAISED
    cleared_ms: int | None = None
    node_id: str = ""

    @property
    def key(self) -> AlertKey:
        return self.rule, self.group_id or self.node_id, self.attempt

    @property
    def id(self) -> str:
        return ".".join(map(str, self.key))


class AlertBook:
    def __init__(self) -> None:
        self._raised: dict[AlertKey, Alert] = {}
        self._cleared: list[Alert] = []

    def update(self, now_ms: int, found: Iterable[Alert], undecided: Mapping[AlertKey, str]) -> list[Alert]:
        """found: what stands now. undecided: what cannot be judged now, and why; it stays as it is, and says so.
        Everything else has cleared. Returns what rose or cleared."""
        standing = {alert.key: alert for alert in found}
        changed: list[Alert] = []
        for key, alert in list(self._raised.items()):
            if key in standing:
                # Since when is what was said first: durations measured twice differ by a little.
                self._raised[key] = replace(standing[key], since_ms=alert.since_ms)
            elif key in undecided:
                self._raised[key] = replace(alert, text=undecided[key])
            else:
                over = replace(alert, state=CLEARED, cleared_ms=now_ms)
                del self._raised[key]
                self._cleared.append(over)
                changed.append(over)
        for key, alert in standing.items():
            if key not in self._raised:
                self._raised[key] = alert
                changed.append(alert)
        self._cleared = [
            alert for alert in self._cleared[-_CLEARED_KEPT:] if now_ms - (alert.cleared_ms or 0) < _CLEARED_MS
        ]
        return changed

    def raised(self) -> list[Alert]:
        """Newest first."""
        return sorted(self._raised.values(), key=lambda alert: (-alert.since_ms, alert.key))

    def cleared(self) -> list[Alert]:
        """Of the last hour, newest first."""
        return sorted(self._cleared, key=lambda alert: (-(alert.cleared_ms or 0), alert.key))
