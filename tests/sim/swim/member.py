"""One simulated member: the product's core, driven on virtual time, with a host that can be slow, stop or die."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from mesh.core.swim import Changed, Config, Departed, Effect, Meta, Packet, Send, Swim, encode
from tests.sim.loop import Process

if TYPE_CHECKING:
    from tests.sim.swim.world import SwimWorld


class SimMember(Process):
    """address: HOST:PORT, the key under which the world delivers. Its clock has an origin and a rate of its own."""

    def __init__(self, world: SwimWorld, name: str, address: str) -> None:
        super().__init__(world.loop, name)
        self.world = world
        self.address = address
        self.mesh = world.mesh
        self.boot = 0
        self.origin_ns = 0
        self.core: Swim = None  # type: ignore[assignment]  # made at its start
        self.departed = False
        self.blocked = False  # the network waits, timers run on: a host that is too busy to read
        self._wake_ns = 0
        self._waiting: list[Callable[[], None]] = []

    def clock(self) -> int:
        return self.origin_ns + int(self.loop.now * self.rate)

    def launch(self, seeds: tuple[str, ...] = (), boot: int | None = None, **tags: str) -> None:
        """A new life, which knows nothing but its seeds."""
        self.boot = self.boot + 1 if boot is None else boot
        meta = Meta((self.address,), "1.0", tuple(sorted(tags.items())))
        config = Config(self.name, self.mesh, meta, self.boot, self.world.profile, seeds)
        self.begin()
        self.departed = self.blocked = False
        self._wake_ns = 0
        self._waiting.clear()
        self.core = Swim(config, self.loop.rng, self.clock())
        self.carry_out([])

    def crash(self) -> None:
        self.end()
        self._waiting.clear()

    def leave(self) -> None:
        self.carry_out(self.core.leave(self.clock()))

    def retag(self, **tags: str) -> None:
        meta = replace(self.core.own.meta, tags=tuple(sorted(tags.items())))
        self.carry_out(self.core.update_meta(meta, self.clock()))

    def block(self) -> None:
        self.blocked = True

    def unblock(self) -> None:
        self.blocked = False
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()

    def take(self, packet: Packet | bytes, source: str) -> None:
        """source: the address that an answer goes back to, as a connection would."""
        if self.blocked:
            self._waiting.append(lambda: self.take(packet, source))
        elif isinstance(packet, bytes):
            self.carry_out(self.core.receive(packet, self.clock()), source)
        else:
            self.carry_out(self.core.handle(packet, self.clock()), source)

    def carry_out(self, effects: list[Effect], source: str = "") -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(effect.packet, source if effect.reply else effect.address)
            elif isinstance(effect, Changed):
                self.world.changed(self, effect)
            else:
                self.departed = self.departed or isinstance(effect, Departed)
                self.world.told(self, effect)
        at = self.core.next_ns()
        if at < self._wake_ns or self._wake_ns <= self.clock():
            self._wake_ns = at
            self.after(max(0, at - self.clock()), self._wake, at)

    def _wake(self, at: int) -> None:
        if at != self._wake_ns:
            return
        self._wake_ns = 0
        now = max(at, self.clock())
        self.carry_out(self.core.tick(now) if self.core.next_ns() <= now else [])

    def _send(self, packet: Packet, address: str) -> None:
        if self.blocked:
            self._waiting.append(lambda: self._send(packet, address))
        else:
            self.world.transmit(self, address, encode(packet) if self.world.bytes_on_wire else packet)
