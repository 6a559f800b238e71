"""The pane below the list: curve and key numbers on the left, ranks and newest events on the right."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from console.core import line
from console.core.chart import ChartOptions
from console.core.event_lines import event_line, newest
from console.core.format import UNKNOWN, age, folded_nodes, number
from console.core.group_list import Progress, mark_and_why, run_time, value_text
from console.core.line import Line, beside, exactly, joined, wrapped
from console.core.rank_table import RankNow, rank_head, rank_lines

if TYPE_CHECKING:
    from console.store.curve_store import CurveStore
    from console.store.group_store import GroupStore
    from console.store.rows import Group

RANKS_SHOWN = 4
EVENTS_SHOWN = 3


def pane_lines(
    group: "Group",
    focus: "GroupStore | None",
    curves: "CurveStore",
    ranks: Mapping[int, RankNow],
    now_ms: int,
    cells: int,
    height: int,
    glyphs: str,
    progress: Progress | None = None,
) -> list[Line]:
    title = (("─ ", line.RULE), (group.name, line.STRONG), (f"  {group.id} ", line.DIM))
    rule = cells - sum(len(text) for text, _ in title)
    lines: list[Line] = [line.cut((*title, ("─" * max(rule, 0), line.RULE)), cells)]
    known = focus if focus is not None and focus.group_id == group.id and focus.loaded else None
    left_cells = (cells - 3) * 5 // 11
    right_cells = cells - 3 - left_cells
    room = height - 1
    if cells < 90:
        return lines + _facts(group, known, ranks, progress, now_ms, cells, room)
    left = _curve(group, curves, now_ms, left_cells, room, glyphs)
    right = _facts(group, known, ranks, progress, now_ms, right_cells, room)
    return [*lines, *beside(left[:room], right[:room], left_cells, right_cells)]


def _curve(group: "Group", curves: "CurveStore", now_ms: int, cells: int, height: int, glyphs: str) -> list[Line]:
    tag = curves.main_tag() if curves.group_id == group.id else None
    if tag is None:
        text = curves.empty_text if curves.group_id == group.id else "loading …"
        if group.started_ms is None and not group.terminal:
            text = "nothing has run yet"
        return [line.EMPTY] * (height // 2 - 1) + [((f"  {text}", line.DIM),)]
    points = curves.tags[tag]
    step, wall, value = points[-1]
    banner = joined(
        [
            ((" step ", line.DIM), (f"{step:,.0f}", line.STRONG)),
            ((f"{tag} ", line.DIM), (value_text(value), line.STRONG if value == value else line.BAD)),
            ((f"{age(int(wall * 1000), now_ms)} ago", line.DIM),),
        ],
        ("   ", line.TEXT),
    )
    return [banner, *curves.painted(tag, cells, height - 1, ChartOptions(glyphs=glyphs))]


def _facts(
    group: "Group",
    known: "GroupStore | None",
    ranks: Mapping[int, RankNow],
    progress: Progress | None,
    now_ms: int,
    cells: int,
    room: int,
) -> list[Line]:
    mark, why = mark_and_why(group, progress)
    parts: list[Line] = [((mark.text, mark.tone),)]
    if group.n_nodes is not None:
        nodes = f"{group.n_nodes} node{'s' * (group.n_nodes != 1)}"
        parts.append(((f"{nodes} x {group.per_node_gpu} {'|'.join(group.gpu_type) or 'GPU'}", line.TEXT),))
    if group.attempt:
        parts.append(((f"attempt {group.attempt}", line.TEXT),))
    if group.started_ms is not None:
        parts.append((("ran " if group.terminal else "running ", line.DIM), (run_time(group, now_ms), line.TEXT)))
    if group.restarts:
        parts.append(((f"{group.restarts} restart{'s' * (group.restarts != 1)}", line.WARN),))
    lines = [joined(parts, (" · ", line.RULE))]
    if why:
        lines += [((text, mark.tone if mark.badness >= 5 else line.TEXT),) for text in wrapped(why, cells)[:3]]
    if known is None:
        return lines
    resume = known.row.get("resume")
    if isinstance(resume, dict) and resume.get("step") is not None:
        lines.append((("resumed from step ", line.DIM), (number(resume.get("step")), line.TEXT)))
    tasks = known.ranks(group.attempt)
    events = newest(known.events, EVENTS_SHOWN)
    if tasks:
        lines += [line.EMPTY, rank_head(cells, ranks)]
        lines += rank_lines(tasks, ranks, now_ms, cells, max(min(RANKS_SHOWN, room - len(lines) - len(events) - 1), 1))
    elif group.nodes:
        lines.append(((f"on {folded_nodes(group.nodes) or UNKNOWN}", line.TEXT),))
    if events:
        lines += [line.EMPTY, *(event_line(event, now_ms) for event in events)]
    return [exactly(item, cells) for item in lines]
