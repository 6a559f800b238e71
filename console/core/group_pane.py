"""The pane below the list: curve and key numbers on the left, ranks and newest events on the right."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from console.core import line
from console.core.chart import ChartOptions
from console.core.event_lines import event_line, newest
from console.core.format import UNKNOWN, folded_nodes, number
from console.core.group_list import Progress, mark_and_why, run_time
from console.core.line import Line, beside, exactly, joined, shortened, wrapped
from console.core.marks import QUIET, STALLED
from console.core.newest_line import newest_line
from console.core.rank_table import RankNow, odd_line, rank_head, rank_lines
from console.core.risk_line import risk_line

if TYPE_CHECKING:
    from console.store.curve_store import CurveStore
    from console.store.group_store import GroupStore
    from console.store.rows import Group

RANKS_SHOWN = 4
EVENTS_SHOWN = 3
WHY_LINES = 3


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
    lines: list[Line] = [line.headed(group.name, group.id, cells)]
    known = focus if focus is not None and focus.group_id == group.id and focus.loaded else None
    left_cells = (cells - 3) * 5 // 11
    right_cells = cells - 3 - left_cells
    room = height - 1
    if cells < 90:
        return lines + _facts(group, known, ranks, progress, now_ms, cells, room)
    left = _curve(group, curves, progress, now_ms, left_cells, room, glyphs)
    right = _facts(group, known, ranks, progress, now_ms, right_cells, room)
    return [*lines, *beside(left, right, left_cells, right_cells)]


def _curve(
    group: "Group",
    curves: "CurveStore",
    progress: Progress | None,
    now_ms: int,
    cells: int,
    height: int,
    glyphs: str,
) -> list[Line]:
    own = curves if curves.group_id == group.id else None
    tag = own.main_tag() if own is not None else None
    said = newest_line(own, progress, now_ms)
    banner: Line = ((" ", line.TEXT), *said) if said else line.EMPTY
    if tag is None:
        text = curves.empty_text if curves.group_id == group.id else "loading …"
        if group.started_ms is None and not group.terminal:
            text = "nothing has run yet"
        said_why: list[Line] = [((f"  {part}", line.DIM),) for part in wrapped(text, max(cells - 4, 1))]
        return shortened([banner, *[line.EMPTY] * max(height // 2 - 2, 0), *said_why], height, cells)
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
        said: list[Line] = [((text, mark.tone if mark.badness >= 5 else line.TEXT),) for text in wrapped(why, cells)]
        lines += shortened(said, WHY_LINES, cells)
    tasks = known.ranks(group.attempt) if known is not None else []
    if mark in (STALLED, QUIET) and (odd := odd_line(tasks, ranks)):
        lines += [((text, mark.tone),) for text in wrapped(odd, cells)]
    if risk := risk_line(group, known.row if known is not None else {}, now_ms):
        lines.append(risk)
    if known is None:
        return lines
    resume = known.row.get("resume")
    if isinstance(resume, dict) and resume.get("step") is not None:
        lines.append((("resumed from step ", line.DIM), (number(resume.get("step")), line.TEXT)))
    events = newest(known.events, EVENTS_SHOWN)
    if tasks:
        lines += [line.EMPTY, rank_head(tasks, ranks, cells)]
        lines += rank_lines(tasks, ranks, now_ms, cells, max(min(RANKS_SHOWN, room - len(lines) - len(events) - 1), 1))
    elif group.nodes:
        lines.append(((f"on {folded_nodes(group.nodes) or UNKNOWN}", line.TEXT),))
    if events:
        lines += [line.EMPTY, *(event_line(event) for event in events)]
    return [exactly(item, cells) for item in shortened(lines, room, cells)]
