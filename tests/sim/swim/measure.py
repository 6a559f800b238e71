"""What the simulation measures: how soon a death is seen, a change is known, and how often the living are called dead.

All with the product's own core and the `lan` profile, on links of 0.5 to 1.5 ms. Seconds are virtual ones."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from statistics import mean

from mesh.core.swim import LAN, Changed, Profile, State
from tests.sim.loop import Loop, S
from tests.sim.swim.member import SimMember
from tests.sim.swim.world import FalseDeaths, SwimWorld


@dataclass(slots=True)
class Death:
    """Seconds from the crash: until the first suspicion, the first and the last verdict."""

    suspected_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0


class DeathWatch:
    def __init__(self, world: SwimWorld) -> None:
        self._world = world
        self._seen: dict[str, tuple[int, Death]] = {}
        world.on_change.append(self._look)

    def crash(self, victim: SimMember) -> None:
        self._seen[victim.name] = (self._world.loop.now, Death())
        victim.crash()

    def finished(self) -> list[Death]:
        seen, self._seen = self._seen, {}
        return [death for _, death in seen.values()]

    def _look(self, observer: SimMember, change: Changed) -> None:
        if change.update.node not in self._seen:
            return
        began, death = self._seen[change.update.node]
        after_s = (self._world.loop.now - began) / S
        if change.update.state is State.SUSPECT:
            death.suspected_s = death.suspected_s or after_s
        elif change.update.state is State.DEAD:
            death.first_s = death.first_s or after_s
            death.last_s = after_s


def deaths_one_by_one(count: int, crashes: int, seed: int, profile: Profile = LAN) -> list[Death]:
    """For small meshes: each victim is back before the next one dies."""
    loop = Loop(seed)
    world = SwimWorld(loop, count, profile, bytes_on_wire=False)
    world.start()
    watch = DeathWatch(world)
    seen: list[Death] = []
    for number in range(crashes):
        # At any moment of the others' intervals.
        world.run(2 + 2 * loop.rng.random())
        victim = world.members[number % count]
        watch.crash(victim)
        world.until(lambda name=victim.name: world.see(world.running(), name, State.DEAD), 120, "all see it")
        seen += watch.finished()
        victim.launch((world.members[(number + 1) % count].address,))
        world.until(world.agreed, 60, f"{victim.name} is back")
    return seen


def deaths_in_a_row(
    count: int, crashes: int, seed: int, apart_s: float = 0.25, watch_s: float = 25, profile: Profile = LAN
) -> list[Death]:
    """For large meshes: at most a tenth of the members die one after the other, none comes back, and watch_s later the
    watch ends."""
    loop = Loop(seed)
    world = SwimWorld(loop, count, profile, bytes_on_wire=False)
    world.start()
    watch = DeathWatch(world)
    world.run(3)
    for victim in loop.rng.sample(world.members, min(crashes, count // 10)):
        world.run(2 * apart_s * loop.rng.random())
        watch.crash(victim)
    world.run(watch_s)
    return watch.finished()


def average(seen: list[Death]) -> Death:
    return Death(
        mean(death.suspected_s for death in seen),
        mean(death.first_s for death in seen),
        mean(death.last_s for death in seen),
    )


def spreading_model_s(count: int, profile: Profile = LAN) -> float:
    """Rumour spreading by push with fan-out f, as Pittel (1987) has it for f = 1: log_{f+1} N rounds until about half
    know it, ln N / f more until the last does."""
    fanout = profile.gossip_nodes
    return (log(count) / log(fanout + 1) + log(count) / fanout) * profile.gossip_interval_ms / 1000


def spreads(count: int, changes: int, seed: int, profile: Profile = LAN) -> list[float]:
    """Seconds from a change of one member's metadata until the last member knows it, once for each change."""
    loop = Loop(seed)
    world = SwimWorld(loop, count, profile, bytes_on_wire=False)
    world.start()
    missing: set[str] = set()
    tags: list[tuple[str, str]] = []

    def look(observer: SimMember, change: Changed) -> None:
        if change.update.meta.tags == tuple(tags):
            missing.discard(observer.name)

    world.on_change.append(look)
    took: list[float] = []
    for number in range(changes):
        world.run(1 + loop.rng.random())
        changer = loop.rng.choice(world.members)
        tags[:] = [("change", str(number))]
        missing.update(member.name for member in world.members if member is not changer)
        changer.retag(change=str(number))
        began = loop.now
        assert loop.run_until(began + 60 * S, lambda: not missing), f"{len(missing)} never learned it"
        took.append((loop.now - began) / S)
    return took


@dataclass(frozen=True, slots=True)
class Stalls:
    """How a slow member is slow: it stalls for about stall_s, then works for about open_s. frozen: the whole process
    stands still (SIGSTOP); else only its network does while its timers run, as on a host too busy to read sockets."""

    stall_s: float
    open_s: float
    frozen: bool = False


def slow_members(profile: Profile, stalls: Stalls, seed: int, count: int, seconds: float) -> FalseDeaths:
    """A tenth of the members are slow."""
    loop = Loop(seed)
    world = SwimWorld(loop, count, profile, bytes_on_wire=False)
    world.start()
    slow = loop.rng.sample(world.members, count // 10)
    watch = FalseDeaths(world, slow)

    def stall(member: SimMember) -> None:
        if stalls.frozen:
            member.stop()
        else:
            member.block()
        loop.after(stalls.stall_s * S * (0.5 + loop.rng.random()), resume, member)

    def resume(member: SimMember) -> None:
        if stalls.frozen:
            member.cont(in_order=True)
        else:
            member.unblock()
        loop.after(stalls.open_s * S * (0.5 + loop.rng.random()), stall, member)

    for member in slow:
        loop.after(loop.rng.random() * stalls.stall_s * S, stall, member)
    world.run(seconds)
    return watch
