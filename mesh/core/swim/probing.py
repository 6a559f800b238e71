"""The failure detector: one probe an interval, direct first, then by relays and by the member's other addresses."""

from __future__ import annotations

from dataclasses import dataclass, field

from mesh.core.swim.config import Config
from mesh.core.swim.limits import NUMBER_MAX, RELAYS_MAX, WAIT_MAX_MS
from mesh.core.swim.membership import Membership
from mesh.core.swim.message import Ack, Gossip, Nack, Ping, PingReq
from mesh.core.swim.outbox import MS, NEVER
from mesh.core.swim.probe_order import Rng, pick
from mesh.core.swim.update import State

INDIRECT_LEGS = 3
"""Direct timeouts that the indirect stage lasts: to the relay, to the target and back, and back to us."""


@dataclass(slots=True)
class Probe:
    """Our own. next_ns: when its stage ends; ends_ns: when it has failed."""

    number: int
    target: str
    sent_ns: int
    next_ns: int
    ends_ns: int
    relays: list[str] | None = None  # asked so far; None in the direct stage
    nacked: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Relay:
    """A probe carried for another. nack_ns: NEVER once it was sent."""

    target: str
    asker: str
    number: int
    nack_ns: int
    ends_ns: int


class Probing(Membership):
    def __init__(self, config: Config, rng: Rng, now_ns: int) -> None:
        super().__init__(config, rng, now_ns)
        self.probe: Probe | None = None
        self.relays: dict[int, Relay] = {}
        # Members that start together must not probe together for ever.
        self.period_ns = now_ns + rng.randrange(self.profile.probe_interval_ms * MS)
        self._relay_ns = NEVER

    def probing_ns(self) -> int:
        probe = self.probe
        return min(self.period_ns, self._relay_ns, NEVER if probe is None else probe.next_ns)

    def tick_probing(self) -> None:
        if self.probe is not None and self.probe.next_ns <= self.now:
            self._stage_over(self.probe)
        if self._relay_ns <= self.now:
            self._tick_relays()
        if self.period_ns <= self.now:
            self._begin()

    def postpone_probes(self, by_ns: int) -> None:
        if self.probe is not None:
            self.probe.next_ns += by_ns
            self.probe.ends_ns += by_ns
            self.period_ns = max(self.period_ns, self.probe.ends_ns)
        for relay in self.relays.values():
            relay.ends_ns += by_ns

    # -- our own probe

    def _begin(self) -> None:
        if self.probe is not None:
            self.period_ns = self.probe.next_ns  # it ends with its period, unless this call came late
            return
        interval = self.awareness.scale(self.profile.probe_interval_ms * MS)
        self.period_ns = self.now + interval
        target = "" if self.leaving_ns else self.order.next()
        if not target:
            return
        self.counts["probes"] += 1
        direct = self.awareness.scale(self.trips.timeout_ns(target))
        ends = self.now + min(interval, (1 + INDIRECT_LEGS) * direct)
        number = self.rng.randrange(NUMBER_MAX)
        self.probe = Probe(number, target, self.now, self.now + direct, ends)
        self.send(target, Ping(number))

    def unreachable(self, node: str) -> None:
        """The driver could not hand the ping over (connection refused): no ack can come, so ask others now."""
        if self.probe is not None and self.probe.target == node and self.probe.relays is None:
            self._stage_over(self.probe)

    def _stage_over(self, probe: Probe) -> None:
        if probe.relays is not None:
            self._failed(probe)
            return
        wait_ns = probe.next_ns - probe.sent_ns
        probe.relays = self._choose_relays(probe.target)
        probe.next_ns = probe.ends_ns = min(probe.ends_ns, self.now + INDIRECT_LEGS * wait_ns)
        nack_ns = min(wait_ns, (probe.ends_ns - self.now) * 4 // 5)  # in time to be heard
        for relay in probe.relays:
            self.send(relay, PingReq(probe.number, probe.target, min(nack_ns // MS, WAIT_MAX_MS)))
        for address in self.records[probe.target].meta.addresses[1:]:
            self.send(probe.target, Ping(probe.number), address=address)

    def _choose_relays(self, target: str) -> list[str]:
        suspects = list(self.suspicions)
        return pick(self.rng, self.order.names, self.profile.indirect_probes, [target, *suspects])

    def _failed(self, probe: Probe) -> None:
        self.probe = None
        self.counts["probe_failures"] += 1
        self.awareness.add(self._fault_of_our_own(probe))
        if self.records[probe.target].state in (State.ALIVE, State.SUSPECT):
            self.suspect(probe.target)
            if self.profile.buddy:
                self.send(probe.target, Gossip())

    def _fault_of_our_own(self, probe: Probe) -> int:
        """Points of doubt. A relay that answers by a nack clears us; one that does not is a sign that nothing gets
        through to us. Without relays there is no telling."""
        if not probe.relays or not self.profile.nacks:
            return 1
        return len(probe.relays) - len(probe.nacked)

    def take_ack(self, number: int, sender: str) -> None:
        probe = self.probe
        if probe is not None and probe.number == number and sender in (probe.target, *(probe.relays or ())):
            if probe.relays is None:
                self.trips.measured(sender, self.now - probe.sent_ns)
            self.probe = None
            self.awareness.add(-1)
            return
        relay = self.relays.get(number)
        if relay is not None and relay.target == sender:
            del self.relays[number]
            self._note_relays()
            self.send(relay.asker, Ack(relay.number))

    def take_nack(self, number: int, sender: str) -> None:
        probe = self.probe
        asked = probe is not None and probe.number == number and sender in (probe.relays or ())
        if probe is not None and asked and sender not in probe.nacked:
            probe.nacked.append(sender)

    # -- probes for others

    def take_ping_req(self, request: PingReq, asker: str) -> None:
        if asker not in self.records:
            return
        if len(self.relays) >= RELAYS_MAX:
            self.counts["relays_full"] += 1
            return
        if request.target not in self.records or request.target == self.name:
            self.send(asker, Nack(request.number), reply=True)
            return
        number = self.rng.randrange(NUMBER_MAX)
        wait = request.wait_ms * MS
        nack_ns = self.now + wait if self.profile.nacks else NEVER
        self.relays[number] = Relay(request.target, asker, request.number, nack_ns, self.now + INDIRECT_LEGS * wait)
        self._note_relays()
        self.send(request.target, Ping(number))

    def _tick_relays(self) -> None:
        for number in [
            number for number, relay in self.relays.items() if min(relay.nack_ns, relay.ends_ns) <= self.now
        ]:
            relay = self.relays[number]
            if relay.nack_ns <= self.now:
                relay.nack_ns = NEVER
                self.send(relay.asker, Nack(relay.number))
            if relay.ends_ns <= self.now:
                del self.relays[number]
        self._note_relays()

    def _note_relays(self) -> None:
        self._relay_ns = min((min(relay.nack_ns, relay.ends_ns) for relay in self.relays.values()), default=NEVER)
