"""Updates still to be spread: how often each, and which first."""

from __future__ import annotations

from math import ceil, log10

from mesh.core.swim.update import Update

_SMALLEST = 24  # bytes of an update with one-letter names


def transmit_limit(mult: int, members: int) -> int:
    return mult * max(1, ceil(log10(members + 1)))


class RetransmitQueue:
    """At most one update a member: a newer one replaces the older. Those sent least often go first, of these the
    newest: what is spreading needs help less than what has just begun."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}  # sent so far, by member
        self._levels: list[dict[str, Update]] = [{}]  # by the number of times sent

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, node: str) -> bool:
        return node in self._times

    def put(self, update: Update) -> None:
        self._drop(update.node)
        self._times[update.node] = 0
        self._levels[0][update.node] = update

    def take(self, room: int, limit: int, without: str = "") -> list[Update]:
        """Updates of at most `room` bytes together; each counts as sent once more and is dropped at `limit`."""
        chosen = []
        for level in self._levels:
            for node in reversed(level):
                if room < _SMALLEST:
                    break
                size = len(level[node].wire())
                if size <= room and node != without:
                    room -= size
                    chosen.append(level[node])
        # Oldest first, so that the newest ends up newest in the next level too.
        for update in reversed(chosen):
            times = self._times[update.node] + 1
            self._drop(update.node)
            if times < limit:
                while len(self._levels) <= times:
                    self._levels.append({})
                self._times[update.node] = times
                self._levels[times][update.node] = update
        return chosen

    def _drop(self, node: str) -> None:
        times = self._times.pop(node, None)
        if times is not None:
            del self._levels[times][node]
