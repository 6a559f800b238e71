"""Groups of an image go to nodes that can start containers, all others to those that run processes."""

import pytest

from mesh.core.sched.plan import plan
from tests.unit.sched.views import group, mesh, node

NOW = 1_000_000_000


def boxes(name, **over):
    return node(name, containers=True, **over)


def where(view):
    return {bind.group_id[3:]: [item["node"] for item in bind.placements] for bind in plan(view, NOW).binds}


def reason(view, name):
    return plan(view, NOW).reasons[f"tg-{name}"]


def test_each_kind_of_group_finds_its_kind_of_node():
    view = mesh(node("n1"), boxes("n2"), group("image", in_container=True, idx=1), group("plain", idx=2))
    assert where(view) == {"image": ["n2"], "plain": ["n1"]}


def test_no_node_with_an_engine():
    view = mesh(node("n1"), node("n2"), group("a", 2, 4, in_container=True))
    said = reason(view, "a")
    assert said["code"] == "no_engine"
    assert said["text"] == (
        "needs 2 nodes x 4 GPUs, and the whole mesh has 0 such nodes (no container engine on 2 nodes); "
        "it waits until nodes join"
    )


def test_only_nodes_for_containers():
    said = reason(mesh(boxes("n1"), group("a")), "a")
    assert said["code"] == "containers_only"
    assert "(for containers only, and the group names no task.image: 1 node)" in said["text"]


def test_a_request_that_both_kinds_together_could_not_hold_is_too_large():
    assert reason(mesh(node("n1"), boxes("n2"), group("a", 3, 4, in_container=True)), "a")["code"] == (
        "cluster_too_small"
    )


def test_an_engine_that_is_down():
    view = mesh(boxes("n1"), boxes("n2", engine_down=True), group("a", 2, in_container=True), group("b", idx=2))
    said = reason(view, "a")
    assert said["code"] == "engine_down"
    assert said["text"] == (
        "needs 2 nodes x 1 GPU, and only 1 of 2 such nodes are ready; the container engine of n2 does not answer; "
        "it waits until it answers"
    )
    assert said["details"]["engine_down"] == ["n2"]
    again = mesh(boxes("n1"), boxes("n2"), group("a", 2, in_container=True))
    assert where(again) == {"a": ["n1", "n2"]}


def test_lost_nodes_are_waited_for_where_engines_alone_do_not_suffice():
    view = mesh(boxes("n1"), boxes("n2", ready=False), boxes("n3", engine_down=True), group("a", 3, in_container=True))
    said = reason(view, "a")
    assert said["code"] == "nodes_lost"
    assert "engine of n3" in said["text"] and "lost nodes return" in said["text"]


def test_each_node_is_counted_under_the_first_filter_that_refuses_it():
    view = mesh(
        boxes("n1", free=0),
        boxes("n2", engine_down=True),
        node("n3"),
        boxes("n4", ready=False),
        group("a", in_container=True),
    )
    said = reason(view, "a")
    assert said["details"]["refused"] == {"lost": 1, "no_engine": 1, "engine_down": 1, "busy": 1}
    assert "1 without a container engine, 1 with the container engine down" in said["text"]
    assert said["details"]["free_gpus"] == 0


@pytest.mark.parametrize("first_in_container", [True, False])
def test_a_held_group_keeps_only_nodes_of_its_kind(first_in_container):
    view = mesh(
        node("n1", 4, 2),
        boxes("n2", total=4, free=2),
        group("big", 1, 4, idx=1, in_container=first_in_container),
        group("other", 1, 1, idx=2, in_container=not first_in_container),
        group("same", 1, 1, idx=3, in_container=first_in_container),
    )
    assert list(where(view)) == ["other"]
    assert reason(view, "same")["text"] == "waits behind big (needs 4, free 2)"
