"""Virtual time: one heap of events, one seeded generator, a trace."""

import random
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any

MS = 1_000_000
S = 1_000_000_000
TRACE_TAIL = 40


class Violation(AssertionError):
    """An invariant of the system is broken in this run."""


class Process:
    """Something that can crash, restart, be stopped (SIGSTOP) and continue. `life` grows at each crash, so that what an
    earlier life had scheduled does nothing."""

    def __init__(self, loop: "Loop", name: str) -> None:
        self.loop = loop
        self.name = name
        self.life = 0
        self.alive = False
        self.paused = False
        self.rate = 1.0  # of its host's clock against true time
        self._held: deque[tuple[int, Callable[..., object], tuple[Any, ...]]] = deque()

    def after(self, local_ns: float, fn: Callable[..., object], *args: Any) -> None:
        """Run fn in this life, after that long on this host's clock."""
        self.loop.push(self.loop.now + int(local_ns / self.rate) + 1, self, self.life, fn, args)

    def deliver(self, life: int, fn: Callable[..., object], args: tuple[Any, ...]) -> None:
        if life != self.life or not self.alive:
            return
        if self.paused:
            self._held.append((life, fn, args))
        else:
            fn(*args)

    def begin(self) -> None:
        self.alive = True
        self.paused = False

    def end(self) -> None:
        self.life += 1
        self.alive = False
        self.paused = False
        self._held.clear()

    def stop(self) -> None:
        self.paused = True

    def cont(self, in_order: bool = False) -> None:
        """Everything that came meanwhile is handled now, in any order unless told: it waited in many sockets."""
        self.paused = False
        held, self._held = list(self._held), deque()
        if not in_order:
            self.loop.rng.shuffle(held)
        for life, fn, args in held:
            self.deliver(life, fn, args)


class Loop:
    def __init__(self, seed: int, hashing: bool = False, echo: Callable[[str], None] | None = None) -> None:
        self.rng = random.Random(seed)
        self.now = 0
        self.events = 0
        self.tail: deque[tuple[Any, ...]] = deque(maxlen=TRACE_TAIL)
        self.tracing = hashing or echo is not None
        self._echo = echo
        self._hash = blake2b(digest_size=16)
        self._heap: list[tuple[int, int, Process | None, int, Callable[..., object], tuple[Any, ...]]] = []
        self._pushed = 0

    def push(
        self, at: int, process: Process | None, life: int, fn: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        self._pushed += 1
        heappush(self._heap, (at, self._pushed, process, life, fn, args))

    def after(self, delay_ns: float, fn: Callable[..., object], *args: Any) -> None:
        """Run fn whatever happens to processes: for the world's own doings."""
        self.push(self.now + int(delay_ns), None, 0, fn, args)

    def run_until(self, end: int, done: Callable[[], bool] | None = None) -> bool:
        """Returns whether `done` became true before the end."""
        heap = self._heap
        while heap and heap[0][0] <= end:
            self.now, _, process, life, fn, args = heappop(heap)
            self.events += 1
            if process is None:
                fn(*args)
            else:
                process.deliver(life, fn, args)
            if done is not None and done():
                return True
        self.now = end
        return done is not None and done()

    def trace(self, *what: Any) -> None:
        self.tail.append((self.now, *what))
        if self.tracing:
            line = self.line(self.tail[-1])
            self._hash.update(line.encode())
            if self._echo is not None:
                self._echo(line)

    def line(self, entry: tuple[Any, ...]) -> str:
        return f"{entry[0] / S:10.4f} " + " ".join(str(part) for part in entry[1:])

    def signature(self) -> str:
        """Equal for equal runs: what was traced (when hashing), the number of events, where the generator stands."""
        state = f"{self.now} {self.events} {self.rng.getrandbits(64)}"
        return blake2b(self._hash.digest() + state.encode(), digest_size=8).hexdigest()

    def last_events(self) -> str:
        return "\n".join(self.line(entry) for entry in self.tail)
