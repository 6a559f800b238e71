"""What a held group would never miss is given to those behind it, and nothing else."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.core.sched.plan import plan
from mesh.core.sched.pool import seat_of
from mesh.core.sched.view import Card
from tests.unit.sched.views import group, mesh, node


def bound(*things):
    planned = plan(mesh(*things), 1_000_000)
    return {bind.group_id: [item["node"] for item in bind.placements] for bind in planned.binds}, planned.reasons


def test_two_cards_on_two_nodes_are_no_use_to_who_needs_both_on_one():
    """Each node's three cards come free together: then there are two for the head, whoever has the fourth."""
    nodes = [node("n1", 4, 1, holds=(3,)), node("n2", 4, 1, holds=(3,))]
    binds, reasons = bound(*nodes, group("head", 1, 2, 1), group("wide", 2, 1, 2))
    assert binds == {"tg-wide": ["n1", "n2"]}
    assert "2 GPUs free in total, at most 1 on one node" in reasons["tg-head"]["text"]


@pytest.mark.parametrize("holds", [(1, 1, 1), (1, 2), ()])
def test_where_the_head_would_fit_sooner_without_it_it_waits(holds):
    nodes = [node("n1", 4, 1, holds=holds), node("n2", 4, 1, holds=(3,))]
    binds, reasons = bound(*nodes, group("head", 1, 2, 1), group("wide", 2, 1, 2))
    assert binds == {} and reasons["tg-wide"]["text"].startswith("waits behind head (needs 2,")


def test_every_held_group_counts_and_not_the_first_alone():
    nodes = [node("n1", 8, 2, holds=(6,)), node("n2", 8, 0, holds=(8,))]
    assert bound(*nodes, group("head", 2, 4, 1), group("small", 1, 1, 2))[0] == {"tg-small": ["n1"]}
    assert bound(*nodes, group("head", 2, 4, 1), group("whole", 2, 8, 2), group("small", 1, 1, 3))[0] == {}


def test_who_was_let_by_is_a_holder_for_the_next():
    """Of two free cards one is not missed; both would be, when the two that run end."""
    nodes = [node("n1", 4, 2, holds=(2,))]
    binds, _ = bound(*nodes, group("head", 1, 3, 1), group("first", 1, 1, 2), group("next", 1, 1, 3))
    assert binds == {"tg-first": ["n1"]}


def test_what_needs_no_card_passes_unless_it_takes_a_port_that_is_waited_for():
    nodes = [node("n1", 4, 1)]
    head = group("head", 1, 2, 1, ports=(8000,))
    assert bound(*nodes, head, group("tool", 1, 0, 2))[0] == {"tg-tool": ["n1"]}
    assert bound(*nodes, head, group("tool", 1, 0, 2, ports=(8000,)))[0] == {}


def test_cards_of_several_types_are_kept():
    cards = tuple(Card(f"c{at}", "H100" if at < 2 else "A100", at) for at in range(4))
    mixed = node("n1", 4, 1, holds=(3,))
    mixed = type(mixed)(node_id="n1", ready=True, cards=cards, free=cards[3:], holds=(3,))
    assert bound(mixed, group("head", 1, 2, 1), group("small", 1, 1, 2))[0] == {}


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(1, 4), max_size=5), st.integers(0, 5), st.integers(0, 8), st.integers(0, 5))
def test_it_is_let_by_exactly_where_no_end_of_any_holders_is_the_moment_it_would_be_missed(holds, free, needed, count):
    total = sum(holds) + free
    seat = seat_of(node("n1", total, free, holds=tuple(holds)), 0)
    seat.keep((("H100",), needed, False, (), 0), group("head", 1, needed))
    missed = any(
        free + sum(ended) >= needed > free - count + sum(ended)
        for size in range(len(holds) + 1)
        for ended in combinations(holds, size)
    )
    if count <= free and needed <= total:
        assert seat.keeps_out((("H100",), count, False, (), 0)) == missed
