"""Facts from agents: each counts once, in whatever order they come."""

import itertools

import pytest

from mesh.core.state.reducer import apply
from schemas.commands import command
from tests.unit.state.world import World


@pytest.fixture
def world():
    return World({"n1": 2, "n2": 2})


@pytest.fixture
def group(world):
    made = world.submit(2, 2)
    world.control()
    return made


def send(world, node, reports, uid=None):
    return world.do("TaskReports", node=node, uid=uid or f"uid-{node}", reports=reports)


def body(task, seq, kind, **fields):
    if kind == "exited":
        fields = {"exit_code": 0, "signal": None, "at_ms": 1, **fields}
    return {**{key: task[key] for key in ("group_id", "attempt", "rank", "token")}, "seq": seq, "kind": kind, **fields}


def test_reports_of_strangers_are_refused(world, group):
    task = world.tasks(group)[0]
    assert send(world, "n9", [body(task, 1, "claimed")]).code == "no_such_node"
    assert send(world, "n1", [body(task, 1, "claimed")], uid="another").code == "wrong_node_uid"


@pytest.mark.parametrize("wrong", [{"token": 1}, {"attempt": 2}, {"rank": 1}, {"rank": 7}])
def test_reports_that_do_not_name_the_nodes_task_are_ignored(world, group, wrong):
    before = world.rows()
    task = world.tasks(group)[0]
    assert send(world, "n1", [{**body(task, 1, "claimed"), **wrong}]).data == {"accepted": 0, "ignored": 1}
    assert world.rows() == before


def test_a_repeated_report_is_ignored(world, group):
    task = world.tasks(group)[0]
    assert send(world, "n1", [body(task, 1, "claimed"), body(task, 1, "claimed")]).data == {"accepted": 1, "ignored": 1}
    assert world.kinds(group).count("claimed") == 1


def test_the_probe_of_rank_0_is_kept(world, group):
    first, second = world.tasks(group)
    send(world, "n2", [body(second, 1, "claimed", resume={"path": "/other", "step": 9})])
    assert world.group(group)["probe"] is None
    send(world, "n1", [body(first, 1, "claimed", resume={"path": "/data/run/step-5", "step": 5})])
    assert world.group(group)["probe"] == {"path": "/data/run/step-5", "step": 5}
    assert world.group(group)["claimed"] == [0, 1]


def test_a_failed_claim_rolls_the_gang_back_and_says_why(world, group):
    first, second = world.tasks(group)
    world.report(first, "claimed")
    world.report(second, "claim_failed", code="disk_full", text="0 bytes free in /data")
    assert world.status(group) == "pending"
    reason = world.group(group)["pending_reason"]
    assert reason["code"] == "disk_full"
    assert "rank 1 could not be claimed on n2: 0 bytes free in /data" in reason["text"]
    assert world.store.get("node", "n2")["penalty"]["score"] > 0
    assert [task["status"] for task in world.tasks(group)] == ["cancelled", "cancelled"]
    assert len(list(world.store.scan("hold"))) == 2
    assert world.transitions(group) == ["bound", "rolled_back"]


def test_a_permanent_fault_of_the_request_fails_the_group(world, group):
    world.report(
        world.tasks(group)[1], "claim_failed", code="dataset_missing", text="/data/x does not exist", permanent=True
    )
    assert world.status(group) == "failed"
    failure = world.group(group)["failure"]
    assert (failure["class"], failure["rank"]) == ("dataset_missing", 1)
    assert world.store.get("node", "n2")["penalty"]["score"] == 0
    assert world.store.get("active", group) is None


def test_a_claim_that_is_let_go_rolls_back(world, group):
    world.report(world.tasks(group)[0], "claimed")
    world.report(world.tasks(group)[0], "released")
    assert world.status(group) == "pending"
    assert [hold["state"] for _, hold in world.store.scan("hold")] == ["releasing"]


def test_the_first_failed_rank_is_named_and_its_siblings_are_stopped(world, group):
    world.run_up(group)
    world.report(world.tasks(group)[1], "exited", exit_code=7)
    row = world.group(group)
    assert (row["status"], row["ending"]) == ("running", "failed")
    assert [task["order"] for task in world.tasks(group)] == ["stop", "none"]
    world.report(world.tasks(group)[0], "exited", exit_code=None, signal=15)
    row = world.group(group)
    assert row["status"] == "failed"
    assert row["failure"] == {
        "class": "user_code",
        "rank": 1,
        "exit_code": 7,
        "signal": None,
        "text": "Rank 1 on n2 exited 7.",
        "at_ms": row["failure"]["at_ms"],
        "exit_ms": row["failure"]["exit_ms"],
        "exit_clock": "host",
    }
    assert world.group(group)["started_ms"] < row["failure"]["at_ms"] < row["ended_ms"]
    assert world.transitions(group) == ["bound", "starting", "running", "failed"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_rank_that_failed_first_is_named_whichever_report_comes_first(order):
    """Rank 1 fails with its own code; 3 ms later rank 0 has lost its peer and exits 1."""
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2)
    world.run_up(group)
    exits = {0: (1, world.now_ms + 3), 1: (3, world.now_ms)}
    for rank in order:
        code, at_ms = exits[rank]
        task = world.tasks(group)[rank]
        send(world, task["node"], [body(task, 9, "exited", exit_code=code, at_ms=at_ms, why="exited")])
    failure = world.group(group)["failure"]
    assert (failure["rank"], failure["exit_code"]) == (1, 3)
    named = [row for _, row in world.store.scan("event", f"{group}/") if row["kind"] == "root_failure"]
    assert named[-1]["rank"] == 1
    assert len(named) == (1 if order[0] == 1 else 2), "who was named before stays in the record"


@pytest.mark.parametrize("why", ["exited", "killed", "start_failed"])
@pytest.mark.parametrize("ahead_ms", [0, -300_000, 360_000])
def test_a_host_that_tells_late_is_blamed_whatever_its_clock_shows(world, group, why, ahead_ms):
    """Rank 1 fails; ten minutes later rank 0 has waited for it in vain, and its host is heard first."""
    world.run_up(group)
    victim, cause = world.tasks(group)
    began_ms = world.now_ms
    world.now_ms = began_ms + 600_000
    late = body(victim, 9, "exited", exit_code=134, at_ms=world.now_ms, why="exited")
    world.do("TaskReports", node="n1", uid="uid-n1", reports=[late], sent_ms=world.now_ms)
    assert world.group(group)["failure"]["rank"] == 0
    clock_ms = ahead_ms + 10_000_000
    code, number = (None, 9) if why == "killed" else (1, None)
    told = body(cause, 9, "exited", exit_code=code, signal=number, at_ms=clock_ms, why=why)
    world.do("TaskReports", node="n2", uid="uid-n2", reports=[told], sent_ms=clock_ms + world.now_ms - began_ms)
    row = world.group(group)
    assert (row["status"], row["failure"]["rank"]) == ("failed", 1)


def test_a_failure_after_the_first_one_is_not_blamed_by_a_clock_that_is_behind(world, group):
    world.run_up(group)
    cause, victim = world.tasks(group)
    told = body(cause, 9, "exited", exit_code=3, at_ms=world.now_ms, why="exited")
    world.do("TaskReports", node="n1", uid="uid-n1", reports=[told], sent_ms=world.now_ms)
    world.now_ms += 4_000
    behind_ms = world.now_ms - 6_000
    late = body(victim, 9, "exited", exit_code=134, at_ms=behind_ms, why="exited")
    world.do("TaskReports", node="n2", uid="uid-n2", reports=[late], sent_ms=behind_ms)
    assert world.group(group)["failure"]["rank"] == 0


def test_a_rank_that_was_told_to_stop_is_never_blamed(world, group):
    """It may have been slower to be stopped than its host's clock says."""
    world.run_up(group)
    now = world.now_ms
    world.report(world.tasks(group)[1], "exited", exit_code=7, at_ms=now)
    world.report(world.tasks(group)[0], "exited", exit_code=1, why="stopped", at_ms=now - 10)
    assert world.group(group)["failure"]["rank"] == 1


def test_within_a_batch_the_hosts_clock_orders_and_across_batches_the_log_where_clocks_are_apart(world):
    """One host, two ranks of one group: only where a later version places several ranks on a host can a batch hold
    both."""
    one = World({"n1": 2, "n2": 2})
    group = one.submit(2, 2)
    one.run_up(group)
    first, second = one.tasks(group)
    one.store.put("task", f"{group}/0001/00001", {**second, "node": "n1"})
    send(
        one, "n1", [body(first, 9, "exited", exit_code=1, at_ms=500), body(second, 9, "exited", exit_code=2, at_ms=400)]
    )
    assert one.group(group)["failure"]["rank"] == 1

    other = World({"n1": 2, "n2": 2})
    group = other.submit(2, 2)
    other.run_up(group)
    first, second = other.tasks(group)
    send(other, "n2", [body(second, 9, "exited", exit_code=2, at_ms=999_999)])
    send(other, "n1", [body(first, 9, "exited", exit_code=1, at_ms=1)])
    assert other.group(group)["failure"]["rank"] == 1


@pytest.mark.parametrize(
    ("report", "status", "failure_class"),
    [
        ({"exit_code": 7}, "failed", "user_code"),
        ({"exit_code": 7, "class": "gpu_oom"}, "failed", "gpu_oom"),
        ({"exit_code": 137}, "failed", "user_code"),
        ({"exit_code": None, "signal": 9}, "failed", "killed"),
        ({"exit_code": None, "signal": None, "why": "start_failed"}, "failed", "user_entrypoint"),
        ({"exit_code": 0, "why": "stopped"}, "failed", "unknown"),
        ({"exit_code": None, "signal": 9, "why": "fenced"}, "pending", None),
        ({"exit_code": 0, "why": "fenced"}, "pending", None),
        ({"exit_code": None, "signal": 9, "why": "lost"}, "pending", None),
        ({"exit_code": None, "signal": None}, "pending", None),
    ],
)
def test_how_an_exit_ends_the_attempt(world, group, report, status, failure_class):
    world.run_up(group)
    world.report(world.tasks(group)[0], "exited", **report)
    world.obey(group)
    row = world.group(group)
    assert row["status"] == status
    assert (row["failure"] or {"class": None})["class"] == failure_class
    assert row["restarts"] == (1 if status == "pending" else 0)
    node = world.store.get("node", world.tasks(group)[0]["node"])
    assert (node["penalty"]["score"] > 0) == (status == "pending")


@pytest.mark.parametrize(("later_s", "status"), [(1, "pending"), (17, "pending"), (19, "failed")])
def test_a_failure_beside_a_host_that_fenced_itself_is_a_consequence(later_s, status):
    """The host comes back before anyone gave it up, and says what it did; its peer had failed for want of it."""
    world = World({"n1": 2, "n2": 2})
    world.do("InitCluster", cluster_id="c1", epoch=1, profile="fast", voters=[])
    group = world.submit(2, 2)
    world.run_up(group)
    first, second = world.tasks(group)
    world.report(first, "exited", exit_code=1)
    world.now_ms += later_s * 1000
    world.report(second, "exited", exit_code=None, signal=15, why="fenced")
    row = world.group(group)
    assert (row["status"], row["restarts"]) == (status, int(status == "pending"))
    assert (row["failure"] is None) == (status == "pending")


def test_a_sibling_that_never_started_does_not_hide_the_failure(world, group):
    world.obey(group)
    world.control()
    first, second = world.tasks(group)
    world.report(first, "exited", exit_code=1)
    world.report(second, "exited", exit_code=None, why="lost")
    assert world.status(group) == "failed"
    assert world.group(group)["failure"]["rank"] == 0


def test_a_rank_that_vanished_without_exit_is_lost_and_recovered_from(world, group):
    world.run_up(group)
    world.report(world.tasks(group)[0], "released")
    assert [task["status"] for task in world.tasks(group)] == ["lost", "running"]
    assert world.status(group) == "recovering"


def test_exits_after_a_stop_order_are_no_failure(world, group):
    world.run_up(group)
    world.lose("n1")
    world.report(world.tasks(group)[1], "exited", exit_code=1)
    assert world.status(group) == "pending"
    assert world.group(group)["failure"] is None


def test_cards_are_free_only_when_their_host_says_so(world, group):
    world.run_up(group)
    for task in world.tasks(group):
        world.report(task, "exited")
    assert world.status(group) == "completed"
    assert [hold["state"] for _, hold in world.store.scan("hold")] == ["releasing"] * 2
    world.clean(group)
    assert not list(world.store.scan("hold"))


def test_a_release_after_the_end_does_not_write_the_group_again(world, group):
    world.run_up(group)
    for task in world.tasks(group):
        world.report(task, "exited")
    task = world.tasks(group)[0]
    outcome = apply(
        world.store, 999, command("TaskReports", at_ms=1, node="n1", uid="uid-n1", reports=[body(task, 9, "released")])
    )
    assert outcome.data == {"accepted": 1, "ignored": 0}
    assert sorted({entity for entity, _, _ in world.store.take_changes()}) == ["hold", "task"]


def test_reports_of_an_old_attempt_do_not_touch_the_new_one(world, group):
    world.run_up(group)
    old = world.tasks(group, 1)
    world.lose("n1")
    world.obey(group)
    world.clean(group)
    world.rejoin("n1")
    world.run_up(group)
    assert world.group(group)["attempt"] == 2
    before = world.tasks(group, 2)
    send(world, "n2", [body(old[1], 99, "exited", exit_code=9)])
    assert world.tasks(group, 2) == before
    assert (world.status(group), world.group(group)["failure"]) == ("running", None)


def test_a_start_reported_after_the_exit_is_still_in_the_timeline(world):
    group = world.submit(1, 2)
    world.control()
    world.obey(group)
    world.control()
    (task,) = world.tasks(group)
    send(world, task["node"], [body(task, 6, "exited", at_ms=2_000)])
    assert world.status(group) == "completed"
    assert send(world, task["node"], [body(task, 5, "started", at_ms=1_000)]).data == {"accepted": 1, "ignored": 0}
    assert send(world, task["node"], [body(task, 5, "started", at_ms=1_000)]).data == {"accepted": 0, "ignored": 1}
    assert world.status(group) == "completed"
    times = {row["kind"]: row["data"].get("agent_ms") for _, row in world.store.scan("event", f"{group}/")}
    assert (times["rank_started"], times["rank_exited"]) == (1_000, 2_000)
    assert world.transitions(group) == ["bound", "starting", "running", "completed"]


def test_lost_output_is_told_as_it_grows_and_is_no_step_of_the_task(world, group):
    world.run_up(group)
    task = world.tasks(group)[0]

    def lost(size):
        return body(task, 6, "log_lost", bytes=size)

    assert send(world, task["node"], [lost(10), lost(10), lost(9)]).data == {"accepted": 1, "ignored": 2}
    send(world, task["node"], [lost(30), body(task, 4, "exited")])
    told = [row for _, row in world.store.scan("event", f"{group}/") if row["kind"] == "log_lost"]
    assert [(row["rank"], row["data"]["bytes"]) for row in told] == [(0, 10), (0, 30)]
    after = world.tasks(group)[0]
    assert (after["status"], after["seq"], after["log_lost"]) == ("exited", 4, 30)


EVENTS = ("claimed", "started", "exit 0", "exit 1")


@pytest.mark.parametrize("order", list(itertools.permutations(EVENTS)), ids="-".join)
def test_every_order_of_deliveries_ends_the_same(order):
    world = World({"n1": 2, "n2": 2})
    group = world.submit(2, 2)
    world.control()
    ranks = world.tasks(group)
    for event in [event for event in order for _ in range(2)]:
        for task in ranks:
            if event in ("claimed", "started"):
                world.report(task, event, seq=EVENTS.index(event) + 1)
            elif event == f"exit {task['rank']}":
                world.report(task, "exited", seq=3)
        world.control()
    assert world.status(group) == "completed"
    assert world.transitions(group) == ["bound", "starting", "running", "completed"]
    kinds = world.kinds(group)
    assert (kinds.count("rank_exited"), kinds.count("rank_started")) == (2, 2)
    world.clean(group)
    assert not list(world.store.scan("hold"))
    assert world.control() == []


def said_of_images(world, group):
    return [row["text"] for _, row in world.store.scan("event", f"{group}/") if row["kind"] == "image_changed"]


def boxed_group(n_nodes):
    world = World()
    for node in ("d1", "d2")[:n_nodes]:
        world.join(node, 1, runtime="docker")
    group = world.submit(n_nodes, 1, image="team/pt:1")
    world.control()
    return world, group


def to_starting(world, group):
    world.obey(group)
    world.control()
    assert world.status(group) == "starting"


def test_an_image_that_is_another_at_the_next_attempt_is_told():
    world, group = boxed_group(1)
    to_starting(world, group)
    world.report(world.tasks(group)[0], "started", image={"id": "sha256:aaaa", "digest": "sha256:d1"})
    assert world.group(group)["image"] == {"id": "sha256:aaaa", "digest": "sha256:d1", "attempt": 1}
    assert world.tasks(group)[0]["image"] == {"id": "sha256:aaaa", "digest": "sha256:d1"}
    world.lose("d1")
    world.rejoin("d1")
    world.now_ms += 60_000
    world.control()
    to_starting(world, group)
    world.report(world.tasks(group)[0], "started", image={"id": "sha256:bbbb", "digest": "sha256:d2"})
    assert said_of_images(world, group) == ["Rank 0 on d1 runs image d2, attempt 1 ran d1."]
    assert world.group(group)["image"]["attempt"] == 2


def test_ranks_of_different_images_are_told_and_another_machine_s_build_is_none():
    world, group = boxed_group(2)
    to_starting(world, group)
    world.report(world.tasks(group)[0], "started", image={"id": "sha256:amd", "digest": "sha256:d1"})
    world.report(world.tasks(group)[1], "started", image={"id": "sha256:arm", "digest": "sha256:d1"})
    assert said_of_images(world, group) == []
    world, group = boxed_group(2)
    to_starting(world, group)
    world.report(world.tasks(group)[0], "started", image={"id": "sha256:aaaa", "digest": None})
    world.report(world.tasks(group)[1], "started", image={"id": "sha256:bbbb"})
    assert said_of_images(world, group) == ["Rank 1 on d2 runs image bbbb, the other ranks run aaaa."]


def test_a_report_of_an_older_agent_names_no_image():
    world = World({"n1": 1})
    group = world.submit()
    world.run_up(group)
    assert "image" not in world.tasks(group)[0]


def test_how_far_a_claim_is_stands_in_its_row_until_it_is_claimed(world, group):
    task = world.tasks(group)[0]
    before = world.kinds(group)

    def say(text):
        return world.report(task, "progress", seq=0, text=text).data["accepted"]

    assert say("pulling image team/pt:1, 3 %") == 1
    assert world.tasks(group)[0]["reason"] == "pulling image team/pt:1, 3 %"
    assert say("pulling image team/pt:1, 3 %") == 0
    assert world.kinds(group) == before
    world.seqs.clear()
    world.obey(group)
    assert world.tasks(group)[0]["reason"] is None
    assert say("late") == 0
    assert world.tasks(group)[0]["status"] == "claimed"


@pytest.mark.parametrize(
    ("n_nodes", "ends"),
    [
        (1, "program x: No such file or directory."),
        (2, "No such file or directory. The other ranks are being stopped."),
    ],
)
def test_the_words_about_a_failure_are_whole_sentences_about_ranks_that_there_are(n_nodes, ends):
    world = World({"n1": 1, "n2": 1})
    group = world.submit(n_nodes, 1)
    world.run_up(group)
    text = "program x: No such file or directory"
    world.report(world.tasks(group)[0], "exited", exit_code=None, why="start_failed", text=text)
    said = [row["text"] for _, row in world.store.scan("event", f"{group}/") if row["kind"] == "root_failure"]
    assert said[0].endswith(ends)
