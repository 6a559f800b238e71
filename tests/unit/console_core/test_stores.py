"""Stores: what frames of the feed make of them."""

from console.core.attention import attention
from console.core.line import plain
from console.core.node_list import layout, node_line
from console.store.curve_store import CurveStore
from console.store.group_store import GroupStore
from console.store.mesh_store import ENDED_KEPT, MeshStore
from tests.snapshots.canned_mesh import NOW_MS, gid, group_row, node_row
from tests.snapshots.example_mesh import LLAMA, example_mesh


def snapshot(*rows, more=False):
    return {"snapshot": [list(row) for row in rows], "token": "c.1.1", "more": more}


def group(number, status="running", **changed):
    return ("group", gid(number), group_row(number, f"g{number}", status, 1, 8, **changed))


def test_a_new_snapshot_replaces_what_was_active_and_keeps_what_ended():
    store = MeshStore()
    store.apply(snapshot(group(1), group(2, "failed"), ("node", "a", node_row("a"))))
    store.apply(snapshot(group(3), more=True))
    assert gid(1) in store.groups
    store.apply(snapshot())
    assert set(store.groups) == {gid(2), gid(3)} and not store.nodes
    assert store.counts() == {"running": 1, "failed": 1}


def test_dirty_is_what_changed_since_it_was_taken():
    store = MeshStore()
    store.apply(snapshot(group(1), group(2)))
    assert store.take_dirty()[0] == {gid(1), gid(2)}
    store.apply({"changes": [list(group(1)), list(group(2, "stopping"))], "idx": 2, "token": "c.1.2"})
    assert store.take_dirty() == ({gid(2)}, False)
    store.apply({"changes": [["group", gid(1), None]], "idx": 3, "token": "c.1.3"})
    assert store.take_dirty()[0] == {gid(1)} and gid(1) not in store.groups


def test_what_the_feed_said_is_newer_than_a_list():
    store = MeshStore()
    store.apply(snapshot(group(1, "running", attempt=2)))
    store.add_ended([group_row(1, "g1", "failed", 1, 8, attempt=1), group_row(2, "g2", "completed", 1, 8)])
    assert store.groups[gid(1)].status == "running" and store.groups[gid(2)].status == "completed"


def test_ended_groups_are_bounded():
    store = MeshStore()
    store.add_ended(group_row(at, f"g{at}", "completed", 1, 1, ended_ms=at) for at in range(ENDED_KEPT + 50))
    assert len(store.groups) == ENDED_KEPT and gid(49) not in store.groups and gid(50) in store.groups
    assert store.counts() == {"completed": ENDED_KEPT}


def test_cards_in_use_count_only_on_ready_nodes():
    store = MeshStore()
    hold = {"gpus": ["a-0", "a-1"], "port": 0, "state": "held"}
    store.apply(
        snapshot(
            ("node", "a", node_row("a")),
            ("node", "b", node_row("b", state="lost")),
            ("hold", "a/x/1/0", hold),
            ("hold", "b/x/1/1", hold),
        )
    )
    assert store.cards() == (2, 8)
    store.apply({"changes": [["hold", "a/x/1/0", None]], "idx": 2, "token": "c.1.2"})
    assert store.cards() == (0, 8) and store.holds_of("a") == []


def test_the_queue_is_in_the_schedulers_order():
    store = MeshStore()
    store.apply(
        snapshot(group(1, "pending"), group(2, "pending", priority=2), group(3, "pending", submit_idx=0), group(4))
    )
    assert [item.id for item in store.queue()] == [gid(2), gid(3), gid(1)]


def test_a_row_of_the_list_and_of_the_feed_are_one():
    store = MeshStore()
    store.add_ended(
        [
            {
                "group_id": gid(1),
                "name": "a",
                "status": "failed",
                "n_nodes": 2,
                "per_node_gpu": 8,
                "created_at": "2026-11-29T18:00:00.000Z",
                "failure": {"text": "boom", "rank": 3},
            }
        ]
    )
    row = store.groups[gid(1)]
    assert (row.gpus, row.created_ms, row.why) == (16, 1795975200000, "rank 3: boom")


def test_shapes_nobody_promised_do_not_break_a_row():
    store = MeshStore()
    for row in (
        {},
        {
            "group_id": 1,
            "name": None,
            "document": [],
            "pending_reason": "x",
            "failure": [],
            "nodes": "n",
            "attempt": "2",
        },
    ):
        store.apply(
            snapshot(
                ("group", "x", row), ("node", "n", {"gpus": [1, {}]}), ("hold", "odd", {}), ("meta", "cluster", {})
            )
        )


def test_a_group_in_full():
    store = GroupStore(gid(LLAMA))
    store.apply(snapshot(*[row for row in example_mesh().rows if row[1].startswith(gid(LLAMA))]))
    assert store.loaded and store.attempts == [1, 2] and len(store.ranks(2)) == 2
    assert [event.kind for event in store.events][:2] == ["submitted", "bound"]
    store.apply({"changes": [["group", gid(LLAMA), None]]})
    assert store.gone


def test_curves_keep_their_emptinesses_apart():
    store = CurveStore("g")
    assert store.state == "loading" and store.main_tag() is None
    assert store.take({"state": "no_log", "tags": {}}) and "no TensorBoard log" in store.empty_text
    assert not store.take({"state": "no_log", "tags": {}})
    assert store.take(
        {
            "state": "live",
            "tags": {"lr": [[0, 1, 2]], "val/loss": [[0, 1, 2]], "train/loss": [[0, 1, "NaN"], ["x", 0, 0], [1]]},
        }
    )
    assert store.main_tag() == "train/loss" and len(store.tags["train/loss"]) == 1
    assert store.refused(404, "not_found", "") and store.empty_text == "this agent has no curves yet"
    assert store.tags, "what was read stays while nobody answers"


def test_a_node_whose_engine_is_down_says_so_where_operators_look():
    store = MeshStore()
    down = node_row("gpu-7") | {"runtime": "docker", "engine_down": "the engine does not answer"}
    store.apply(snapshot(("node", "gpu-7", down), ("node", "gpu-8", node_row("gpu-8") | {"engine_down": None})))
    (item,) = attention(store, {}, NOW_MS)
    assert (item.target, item.text) == (("node", "gpu-7"), "no containers: the engine does not answer")
    shape = layout(160, 8, False, {})
    shown = {
        node.id: plain(node_line(shape, node, (), {}, {}, False, NOW_MS, False, store.gossip))
        for node in store.nodes.values()
    }
    assert "no containers: the engine does not answer" in shown["gpu-7"]
    assert "no containers" not in shown["gpu-8"]


def test_attention_puts_the_worst_first():
    mesh, store = example_mesh(), MeshStore()
    store.apply(snapshot(*mesh.rows))
    found = attention(store, mesh.status, NOW_MS)
    assert [item.tone for item in found] == sorted((item.tone for item in found), key=lambda tone: tone != "bad")
    assert {item.target[0] for item in found} == {"group", "node", "mesh"}
    quiet = attention(MeshStore(), {}, NOW_MS)
    assert quiet == []
    leaderless = attention(store, {"consensus": {"leader": 0, "voters": []}}, NOW_MS)
    assert leaderless[0].text == "no leader is known", "until there is one nothing can be done about the others"


def test_a_group_that_leaves_a_drained_node_is_not_said_to_have_lost_a_host():
    store = MeshStore()
    store.apply(snapshot(group(1, "recovering", ending="drained"), group(2, "recovering", ending="recovering")))
    assert "drained" in store.groups[gid(1)].why and "drained" not in store.groups[gid(2)].why
