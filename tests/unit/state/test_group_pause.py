"""PauseGroup and ResumeGroup: what ends, what is kept, and what a pause yields to."""

import pytest

from tests.unit.state.world import World

UNKNOWN = "tg-00000000000000000000"


def running(n_nodes: int = 2, **over) -> tuple[World, str]:
    world = World({"n1": 1, "n2": 1, "n3": 1})
    group = world.submit(n_nodes, 1, **over)
    world.run_up(group)
    return world, group


def paused(n_nodes: int = 2, **over) -> tuple[World, str]:
    world, group = running(n_nodes, **over)
    world.do("PauseGroup", group_id=group, by="ada")
    world.obey(group)
    assert world.status(group) == "paused"
    return world, group


def texts(world, group):
    return [row["text"] for _, row in world.store.scan("event", f"{group}/")]


def test_a_pause_lets_every_rank_save_and_frees_its_cards():
    world, group = running(checkpoint_path="/data/run")
    assert world.do("PauseGroup", group_id=group, by="ada").data["status"] == "pausing"
    assert {task["order"] for task in world.tasks(group)} == {"stop"}
    assert world.do("PauseGroup", group_id=group, by="bo").code == "already_asked"
    first, second = world.tasks(group)
    world.report(first, "exited", exit_code=0)
    assert world.status(group) == "pausing", "one rank still saves"
    world.report(second, "exited", exit_code=3)
    assert world.status(group) == "paused", "exit codes after a stop order say nothing"
    assert "Rank 1 on n2 exited 3 after a stop order." in texts(world, group)
    assert [hold["state"] for _, hold in world.store.scan("hold")] == ["releasing"] * 2
    world.clean(group)
    assert not list(world.store.scan("hold"))
    row = world.group(group)
    assert (row["ending"], row["failure"], row["restarts"], row["ended_ms"]) == (None, None, 0, None)
    assert world.store.get("ckpt", "/data/run") == {"group_id": group}, "nobody else may write there meanwhile"
    assert world.do("PauseGroup", group_id=group, by="ada").ok


def test_it_waits_again_at_its_old_place_and_decides_anew_what_to_resume():
    world = World({"n1": 1})
    first, second = world.submit(), world.submit()
    world.run_up(first)
    world.do("PauseGroup", group_id=first, by="ada")
    world.obey(first)
    world.clean(first)
    third = world.submit()
    world.run_up(second)
    assert world.status(first) == "paused", "a free card wakes nobody"
    world.do("ResumeGroup", group_id=first, by="bo")
    assert world.status(first) == "pending"
    world.finish(second)
    world.control(61_000)
    assert (world.status(first), world.status(third)) == ("scheduling", "pending")
    world.report(world.tasks(first)[0], "claimed", resume={"path": "/data/run/step-8", "step": 8})
    world.control()
    assert world.group(first)["resume"]["step"] == 8
    world.obey(first)
    assert (world.status(first), world.group(first)["attempt"]) == ("running", 2)
    assert world.transitions(first)[3:] == ["pausing", "paused", "resumed", "bound", "starting", "running"]


@pytest.mark.parametrize("what", ["ResumeGroup", "PauseGroup"])
def test_unknown_and_ended_groups(what):
    world, group = running(1)
    assert world.do(what, group_id=UNKNOWN, by="ada").code == "no_such_group"
    world.finish(group)
    assert world.do(what, group_id=group, by="ada").code == "group_ended"


def test_what_has_not_run_has_nothing_to_save():
    world = World({"n1": 1})
    group = world.submit()
    for status in ("pending", "scheduling", "starting"):
        assert world.status(group) == status
        said = world.do("PauseGroup", group_id=group, by="ada")
        assert said.code == "not_running" and status in said.text
        world.control()
        world.obey(group) if status == "scheduling" else None
        world.control()
    assert world.do("ResumeGroup", group_id=group, by="ada").code == "not_paused"


def test_a_group_that_fails_is_not_kept_from_it():
    world, group = running()
    world.report(world.tasks(group)[0], "exited", exit_code=1)
    assert world.do("PauseGroup", group_id=group, by="ada").code == "already_ending"
    world.obey(group)
    assert world.status(group) == "failed"


def test_no_resume_while_ranks_still_save():
    world, group = running()
    world.do("PauseGroup", group_id=group, by="ada")
    assert world.do("ResumeGroup", group_id=group, by="ada").code == "still_pausing"


@pytest.mark.parametrize("clean", [True, False])
def test_a_stop_of_a_paused_group_ends_it_at_once(clean):
    world, group = paused()
    if clean:
        world.clean(group)
    assert world.do("StopGroup", group_id=group, by="bo").data["status"] == "stopped"
    assert world.transitions(group)[-2:] == ["stopping", "stopped"]
    world.clean(group)
    assert world.do("DeleteGroup", group_id=group).ok


def test_a_stop_wins_over_a_pause():
    world, group = running()
    world.do("PauseGroup", group_id=group, by="ada")
    world.do("StopGroup", group_id=group, by="bo")
    assert world.status(group) == "stopping"
    world.obey(group)
    assert world.status(group) == "stopped"


def test_a_paused_group_is_not_deleted():
    world, group = paused()
    assert world.do("DeleteGroup", group_id=group).code == "group_active"


def test_a_node_that_is_lost_meanwhile_only_ends_the_pause_sooner():
    world, group = running()
    world.do("PauseGroup", group_id=group, by="ada")
    gone, other = world.tasks(group)
    world.report(other, "exited", exit_code=0)
    world.lose(gone["node"])
    row = world.group(group)
    assert (row["status"], row["restarts"]) == ("paused", 0)


def test_a_drain_has_nothing_to_move():
    world, group = running()
    world.do("PauseGroup", group_id=group, by="ada")
    node = world.group(group)["nodes"][0]
    world.do("DrainNode", node_id=node, mode="move", deadline_s=0, by="op", reason="")
    assert [proposal["t"] for proposal in world.control()] == []
    world.obey(group)
    world.clean(group)
    assert [proposal["t"] for proposal in world.control()] == ["EndDrain"]
    assert world.status(group) == "paused"


def test_an_unreachable_rank_of_keep_is_waited_for():
    world, group = running(on_isolation="keep")
    node = world.tasks(group)[0]["node"]
    world.lose(node)
    world.do("PauseGroup", group_id=group, by="ada")
    world.report(world.tasks(group)[1], "exited", exit_code=0)
    assert world.status(group) == "pausing", "its rank there may still run"
    world.rejoin(node)
    assert world.status(group) == "paused"


def test_a_save_that_the_grace_cut_short_is_told():
    world, group = running(checkpoint_path="/data/run")
    world.do("PauseGroup", group_id=group, by="ada")
    late = "killed, as it had not ended when its grace of 2 s was over"
    for task in world.tasks(group):
        world.report(task, "exited", exit_code=None, signal=9, why="stopped", text=f"stopped: {late}")
    assert f"Rank 0 on n1 was killed by SIGKILL (9) after a stop order ({late})." in texts(world, group)
    assert world.tasks(group)[0]["reason"].endswith(late)
