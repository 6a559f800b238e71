"""Whatever nodes and groups there are: who is placed may be there, and who waits is told why of every node."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.core.sched.plan import plan
from mesh.core.sched.view import Card, MeshView, NodeView, Waiting

NOW_MS = 1_000_000_000


@st.composite
def nodes(draw, at):
    count = draw(st.integers(0, 4))
    kind = draw(st.sampled_from(["H100", "A100"]))
    cards = tuple(Card(f"n{at}-{index}", kind, index) for index in range(count))
    return NodeView(
        node_id=f"n{at}",
        ready=draw(st.integers(0, 4)) > 0,
        cards=cards,
        free=cards[draw(st.integers(0, count)) :],
        containers=draw(st.booleans()),
        engine_down=draw(st.integers(0, 3)) == 0,
        penalty_score=draw(st.sampled_from([0, 0, 1000])),
        penalty_ms=NOW_MS,
    )


@st.composite
def groups(draw, at):
    return Waiting(
        group_id=f"tg-{at}",
        name=f"g{at}",
        priority=draw(st.integers(0, 2)),
        submit_idx=at,
        attempt=0,
        n_nodes=draw(st.integers(1, 4)),
        per_node_gpu=draw(st.integers(0, 4)),
        gpu_types=draw(st.sampled_from([(), ("H100",), ("A100", "H100"), ("B200",)])),
        in_container=draw(st.booleans()),
    )


@st.composite
def meshes(draw):
    return MeshView(
        tuple(draw(nodes(at)) for at in range(draw(st.integers(0, 6)))),
        tuple(draw(groups(at)) for at in range(draw(st.integers(1, 6)))),
    )


@pytest.mark.attack(39)
@settings(max_examples=400, deadline=None)
@given(meshes())
def test_who_is_placed_may_be_there_and_who_waits_knows_of_every_node(view):
    by_name = {node.node_id: node for node in view.nodes}
    asked = {group.group_id: group for group in view.queue}
    planned = plan(view, NOW_MS)
    taken: list[str] = []
    for bind in planned.binds:
        group = asked[bind.group_id]
        assert len({item["node"] for item in bind.placements}) == len(bind.placements) == group.n_nodes
        for item in bind.placements:
            node = by_name[item["node"]]
            assert node.ready and not node.engine_down
            assert node.containers == group.in_container
            assert len(item["gpus"]) == group.per_node_gpu
            assert {card.type for card in node.free if card.uuid in item["gpus"]} <= set(
                group.gpu_types or ("H100", "A100")
            )
            taken += item["gpus"]
    assert len(taken) == len(set(taken))
    assert set(planned.reasons) == set(asked) - {bind.group_id for bind in planned.binds}
    for reason in planned.reasons.values():
        assert reason["text"]
        if "refused" in reason["details"]:
            assert sum(reason["details"]["refused"].values()) + reason["details"]["pass"] == len(view.nodes)


@settings(max_examples=200, deadline=None)
@given(meshes())
def test_a_mesh_of_healthy_nodes_of_the_right_kind_never_says_otherwise(view):
    kinds = {node.containers for node in view.nodes}
    broken = any(node.engine_down for node in view.nodes)
    for group_id, reason in plan(view, NOW_MS).reasons.items():
        wants = next(group.in_container for group in view.queue if group.group_id == group_id)
        if reason["code"] in ("no_engine", "containers_only"):
            assert (not wants) in kinds
        if reason["code"] == "engine_down":
            assert broken
