"""The lowest layer: packets out, with the updates that ride along, and what has happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from mesh.core.swim.codec import UPDATES_HEAD, head
from mesh.core.swim.config import Config
from mesh.core.swim.effects import Effect, Send
from mesh.core.swim.limits import PACKET_MAX
from mesh.core.swim.message import Message, Packet
from mesh.core.swim.probe_order import ProbeOrder, Rng
from mesh.core.swim.retransmit import RetransmitQueue, transmit_limit
from mesh.core.swim.update import State, Update

MS = 1_000_000
S = 1_000_000_000
NEVER = 1 << 62


class Outbox:
    """counts: what was dropped and what went wrong, by name, for metrics."""

    def __init__(self, config: Config, rng: Rng, now_ns: int) -> None:
        self.name, self.profile = config.name, config.profile
        self.config, self.rng, self.now = config, rng, now_ns
        self.boot = config.boot
        self.own = Update(config.name, 0, State.ALIVE, config.meta, config.name)
        self.records: dict[str, Update] = {config.name: self.own}
        self.order = ProbeOrder(rng)
        self.queue = RetransmitQueue()
        self.counts: Counter[str] = Counter()
        self._seq = 0
        self._effects: list[Effect] = []

    def size(self) -> int:
        """Members that take part: the alive and suspect ones and this one."""
        return len(self.order.names) + 1

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def flush(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def send(
        self, to: str, message: Message, *, address: str = "", reply: bool = False, first: Update | None = None
    ) -> None:
        """Send with as many waiting updates as fit. `to` is a known member unless answered or an address is given."""
        if not address and to in self.records:
            address = self.records[to].meta.addresses[0]
        bare = self._packet(to, message, ())
        first = first or self.buddy(to)
        updates = [] if first is None else [first]
        if self.queue:
            room = PACKET_MAX - len(head(bare)) - UPDATES_HEAD - sum(len(update.wire()) for update in updates)
            limit = transmit_limit(self.profile.retransmit_mult, self.size())
            updates += self.queue.take(room, limit, without=updates[0].node if updates else "")
        self.emit(Send(self._with(bare, updates) if updates else bare, address, reply))

    def send_whole(self, to: str, message: Message, updates: Iterable[Update], address: str, reply: bool) -> None:
        """Send with exactly these updates."""
        self.emit(Send(self._packet(to, message, tuple(updates)), address, reply))

    def buddy(self, to: str) -> Update | None:
        """What the addressed member must hear before all else: that it is taken for suspect, dead or gone."""
        held = self.records.get(to)
        if held is None or held.state is State.ALIVE or not self.profile.buddy:
            return None
        return held

    def _packet(self, to: str, message: Message, updates: tuple[Update, ...]) -> Packet:
        self._seq += 1
        return Packet(self.config.mesh, self.name, self.boot, self._seq, to, message, updates)

    def _with(self, packet: Packet, updates: list[Update]) -> Packet:
        return Packet(packet.mesh, packet.sender, packet.boot, packet.seq, packet.to, packet.message, tuple(updates))
