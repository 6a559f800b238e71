"""Schedules around gangs: all or none, one end for all ranks, cards only from those who hold them."""

import pytest

from tests.sim.agent import ClaimRates
from tests.sim.gang_schedules import rollback_with_a_claim_held
from tests.sim.mesh_world import document
from tests.sim.stage import FOREVER, Stage, runs

pytestmark = pytest.mark.sim


def test_two_gangs_that_need_every_host_never_share_them():
    stage = Stage(hosts=3, cards=1)
    requests = [stage.client.submit(document(f"g{at}", 3, 1), FOREVER) for at in range(2)]
    stage.until(lambda: all(r in stage.client.groups for r in requests), 20, "both are answered")
    groups = [stage.client.groups[r] for r in requests]
    stage.until(lambda: any(stage.is_(g, "running")() for g in groups), 20, "one runs")
    first, second = sorted(groups, key=lambda g: stage.group(g)["status"] != "running")
    stage.pass_s(30)
    assert stage.is_(first, "running", 1)()
    assert stage.is_(second, "pending", 0)()
    assert {hold.split("/")[1] for hold in stage.watch.holds} == {first}
    stage.client.stop_group(first)
    stage.until(stage.is_(second, "running"), 20, "the other follows")


def test_a_gang_is_over_when_its_last_rank_is():
    stage = Stage()
    group = stage.submit(2, 1, runs(10))
    stage.running(group)
    slow = next(t for t in stage.ranks_of(group)[1].host.tasks.values())
    slow.program = runs(30)
    slow.life += 1  # its program's end is drawn anew
    slow._program_after(20 * 1_000_000_000, 0, None)
    slow.after(0, slow._look)
    stage.pass_s(15)
    assert stage.is_(group, "running")(), "rank 0 has exited 0, rank 1 still writes"
    assert len(stage.watch.holds) >= 1
    stage.until(stage.is_(group, "completed"), 20, "it completes")


def test_the_rank_that_fails_first_is_the_cause():
    stage = Stage()
    group = stage.submit(2, 1, FOREVER)
    stage.running(group)
    (task,) = stage.ranks_of(group)[1].host.tasks.values()
    task.exits(7, None)
    stage.until(stage.is_(group, "failed"), 20, "it fails")
    assert stage.group(group)["failure"]["rank"] == 1
    assert stage.group(group)["failure"]["exit_code"] == 7


def test_cards_of_a_rolled_back_gang_stay_with_whoever_claimed_them():
    stage = rollback_with_a_claim_held()
    assert stage.watch.counts["rollbacks"] >= 1


@pytest.mark.attack(47)
def test_a_node_that_failed_a_claim_is_used_again_although_the_clock_was_set_back():
    stage = Stage(hosts=3)
    group = stage.submit(3, 1, runs(5))
    for node in stage.nodes:
        node.agent.rates = ClaimRates(fail=1.0)
    stage.until(lambda: stage.watch.counts["rollbacks"] > 0, 60, "a claim fails")
    for node in stage.nodes:
        node.host.wall_offset_ms -= 86_400_000
        node.agent.rates = ClaimRates()
    stage.until(stage.is_(group, "completed"), 90, "it runs once the node has rested")


def test_a_lost_rank_takes_its_whole_gang_back_to_its_old_place():
    """A smaller group may use what the gang cannot; then the gang runs again, whole, and before what came later."""
    stage = Stage(hosts=2, voters=1, cards=2)
    gang = stage.submit(2, 2, FOREVER)
    stage.running(gang)
    later = [stage.submit(1, 2, runs(20)), stage.submit(1, 2, runs(20)), stage.submit(1, 2, runs(20))]
    node = next(n for n in stage.ranks_of(gang) if n.voter is None)
    node.power_off()
    stage.until(stage.is_(gang, "pending"), 40, "the gang waits again")
    assert not stage.watch.alive.get(gang), "no rank of it is left alone"
    node.power_on()
    stage.until(stage.is_(gang, "running", 2), 60, "the gang runs again")
    assert [stage.group(g)["status"] for g in later].count("pending") >= 1
