"""Swim: the API of the core, and the contract with its driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mesh.core.swim.anti_entropy import AntiEntropy
from mesh.core.swim.codec import decode
from mesh.core.swim.config import Config
from mesh.core.swim.effects import Effect, Refused
from mesh.core.swim.errors import WireError
from mesh.core.swim.limits import BOOT_MAX
from mesh.core.swim.message import (
    Ack,
    Gossip,
    Nack,
    Packet,
    Ping,
    PingReq,
    Reason,
    Refuse,
    Sync,
    SyncReply,
)
from mesh.core.swim.outbox import MS, NEVER
from mesh.core.swim.probe_order import Rng, pick
from mesh.core.swim.replay import Freshness, Heard, ReplayGuard
from mesh.core.swim.update import Meta, Update


class Swim(AntiEntropy):
    """One member, without clock, sockets or randomness of its own.

    The driver owns those, and calls from one thread; every call takes the time now (nanoseconds of a monotonic clock of
    any origin) and returns effects, to be carried out in order:

    1. tick() at next_ns() or as soon after it as it can.
    2. receive() for the body of every packet. It raises nothing; what is no packet is counted.
    3. Send: encode the packet, send it once, never retry. Packets may be lost, repeated and reordered at will. One
       marked `reply` may go back in the answer to the request that brought the packet being handled; it must where its
       address is "". Call ping_failed() where a host refused the connection: it only hastens the indirect probes.
    4. leave(), and go on until Departed. After that stop; a new life is a new object with a larger boot.

    The packets' sender must be authenticated by the driver (client certificates) and said to receive(); what a member
    says about others is taken on trust, which is why nothing but hints may be built on it.
    """

    def __init__(self, config: Config, rng: Rng, now_ns: int) -> None:
        super().__init__(config, rng, now_ns)
        self._replay = ReplayGuard()
        self._gossip_phase = rng.randrange(self.profile.gossip_interval_ms * MS)
        self._gossip_ns = NEVER

    # -- views

    def members(self) -> Mapping[str, Update]:
        """Every known member's record by name, this one's, the dead and the left ones too."""
        return self.records

    def heard(self) -> list[Heard]:
        """To be kept over a restart, for recall()."""
        return self._replay.heard()

    def next_ns(self) -> int:
        """When tick() has something to do."""
        at = min(
            self.probing_ns(), self.sync_ns, self.reconnect_ns, self._gossip_ns, self.suspicion_ns(), self.house_ns
        )
        return min(at, self.leaving_ns) if self.leaving_ns else at

    # -- inputs

    def tick(self, now_ns: int) -> list[Effect]:
        late_ns = now_ns - self.next_ns()
        self.now = now_ns
        if self.profile.stall_ms and late_ns > self.profile.stall_ms * MS:
            self._stood_still(late_ns)
        self.tick_probing()
        self.tick_suspicions()
        self.tick_sync()
        if self._gossip_ns <= now_ns:
            self._gossip()
        self.tick_house()
        return self._done()

    def recall(self, heard: Iterable[Heard]) -> None:
        """What the life before this one had heard."""
        self._replay.recall(heard)

    def receive(self, data: bytes, now_ns: int, node: str | None = None) -> list[Effect]:
        """node: who has proved to be the sender, None where nobody had to."""
        try:
            packet = decode(data)
        except WireError as error:
            self.counts[error.counted] += 1
            return []
        if node is not None and packet.sender != node:
            self.counts["forged"] += 1
            return []
        return self.handle(packet, now_ns)

    def handle(self, packet: Packet, now_ns: int) -> list[Effect]:
        self.now = now_ns
        if self._admit(packet):
            self._take(packet)
        return self._done()

    def leave(self, now_ns: int) -> list[Effect]:
        self.now = now_ns
        self.begin_leaving()
        return self._done()

    def update_meta(self, meta: Meta, now_ns: int) -> list[Effect]:
        """Raises ConfigRefused."""
        self.now = now_ns
        self.set_meta(meta)
        return self._done()

    def ping_failed(self, node: str, now_ns: int) -> list[Effect]:
        """A ping to this member could not be handed over: its host refused the connection."""
        self.now = now_ns
        self.unreachable(node)
        return self._done()

    # -- inside

    def _admit(self, packet: Packet) -> bool:
        refusing = isinstance(packet.message, Refuse)
        if packet.mesh != self.config.mesh:
            self.counts["foreign"] += 1
            if isinstance(packet.message, Refuse):
                self.emit(Refused(packet.message.reason, packet.sender, packet.mesh))
            else:
                self._refuse(packet, Reason.WRONG_MESH)
            return False
        if packet.sender == self.name:
            if packet.boot != self.boot:
                self.namesake()
            return False
        if packet.to not in (self.name, ""):
            self.counts["misdirected"] += 1
            if not refusing:
                self._refuse(packet, Reason.WRONG_NODE)
            return False
        freshness = self._replay.check(packet.sender, packet.boot, packet.seq)
        if freshness is Freshness.FRESH:
            return True
        self.counts[freshness.value] += 1
        if freshness is Freshness.STALE_BOOT and not refusing:
            self._refuse(packet, Reason.STALE_BOOT)
        return False

    def _refuse(self, packet: Packet, reason: Reason) -> None:
        known = self._replay.boot_of(packet.sender) if reason is Reason.STALE_BOOT else 0
        self.send_whole(packet.sender, Refuse(reason, known), (), "", reply=True)

    def _take(self, packet: Packet) -> None:
        sender, message = packet.sender, packet.message
        was_dead = self.is_dead(sender)
        if isinstance(message, Sync | SyncReply):
            self.take_state(packet)
        else:
            for update in packet.updates:
                self.learn(update)
        match message:
            case Ping(number):
                self.send(sender, Ack(number), reply=True)
            case Ack(number):
                self.take_ack(number, sender)
            case Nack(number):
                self.take_nack(number, sender)
            case PingReq():
                self.take_ping_req(message, sender)
            case Sync():
                self.answer_sync(sender)
            case Refuse(reason, boot):
                self._take_refusal(packet, reason, boot)
            case Gossip() | SyncReply():
                pass
        if sender not in self.records and not self.order.names:
            # Seeds gone, but somebody still knows this one: ask him, by the way his packet came.
            self.answer_stranger(sender)
        if was_dead and not self.is_dead(sender) and not isinstance(message, Sync | SyncReply):
            # The end of a partition: the other side has much to tell.
            self.begin_sync(sender)

    def _take_refusal(self, packet: Packet, reason: Reason, boot: int) -> None:
        if reason is Reason.STALE_BOOT and self.boot < boot < BOOT_MAX:
            self.boot = boot + 1
            if self.settled:  # a later life than this one, and this one lives
                self.namesake()
        self.emit(Refused(reason, packet.sender, packet.mesh))

    def _gossip(self) -> None:
        live, dead = self.order.names, self.lately_dead()
        for node in pick(self.rng, live + dead if dead else live, self.profile.gossip_nodes):
            if self.queue:
                self.send(node, Gossip())
        self._gossip_ns = NEVER

    def _stood_still(self, late_ns: int) -> None:
        self.counts["stalls"] += 1
        self.awareness.add(1)
        self.postpone_probes(late_ns)
        self.postpone_suspicions(late_ns)

    def _done(self) -> list[Effect]:
        self.tick_leaving()
        if self.queue and self._gossip_ns == NEVER and self.order.names:
            interval = self.profile.gossip_interval_ms * MS
            self._gossip_ns = self.now + interval - (self.now - self._gossip_phase) % interval
        return self.flush()
