"""Scenarios of membership, whole: those of the mutants, and what other systems got wrong (with the issue's address)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.core.swim import LAN, Conflict, Gossip, Packet, Reason, Refused, State, encode
from mesh.core.swim.limits import PACKET_MAX, SYNC_MAX
from tests.sim.loop import Loop, S
from tests.sim.network import LinkRates
from tests.sim.swim.scenarios import SCENARIOS, isolate, small_mesh
from tests.sim.swim.world import FalseDeaths, SwimWorld

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name):
    SCENARIOS[name]()


def refusals(world: SwimWorld, reason: Reason) -> list[str]:
    """Who was refused for it."""
    return [who for _, who, effect in world.told_effects if isinstance(effect, Refused) and effect.reason is reason]


@pytest.mark.parametrize("count", [2, 3, 30])
def test_members_find_each_other_by_one_seed(count):
    world = SwimWorld(Loop(1), count)
    world.join()
    world.until(world.agreed, 3 * LAN.join_retry_ms / 1000, "all know all")


def test_a_dead_member_is_seen_by_all_and_its_restart_too():
    world = small_mesh(5)
    victim = world.members[2]
    victim.crash()
    world.until(lambda: world.see(world.running(), "n2", State.DEAD), 30, "dead")
    victim.launch(("n0:7460",))
    world.until(world.agreed, 2, "back, although its first word was of incarnation 0")
    assert victim.core.own.incarnation > 0


def test_a_restart_that_nobody_noticed():
    world = small_mesh(5)
    deaths = FalseDeaths(world)
    world.members[2].crash()
    world.members[2].launch(("n0:7460",), api="10.0.0.9:1")
    world.until(world.agreed, 2, "all know its new metadata")
    world.run(30)
    assert deaths.at_anyone == 0


def test_a_restart_whose_seeds_are_gone_is_found_by_those_who_remember_it():
    world = small_mesh(4)
    world.members[0].leave()
    world.members[2].crash()
    world.until(lambda: world.see([world.members[1], world.members[3]], "n2", State.DEAD), 60, "dead")
    world.members[0].crash()
    world.members[2].launch(("n0:7460",))
    world.until(world.agreed, 5 * LAN.reconnect_ms / 1000, "found")


def test_a_member_reachable_by_one_peer_only_makes_nobody_flap():
    """hashicorp/serf#185: n4 and n1 alone reach each other. Nobody else is ever suspected."""
    world = small_mesh(5)
    deaths = FalseDeaths(world)
    shaken: list[str] = []
    world.on_change.append(
        lambda observer, change: (
            shaken.append(change.update.node)
            if observer.name != "n4" and change.update.state is not State.ALIVE
            else None
        )
    )
    for other in ("n0", "n2", "n3"):
        world.network.cut("n4", other)
        world.network.cut(other, "n4")
    world.run(300)
    assert set(shaken) <= {"n4"} and deaths.at_anyone == 0
    world.network.heal()
    world.until(world.agreed, 2 * LAN.probe_interval_ms / 1000, "all well")


def test_a_member_moves_and_another_takes_its_old_address():
    """hashicorp/consul#733, hashicorp/serf#115."""
    world = small_mesh(5)
    moved = world.members[2]
    moved.crash()
    world.move(moved, "n2-new:7460")
    heir = world.add("n9", "n2:7460")
    heir.launch(("n0:7460",))
    moved.launch(("n0:7460",))
    world.until(world.agreed, 1, "n2 is known at its new address, n9 at n2's old one")
    assert world.members[0].core.records["n2"].meta.addresses == ("n2-new:7460",)
    # Word for n2 still on its way to the old address.
    world.transmit(world.members[0], "n2:7460", encode(Packet("m1", "n0", 1, 10**6, "n2", Gossip())))
    world.run(1)
    assert "n0" in refusals(world, Reason.WRONG_NODE) and heir.core.counts["misdirected"] >= 1


@pytest.mark.attack(42)
def test_two_meshes_on_one_network_stay_two():
    """hashicorp/consul#4074: a member of one mesh asks a member of the other, and is told so by name."""
    world = SwimWorld(Loop(1), 6)
    for member in world.members[3:]:
        member.mesh = "m2"
    world.join(world.members[:3], ("n0:7460",))
    world.join(world.members[3:], ("n3:7460", "n0:7460"))
    world.run(60)
    for member in world.members:
        assert sorted(member.core.records) == (["n0", "n1", "n2"] if member.mesh == "m1" else ["n3", "n4", "n5"])
    assert set(refusals(world, Reason.WRONG_MESH)) == {"n3", "n4", "n5"}


def test_a_lone_member_joins_within_one_retry_once_its_seeds_are_up():
    """grafana/metrictank#596: ten minutes later."""
    world = SwimWorld(Loop(1), 3)
    lone = world.members[2]
    world.join([lone], ("n0:7460", "n1:7460"))
    world.run(600)
    world.join(world.members[:2])
    world.until(world.agreed, LAN.join_retry_ms / 1000 + 1, "it has joined")


def test_large_metadata_reach_everyone_in_packets_within_the_limits():
    """prometheus/alertmanager#1412: what is larger than a packet is lost elsewhere."""
    world = SwimWorld(Loop(1), 40)
    big = {f"tag{number}": "x" * 100 for number in range(4)}
    for member in world.members:
        member.launch(("n0:7460",), None, **big)
    world.until(world.agreed, 2 * LAN.sync_interval_ms / 1000, "all see all of it")
    whole = {kind: size for kind, size in world.largest.items() if kind in ("Sync", "SyncReply")}
    assert max(whole.values()) > 4 * PACKET_MAX, "else nothing was large here"
    assert max(whole.values()) <= SYNC_MAX
    assert max(size for kind, size in world.largest.items() if kind not in whole) <= PACKET_MAX


@pytest.mark.attack(47)
def test_wrong_clocks_accuse_nobody():
    """trinodb/trino#3730: clocks of any origin, one in a hundred fast or slow."""
    world = SwimWorld(Loop(1), 8)
    for number, member in enumerate(world.members):
        member.origin_ns = world.loop.rng.randrange(10**19) // (number + 1)
        member.rate = 0.99 + 0.02 * world.loop.rng.random()
    deaths = FalseDeaths(world)
    world.join()
    world.until(world.agreed, 5, "joined")
    world.run(120)
    assert deaths.suspicions == 0


def test_a_frozen_process_accuses_nobody_when_it_thaws():
    world = small_mesh(8)
    frozen = world.members[3]
    deaths = FalseDeaths(world, [frozen])
    frozen.stop()
    world.run(40)
    assert world.see([m for m in world.running() if m is not frozen], "n3", State.DEAD)
    frozen.cont()
    world.until(world.agreed, 10, "n3 is back")
    world.run(20)
    assert deaths.at_anyone == 0 and frozen.core.counts["stalls"] >= 1


@pytest.mark.attack(43)
def test_replayed_packets_of_an_earlier_life_change_nothing():
    """Everything that n2 ever sent, its leaving too, is sent again after it came back; then all that anybody sent."""
    world = small_mesh(5)
    member = world.members[2]
    member.leave()
    world.until(lambda: member.departed, 10, "left")
    member.crash()
    world.run(5)
    captured = list(world.tap)
    member.launch(("n0:7460",))
    world.until(world.agreed, 5, "n2 is back")
    seen: list[str] = []
    world.on_change.append(lambda observer, change: seen.append(f"{observer.name}: {change}"))
    for address, packet in captured:
        world.at[address].take(packet, "attacker:1")
    world.run(20)
    assert world.agreed() and seen == []
    assert all(m.core.counts["replayed"] + m.core.counts["stale_boot"] > 10 for m in world.members if m is not member)


def test_a_life_with_an_older_boot_than_is_known_still_gets_in():
    """A wiped disk and a clock set back: the others say which boot they know."""
    world = small_mesh(4)
    world.members[2].crash()
    world.members[2].boot = 700
    world.members[2].launch(("n0:7460",))
    world.until(world.agreed, 5, "back")
    world.members[2].crash()
    world.members[2].launch(("n0:7460",), boot=3)
    world.until(world.agreed, LAN.join_retry_ms / 1000 + 2, "back again")
    assert world.members[2].core.boot == 702
    assert refusals(world, Reason.STALE_BOOT)


def test_two_processes_of_one_name_are_said():
    world = small_mesh(4)
    twin = world.add("n2", "elsewhere:7460")
    twin.launch(("n0:7460",), boot=99)
    world.run(30)
    assert {who for _, who, effect in world.told_effects if isinstance(effect, Conflict)} == {"n2"}
    # Nobody else suffers.
    others = [world.members[n] for n in (0, 1, 3)]
    assert all(world.see(others, other.name, State.ALIVE) for other in others)


def test_a_lossy_network_accuses_now_and_then_and_kills_nobody():
    world = SwimWorld(Loop(1), 16, rates=LinkRates(drop=0.1, duplicate=0.05, slow=0.05))
    deaths = FalseDeaths(world)
    world.join()
    world.until(world.agreed, 60, "joined")
    world.run(120)
    assert deaths.at_anyone == 0
    assert sum(member.core.counts["probe_failures"] for member in world.members) > 0


def test_the_dead_are_forgotten_and_stay_so():
    profile = replace(LAN, forget_ms=100_000, gossip_to_dead_ms=5_000, sync_interval_ms=10_000)
    world = SwimWorld(Loop(1), 5, profile)
    world.join()
    world.until(world.agreed, 10, "joined")
    world.members[4].crash()
    world.until(lambda: all("n4" not in member.core.records for member in world.running()), 150, "forgotten")
    world.run(60)
    assert all("n4" not in member.core.records for member in world.running()), "a tombstone came back"
    world.members[4].launch(("n0:7460",))
    world.until(world.agreed, 10, "and is welcome again")


def test_a_healed_half_sees_what_changed_meanwhile():
    world = small_mesh(6)
    side = world.members[:2]
    isolate(world, side)
    world.members[4].retag(color="red")
    world.run(40)
    world.network.heal()
    world.until(world.agreed, 15, "one mesh")
    assert world.loop.now > 40 * S and side[0].core.records["n4"].meta.tags == (("color", "red"),)
