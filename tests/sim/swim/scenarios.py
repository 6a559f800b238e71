"""Scenarios that each show one promise; each raises Violation where it is broken. The mutants are killed by them
(tests/mutants/test_swim_mutants.py)."""

from __future__ import annotations

from random import Random

from mesh.core.swim import LAN, Config, Gossip, Meta, Packet, State, Swim, Update
from tests.sim.loop import Loop, S, Violation
from tests.sim.swim.member import SimMember
from tests.sim.swim.world import FalseDeaths, SwimWorld


def small_mesh(count: int, seed: int = 1) -> SwimWorld:
    world = SwimWorld(Loop(seed), count)
    world.join()
    world.until(world.agreed, 10, "all have joined")
    world.run(5)
    return world


def hold(true: bool, what: str) -> None:
    if not true:
        raise Violation(what)


def isolate(world: SwimWorld, side: list[SimMember], inward: bool = True, outward: bool = True) -> None:
    for member in side:
        for other in world.members:
            if other not in side and inward:
                world.network.cut(other.name, member.name)
            if other not in side and outward:
                world.network.cut(member.name, other.name)


def a_suspected_member_refutes() -> None:
    """n4 is cut off for less than the shortest suspicion. It comes back, hears that it is suspected, and says that it
    lives."""
    world = small_mesh(5)
    deaths = FalseDeaths(world)
    isolate(world, [world.members[4]])
    world.run(2.5)
    world.network.heal()
    hold(deaths.suspicions > 0, "the cut was long enough for a suspicion")
    world.run(30)
    hold(deaths.at_anyone == 0, "n4 was declared dead though it was there to refute")
    hold(world.agreed() and world.members[4].core.own.incarnation > 0, "all know that n4 refuted")


def one_ill_accuser_kills_nobody() -> None:
    """n3 cannot read its sockets for 12 s, longer than the shortest suspicion, while its timers run: to n3 everyone
    else looks dead, and what it says of that leaves at once when it can."""
    world = SwimWorld(Loop(1), 16)
    world.start()
    world.run(5)
    ill = world.members[3]
    deaths = FalseDeaths(world, [ill])
    ill.block()
    world.run(12)
    ill.unblock()
    world.run(10)
    hold(ill.core.counts["probe_failures"] > 0, "n3 accused someone")
    hold(deaths.at_anyone == 0, "a single accuser killed a healthy member")
    world.until(world.agreed, 10, "n3 is back")


def one_accuser_does_not_confirm_itself() -> None:
    """The same accusation by n3 comes again and again, from many members that hand it on."""
    meta = Meta(("10.0.0.1:7460",))
    core = Swim(Config("me", "m1", meta, 1), Random(1), 0)
    known = tuple(Update(f"n{n}", 0, State.ALIVE, meta, f"n{n}") for n in range(10))
    core.handle(Packet("m1", "n0", 1, 1, "me", Gossip(), known), 0)
    claim = Update("n2", 0, State.SUSPECT, meta, "n3")
    for seq in range(2, 30):
        core.handle(Packet("m1", f"n{seq % 10}", 1, seq, "me", Gossip(), (claim,)), seq)
    first = 0
    while core.records["n2"].state is State.SUSPECT:
        first += 1
        core.now = first * S
        core.tick_suspicions()
    shortest_s, longest_s = 4 * 1.04, 24 * 1.04  # 11 members
    hold(first >= int(longest_s), f"n2 died after {first} s of one accuser's word; alone it takes {longest_s} s")
    hold(shortest_s < longest_s, "else this shows nothing")


def missed_news_arrive_by_push_pull() -> None:
    """n4 hears nothing while a change of n1 is gossiped; when it hears again, nobody gossips it any more."""
    world = small_mesh(5)
    deaf, changed = world.members[4], world.members[1]
    isolate(world, [deaf], outward=False)
    changed.retag(color="red")
    world.run(2.5)
    world.network.heal()
    hold(deaf.core.records["n1"] != changed.core.own, "n4 missed the change")
    world.until(
        lambda: deaf.core.records["n1"] == changed.core.own, 2 * LAN.sync_interval_ms / 1000, "push/pull brings it"
    )


def who_left_stays_left() -> None:
    """n4 leaves while n3 hears nothing. When n3 is back it still says that n4 is alive, and suspects it."""
    world = small_mesh(6)
    gone, late = world.members[4], world.members[3]
    isolate(world, [late])
    gone.leave()
    world.until(lambda: gone.departed, LAN.leave_ms / 1000 + 1, "its word is spread")
    gone.crash()
    others = [member for member in world.running() if member is not late]
    hold(world.see(others, "n4", State.LEFT), "the others saw it leave")
    returned: list[str] = []
    world.on_change.append(
        lambda observer, change: (
            returned.append(observer.name) if change.update.node == "n4" and change.previous is State.LEFT else None
        )
    )
    world.run(0.5)
    world.network.heal()
    world.run(2 * LAN.sync_interval_ms / 1000)
    hold(not returned, f"n4 rose from having left, as {returned} see it")
    hold(world.see(world.running(), "n4", State.LEFT), "n3 hears that it left")


def a_partition_heals() -> None:
    """Four of ten are cut off until each side has declared the other dead. Afterwards all are one mesh again soon, and
    neither side ever calls one of its own dead."""
    world = small_mesh(10)
    side, rest = world.members[:4], world.members[4:]
    isolate(world, side)
    world.until(
        lambda: all(world.see(a, m.name, State.DEAD) for a, b in ((side, rest), (rest, side)) for m in b), 60, "split"
    )
    world.run(60)
    sides = {member.name: member in side for member in world.members}
    wrong: list[str] = []
    world.on_change.append(
        lambda observer, change: (
            wrong.append(f"{observer.name} of {change.update.node}")
            if change.update.state is State.DEAD and sides[observer.name] == sides[change.update.node]
            else None
        )
    )
    world.network.heal()
    # Six dead of ten are tried once in two seconds each; then push/pull and a refutation for everyone.
    world.until(world.agreed, 15, "one mesh again")
    world.run(30)
    hold(world.agreed() and not wrong, f"of their own side: {wrong}")


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        a_suspected_member_refutes,
        one_ill_accuser_kills_nobody,
        one_accuser_does_not_confirm_itself,
        missed_news_arrive_by_push_pull,
        who_left_stays_left,
        a_partition_heals,
    )
}
