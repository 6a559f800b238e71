"""A mesh of simulated members on one network, and what everyone of them sees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mesh.core.swim import LAN, Changed, Effect, Packet, Profile, State, decode
from tests.sim.loop import Loop, S, Violation
from tests.sim.network import LinkRates, Network
from tests.sim.swim.member import SimMember

OnChange = Callable[[SimMember, Changed], None]


class SwimWorld:
    """bytes_on_wire: packets go through the codec, else as objects (three times faster, for the large meshes)."""

    def __init__(
        self,
        loop: Loop,
        count: int,
        profile: Profile = LAN,
        rates: LinkRates | None = None,
        bytes_on_wire: bool = True,
        mesh: str = "m1",
    ) -> None:
        self.loop, self.profile, self.mesh, self.bytes_on_wire = loop, profile, mesh, bytes_on_wire
        self.network = Network(loop, rates or LinkRates())
        self.members: list[SimMember] = []
        self.at: dict[str, SimMember] = {}
        self.on_change: list[OnChange] = []
        self.told_effects: list[tuple[int, str, Effect]] = []
        self.largest: dict[str, int] = {}  # bytes of a packet, by message
        self.tap: list[tuple[str, bytes]] = []  # address and bytes of every packet
        for number in range(count):
            self.add(f"n{number}")

    def add(self, name: str, address: str | None = None) -> SimMember:
        member = SimMember(self, name, "")
        self.members.append(member)
        self.move(member, address or f"{name}:7460")
        return member

    def move(self, member: SimMember, address: str) -> None:
        """To another address; whoever lived there is found no more."""
        if self.at.get(member.address) is member:
            del self.at[member.address]
        member.address = address
        self.at[address] = member

    def start(self) -> None:
        """All know all from the start: what is measured later is not their joining."""
        for member in self.members:
            member.launch()
        records = {member.name: member.core.own for member in self.members}
        names = list(records)
        for member in self.members:
            core, at = member.core, self.loop.rng.randrange(len(names))
            if at == 0 or len(names) < 200:  # a shuffle for each would be most of a large mesh's cost
                self.loop.rng.shuffle(names)
            core.records.update(records)
            core.order.names.extend(name for name in names[at:] + names[:at] if name != member.name)
            core.sync_ns += self.loop.rng.randrange(core.sync_period_ns())
            core.settled = True
            member.carry_out([])

    def join(self, members: Sequence[SimMember] | None = None, seeds: tuple[str, ...] | None = None) -> None:
        """Each by asking the seeds (the first member, unless told)."""
        for member in self.members if members is None else members:
            member.launch(seeds or (self.members[0].address,))

    def run(self, seconds: float, done: Callable[[], bool] | None = None) -> bool:
        return self.loop.run_until(self.loop.now + int(seconds * S), done)

    def until(self, done: Callable[[], bool], seconds: float, what: str) -> float:
        """Seconds until it came true; checked each 10 ms. Raises Violation when it does not."""
        began = self.loop.now
        while not done():
            if self.loop.now - began >= seconds * S:
                raise Violation(f"not within {seconds} s: {what}\n{self.loop.last_events()}")
            self.run(0.01)
        return (self.loop.now - began) / S

    # -- for the members

    def transmit(self, source: SimMember, address: str, packet: Packet | bytes) -> None:
        if isinstance(packet, bytes):
            kind = type(decode(packet).message).__name__
            self.largest[kind] = max(self.largest.get(kind, 0), len(packet))
            self.tap.append((address, packet))
        target = self.at.get(address)
        if target is not None:
            self.network.send(source.name, target.name, target, target.take, packet, source.address)

    def changed(self, observer: SimMember, change: Changed) -> None:
        if self.loop.tracing:
            update, before = change.update, change.previous
            was = "unknown" if before is None else before.name
            self.loop.trace(observer.name, "sees", update.node, was, "->", update.state.name, update.incarnation)
        for listener in self.on_change:
            listener(observer, change)

    def told(self, observer: SimMember, effect: Effect) -> None:
        self.loop.trace(observer.name, effect)
        self.told_effects.append((self.loop.now, observer.name, effect))

    # -- views

    def running(self) -> list[SimMember]:
        return [member for member in self.members if member.alive and not member.departed]

    def see(self, observers: Iterable[SimMember], node: str, *states: State) -> bool:
        """Whether all of them hold the node in one of these states."""
        return all(
            (held := observer.core.records.get(node)) is not None and held.state in states
            for observer in observers
            if observer.name != node
        )

    def agreed(self, among: Sequence[SimMember] | None = None) -> bool:
        """Everyone sees everyone among them alive, with the same record."""
        members = self.running() if among is None else among
        return all(
            observer.core.records.get(member.name) == member.core.own and member.core.own.state is State.ALIVE
            for member in members
            for observer in members
        )


class FalseDeaths:
    """Counts verdicts `dead` about members that run and have not left."""

    def __init__(self, world: SwimWorld, excused: Iterable[SimMember] = ()) -> None:
        self._by_name = {member.name: member for member in world.members}
        self._excused = frozenset(member.name for member in excused)
        self.at_anyone = 0
        self.at_healthy = 0
        self.suspicions = 0
        world.on_change.append(self._look)

    def _look(self, observer: SimMember, change: Changed) -> None:
        node, state = change.update.node, change.update.state
        subject = self._by_name.get(node)
        if subject is None or not subject.alive or subject.core.leaving_ns or node in self._excused:
            return
        if state is State.DEAD and change.previous is not State.DEAD:
            self.at_anyone += 1
            self.at_healthy += observer.name not in self._excused
        self.suspicions += state is State.SUSPECT
