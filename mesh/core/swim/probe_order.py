"""Whom to probe next: round robin over a shuffled list, so that a dead member is found within 2 N - 1 intervals at
worst, and at random in the mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Rng(Protocol):
    """The part of random.Random that the core needs."""

    def randrange(self, stop: int, /) -> int: ...

    def random(self) -> float: ...


def shuffle(rng: Rng, items: list[str]) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = rng.randrange(last + 1)
        items[last], items[other] = items[other], items[last]


def pick(rng: Rng, names: list[str], count: int, without: Iterable[str] = ()) -> list[str]:
    """Up to `count` different names, at random."""
    excluded = dict.fromkeys(without)
    if len(names) <= 2 * (count + len(excluded)):
        rest = [name for name in names if name not in excluded]
        shuffle(rng, rest)
        return rest[:count]
    chosen: list[str] = []
    while len(chosen) < count:
        name = names[rng.randrange(len(names))]
        if name not in excluded:
            excluded[name] = None
            chosen.append(name)
    return chosen


class ProbeOrder:
    """names: the members that are probed (alive and suspect ones), in the order of this round."""

    def __init__(self, rng: Rng) -> None:
        self.names: list[str] = []
        self._rng = rng
        self._at = 0

    def next(self) -> str:
        """The next one, or "" where there is none. A new round is a new shuffle."""
        if self._at >= len(self.names):
            self._at = 0
            shuffle(self._rng, self.names)
        if not self.names:
            return ""
        self._at += 1
        return self.names[self._at - 1]

    def add(self, name: str) -> None:
        """At a random place: at the end, members that join together would be probed together by everyone."""
        place = self._rng.randrange(len(self.names) + 1)
        self.names.insert(place, name)
        if place < self._at:
            self._at += 1

    def discard(self, name: str) -> None:
        if name in self.names:
            place = self.names.index(name)
            del self.names[place]
            if place < self._at:
                self._at -= 1
