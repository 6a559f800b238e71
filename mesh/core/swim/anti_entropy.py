"""Push/pull of everything known: at the start, now and then, and when someone comes back from the dead."""

from __future__ import annotations

from math import ceil, log2

from mesh.core.swim.codec import UPDATES_HEAD, head
from mesh.core.swim.config import Config, seeds_refusal
from mesh.core.swim.errors import ConfigRefused
from mesh.core.swim.limits import MEMBERS_MAX, NUMBER_MAX, SYNC_MAX
from mesh.core.swim.message import Packet, Ping, Sync, SyncReply
from mesh.core.swim.outbox import MS, NEVER
from mesh.core.swim.probe_order import Rng, pick
from mesh.core.swim.probing import Probing
from mesh.core.swim.update import Update

FLAT_UP_TO = 32
"""Members up to which everyone syncs each interval; above, the interval grows with the logarithm, as memberlist's."""


class AntiEntropy(Probing):
    def __init__(self, config: Config, rng: Rng, now_ns: int) -> None:
        super().__init__(config, rng, now_ns)
        self._seeds = tuple(seed for seed in config.seeds if seed not in config.meta.addresses)
        self.sync_ns = now_ns
        self._young_ns = self.profile.join_retry_ms * MS
        self.reconnect_ns = now_ns + rng.randrange(self.profile.reconnect_ms * MS)

    def set_seeds(self, seeds: tuple[str, ...]) -> None:
        """HOST:PORT of members heard of elsewhere, in place of those named before. Raises ConfigRefused."""
        if refusal := seeds_refusal(seeds):
            raise ConfigRefused(refusal)
        self._seeds = tuple(seed for seed in seeds if seed not in self.own.meta.addresses)

    def tick_sync(self) -> None:
        if self.sync_ns <= self.now:
            self.sync_ns = self.now + self._next_period_ns()
            if not self.leaving_ns:
                self._sync_round()
        if self.reconnect_ns <= self.now:
            self.reconnect_ns = self.now + self.profile.reconnect_ms * MS
            if not self.leaving_ns:
                self._reconnect()

    def _next_period_ns(self) -> int:
        """Short while it knows nobody, then twice as long each time: what spread while many joined at once may have
        missed some of them."""
        if not self.order.names:
            self._young_ns = self.profile.join_retry_ms * MS
            return self._young_ns
        period = min(self._young_ns, self.sync_period_ns())
        self._young_ns = min(2 * self._young_ns, NEVER)
        return period

    def sync_period_ns(self) -> int:
        growth = 1 + max(0, ceil(log2(self.size() / FLAT_UP_TO)))
        period = self.profile.sync_interval_ms * MS * growth
        # Not in step with the others, who may all have started with this one.
        return period - self.rng.randrange(period // 4)

    def _sync_round(self) -> None:
        for node in pick(self.rng, self.order.names, 1):
            self.begin_sync(node)
        known = {address for node in self.order.names for address in self.records[node].meta.addresses}
        strange = [seed for seed in self._seeds if seed not in known]
        # Who knows nobody asks them all; else one, which joins two meshes that began apart.
        for seed in strange if not self.order.names else pick(self.rng, strange, 1):
            self.begin_sync("", seed)

    def begin_sync(self, node: str, address: str = "") -> None:
        self._send_state(node, Sync(), address or self.records[node].meta.addresses[0], reply=False)

    def answer_sync(self, node: str) -> None:
        held = self.records.get(node)
        self._send_state(node, SyncReply(), held.meta.addresses[0] if held is not None else "", reply=True)

    def answer_stranger(self, node: str) -> None:
        # Only who this is, never all that it remembers: nobody has vouched for the stranger.
        self.send_whole(node, Sync(), [self.own], "", reply=True)

    def _send_state(self, node: str, message: Sync | SyncReply, address: str, reply: bool) -> None:
        bare = Packet(self.config.mesh, self.name, self.boot, 0, node, message)
        room = SYNC_MAX - len(head(bare)) - UPDATES_HEAD - 16
        self.send_whole(node, message, self._state(room), address, reply)

    def _state(self, room: int) -> list[Update]:
        """Own record and, from a random place on, as many of the others as fit."""
        nodes = list(self.records)
        start = self.rng.randrange(len(nodes))
        updates = [self.own]
        room -= len(self.own.wire())
        for node in nodes[start:] + nodes[:start]:
            if node == self.name:
                continue
            update = self.aged(self.records[node])
            room -= len(update.wire())
            if room < 0 or len(updates) >= MEMBERS_MAX:
                self.counts["sync_cut"] += 1
                break
            updates.append(update)
        return updates

    def take_state(self, packet: Packet) -> None:
        # Who has just joined need not repeat to all what all know.
        spread = bool(self.order.names) or isinstance(packet.message, Sync)
        for update in packet.updates:
            self.learn_from_sync(update, packet.sender, spread)
        if isinstance(packet.message, SyncReply):
            self.settled = True

    def _reconnect(self) -> None:
        """Probe one dead member: if it lives, the record it is told about itself makes it refute. So often that in the
        whole mesh each dead member gets one such ping an interval, however many members do it."""
        dead = self.dead()
        if dead and self.rng.random() * self.size() < len(dead):
            for node in pick(self.rng, dead, 1):
                self.send(node, Ping(self.rng.randrange(NUMBER_MAX)), first=self.aged(self.records[node]))
