"""Cases that other schedulers met, on reducers, scheduler and controllers together."""

import pytest

from schemas.states import GONE
from tests.unit.state.world import World


def held_by(world):
    """group -> number of cards it holds."""
    found: dict[str, int] = {}
    for key, hold in world.store.scan("hold"):
        group = key.split("/")[1]
        found[group] = found.get(group, 0) + len(hold["gpus"])
    return found


def test_a_large_job_is_not_starved_by_small_ones():
    world = World({f"n{at}": 4 for at in range(1, 5)})
    early = [world.submit(1, 1) for _ in range(4)]
    # one on each node, as if the mesh had been fuller when they came
    for at, group in enumerate(early):
        node = f"n{at + 1}"
        world.do(
            "BindGroup",
            group_id=group,
            attempt=1,
            placements=[{"rank": 0, "node": node, "gpus": [f"GPU-{node}-0"], "port": 20_000}],
        )
        world.run_up(group)
    big = world.submit(4, 4, name="BIG", priority="highest")
    late: list[str] = []
    for _ in range(30):
        late.append(world.submit(1, 1))
        world.control(5000)
        assert all(world.status(group) == "pending" for group in late)
    assert world.group(late[0])["pending_reason"]["text"] == "waits behind BIG (needs 16, free 12)"
    for group in early:
        world.finish(group)
    world.control()
    assert world.status(big) == "scheduling"
    world.run_up(big)
    assert all(world.status(group) == "pending" for group in late)
    world.finish(big)
    world.control(5000)
    assert {world.status(group) for group in late[:16]} == {"scheduling"}


def test_submissions_of_one_moment_start_in_log_order_across_a_leader_change():
    world = World({"n1": 1})
    groups = [world.submit(1, 1, name=name) for name in ("z9", "a1", "m5")]
    started = []
    for _ in groups:
        world.control(5000)
        (current,) = [group for group in groups if world.status(group) == "scheduling"]
        started.append(world.group(current)["name"])
        world.new_leader()
        world.run_up(current)
        world.finish(current)
        world.new_leader()
    assert started == ["z9", "a1", "m5"]


def test_two_gangs_that_each_need_every_node_never_share():
    world = World({f"n{at}": 1 for at in range(1, 4)})
    first, second = world.submit(3, 1), world.submit(3, 1)
    for _ in range(8):
        world.control(1000)
        assert len(held_by(world)) <= 1
        world.obey(first)
    assert held_by(world) == {first: 3}
    assert (world.status(first), world.status(second)) == ("running", "pending")
    assert world.tasks(second) == []


def test_a_gang_that_lost_a_node_goes_back_as_a_whole_to_its_old_place():
    world = World({"n1": 2, "n2": 2})
    gang = world.submit(2, 2, name="gang")
    world.run_up(gang)
    small = world.submit(1, 2, name="small")
    world.control()
    world.lose("n2")
    world.obey(gang)
    world.clean(gang)
    assert world.status(gang) == "pending"
    assert all(task["status"] in GONE and (task["released"] or task["node"] == "n2") for task in world.tasks(gang))
    world.rejoin("n2")
    world.control(5000)
    assert (world.status(gang), world.status(small)) == ("scheduling", "pending")
    world.run_up(gang)
    assert world.group(gang)["attempt"] == 2


def test_a_gang_that_cannot_come_back_lets_others_run():
    world = World({"n1": 2, "n2": 2})
    gang = world.submit(2, 2)
    world.run_up(gang)
    small = world.submit(1, 2)
    world.lose("n2")
    world.obey(gang)
    world.clean(gang)
    world.run_up(small)
    assert world.group(gang)["pending_reason"]["code"] == "nodes_lost"


@pytest.mark.parametrize(("code", "status"), [(0, "completed"), (7, "failed")])
def test_success_needs_every_rank(code, status):
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2)
    world.run_up(group)
    first, second = world.tasks(group)
    world.report(first, "exited", exit_code=0)
    assert world.status(group) == "running"
    assert held_by(world) == {group: 4}
    assert world.tasks(group)[1]["order"] == "start"
    world.report(second, "exited", exit_code=code)
    assert world.status(group) == status
    if code:
        assert (world.group(group)["failure"]["rank"], world.group(group)["failure"]["exit_code"]) == (1, 7)


def test_a_short_absence_of_an_agent_changes_nothing():
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2)
    world.run_up(group)
    before = world.group(group)
    world.join("n2", 2)
    world.report(world.tasks(group)[1], "started")
    assert world.group(group)["status"] == before["status"] == "running"
    assert world.kinds(group).count("rank_started") == 2


def test_after_a_long_absence_cards_are_free_only_when_the_old_rank_is_gone():
    world = World({"n1": 2, "n2": 2, "n3": 2})
    group = world.submit(2, 2, checkpoint_path="/data/run")
    world.run_up(group)
    old = world.tasks(group)[1]
    world.lose("n2")
    world.obey(group)
    world.clean(group)
    world.run_up(group)
    assert world.group(group)["nodes"] == ["n1", "n3"]
    assert world.rejoin("n2", [old]).code == "stale_tasks"
    blocked = world.submit(1, 2, name="blocked")
    world.control(5000)
    assert world.status(blocked) == "pending"
    assert world.rejoin("n2").ok
    world.run_up(blocked)
    assert world.group(blocked)["nodes"] == ["n2"]
    assert world.status(group) == "running"


def test_a_rank_that_finished_early_still_counts_when_the_gang_is_restarted():
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2)
    world.run_up(group)
    first = world.tasks(group)[0]
    world.report(first, "exited", exit_code=0)
    world.report(first, "released")
    world.lose("n2")
    assert world.status(group) == "pending"
    world.rejoin("n2")
    world.run_up(group)
    assert held_by(world) == {group: 4}


def test_reports_that_overtake_one_another_leave_a_finished_group_finished():
    world = World({"n1": 1})
    group = world.submit(1, 1)
    world.control()
    world.obey(group)
    world.control()
    (task,) = world.tasks(group)
    world.report(task, "exited", seq=6)
    assert world.status(group) == "completed"
    world.report(task, "started", seq=5)
    assert world.status(group) == "completed"
    assert world.transitions(group) == ["bound", "starting", "running", "completed"]
