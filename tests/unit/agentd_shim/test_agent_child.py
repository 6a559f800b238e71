"""When the guard starts its agent again."""

import pytest

from agentd.shim.agent_child import AgentChild

SECOND = 1_000_000_000
KILLED = 9


def exited(code: int) -> int:
    return code << 8


def waits(child: AgentChild, statuses: list[int], lived_ns: int = SECOND) -> list[float | None]:
    """Seconds from each end to the next start."""
    found: list[float | None] = []
    for status in statuses:
        again = child.ended(status, lived_ns).again_at_ns
        found.append(None if again is None else (again - lived_ns) / SECOND)
    return found


def test_waits_double_up_to_half_a_minute() -> None:
    assert waits(AgentChild(["agent"], 0), [KILLED] * 8) == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_a_long_life_starts_the_waits_anew() -> None:
    child = AgentChild(["agent"], 0)
    waits(child, [KILLED] * 5)
    assert waits(child, [KILLED], lived_ns=31 * SECOND) == [0.5]
    assert waits(child, [KILLED]) == [1]


@pytest.mark.parametrize("code", [0, 2, 5])
def test_what_cannot_mend_itself_is_not_started_again(code: int) -> None:
    assert waits(AgentChild(["agent"], 0), [exited(code)]) == [None]


@pytest.mark.parametrize("code", [3, 4])
def test_what_another_agent_may_still_hold_is_tried_three_times(code: int) -> None:
    assert waits(AgentChild(["agent"], 0), [exited(code)] * 3) == [0.5, 1, None]


def test_the_code_is_as_a_shell_gives_it() -> None:
    assert AgentChild(["agent"], 0).ended(KILLED, SECOND).code == 137
    assert AgentChild(["agent"], 0).ended(exited(1), SECOND).code == 1
