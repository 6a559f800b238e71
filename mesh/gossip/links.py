"""What leaves: packets to one address wait for each other only as long as a POST is under way there, and then travel
together. Nothing is retried: what is lost, the protocol says again."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable

from mesh.core.swim import Packet, Ping, encode
from mesh.gossip.batch import BODY_MAX, PACKETS_MAX, pack, size
from mesh.gossip.carrier import Answer, Carrier, HostRefused, NoAnswer

POSTS_MAX = 128
"""Under way at once: a full gossip round to each of 4,096 members is never needed, and file descriptors are few."""
POSTS_PER_ADDRESS = 2
"""A host that does not answer holds one; a second tells whether it is the host or that POST."""
QUEUE_MAX = 2 * PACKETS_MAX
"""Packets waiting for one address; the oldest go, because newer ones say more."""


TROUBLE_S = 60.0


class _Link:
    def __init__(self) -> None:
        self.waiting: deque[tuple[bytes, str]] = deque()  # a packet, and the member it pings
        self.posts = 0

    def take(self) -> tuple[list[bytes], list[str]]:
        packets: list[bytes] = []
        pinged: list[str] = []
        room = BODY_MAX
        while self.waiting and len(packets) < PACKETS_MAX and size(self.waiting[0][0]) <= room:
            packet, target = self.waiting.popleft()
            room -= size(packet)
            packets.append(packet)
            if target:
                pinged.append(target)
        return packets, pinged


class Links:
    """heard: an answer came. unreachable: these members were pinged at a host where nobody listens."""

    def __init__(
        self,
        carrier: Carrier,
        timeout_s: float,
        heard: Callable[[Answer], None],
        unreachable: Callable[[list[str]], None],
        counts: Counter[str],
    ) -> None:
        self._carrier, self._timeout_s = carrier, timeout_s
        self._heard, self._unreachable, self._counts = heard, unreachable, counts
        self._links: dict[str, _Link] = {}
        self._posts: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(POSTS_MAX)
        self._trouble = (float("-inf"), "")

    def put(self, address: str, packet: Packet) -> None:
        """Never waits, never raises."""
        link = self._links.setdefault(address, _Link())
        if len(link.waiting) >= QUEUE_MAX:
            link.waiting.popleft()
            self._counts["queue_full"] += 1
        link.waiting.append((encode(packet), packet.to if isinstance(packet.message, Ping) else ""))
        if link.posts < POSTS_PER_ADDRESS:
            link.posts += 1
            post = asyncio.get_running_loop().create_task(self._pump(address, link))
            self._posts.add(post)
            post.add_done_callback(self._posts.discard)

    def trouble(self, now_s: float) -> str:
        """The last answer of late that was none, with its address; '' where all answered. now_s: monotonic."""
        return self._trouble[1] if now_s - self._trouble[0] < TROUBLE_S else ""

    async def emptied(self, timeout_s: float) -> None:
        """Until nothing is under way, or the time is over; then what is left is given up."""
        if self._posts:
            await asyncio.wait(self._posts, timeout=timeout_s)
        for post in self._posts:
            post.cancel()

    async def _pump(self, address: str, link: _Link) -> None:
        try:
            while link.waiting:
                async with self._slots:
                    packets, pinged = link.take()
                    if packets:
                        await self._exchange(address, packets, pinged)
        finally:
            link.posts -= 1
            if not link.posts and not link.waiting:
                self._links.pop(address, None)

    async def _exchange(self, address: str, packets: list[bytes], pinged: list[str]) -> None:
        try:
            answer = await self._carrier.exchange(address, pack(packets), self._timeout_s)
        except NoAnswer as error:
            self._counts["unanswered"] += 1
            self._trouble = (time.monotonic(), f"{address}: {error}")
            if isinstance(error, HostRefused) and pinged:
                self._unreachable(pinged)
            return
        self._heard(answer)
