import itertools

import pytest

from schemas import states
from schemas.states import (
    ACTIVE,
    EVENT_KINDS,
    GONE,
    GROUP_MOVES,
    GROUP_STATUSES,
    PLACED,
    TASK_MOVES,
    TASK_STATUSES,
    TERMINAL,
    group_move,
    group_move_refusal,
    task_move_refusal,
)

# The product's lifecycle as its specification words it, and nothing else. "later": drawn, not yet made.
LIVE = """
pending scheduling; scheduling starting; starting running; running completed; running failed; scheduling pending;
scheduling failed; starting failed; starting recovering; running recovering; recovering pending; scheduling stopping;
starting stopping; running stopping;
recovering stopping; stopping stopped; pending stopped; running pausing; pausing paused; pausing stopping;
paused pending; paused stopping; pending failed; recovering failed; failed pending
"""
LATER = """
running preempting; preempting pending; preempting stopping; running sleeping;
sleeping running; sleeping stopping
"""


def pairs(text: str) -> set[tuple[str, str]]:
    return {(source, target) for source, target in (part.split() for part in text.replace("\n", " ").split(";"))}


def test_group_moves_are_exactly_those_of_the_specification():
    assert {(move.source, move.target) for move in GROUP_MOVES if move.live} == pairs(LIVE)
    assert {(move.source, move.target) for move in GROUP_MOVES if not move.live} == pairs(LATER)
    assert len(GROUP_MOVES) == len({(move.source, move.target) for move in GROUP_MOVES})


@pytest.mark.parametrize(("source", "target"), sorted(itertools.product(GROUP_STATUSES, repeat=2)))
def test_every_other_group_move_is_refused_with_a_reason(source, target):
    legal = (source, target) in pairs(LIVE)
    assert (group_move(source, target) is not None) == legal
    refusal = group_move_refusal(source, target)
    assert (refusal is None) == legal
    if refusal is not None:
        assert source in refusal and target in refusal


def test_nothing_leaves_a_terminal_state_but_an_inference_group_that_is_built_again():
    leaving = [(move.source, move.target) for move in GROUP_MOVES if move.live and move.source in TERMINAL]
    assert leaving == [("failed", "pending")]


@pytest.mark.parametrize(("source", "target"), sorted(itertools.product(TASK_STATUSES, repeat=2)))
def test_every_task_move_is_legal_or_refused_with_a_reason(source, target):
    refusal = task_move_refusal(source, target)
    assert (refusal is None) == ((source, target) in TASK_MOVES)
    if source in GONE:
        assert refusal and f"is {source}" in refusal


def test_task_moves_only_go_forward():
    order = {name: at for at, name in enumerate(TASK_STATUSES)}
    assert all(order[source] < order[target] for source, target in TASK_MOVES)
    assert not [source for source, _ in TASK_MOVES if source in GONE]


def test_the_tables_name_only_known_things():
    assert {move.source for move in GROUP_MOVES} | {move.target for move in GROUP_MOVES} == set(GROUP_STATUSES)
    assert {move.kind for move in GROUP_MOVES if move.live} <= set(EVENT_KINDS)
    assert set(GROUP_STATUSES) == ACTIVE | TERMINAL
    assert PLACED <= ACTIVE
    assert {source for source, _ in TASK_MOVES} | {target for _, target in TASK_MOVES} == set(TASK_STATUSES)
    assert set(TASK_STATUSES) >= GONE


def test_every_status_can_be_reached_and_every_active_one_can_be_stopped():
    reached, fresh = set(), {states.PENDING}
    while fresh:
        reached |= fresh
        fresh = {move.target for move in GROUP_MOVES if move.source in fresh} - reached
    assert reached == set(GROUP_STATUSES)
    for status in ACTIVE - {states.STOPPING}:
        assert {move.target for move in GROUP_MOVES if move.source == status} & {states.STOPPING, states.STOPPED}
