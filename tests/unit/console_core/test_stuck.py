"""A job that does not move: which rank is the odd one out, since when, and what is known of it, wherever one looks."""

import pytest

from console.core.group_list import layout, mark_and_why, needs_a_hand, order_key, row_line
from console.core.line import WARN, plain
from console.core.marks import QUIET, STALLED
from console.core.rank_table import RankNow, odd_line, rank_lines
from console.core.timeline import NoStep, lanes_of, timeline_lines, whole_window
from console.store.rows import group_of_row, task_of_row
from console.store.telemetry import telemetry_of
from tests.snapshots.canned_mesh import NOW_MS, H, M, gid, group_now, group_row, task_rows

NODES = [f"gpu-{at:02d}" for at in range(8)]
TASKS = [task_of_row(row) for _, _, row in task_rows(1, 1, NODES, 8, started_ms=NOW_MS - H)]
GROUP = group_of_row(group_row(1, "qwen", "running", 8, 8, attempt=1, nodes=NODES, started_ms=NOW_MS - H))


def now(*utils: float | None) -> dict[int, RankNow]:
    return {rank: RankNow(util, 1.0, 1.0) for rank, util in enumerate(utils)}


@pytest.mark.parametrize(
    ("utils", "said", "first"),
    [
        ((100, 99, 98, 97, 100, 0, 100, 100), "rank 5 on gpu-05 is idle while 7 others are busy", 5),
        ((0, 0, 3, 0, 0, 0, 0, 91), "rank 7 on gpu-07 is busy while 7 others are idle", 7),
        ((0, 9, 0, 9, 0, 9, 9, 9), "ranks 0 on gpu-00, 2 on gpu-02, 4 on gpu-04 are idle while 5 others are busy", 0),
        ((0, 0, 0, 0, 9, 9, 9, 9), "ranks 0 on gpu-00, 1 on gpu-01, 2 on gpu-02 and 1 more are idle while 4", 0),
        ((100,) * 8, "", 0),
        ((0,) * 8, "", 0),
        ((100, None, 100, 100, 100, 0, 100, 100), "rank 5 on gpu-05 is idle while", 5),
        ((), "", 0),
    ],
)
def test_the_rank_that_does_what_the_others_do_not_stands_first(utils, said, first):
    assert odd_line(TASKS, now(*utils)).startswith(said) and bool(odd_line(TASKS, now(*utils))) == bool(said)
    top = plain(rank_lines(TASKS, now(*utils), NOW_MS, 100, 4)[0])
    assert f"gpu-{first:02d}" in top


def test_a_failed_rank_stands_before_an_idle_one():
    failed = TASKS[3].__class__(**{**{name: getattr(TASKS[3], name) for name in TASKS[3].__slots__}, "status": "lost"})
    tasks = [*TASKS[:3], failed, *TASKS[4:]]
    shown = [plain(row) for row in rank_lines(tasks, now(100, 100, 100, 0, 100, 0, 100, 100), NOW_MS, 100, 8)]
    assert "gpu-03" in shown[0] and "gpu-05" in shown[1]


def progress(age_s: float, stall: str, text: str):
    told = group_now(1, 1, 3120, 2.0, age_s, stall=stall, stall_text=text)
    return telemetry_of({"groups": [told]}).groups[gid(1)]


def test_no_step_for_minutes_is_said_though_it_is_not_sure_that_it_is_stuck():
    spins = progress(1380, "moving", "a card of rank 0 is busy")
    assert mark_and_why(GROUP, spins) == (QUIET, "no step for 23m; a card of rank 0 is busy")
    unseen = progress(1380, "unjudged", "no step for 23 min, but cannot judge: the log of rank 3 is not seen")
    assert mark_and_why(GROUP, unseen)[1] == "no step for 23 min, but cannot judge: the log of rank 3 is not seen"
    assert mark_and_why(GROUP, progress(1380, "stalled", "no step for 23 min"))[0] == STALLED
    for healthy in (progress(170, "moving", "last step 170 s ago"), progress(1, "moving", "last step 1 s ago")):
        assert healthy.quiet == "" and mark_and_why(GROUP, healthy)[0] not in (QUIET, STALLED)
    row = row_line(layout(160, True, {}), GROUP, NOW_MS, False, False, False, spins)
    assert ("R running", WARN) in [(text.strip(), tone) for text, tone in row]
    assert needs_a_hand(GROUP, spins)
    others = order_key("status", GROUP, progress(1, "moving", ""), NOW_MS)
    assert order_key("status", GROUP, spins, NOW_MS) < others


def test_the_timeline_shows_since_when_no_step_came_and_which_rank_is_alone():
    no_step = NoStep(NOW_MS - 30 * M, STALLED, frozenset((5,)), "idle")
    lanes = lanes_of(GROUP, TASKS, [], no_step)
    shown = [plain(row) for row in timeline_lines(lanes, whole_window(GROUP, NOW_MS), NOW_MS, 120, None)]
    assert [row.split()[1] for row in shown[1:]] == ["0-4", "5", "6-7"]
    assert all("▂" in row and "▇" in row for row in shown[1:])
    assert "! stalled" in shown[1] and "R idle" in shown[2]
    assert "▂" not in "".join(
        map(plain, timeline_lines(lanes_of(GROUP, TASKS, []), whole_window(GROUP, NOW_MS), NOW_MS, 120, None))
    )
