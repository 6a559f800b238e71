"""A wrong clock is named once, on its own node, whoever leads; it decides nothing."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.core.clocks import Clock, astray, measured, skew_text
from agentd.core.stall import StallLimits
from agentd.core.telemetry_blob import NodeNow, pack_node
from agentd.telemetry import desk as desk_module
from agentd.telemetry.desk import TelemetryDesk

HOUR = 3600.0


def test_the_middle_is_right_although_the_leader_is_wrong():
    """The leader's clock is an hour slow: to it all others are an hour fast."""
    assert astray({"n1": Clock(0.0), "n2": Clock(HOUR), "n3": Clock(HOUR + 0.1)}) == {"n1": -HOUR}


def test_a_slow_answer_proves_nothing():
    slow = measured(1000.0, 997.0, 1004.0)
    assert slow == Clock(5.0, 2.0)
    assert measured(1000.0, 1002.0, 1004.0) == Clock(0.0, 2.0)
    assert astray({"n1": Clock(0.0), "n2": Clock(0.0), "n3": replace(slow, within_s=3.5)}) == {}
    assert astray({"n1": Clock(0.0), "n2": Clock(0.0), "n3": slow}) == {"n3": 5.0}


def test_two_nodes_cannot_know_which_one_is_wrong():
    assert astray({"n1": Clock(0.0), "n2": Clock(HOUR)}) == {"n1": -HOUR / 2, "n2": HOUR / 2}
    assert "by half the difference" in skew_text(HOUR / 2, 2)


@given(
    st.lists(st.floats(-0.4, 0.4), min_size=3, max_size=30),
    st.floats(-1e6, 1e6),
    st.lists(st.floats(3.0, 1e6) | st.floats(-1e6, -3.0), max_size=14),
)
def test_a_minority_of_wrong_clocks_marks_itself_alone(healthy, leader_off, wrong):
    """Healthy clocks within a second of one another, seen from a leader that may be off by anything."""
    wrong = wrong[: (len(healthy) - 1) // 2]
    clocks = {f"good-{at}": Clock(value + leader_off) for at, value in enumerate(healthy)}
    clocks |= {f"bad-{at}": Clock(value + leader_off) for at, value in enumerate(wrong)}
    assert set(astray(clocks)) == {f"bad-{at}" for at in range(len(wrong))}


@pytest.mark.parametrize(
    ("ahead_s", "said"),
    [(3.21, "3.2 s ahead of"), (-90, "90.0 s behind"), (600, "10 min ahead of"), (HOUR * 2.5, "2 h 30 min ahead of")],
)
def test_people_are_told_in_their_units(ahead_s, said):
    assert said in skew_text(ahead_s, 5)


class Time:
    def __init__(self) -> None:
        self.s = 1000.0

    def monotonic(self) -> float:
        return self.s

    def time_ns(self) -> int:
        return int(self.s * 1e9)


async def test_one_warning_when_it_begins_and_one_when_it_ends(monkeypatch, caplog):
    """n5 is an hour ahead, then down for an hour, then back with a right clock; the mesh is judged every 2 s."""
    clock = Time()
    monkeypatch.setattr(desk_module, "time", clock)
    desk = TelemetryDesk(StallLimits(180.0), 2.0)
    told = []

    async def pass_s(seconds: float, ahead_s: float | None) -> None:
        for _ in range(int(seconds / 2)):
            clock.s += 2
            for node in ("n1", "n2", "n3", "n4"):
                desk.take(node, pack_node(NodeNow(node, True, 2.0, clock=Clock(0.0, 0.01))))
            if ahead_s is not None and clock.s % 10 == 0:  # an idle node is heard seldom
                desk.take("n5", pack_node(NodeNow("n5", True, 2.0, clock=Clock(ahead_s, 0.01))))
            await desk.judge()
            told.append({alert.node_id for alert in desk.book.raised()})

    await pass_s(60, HOUR)
    (alert,) = desk.book.raised()
    assert (alert.rule, alert.node_id, alert.group_id, alert.level) == ("clock_skew", "n5", "", "warning")
    assert "1 h 0 min" in alert.text or "60 min" in alert.text
    await pass_s(HOUR, None)
    assert desk.book.raised() == []
    await pass_s(60, 0.2)
    assert desk.book.raised() == []
    assert sum("clock" in record.getMessage() for record in caplog.records) == 2
    assert set().union(*told) == {"n5"}


async def test_a_clock_that_drifts_over_the_limit_is_told_of_once(monkeypatch):
    clock = Time()
    monkeypatch.setattr(desk_module, "time", clock)
    desk = TelemetryDesk(StallLimits(180.0), 2.0)
    changes = 0
    before: set[str] = set()
    for ahead_s in (1.9, 2.1, 1.9, 2.1, 1.5, 2.2, 0.9, 1.9):
        clock.s += 2
        for node in ("n1", "n2"):
            desk.take(node, pack_node(NodeNow(node, True, 2.0, clock=Clock(0.0))))
        desk.take("n3", pack_node(NodeNow("n3", True, 2.0, clock=Clock(ahead_s))))
        await desk.judge()
        now = {alert.node_id for alert in desk.book.raised()}
        changes += now != before
        before = now
    assert changes == 2
