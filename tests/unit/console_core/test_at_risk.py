"""What would be lost is said where a group is looked at, and before it is stopped."""

import pytest

from agentd.http.watch import _brief_row
from console.core.confirm_text import stop_question
from console.core.detail_lines import detail_lines
from console.core.line import line_width, plain
from console.store.curve_store import CurveStore
from console.store.group_store import GroupStore
from console.store.rows import group_of_row
from tests.snapshots.canned_mesh import NOW_MS, H, gid, group_row

ATTEMPT = {"nodes": ["gpu-1", "gpu-2"], "started_ms": NOW_MS - 9 * H, "runs_since_ms": NOW_MS - 3 * H}
SAVED = {"pick": "step-20", "step": 20, "mark": "1", "bytes": 9, "saved_ms": NOW_MS - H // 4, "attempt": 1}


def detail(cells=100, **over):
    row = group_row(1, "llama", "running", 2, 8, **ATTEMPT | over)
    known = GroupStore(gid(1))
    known.apply({"snapshot": [["group", gid(1), row]], "token": "c.1.1", "more": False})
    lines = detail_lines(group_of_row(row), known, CurveStore(gid(1)), {}, None, NOW_MS, cells)
    assert all(line_width(item) <= cells for item in lines)
    return "\n".join(map(plain, lines))


def test_the_detail_says_it():
    assert "4.0 GPU-hours lost if killed now · last saved step-20, 15m ago" in detail(saved=SAVED)
    assert "48.0 GPU-hours lost if killed now · nothing saved yet" in detail()
    before = {**SAVED, "attempt": 0, "saved_ms": NOW_MS - 4 * H}
    assert "48.0 GPU-hours lost if killed now · last saved step-20, 4h00m ago" in detail(saved=before)
    assert "48.0 GPU-hours lost if killed now · no checkpoint_path" in detail(checkpoint_path=None)
    asked = {"by": "ada", "at_ms": NOW_MS, "deadline_ms": NOW_MS + H}
    assert "stops after its next checkpoint, or at " in detail(saved=SAVED, stop_after=asked, cells=120)
    assert "lost if killed now" not in detail(runs_since_ms=None), "a state of before does not tell"


def test_a_name_from_a_hostile_disk_paints_nothing():
    assert "\x1b" not in detail(saved={**SAVED, "pick": "step-20\x1b]0;x\x07"})


@pytest.mark.parametrize("brief", [False, True])
def test_the_question_before_a_stop_says_it(brief):
    rows = [group_row(at, "g", "running", 2, 8, **ATTEMPT, saved=SAVED) for at in (1, 2)]
    rows.append(group_row(3, "w", "pending", 2, 8))
    groups = [group_of_row((_brief_row("group", row) or {}) if brief else row) for row in rows]
    text = "\n".join(map(plain, stop_question(groups, 0, NOW_MS, 100).lines))
    assert "What was computed since the last checkpoint is lost: 8.0 GPU-hours now." in text
