"""Cordoned nodes in a plan: never used, counted under their own name, and no place is kept on them."""

from mesh.core.sched.plan import plan
from mesh.core.sched.view import MeshView
from tests.unit.sched.views import group, mesh, node

NOW = 1_000_000


def test_a_cordoned_node_is_passed_over_and_counted_as_such():
    view = mesh(
        node("a"), node("b", free=0), node("c", free=0), node("d", cordoned=True), node("e", kind="A100"),
        group("g", n_nodes=2, per_node_gpu=4, gpu_types=("H100",)),
    )  # fmt: skip
    reason = plan(view, NOW).reasons["tg-g"]
    assert reason["details"]["refused"] == {"gpu_type": 1, "cordoned": 1, "busy": 2}
    assert "1 of 5 nodes pass" in reason["text"] and "1 cordoned" in reason["text"]


def test_what_needs_the_cordoned_node_waits_by_name_and_lets_others_pass():
    view = mesh(
        node("a"), node("b", cordoned=True), group("big", n_nodes=2, per_node_gpu=4, idx=1), group("small", idx=2)
    )
    planned = plan(view, NOW)
    assert [bind.group_id for bind in planned.binds] == ["tg-small"]
    reason = planned.reasons["tg-big"]
    assert reason["code"] == "cordoned" and "1 cordoned (b)" in reason["text"]
    assert reason["details"]["cordoned"] == ["b"]


def test_where_lost_nodes_are_missing_too_the_cordon_alone_is_not_blamed():
    view = mesh(node("a"), node("b", cordoned=True), node("c", ready=False), group("big", n_nodes=3))
    assert plan(view, NOW).reasons["tg-big"]["code"] == "nodes_lost"


def test_a_pause_binds_nothing_and_says_so_to_all():
    view = MeshView((node("a"),), (group("g"), group("h", n_nodes=99)), "by ada since 2026-11-30 (a switch burns)")
    planned = plan(view, NOW)
    assert planned.binds == () and {reason["code"] for reason in planned.reasons.values()} == {"scheduling_paused"}
    assert "a switch burns" in planned.reasons["tg-g"]["text"] and "paused by ada" in planned.sentence
