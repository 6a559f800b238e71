"""Random faults: every seed draws its own mix, then everything heals and all must agree.

python -m tests.sim.swim.swarm 7        # the run of seed 7, every change of every view
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable

from mesh.core.swim import LAN, Changed, State, Update, supersedes
from tests.sim.faults import Partitions, draw, link_rates
from tests.sim.loop import Loop, S, Violation
from tests.sim.network import LinkRates
from tests.sim.swim.member import SimMember
from tests.sim.swim.world import SwimWorld

FAULTS_S = 90
SETTLE_S = 3 * LAN.sync_interval_ms / 1000


class Swarm:
    def __init__(self, loop: Loop) -> None:
        rng = loop.rng
        self.loop = loop
        self.coverage: Counter[str] = Counter()
        self.world = SwimWorld(loop, rng.randint(2, 9), rates=link_rates(rng))
        for member in self.world.members:
            member.origin_ns = rng.randrange(10**15)
            member.rate = 1 + draw(rng, 0.0001, 0.01) * rng.choice((-1, 1))
        self._partitions = Partitions(loop, self.world.network, [member.name for member in self.world.members])
        self._seeds = (self.world.members[0].address, self.world.members[-1].address)
        self._left: set[str] = set()
        self._held: dict[tuple[str, int, str], Update] = {}
        self.world.on_change.append(self._check)
        steps = (self._crash, self._leave, self._cut, self._block, self._stop, self._tag)
        self._rates = {step: draw(rng, 0.02, 1.0) for step in steps}

    def run(self) -> None:
        rng, world = self.loop.rng, self.world
        world.join(seeds=self._seeds)
        while self.loop.now < FAULTS_S * S:
            world.run(0.2 + 4 * rng.random())
            for step, rate in self._rates.items():
                members = [member for member in world.running() if not member.paused and not member.core.leaving_ns]
                if members and rng.random() < rate:
                    self.coverage[step.__name__.strip("_")] += 1
                    step(rng.choice(members))
        self._heal()
        world.until(self._settled, SETTLE_S, "all agree after the faults")
        world.run(5)
        if not self._settled():
            raise Violation("they agreed, but not for long")
        for member in world.members:
            if member.alive and member.core.counts["malformed"]:
                raise Violation("a member sent what another cannot read")

    def _check(self, observer: SimMember, change: Changed) -> None:
        """Within one life of the observer what it holds about a member never goes back."""
        key = (observer.name, observer.life, change.update.node)
        held = self._held.get(key)
        if held is not None and not supersedes(change.update, held):
            raise Violation(f"{observer.name} goes back from {held} to {change.update}")
        self._held[key] = change.update
        self.coverage[f"seen {change.update.state.name}"] += 1

    def _settled(self) -> bool:
        world = self.world
        running = world.running()
        return world.agreed(running) and all(world.see(running, name, State.LEFT) for name in self._gone_for_good())

    def _gone_for_good(self) -> list[str]:
        """Who left, and whose word anyone who still runs has heard."""
        running = self.world.running()
        heard = {name for m in running for name, held in m.core.records.items() if held.state is State.LEFT}
        return sorted(self._left & heard)

    def _heal(self) -> None:
        world = self.world
        world.network.heal()
        world.network.rates = LinkRates()
        self._partitions.count += 1  # whatever heals later is not this one's
        for member in world.members:
            member.cont()
            member.unblock()
            if not member.alive and member.name not in self._left:
                member.launch(self._seeds)

    # -- faults

    def _later(self, mean_s: float, fn: Callable[..., object], *args: object) -> None:
        self.loop.after(self.loop.rng.expovariate(1 / mean_s) * S, fn, *args)

    def _crash(self, member: SimMember) -> None:
        member.crash()
        self._later(10, self._restart, member)

    def _restart(self, member: SimMember) -> None:
        if not member.alive and member.name not in self._left:
            member.launch(self._seeds)

    def _leave(self, member: SimMember) -> None:
        # The first one stays, or who has not joined yet finds nobody.
        if member is not self.world.members[0] and len(self._left) * 3 < len(self.world.members) - 1:
            self._left.add(member.name)
            member.leave()
            self._later(8, member.crash)

    def _cut(self, member: SimMember) -> None:
        self._partitions.cut(20 * S)

    def _block(self, member: SimMember) -> None:
        member.block()
        self._later(8, member.unblock)

    def _stop(self, member: SimMember) -> None:
        member.stop()
        self._later(8, member.cont)

    def _tag(self, member: SimMember) -> None:
        member.retag(color=str(self.loop.rng.randrange(100)))


def run(seed: int, echo: Callable[[str], None] | None = None) -> Counter[str]:
    """Raises Violation, with the seed and the last events."""
    loop = Loop(seed, echo=echo)
    swarm = Swarm(loop)
    try:
        swarm.run()
    except Exception as error:
        tail = f"{loop.last_events()}\nreplay: python -m tests.sim.swim.swarm {seed}"
        raise Violation(f"seed {seed}: {type(error).__name__}: {error}\n{tail}") from error
    return swarm.coverage


if __name__ == "__main__":
    print(run(int(sys.argv[1]), print))
