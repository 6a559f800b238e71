"""What each rank did when: a lane a rank, equal lanes folded, and in each column the worst that fell into it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.core import line
from console.core.format import folded_nodes, width
from console.core.line import Line, Span, cell
from console.core.marks import Mark, task_mark
from schemas.instants import iso_utc

if TYPE_CHECKING:
    from console.store.rows import Event, Group, Task

NAME_CELLS, NODE_CELLS, END_CELLS = 14, 16, 22
_NARROW = (11, 11, 16)  # below 100 cells

# state -> (glyph, tone, badness): in a column the worst one is seen.
STATES = {
    "waits": ("░", line.WAIT, 1),
    "runs": ("▇", line.GOOD, 2),
    "starts": ("▒", line.BUSY, 3),
    "quiet": ("▂", line.WARN, 4),
    "ends": ("▚", line.WARN, 5),
    "fault": ("✖", line.BAD, 9),
}
LEGEND = (
    ("waits", "pending"),
    ("starts", "start steps"),
    ("runs", "running"),
    ("quiet", "no step"),
    ("ends", "ending"),
    ("fault", "fault"),
)


@dataclass(frozen=True, slots=True)
class Stretch:
    """state from begin_ms to end_ms; None: until now."""

    begin_ms: int
    end_ms: int | None
    state: str


@dataclass(frozen=True, slots=True)
class Lane:
    attempt: int
    rank: int
    node: str
    stretches: tuple[Stretch, ...]
    end: tuple[str, str]  # what it came to, with its tone


@dataclass(frozen=True, slots=True)
class Window:
    begin_ms: int
    end_ms: int

    @property
    def length_ms(self) -> int:
        return max(self.end_ms - self.begin_ms, 1)

    def column(self, at_ms: int, cells: int) -> int:
        return (at_ms - self.begin_ms) * cells // self.length_ms


@dataclass(frozen=True, slots=True)
class NoStep:
    """Of an attempt that runs. since_ms: its newest step; mark: what it is called; odd: ranks that do what the others
    do not; word: what that is."""

    since_ms: int
    mark: Mark
    odd: frozenset[int]
    word: str


def lanes_of(
    group: "Group", tasks: "Sequence[Task]", events: "Sequence[Event]", no_step: NoStep | None = None
) -> list[Lane]:
    """By attempt, then rank."""
    waits = _waits(group, events)
    ordered_stop = _first_by_attempt(
        events, ("stopping", "pausing", "recovering", "root_failure", "deadline_over", "stalled")
    )
    roots = {event.attempt: event.rank for event in events if event.kind == "root_failure"}
    return [
        _lane(
            task,
            waits.get(task.attempt),
            ordered_stop.get(task.attempt),
            roots.get(task.attempt),
            no_step if task.attempt == group.attempt and task.status == "running" else None,
        )
        for task in tasks
    ]


def _waits(group: "Group", events: "Sequence[Event]") -> dict[int, int]:
    """Since when each attempt's bind was waited for."""
    since, begun = group.created_ms, {}
    for event in events:
        if event.kind == "bound" and event.attempt is not None and since is not None:
            begun[event.attempt] = since
        elif (
            event.kind in ("requeued", "rolled_back", "rebuilding", "resumed", "submitted") and event.at_ms is not None
        ):
            since = event.at_ms
    return begun


def _first_by_attempt(events: "Sequence[Event]", kinds: tuple[str, ...]) -> dict[int, int]:
    found: dict[int, int] = {}
    for event in events:
        if event.kind in kinds and event.attempt is not None and event.at_ms is not None:
            found.setdefault(event.attempt, event.at_ms)
    return found


def _lane(
    task: "Task", waited_ms: int | None, stop_ms: int | None, failed_rank: int | None, no_step: NoStep | None
) -> Lane:
    stretches: list[Stretch] = []
    bound = task.bound_ms
    if waited_ms is not None and bound is not None and bound > waited_ms:
        stretches.append(Stretch(waited_ms, bound, "waits"))
    if bound is not None:
        stretches.append(Stretch(bound, task.started_ms or task.ended_ms, "starts"))
    if task.started_ms is not None:
        end = task.ended_ms
        if stop_ms is not None and task.started_ms < stop_ms and (end is None or stop_ms < end):
            stretches += [Stretch(task.started_ms, stop_ms, "runs"), Stretch(stop_ms, end, "ends")]
        else:
            stretches.append(Stretch(task.started_ms, end, "runs"))
    mark = task_mark(task.status, task.exit_code, task.signal)
    text, tone = mark.text, mark.tone
    if no_step is not None and task.started_ms is not None:
        stretches.append(Stretch(max(no_step.since_ms, task.started_ms), None, "quiet"))
        text = f"{mark.letter} {no_step.word}" if task.rank in no_step.odd else no_step.mark.text
        tone = no_step.mark.tone
    if mark.badness >= 6 and task.ended_ms is not None:
        text = f"{mark.text} {iso_utc(task.ended_ms)[11:19]}"
        # How a rank ends that was told to is no fault of its own.
        if stop_ms is None or task.ended_ms < stop_ms or task.status == "lost" or task.rank == failed_rank:
            stretches.append(Stretch(task.ended_ms, task.ended_ms, "fault"))
        else:
            tone = line.DIM
    return Lane(task.attempt, task.rank, task.node, tuple(stretches), (text, tone))


def whole_window(group: "Group", now_ms: int) -> Window:
    begin = group.created_ms if group.created_ms is not None else now_ms - 60_000
    end = group.ended_ms if group.terminal and group.ended_ms is not None else now_ms
    return Window(begin, max(end, begin + 1000) + max((end - begin) // 50, 500))


def timeline_lines(lanes: Iterable[Lane], window: Window, now_ms: int, cells: int, cursor: float | None) -> list[Line]:
    wide = plot_cells(cells)
    name_cells, node_cells, end_cells = _widths(cells)
    lines: list[Line] = []
    attempt: int | None = None
    for first, last, nodes, drawn, end in _folded(lanes, window, now_ms, wide):
        if first.attempt != attempt:
            attempt = first.attempt
            lines.append(((f" attempt {attempt}", line.TITLE),))
        name = f"rank {first.rank}" if first.rank == last.rank else f"ranks {first.rank}-{last.rank}"
        if len(name) >= name_cells:
            name = name.partition(" ")[2]  # rather without the word than with half a number
        spans: list[Span] = [
            (" ", line.TEXT),
            cell(name, name_cells - 1, line.TEXT),
            (" ", line.TEXT),
            cell(folded_nodes(nodes), node_cells - 1, line.DIM),
            (" ", line.TEXT),
        ]
        text, room = end[0], end_cells - 2
        while width(text) > room and " " in text:
            text = text.rpartition(" ")[0]  # rather no time than half of one: the events below tell it
        lines.append((*spans, *_drawn(drawn, wide, cursor), ("  ", line.TEXT), cell(text, room, end[1])))
    return lines


def _widths(cells: int) -> tuple[int, int, int]:
    return (NAME_CELLS, NODE_CELLS, END_CELLS) if cells >= 100 else _NARROW


def plot_cells(cells: int) -> int:
    return max(cells - 1 - sum(_widths(cells)), 8)


_Drawn = tuple[tuple[int, int, str], ...]


def _folded(
    lanes: Iterable[Lane], window: Window, now_ms: int, wide: int
) -> list[tuple[Lane, Lane, list[str], _Drawn, tuple[str, str]]]:
    """Neighbours that look the same become one: at this resolution they are."""
    folded: list[tuple[Lane, Lane, list[str], _Drawn, tuple[str, str]]] = []
    for lane in lanes:
        drawn = tuple(
            (
                window.column(stretch.begin_ms, wide),
                window.column(stretch.end_ms if stretch.end_ms is not None else now_ms, wide),
                stretch.state,
            )
            for stretch in lane.stretches
        )
        if folded:
            first, last, nodes, seen, end = folded[-1]
            if first.attempt == lane.attempt and last.rank + 1 == lane.rank and seen == drawn and end == lane.end:
                folded[-1] = (first, lane, [*nodes, lane.node] if lane.node != nodes[-1] else nodes, seen, end)
                continue
        folded.append((lane, lane, [lane.node], drawn, lane.end))
    return folded


def _drawn(drawn: _Drawn, wide: int, cursor: float | None) -> list[Span]:
    columns: list[str | None] = [None] * wide
    for begin, end, state in drawn:
        for at in range(max(begin, 0), min(end, wide - 1) + 1):
            known = columns[at]
            if known is None or STATES[state][2] > STATES[known][2]:
                columns[at] = state
    under = round(cursor * (wide - 1)) if cursor is not None else -1
    spans: list[Span] = []
    for at, state_at in enumerate(columns):
        glyph, tone = STATES[state_at][:2] if state_at is not None else (" ", line.TEXT)
        if at == under:
            glyph, tone = ("│" if state_at is None else glyph), line.KEY
        if spans and spans[-1][1] == tone:
            spans[-1] = (spans[-1][0] + glyph, tone)
        else:
            spans.append((glyph, tone))
    return spans


_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800)


def axis_line(window: Window, cells: int) -> Line:
    """Times of day (UTC) above the lanes."""
    wide = plot_cells(cells)
    rough = window.length_ms / 1000 / max(wide // 11, 1)
    step = next((item for item in _STEPS_S if item >= rough), _STEPS_S[-1]) * 1000
    text = [" "] * wide
    at_ms = -(-window.begin_ms // step) * step
    while at_ms < window.end_ms:
        stamp = iso_utc(at_ms)
        label = stamp[11:19] if step < 60_000 else stamp[5:10] if step >= 86_400_000 else stamp[11:16]
        start = min(window.column(at_ms, wide), wide - len(label))
        if start >= 0 and all(item == " " for item in text[max(start - 1, 0) : start + len(label) + 1]):
            text[start : start + len(label)] = label
        at_ms += step
    return ((" " * (1 + sum(_widths(cells)[:2])), line.TEXT), ("".join(text), line.DIM))


def legend_line() -> Line:
    spans: list[Span] = [(" ", line.TEXT)]
    for state, word in LEGEND:
        glyph, tone, _ = STATES[state]
        spans += [(glyph, tone), (f" {word}   ", line.DIM)]
    return tuple(spans)
