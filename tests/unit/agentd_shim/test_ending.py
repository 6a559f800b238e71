"""When a task is asked and when it is killed: the earlier end wins, and the first reason stays."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentd.core.deadline import NEVER_NS, Verdict
from agentd.shim.ending import Ending, abandon, fence, stop, why_ended

SECOND = 1_000_000_000
QUIET = Verdict(False, 100 * SECOND, 104 * SECOND, "")
DUE = Verdict(True, 10 * SECOND, 14 * SECOND, "the lease ran out")


def test_nothing_asked_nothing_due() -> None:
    assert fence(Ending(), QUIET) == Ending("", NEVER_NS, "")


def test_a_fence_says_why_and_when_it_kills() -> None:
    assert fence(Ending(), DUE) == Ending("fenced", 14 * SECOND, "the lease ran out")


def test_a_fence_is_not_taken_back_by_a_later_grant() -> None:
    assert fence(fence(Ending(), DUE), QUIET).why == "fenced"


def test_a_fence_hurries_a_stop_and_leaves_its_name() -> None:
    stopping = stop(Ending(), 9 * SECOND, 60 * SECOND, "user")
    assert fence(stopping, DUE) == Ending("stopped", 14 * SECOND, "user")


def test_a_stop_under_a_fence_cannot_delay_it() -> None:
    assert stop(fence(Ending(), DUE), 11 * SECOND, 60 * SECOND, "user") == fence(Ending(), DUE)


def test_who_cannot_be_found_any_more_is_killed_at_once_and_a_stop_keeps_its_name() -> None:
    assert abandon(Ending(), 9 * SECOND, "gone") == Ending("lost", 9 * SECOND, "gone")
    stopping = stop(Ending(), 8 * SECOND, 60 * SECOND, "user")
    assert abandon(stopping, 9 * SECOND, "gone") == Ending("stopped", 9 * SECOND, "user")
    assert abandon(abandon(Ending(), 9 * SECOND, "gone"), 10 * SECOND, "again").kill_at_ns == 9 * SECOND


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(-(10**12), 10**12)), min_size=1))
def test_the_kill_only_comes_nearer(stops: list[tuple[int, int]]) -> None:
    ending = Ending()
    for at_ns, grace_ns in stops:
        after = stop(ending, at_ns, grace_ns, "user")
        assert after.kill_at_ns <= ending.kill_at_ns
        assert after.kill_at_ns <= at_ns + max(grace_ns, 0)
        ending = after


@pytest.mark.parametrize(
    ("ending", "signal", "why"),
    [
        (Ending(), None, "exited"),
        (Ending(), 9, "killed"),
        (Ending("stopped", 0, ""), None, "stopped"),
        (Ending("stopped", 0, ""), 15, "stopped"),
        (Ending("fenced", 0, ""), 9, "fenced"),
    ],
)
def test_what_was_asked_for_wins_over_how_it_ended(ending: Ending, signal: int | None, why: str) -> None:
    assert why_ended(ending, signal) == why
