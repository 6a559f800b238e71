"""Who is placed, where, and who is held for whom."""

from itertools import count

import pytest

from mesh.core.sched.plan import BINDS_PER_PASS, plan
from mesh.core.sched.pool import free_port
from schemas.limits import PENALTY_HALF_LIFE_MS, PENALTY_UNIT, PORT_MAX, PORT_MIN
from tests.unit.sched.views import group, mesh, node

NOW = 1_000_000_000


def where(view, now_ms=NOW):
    return {bind.group_id[3:]: [item["node"] for item in bind.placements] for bind in plan(view, now_ms).binds}


def codes(view):
    return {group_id[3:]: reason["code"] for group_id, reason in plan(view, NOW).reasons.items()}


def texts(view):
    return {group_id[3:]: reason["text"] for group_id, reason in plan(view, NOW).reasons.items()}


def test_an_empty_queue():
    assert plan(mesh(node("n1")), NOW).sentence == "Nothing waits."


def test_a_bind_names_every_rank_with_its_cards_and_one_port():
    (bind,) = plan(mesh(node("n2"), node("n1"), group("a", 2, 2, attempt=3)), NOW).binds
    assert (bind.group_id, bind.attempt) == ("tg-a", 4)
    first, second = bind.placements
    assert (first["rank"], first["node"], first["gpus"]) == (0, "n1", ["n1-0", "n1-1"])
    assert (second["rank"], second["node"], second["gpus"], second["port"]) == (1, "n2", ["n2-0", "n2-1"], 0)
    assert PORT_MIN <= first["port"] <= PORT_MAX


def test_priority_then_log_order():
    queue = [
        group("late", idx=9),
        group("early", idx=3),
        group("high", idx=8, priority=1),
        group("top", idx=12, priority=2),
    ]
    for free, placed in (
        (1, ["top"]),
        (2, ["top", "high"]),
        (3, ["top", "high", "early"]),
        (4, ["top", "high", "early", "late"]),
    ):
        assert list(where(mesh(node("n1", 4, free), *queue))) == placed


def test_equal_times_are_ordered_by_the_log_not_by_the_name():
    queue = [group("a1", idx=6), group("z9", idx=5), group("m5", idx=7)]
    for arrangement in (queue, queue[::-1]):
        assert list(where(mesh(node("n1", 1), *arrangement))) == ["z9"]


def test_all_or_none():
    result = plan(mesh(node("n1"), node("n2", 4, 1), group("a", 2, 2)), NOW)
    assert result.binds == ()
    assert result.reasons["tg-a"]["code"] == "insufficient_gpus"


def test_two_that_each_need_every_node_never_share_them():
    view = mesh(*(node(f"n{at}", 1) for at in range(3)), group("x", 3, 1, idx=1), group("y", 3, 1, idx=2))
    assert where(view) == {"x": ["n0", "n1", "n2"]}
    assert codes(view) == {"y": "insufficient_gpus"}


def test_a_held_group_keeps_every_node_it_could_use():
    nodes = [node(f"n{at}", 4, 3) for at in range(4)]
    small = [group(f"s{at}", idx=10 + at) for at in range(5)]
    view = mesh(*nodes, group("big", 4, 4, idx=1), *small)
    result = plan(view, NOW)
    assert result.binds == ()
    assert texts(view) == {
        "big": "needs 4 nodes x 4 GPUs: 0 of 4 nodes pass; 4 too few free GPUs",
        **{f"s{at}": "waits behind big (needs 16, free 12)" for at in range(5)},
    }
    assert result.reasons["tg-s0"]["details"]["behind"] == "tg-big"


def test_higher_priority_overtakes_the_held_one():
    view = mesh(node("n1", 4, 3), group("big", 1, 4, idx=1), group("urgent", idx=9, priority=2))
    assert where(view) == {"urgent": ["n1"]}


def test_nodes_the_head_could_never_use_serve_those_behind_it():
    view = mesh(
        node("h1", 4, 0),
        node("a1", 4, kind="A100"),
        node("small", 2),
        group("head", 1, 4, idx=1, gpu_types=("H100",)),
        group("other", 1, 4, idx=2, gpu_types=("A100",)),
        group("little", 1, 2, idx=3, gpu_types=("H100",)),
    )
    assert where(view) == {"other": ["a1"], "little": ["small"]}


def test_every_held_group_holds_not_only_the_first():
    """Behind a head on other nodes, a large group must not be starved by small ones either."""
    view = mesh(
        node("h1", 4, 0),
        node("a1", 4, 2, kind="A100"),
        group("head", 1, 4, idx=1, gpu_types=("H100",)),
        group("second", 1, 4, idx=2, gpu_types=("A100",)),
        group("little", 1, 1, idx=3),
    )
    assert where(view) == {}
    assert texts(view)["little"] == "waits behind second (needs 4, free 2)"


def test_what_the_mesh_could_never_hold_holds_nothing():
    view = mesh(
        node("n1"), node("n2"), group("huge", 3, 4, idx=1), group("wide", 1, 8, idx=2), group("ok", 2, 4, idx=3)
    )
    assert where(view) == {"ok": ["n1", "n2"]}
    assert codes(view) == {"huge": "cluster_too_small", "wide": "cluster_too_small"}
    assert (
        texts(view)["huge"] == "needs 3 nodes x 4 GPUs, and the whole mesh has 2 such nodes; it waits until nodes join"
    )


def test_what_only_lost_nodes_could_complete_holds_nothing():
    view = mesh(node("n1"), node("n2", ready=False), group("pair", 2, 4, idx=1), group("one", 1, 4, idx=2))
    assert where(view) == {"one": ["n1"]}
    assert (
        texts(view)["pair"]
        == "needs 2 nodes x 4 GPUs, and only 1 of 2 such nodes are ready; it waits until lost nodes return"
    )


def test_free_in_total_is_not_free_on_one_node():
    nodes = [node("n1", 4, 1), node("n2", 4, 1)]
    assert texts(mesh(*nodes, group("pair", 1, 2))) == {
        "pair": "needs 1 node x 2 GPUs: 0 of 2 nodes pass; 2 too few free GPUs; "
        "2 GPUs free in total, at most 1 on one node"
    }
    assert where(mesh(*nodes, group("spread", 2, 1))) == {"spread": ["n1", "n2"]}


def test_each_refusing_filter_is_counted_once_per_node():
    view = mesh(
        node("n1", 8, 8),
        node("n2", 8, 2),
        node("n3", 8, 0),
        node("n4", 8, ready=False),
        node("n5", 8, kind="A100"),
        node("n6", 4),
        node("n7", 8, 6, cleaning=2),
        node("n8", 8, penalty_score=5000, penalty_ms=NOW - 1000),
        group("a", 2, 8, gpu_types=("H100",)),
    )
    (reason,) = plan(view, NOW).reasons.values()
    assert reason["text"] == (
        "needs 2 nodes x 8 H100: 1 of 8 nodes pass; 1 lost, 1 other gpu_type, 1 too few GPUs, "
        "1 cards still being cleaned, "
        "2 too few free GPUs, 1 just failed a claim; 28 GPUs free in total, at most 8 on one node"
    )
    assert reason["details"]["refused"] == {
        "lost": 1,
        "gpu_type": 1,
        "too_few_gpus": 1,
        "cleaning": 1,
        "busy": 2,
        "resting": 1,
    }
    assert reason["details"]["pass"] == 1


def test_the_fullest_node_that_fits_is_taken_and_ties_go_by_name():
    view = mesh(node("n1", 4, 4), node("n3", 4, 2), node("n2", 4, 2), node("n4", 4, 1), group("a", 1, 2))
    assert where(view) == {"a": ["n2"]}


def test_the_lowest_free_cards_are_taken():
    (bind,) = plan(mesh(node("n1", 4, 3), group("a", 1, 2)), NOW).binds
    assert bind.placements[0]["gpus"] == ["n1-1", "n1-2"]


@pytest.mark.parametrize(
    ("types", "nodes"),
    [(("H100", "A100"), ["h1", "h2"]), (("A100", "H100"), ["a1", "a2"]), (("B200", "A100"), ["a1", "a2"])],
)
def test_the_first_acceptable_type_that_holds_the_whole_gang(types, nodes):
    view = mesh(
        node("a1", kind="A100"),
        node("a2", kind="A100"),
        node("h1"),
        node("h2"),
        node("h3", 4, 0),
        group("g", 2, 4, gpu_types=types),
    )
    assert where(view) == {"g": nodes}


def test_a_gang_is_not_mixed_from_several_named_types():
    view = mesh(node("a1", 4, kind="A100"), node("a2", 4, 0, kind="A100"), node("h1"), node("h2", 4, 0))
    both = mesh(*view.nodes, group("g", 2, 4, gpu_types=("A100", "H100")))
    assert where(both) == {}
    assert codes(both) == {"g": "mixed_gpu_types"}


def test_a_gang_that_named_no_type_prefers_one_and_takes_any():
    pure = mesh(node("a1", kind="A100"), node("h1"), node("h2"), group("g", 2, 4))
    assert where(pure) == {"g": ["h1", "h2"]}
    mixed = mesh(node("a1", kind="A100"), node("h1"), group("g", 2, 4))
    assert where(mixed) == {"g": ["a1", "h1"]}


def test_a_node_that_failed_a_claim_is_passed_over_while_others_suffice():
    sick = node("n1", penalty_score=PENALTY_UNIT, penalty_ms=NOW - 60_000)
    assert where(mesh(sick, node("n2", 8), group("a"))) == {"a": ["n2"]}
    assert where(mesh(sick, node("n2", 8), group("a", 2, 1))) == {"a": ["n1", "n2"]}
    healed = node("n1", penalty_score=PENALTY_UNIT, penalty_ms=NOW - 2 * PENALTY_HALF_LIFE_MS)
    assert where(mesh(healed, node("n2", 8), group("a"))) == {"a": ["n1"]}


@pytest.mark.parametrize(("score", "rest_s"), [(1, 2), (2, 4), (100, 30)])
def test_a_node_that_failed_rests_longer_each_time_even_when_it_is_the_only_one(score, rest_s):
    sick = node("n1", penalty_score=score * PENALTY_UNIT, penalty_ms=NOW)
    assert where(mesh(sick, group("a")), NOW + rest_s * 1000 - 1) == {}
    assert where(mesh(sick, group("a")), NOW + rest_s * 1000) == {"a": ["n1"]}


def test_ports_differ_on_a_node_and_change_with_the_attempt():
    wanted = free_port(set(), "tg-a", 1)
    rival = next(name for name in map(str, count()) if free_port(set(), f"tg-{name}", 1) == wanted)
    view = mesh(node("n1", 4), group("a", idx=5), group(rival, idx=6), group("c", idx=7))
    ports = [bind.placements[0]["port"] for bind in plan(view, NOW).binds]
    assert len(set(ports)) == 3
    again = plan(mesh(node("n1", 4), group("a", idx=5, attempt=1)), NOW).binds[0].placements[0]["port"]
    assert again != ports[0]
    taken = (
        plan(mesh(node("n1", 4, ports=frozenset({ports[0]})), group("a", idx=5)), NOW).binds[0].placements[0]["port"]
    )
    assert taken == ports[0] + 1


def test_cards_are_counted_within_a_pass():
    view = mesh(node("n1", 4), *(group(f"g{at}", 1, 3, idx=at) for at in range(2)))
    assert where(view) == {"g0": ["n1"]}


def test_groups_without_cards_are_placed_too():
    assert where(mesh(node("n1", 0), group("a", 1, 0))) == {"a": ["n1"]}


def test_a_pass_is_bounded_and_the_next_goes_on():
    view = mesh(node("n1", 64), *(group(f"g{at}", 1, 0, idx=at) for at in range(BINDS_PER_PASS + 6)))
    assert len(plan(view, NOW).binds) == BINDS_PER_PASS


def test_the_sentence_says_what_was_decided():
    view = mesh(node("n1", 4, 2), group("a", 1, 2, idx=1), group("b", 1, 2, idx=2))
    assert plan(view, NOW).sentence == (
        "Placed 1 of 2 waiting groups; b is the first to wait: "
        "needs 1 node x 2 GPUs: 0 of 1 nodes pass; 1 too few free GPUs."
    )
    assert plan(mesh(node("n1"), group("a")), NOW).sentence == "Placed 1 of 1 waiting groups."


def test_equal_views_give_equal_plans_whatever_their_order():
    nodes = [node(f"n{at}", 4, at % 5) for at in range(9)]
    queue = [group(f"g{at}", 1 + at % 3, 1 + at % 4, idx=at) for at in range(12)]
    assert plan(mesh(*nodes, *queue), NOW) == plan(mesh(*nodes, *queue[::-1]), NOW)
