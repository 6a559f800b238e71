"""Local health: how much a member doubts itself (Lifeguard, "Local Health Multiplier")."""

from __future__ import annotations


class Awareness:
    """score 0 is healthy. Interval and timeouts of probes are multiplied by score + 1."""

    def __init__(self, maximum: int) -> None:
        self.score = 0
        self._top = maximum - 1

    def add(self, points: int) -> None:
        self.score = max(0, min(self._top, self.score + points))

    def scale(self, duration: int) -> int:
        return duration * (self.score + 1)
