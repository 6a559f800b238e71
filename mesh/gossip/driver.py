"""GossipDriver: clock, generator and network of one SWIM member."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable
from random import SystemRandom
from typing import Any, NamedTuple

from mesh.core.swim import (
    Changed,
    Config,
    Conflict,
    Departed,
    Effect,
    Heard,
    Packet,
    Refused,
    Rng,
    Send,
    State,
    Swim,
    WireError,
    encode,
)
from mesh.gossip.batch import BODY_MAX, PACKETS_MAX, pack, size, unpack
from mesh.gossip.carrier import Answer, Carrier
from mesh.gossip.links import Links
from mesh.gossip.view import MemberView, Since

log = logging.getLogger(__name__)
MS = 1_000_000
POST_TIMEOUT_PROBES, POST_TIMEOUT_MIN_S = 4, 1.0
"""A POST lasts as long as a probe with its indirect legs: an ack that comes later helps nobody."""
SAY_AGAIN_S = 60.0
FAULT_PAUSE_S = 1.0
CONFLICT_S = 300.0  # two of one name hear of each other far more often
DROPPED = (
    "forged",
    "replayed",
    "stale_boot",
    "truncated",
    "malformed",
    "oversized",
    "foreign",
    "misdirected",
    "implausible",
    "table_full",
    "relays_full",
    "queue_full",
)
"""Why packets are not taken. forged: under another name than the sender's own; stale_boot: of an earlier life of it;
foreign: of another mesh."""


class Remembered(NamedTuple):
    """Kept over a restart. members: addresses by name. boot: to be exceeded by the next life."""

    boot: int
    members: dict[str, str]
    heard: list[Heard]


class GossipDriver:
    """All of it on one event loop. `run` drives it; `take` answers the POSTs of others, with or without it.

    What it says is a hint: nothing that places, votes or leases may ask it."""

    def __init__(self, config: Config, carrier: Carrier, heard: Iterable[Heard] = (), rng: Rng | None = None) -> None:
        """heard: what the life before this one remembered of others' packets."""
        self.config = config
        # From the system: who can foresee the probes' numbers can answer them for another.
        self._core = Swim(config, rng or SystemRandom(), self._now_ns())
        self._core.recall(heard)
        self._counts = self._core.counts
        timeout_s = max(POST_TIMEOUT_MIN_S, POST_TIMEOUT_PROBES * config.profile.probe_timeout_max_ms / 1000)
        self._links = Links(carrier, timeout_s, self._heard, self._unreachable, self._counts)
        self._since = Since()
        self._since.changed(self._core.own, None, self._now_ns())
        self._wake = asyncio.Event()
        self._departed = asyncio.Event()
        self._running = False
        self._said: dict[str, float] = {}
        self._conflict: tuple[float, str] | None = None

    # -- what the agent does with it

    async def run(self) -> None:
        """Until departed or cancelled."""
        self._running = True
        try:
            while not self._departed.is_set():
                self._wake.clear()
                wait_ns = self._core.next_ns() - self._now_ns()
                if wait_ns > 0:
                    await self._pause(wait_ns / 1e9)
                else:
                    await self._tick()
        finally:
            self._running = False
            await self._links.emptied(0)

    def take(self, body: bytes, node: str | None = None) -> bytes:
        """The body of a POST, and the body of its answer. node: whose certificate it came under."""
        replies: list[Packet] = []
        for packet in self._unpacked(body):
            self._carry_out(self._core.receive(packet, self._now_ns(), node), replies)
        self._wake.set()
        return pack(self._answer(replies))

    def drop(self, reason: str) -> None:
        """Count a POST that was refused before it came here."""
        self._counts[reason] += 1

    async def leave(self) -> None:
        """Say that this member goes, and wait until that has spread, or the profile's time for it is over."""
        if not self._running:
            return
        self._carry_out(self._core.leave(self._now_ns()))
        self._wake.set()
        try:
            async with asyncio.timeout(self.config.profile.leave_ms / 1000 + 1):
                await self._departed.wait()
        except TimeoutError:
            log.warning("gossip: the word of leaving may not have reached everyone")
        await self._links.emptied(1.0)

    def set_seeds(self, seeds: tuple[str, ...]) -> None:
        """Raises ConfigRefused."""
        self._core.set_seeds(seeds)

    # -- views

    def members(self) -> list[MemberView]:
        """Everyone known, this member too, by name."""
        return self._since.views(self._core.members(), self._now_ns())

    @property
    def alone(self) -> bool:
        """Whether it knows nobody who lives."""
        return not self._core.order.names

    def remembered(self) -> Remembered:
        members = {
            name: update.meta.addresses[0]
            for name, update in self._core.members().items()
            if update.state is not State.LEFT and name != self.config.name
        }
        return Remembered(self._core.boot, members, self._core.heard())

    def facts(self) -> dict[str, Any]:
        """members: count by state. doubt: 0 while this member takes itself for healthy. dropped: packets by reason."""
        members = Counter(update.state.name.lower() for update in self._core.members().values())
        return {
            "members": {state.name.lower(): members[state.name.lower()] for state in State},
            "incarnation": self._core.own.incarnation,
            "boot": self._core.boot,
            "doubt": self._core.awareness.score,
            "dropped": {reason: self._counts[reason] for reason in DROPPED if self._counts[reason]},
            "unanswered": self._counts["unanswered"],
            "trouble": self._links.trouble(time.monotonic()) or None,
            "conflict": self.conflict or None,
        }

    @property
    def conflict(self) -> str:
        """What people must do about another process of this node's name, '' where none was heard of lately."""
        if self._conflict is None or time.monotonic() - self._conflict[0] > CONFLICT_S:
            return ""
        return self._conflict[1]

    @property
    def counts(self) -> Counter[str]:
        """Everything counted, for metrics and tests."""
        return self._counts

    # -- inside

    def _now_ns(self) -> int:
        return time.monotonic_ns()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _tick(self) -> None:
        try:
            self._carry_out(self._core.tick(self._now_ns()))
        except Exception:
            # A hint must not end the agent; and the next tick may do without what this one stumbled over.
            self._counts["faults"] += 1
            log.exception("gossip: a tick failed")
            await asyncio.sleep(FAULT_PAUSE_S)
        await asyncio.sleep(0)

    def _heard(self, answer: Answer) -> None:
        for packet in self._unpacked(answer.body):
            self._carry_out(self._core.receive(packet, self._now_ns(), answer.node))
        self._wake.set()

    def _unreachable(self, nodes: list[str]) -> None:
        for node in nodes:
            self._carry_out(self._core.ping_failed(node, self._now_ns()))
        self._wake.set()

    def _unpacked(self, body: bytes) -> list[bytes]:
        try:
            return unpack(body)
        except WireError as error:
            self._counts[error.counted] += 1
            return []

    def _answer(self, replies: list[Packet]) -> list[bytes]:
        packets: list[bytes] = []
        room = BODY_MAX
        for reply in replies:
            packet = encode(reply)
            room -= size(packet)
            if room < 0 or len(packets) >= PACKETS_MAX:
                self._counts["queue_full"] += 1
                continue
            packets.append(packet)
        return packets

    def _carry_out(self, effects: list[Effect], replies: list[Packet] | None = None) -> None:
        """replies: where those go that may travel in the answer to the POST being handled."""
        for effect in effects:
            match effect:
                case Send(packet, _, True) if replies is not None:
                    replies.append(packet)
                case Send(packet, address):
                    if address:
                        self._links.put(address, packet)
                case Changed():
                    self._changed(effect)
                case Refused(reason, by, mesh):
                    self._say(
                        f"refused {by}",
                        f"gossip: {by} of mesh {mesh} refuses our packets ({reason.name.lower().replace('_', ' ')})",
                    )
                case Conflict(addresses):
                    at = f" at {', '.join(addresses)}" if addresses else ""
                    text = f"another process{at} uses the name {self.config.name}; end or rename one of the two"
                    self._conflict = (time.monotonic(), text)
                    self._say("conflict", f"gossip: {text}")
                case Departed():
                    self._departed.set()

    def _changed(self, change: Changed) -> None:
        update = change.update
        self._since.changed(update, change.previous, self._now_ns())
        if change.previous is not update.state:
            state = update.state.name.lower()
            by = "" if update.by == update.node else f", says {update.by}"
            log.info("gossip: %s is %s%s", update.node, state, by, extra={"addr": update.meta.addresses[0]})

    def _say(self, key: str, text: str) -> None:
        now_s = time.monotonic()
        if now_s - self._said.get(key, float("-inf")) >= SAY_AGAIN_S:
            if len(self._said) > 1000:  # names come from others
                self._said.clear()
            self._said[key] = now_s
            log.warning("%s", text)
