"""Inference and container groups: how they end, and what is built again."""

import pytest

from mesh.core.control.decide import Now, decide
from schemas.limits import REBUILD_LONGEST_MS, REBUILD_RECOVERED_MS, REBUILDS_IN_A_ROW
from tests.property.state_invariants import violations
from tests.unit.state.world import World, document

HTTP = {"http": 8000}


def serving(nodes=None, n_nodes=1, **over):
    world = World(nodes or {"n1": 2, "n2": 2})
    group = world.submit(n_nodes, 1, task_type="inference", **over)
    world.run_up(group)
    return world, group


def end(world, group, rank=0, **fields):
    """A rank exits unasked, and every agent does what follows."""
    world.report(world.tasks(group)[rank], "exited", **fields)
    world.obey(group)
    world.clean(group)
    assert violations(world.store) == []


def refuse_for_good(world, group):
    task = world.tasks(group)[0]
    world.report(task, "claim_failed", code="image_missing", text="no such image", permanent=True)


def reason(world, group):
    return world.group(group)["pending_reason"]


@pytest.mark.parametrize("back_s", [600, 86_400 * 365])
def test_a_leader_whose_clock_was_set_back_builds_it_again_no_later(back_s):
    world, group = serving()
    end(world, group, exit_code=1)
    mono_ms, wall_ms = 5_000, world.now_ms - back_s * 1000
    world.new_leader()
    assert [item["t"] for item in decide(world.view, Now(mono_ms, wall_ms), world.memory)] == []
    later = decide(world.view, Now(mono_ms + 2_000, wall_ms + 2_000), world.memory)
    assert [item["t"] for item in later] == ["BindGroup"]


class TestInference:
    @pytest.mark.parametrize(
        "how", [{"exit_code": 0}, {"exit_code": 1}, {"exit_code": None, "signal": 9}, {"exit_code": 3, "why": "killed"}]
    )
    def test_whatever_it_ends_with_it_is_built_again_after_a_wait(self, how):
        world, group = serving()
        end(world, group, **how)
        row = world.group(group)
        assert (row["status"], row["ended_ms"], row["restarts"]) == ("pending", None, 0)
        assert world.store.get("active", group) == {"status": "pending"}
        assert world.transitions(group)[-2:] == ["failed", "rebuilding"]
        assert (reason(world, group)["code"], row["rebuild"]["total"]) == ("rebuilding", 1)
        assert row["failure"]["rank"] == 0
        world.now_ms += 100
        world.control()
        assert world.status(group) == "pending", "it waits first"
        world.control(1_000)
        assert world.status(group) == "scheduling" and world.group(group)["failure"] is None
        world.run_up(group)
        assert world.group(group)["attempt"] == 2

    def test_it_is_built_elsewhere_and_nobody_else_shuns_the_node(self):
        world, group = serving()
        before = world.group(group)["nodes"]
        end(world, group, exit_code=1)
        world.control(1_100)
        world.run_up(group)
        assert world.group(group)["nodes"] != before
        assert world.store.get("node", before[0])["penalty"]["score"] == 0

    def test_on_the_same_node_where_there_is_no_other(self):
        world, group = serving({"n1": 1})
        end(world, group, exit_code=1)
        world.control(1_100)
        world.run_up(group)
        assert world.group(group)["nodes"] == ["n1"]

    def test_one_rank_that_ends_takes_the_whole_set_with_it(self):
        world, group = serving(n_nodes=2)
        end(world, group, rank=1)
        assert world.status(group) == "pending"
        assert [task["status"] for task in world.tasks(group)] == ["exited", "exited"]
        assert "Rank 1" in world.group(group)["failure"]["text"]

    def test_waits_double_to_a_bound_and_then_it_is_given_up(self):
        world, group = serving({"n1": 1})
        waits = []
        for _ in range(REBUILDS_IN_A_ROW):
            end(world, group, exit_code=1)
            assert world.status(group) == "pending"
            waits.append(world.group(group)["rebuild"]["not_before_ms"] - world.now_ms)
            world.now_ms += REBUILD_LONGEST_MS
            world.run_up(group)
        rounded = [round(wait / 1000) for wait in waits]
        assert rounded[:9] == [1, 2, 4, 8, 16, 32, 64, 128, 256] and set(rounded[9:]) == {300}
        end(world, group, exit_code=1)
        assert world.status(group) == "failed"
        texts = [row["text"] for _, row in world.store.scan("event", f"{group}/")]
        assert "20 rebuilds in a row" in texts[-1]
        assert [key for key, _ in world.store.scan("active")] == []

    def test_a_long_run_is_forgiven(self):
        world, group = serving({"n1": 1})
        for expected in (1, 2, 1):
            world.now_ms += REBUILD_RECOVERED_MS if expected == 1 else 0
            end(world, group, exit_code=1)
            assert world.group(group)["rebuild"]["in_a_row"] == expected
            world.now_ms += 10_000
            world.run_up(group)
        assert world.group(group)["rebuild"]["total"] == 3

    def test_a_lost_node_is_no_failure_and_needs_no_wait(self):
        world, group = serving()
        lost = world.group(group)["nodes"][0]
        world.lose(lost)
        assert world.status(group) == "pending" and "rebuild" not in world.group(group)
        world.run_up(group)
        assert world.group(group)["nodes"] != [lost] and world.group(group)["restarts"] == 1

    def test_a_user_s_stop_wins(self):
        world, group = serving()
        world.do("StopGroup", group_id=group, by="ada")
        end(world, group, exit_code=0)
        assert world.status(group) == "stopped" and "rebuilding" not in world.kinds(group)

    def test_it_is_stopped_while_it_waits(self):
        world, group = serving()
        end(world, group, exit_code=1)
        assert world.do("StopGroup", group_id=group, by="ada").ok
        assert world.status(group) == "stopped" and violations(world.store) == []
        world.control(10_000)
        assert world.status(group) == "stopped"

    def test_what_no_host_could_ever_take_stays_failed(self):
        world = World({"n1": 1})
        group = world.submit(1, 1, task_type="inference")
        world.control(1)
        refuse_for_good(world, group)
        assert world.status(group) == "failed"

    def test_a_host_that_cannot_take_it_any_more_is_no_end_of_what_has_run(self):
        world, group = serving({"n1": 1})
        end(world, group, exit_code=1)
        world.control(1_100)
        refuse_for_good(world, group)
        world.clean(group)
        assert world.status(group) == "pending" and world.group(group)["rebuild"]["in_a_row"] == 2

    def test_a_drain_moves_it_at_once(self):
        world, group = serving()
        here = world.group(group)["nodes"][0]
        world.do("DrainNode", node_id=here, mode="wait", deadline_s=3_600, by="ada", reason="")
        assert [sent["t"] for sent in world.control(1_000)] == ["MoveGroup"]
        world.obey(group)
        world.clean(group)
        world.run_up(group)
        row = world.group(group)
        assert (row["nodes"] != [here], row["drains"], "rebuild" in row) == (True, 1, False)

    def test_it_cannot_be_deleted_while_it_waits(self):
        world, group = serving()
        end(world, group, exit_code=1)
        assert world.do("DeleteGroup", group_id=group).code == "group_active"


class TestContainer:
    def test_completed_when_it_exits_0(self):
        world = World({"n1": 2})
        group = world.submit(1, 0, task_type="container")
        world.run_up(group)
        assert world.tasks(group)[0]["gpus"] == []
        world.finish(group)
        assert world.status(group) == "completed"

    def test_the_first_that_fails_ends_all(self):
        world = World({"n1": 2, "n2": 2})
        group = world.submit(2, 1, task_type="container")
        world.run_up(group)
        end(world, group, rank=1, exit_code=7)
        row = world.group(group)
        assert (row["status"], row["failure"]["rank"], row["failure"]["exit_code"]) == ("failed", 1, 7)

    def test_without_cards_they_spread(self):
        world = World({"n1": 2, "n2": 2, "n3": 0})
        groups = [world.submit(1, 0, task_type="container") for _ in range(3)]
        for group in groups:
            world.run_up(group)
        assert sorted(world.group(group)["nodes"][0] for group in groups) == ["n1", "n2", "n3"]


class TestPorts:
    def test_two_groups_never_have_one_port_of_a_node(self):
        world = World({"n1": 4, "n2": 4})
        groups = [world.submit(1, 1, task_type="container", ports=HTTP) for _ in range(3)]
        world.control(1_000)
        assert [world.status(group) for group in groups] == ["scheduling", "scheduling", "pending"]
        assert {world.group(group)["nodes"][0] for group in groups[:2]} == {"n1", "n2"}
        assert reason(world, groups[2])["details"]["refused"] == {"port_in_use": 2}
        assert "port 8000" in reason(world, groups[2])["text"]
        assert violations(world.store) == []

    def test_a_plan_that_gives_it_twice_is_refused(self):
        world, _ = serving(ports=HTTP)
        other = world.submit(1, 1, task_type="container", ports={"web": 8000, "admin": 8001})
        for node, code in (("n1", "port_taken"), ("n2", None)):
            placement = {"rank": 0, "node": node, "gpus": [f"GPU-{node}-1"], "port": 20_500}
            outcome = world.do("BindGroup", group_id=other, attempt=1, placements=[placement])
            assert outcome.code == code or (code is None and outcome.ok), outcome

    def test_the_rendezvous_has_a_port_of_its_own(self):
        world = World({"n1": 1})
        group = world.submit(1, 1, ports={"x": 20_500})
        placement = {"rank": 0, "node": "n1", "gpus": ["GPU-n1-0"], "port": 20_500}
        assert world.do("BindGroup", group_id=group, attempt=1, placements=[placement]).code == "bad_port"

    def test_a_later_group_of_the_same_pass_gets_no_rendezvous_there(self):
        world = World({"n1": 2})
        first = world.submit(1, 1, task_type="container", ports={f"p{at}": 20_000 + at for at in range(16)})
        second = world.submit(1, 1)
        world.control(1_000)
        assert [world.status(group) for group in (first, second)] == ["scheduling", "scheduling"]

    def test_the_addresses_stand_in_the_group(self):
        world, group = serving(n_nodes=2, ports=HTTP)
        assert world.group(group)["addresses"] == ["n1.example", "n2.example"]

    @pytest.mark.parametrize("ports", [{"a": 0}, {"a": 65_536}, {"a": "x"}, {"a": True}, {"a": 8000, "b": 8000}])
    def test_a_document_past_the_checks_is_refused(self, ports):
        world = World({"n1": 1})
        assert world.try_submit(document(1, 1, ports=ports)).code == "invalid_document"


class TestWaitingForInference:
    """What ends only when somebody stops it is no reason to keep nodes empty."""

    def test_those_behind_go_on(self):
        world, _ = serving({"n1": 2, "n2": 2})
        large = world.submit(2, 2)
        small = world.submit(1, 1)
        world.control(1_000)
        assert (world.status(large), world.status(small)) == ("pending", "scheduling")
        assert reason(world, large)["code"] == "held_by_inference"
        assert "run until they are stopped, hold cards" in reason(world, large)["text"]

    def test_a_port_of_one_is_named(self):
        world, _ = serving({"n1": 2}, ports=HTTP)
        other = world.submit(1, 1, task_type="inference", ports=HTTP)
        small = world.submit(1, 1)
        world.control(1_000)
        assert (world.status(other), world.status(small)) == ("pending", "scheduling")
        assert "hold port 8000" in reason(world, other)["text"]

    def test_where_training_is_what_it_waits_for_the_place_is_kept(self):
        world, _ = serving({"n1": 2, "n2": 2, "n3": 2})
        training = world.submit(1, 2)
        world.run_up(training)
        large = world.submit(2, 2)
        small = world.submit(1, 2)
        world.control(1_000)
        assert reason(world, large)["code"] == "insufficient_gpus"
        assert world.status(small) == "pending"

    def test_it_is_placed_once_the_inference_is_stopped(self):
        world, group = serving({"n1": 2, "n2": 2})
        large = world.submit(2, 2)
        world.control(1_000)
        world.do("StopGroup", group_id=group, by="ada")
        world.obey(group)
        world.clean(group)
        world.run_up(large)


def test_a_new_leader_keeps_the_wait():
    world, group = serving({"n1": 1})
    for _ in range(4):
        end(world, group, exit_code=1)
        world.now_ms += 10_000
        world.run_up(group)
    end(world, group, exit_code=1)
    world.new_leader()
    world.now_ms += 5_000
    assert decide(world.view, Now(1, 1), world.memory) == []
    world.now_ms += 12_000
    world.new_leader()
    world.control()
    assert world.status(group) == "scheduling"
