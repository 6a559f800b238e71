"""How long a suspected member has to refute (Lifeguard, "Local Health Aware Suspicion")."""

from __future__ import annotations

from math import log, log10

from mesh.core.swim.profile import Profile

MS = 1_000_000


def shortest_ns(profile: Profile, members: int) -> int:
    """members: alive and suspect, this one too."""
    return int(profile.suspicion_mult * max(1.0, log10(max(members, 1))) * profile.probe_interval_ms * MS)


def timeout_ns(shortest: int, longest: int, confirmed: int, needed: int) -> int:
    """From `longest` with no confirmation to `shortest` with all: most of the way with the first, because the first is
    the one that tells a dead member from a member whose accuser is ill."""
    if needed < 1:
        return shortest
    part = log(confirmed + 1) / log(needed + 1)
    return max(shortest, round(longest - part * (longest - shortest)))


class Suspicion:
    """Of one member at one incarnation. Members of a small mesh need no more confirmations than others are there."""

    def __init__(self, profile: Profile, members: int, accuser: str, now_ns: int) -> None:
        self.began_ns = now_ns
        self._accusers = [accuser]
        self._needed = max(0, min(profile.confirmations, members - 2))
        self._shortest = shortest_ns(profile, members)
        self._longest = self._shortest * profile.suspicion_max_mult

    def confirm(self, accuser: str) -> bool:
        """Whether that is news: another accuser than those before, and not more of them than needed."""
        if accuser in self._accusers or len(self._accusers) > self._needed:
            return False
        self._accusers.append(accuser)
        return True

    def deadline_ns(self) -> int:
        confirmed = len(self._accusers) - 1
        return self.began_ns + timeout_ns(self._shortest, self._longest, confirmed, self._needed)

    def postpone(self, by_ns: int) -> None:
        self.began_ns += by_ns
