"""Links between hosts: drop, duplicate, delay, reorder, cut one way or both ways."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.sim.loop import MS, Loop, Process, S

LOCAL_NS = 50_000  # a Unix socket
ANCIENT = 0.3  # of the second copies


@dataclass(slots=True)
class LinkRates:
    drop: float = 0.0
    duplicate: float = 0.0
    base_ns: int = 1 * MS
    slow: float = 0.0  # share of messages that come late, and so out of order
    slow_ns: int = 300 * MS  # mean lateness of those


class Network:
    def __init__(self, loop: Loop, rates: LinkRates) -> None:
        self._loop = loop
        self.rates = rates
        self._cut: set[tuple[str, str]] = set()
        self.sent = self.lost = self.doubled = 0

    def cut(self, source: str, target: str) -> None:
        self._cut.add((source, target))

    def heal(self) -> None:
        self._cut.clear()

    def send(self, source: str, target: str, process: Process, fn: Callable[..., object], *args: Any) -> None:
        """Deliver to whatever life of the process is there when the message arrives."""
        loop, rates = self._loop, self.rates
        if source == target:
            loop.push(loop.now + LOCAL_NS, None, 0, _arrive, (process, fn, args))
            return
        self.sent += 1
        random = loop.rng.random
        if (source, target) in self._cut or (rates.drop and random() < rates.drop):
            self.lost += 1
            return
        copies = 1
        if rates.duplicate and random() < rates.duplicate:
            copies = 2
            self.doubled += 1
        for copy in range(copies):
            delay = rates.base_ns * (0.5 + random())
            if copy and random() < ANCIENT:
                # Held somewhere that was stopped: it comes when nobody expects it any more, if the faults still last.
                delay += loop.rng.uniform(2, 60) * S
                loop.after(delay, self._arrive_late, rates, process, fn, args)
                continue
            if rates.slow and random() < rates.slow:
                delay += loop.rng.expovariate(1.0) * rates.slow_ns
            loop.push(loop.now + int(delay), None, 0, _arrive, (process, fn, args))

    def _arrive_late(
        self, rates: LinkRates, process: Process, fn: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        if self.rates is rates:
            _arrive(process, fn, args)


def _arrive(process: Process, fn: Callable[..., object], args: tuple[Any, ...]) -> None:
    process.deliver(process.life, fn, args)
