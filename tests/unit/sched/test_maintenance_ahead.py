"""Announced maintenance keeps away what would run into it, and nothing else."""

from typing import Any

import pytest

from mesh.core.control.view import View
from mesh.core.sched.plan import plan
from mesh.core.sched.pool import START_MS, UNTOLD_RUN_MS
from mesh.core.sched.view import Plan
from tests.unit.sched.views import group, mesh, node

NOW_MS = 1_764_500_000_000
HOUR_MS = 3_600_000


def placed(planned: Plan) -> dict[str, list[str]]:
    return {bind.group_id: [p["node"] for p in bind.placements] for bind in planned.binds}


@pytest.mark.parametrize(
    ("runs_ms", "closes_in_ms", "goes"),
    [
        (2 * HOUR_MS, 3 * HOUR_MS, True),
        (2 * HOUR_MS, 2 * HOUR_MS + START_MS, True),
        (2 * HOUR_MS, 2 * HOUR_MS + START_MS - 1, False),
        (None, 48 * HOUR_MS, True),
        (None, UNTOLD_RUN_MS, True),
        (None, UNTOLD_RUN_MS - 1, False),
        (1000, -5, False),
    ],
)
def test_whether_it_would_be_over_decides(runs_ms: int | None, closes_in_ms: int, goes: bool) -> None:
    planned = plan(mesh(node("a", closes_ms=NOW_MS + closes_in_ms), group("g", runs_ms=runs_ms)), NOW_MS)
    assert bool(planned.binds) is goes
    if not goes:
        reason = planned.reasons["tg-g"]
        assert reason["code"] == "maintenance" and reason["details"]["maintenance"] == ["a"]
        assert "a will have maintenance from 2025-11-30" in reason["text"], reason["text"]
        assert ("names no deadline_s" in reason["text"]) is (runs_ms is None)
        assert reason["text"].endswith("it waits until that is over")


def test_a_long_group_takes_another_node_and_a_short_one_this() -> None:
    soon = node("a", closes_ms=NOW_MS + 2 * HOUR_MS)
    assert placed(plan(mesh(soon, node("b"), group("long", runs_ms=5 * HOUR_MS, per_node_gpu=4)), NOW_MS)) == {
        "tg-long": ["b"]
    }
    both = plan(
        mesh(
            soon,
            node("b", free=0),
            group("long", n_nodes=2, runs_ms=5 * HOUR_MS, per_node_gpu=4),
            group("short", idx=2, runs_ms=HOUR_MS, per_node_gpu=4),
        ),
        NOW_MS,
    )
    assert placed(both) == {"tg-short": ["a"]}, "it is not kept for who cannot use it before its maintenance"
    assert both.reasons["tg-long"]["code"] == "maintenance"


def test_a_waiting_group_counts_the_node_as_refused() -> None:
    planned = plan(
        mesh(node("a", closes_ms=NOW_MS + HOUR_MS), node("b", free=1), group("g", runs_ms=9 * HOUR_MS, per_node_gpu=4)),
        NOW_MS,
    )
    reason = planned.reasons["tg-g"]
    assert reason["code"] == "insufficient_gpus" and reason["details"]["refused"] == {"maintenance": 1, "busy": 1}
    assert "1 with maintenance before it would be over" in reason["text"]


def test_who_said_nothing_prefers_a_node_without_a_window() -> None:
    nodes = (node("a", free=1, closes_ms=NOW_MS + 9 * HOUR_MS), node("b"))
    assert placed(plan(mesh(*nodes, group("g")), NOW_MS)) == {"tg-g": ["b"]}
    assert placed(plan(mesh(*nodes, group("g", runs_ms=HOUR_MS)), NOW_MS)) == {"tg-g": ["a"]}


def row(window: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "node_id": "a", "api_addr": "10.0.0.1:7460", "state": "ready", "gpus": [], "runtime": "process",
        "penalty": {"score": 0, "at_ms": 0}, "window": window,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("over", "closes_ms"),
    [({}, 5_000), ({"mode": "wait"}, 65_000), ({"open": True}, None), (None, None)],
)
def test_a_window_closes_the_node_when_groups_are_moved(over: dict[str, Any] | None, closes_ms: int | None) -> None:
    window = {"from_ms": 5_000, "until_ms": 90_000, "mode": "move", "deadline_s": 60, "open": False, "at_ms": 1}
    view = View()
    view.extend(1, [["node", "a", row(None if over is None else {**window, **over})]])
    assert view.sched().nodes[0].closes_ms == closes_ms
