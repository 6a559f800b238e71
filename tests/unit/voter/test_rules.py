"""Small rules of a voter: controllers' beats, agreement of states, timers."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from mesh.voter.agreement import Agreement
from mesh.voter.beats import Beats
from mesh.voter.options import TIMERS


def test_a_leader_is_lost_after_three_silent_seconds_and_not_before() -> None:
    beats = Beats(expected=True)
    assert not beats.lost(100.0)
    beats.leads(100.0, True)
    assert not beats.lost(103.0)
    assert beats.lost(103.1)
    beats.beat(103.2)
    assert not beats.lost(106.2)
    assert beats.lost(106.3)
    beats.leads(107.0, False)
    assert not beats.lost(200.0)
    beats.leads(300.0, True)
    assert not beats.lost(302.0)


def test_nobody_is_missed_where_no_controllers_are_expected() -> None:
    beats = Beats(expected=False)
    beats.leads(0.0, True)
    assert not beats.lost(1000.0)


def agreement(samples: list[tuple[int, str]], index: int, state_hash: str) -> Agreement:
    machine: Any = SimpleNamespace(samples=samples, index=index, state_hash=state_hash)
    return Agreement(machine, lambda raft_id: f"n{raft_id}")


def test_equal_hashes_raise_no_alarm_and_different_ones_do_for_good(caplog: pytest.LogCaptureFixture) -> None:
    mine = agreement([(256, "a"), (512, "b")], 600, "c")
    mine.compare(2, [[256, "a"], [512, "b"], [600, "c"]])
    mine.compare(2, [[255, "x"], [601, "x"]])
    assert (mine.alarm, mine.compared) == ("", 3)
    with caplog.at_level(logging.ERROR):
        mine.compare(3, [[512, "z"]])
    assert "index 512 differs from that of voter n3" in mine.alarm
    assert "move" in mine.alarm or "moving" in mine.alarm
    mine.compare(3, [[600, "c"]])
    assert mine.alarm
    assert len(caplog.records) == 1


@pytest.mark.parametrize("report", [None, 5, [5], [[1]], [[{}, 1]], [["a", "b"]]])
def test_what_is_no_report_is_ignored(report: object) -> None:
    mine = agreement([], 1, "a")
    mine.compare(2, report)
    assert mine.alarm == ""


@pytest.mark.parametrize("profile", ["fast", "lan", "wan"])
def test_an_election_takes_several_missed_heartbeats(profile: str) -> None:
    timers = TIMERS[profile]
    assert timers.election_ticks >= 5 * timers.heartbeat_ticks
    assert {"fast": 1.0, "lan": 1.2, "wan": 3.0}[profile] == pytest.approx(timers.election_min_s)
