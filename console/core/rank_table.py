"""Ranks of one attempt as lines, those first that need to be looked at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.core import line
from console.core.columns import Column, Layout, fitted, laid_out
from console.core.format import UNKNOWN, age, coarse, width
from console.core.line import Line, Span
from console.core.marks import Mark, task_mark

if TYPE_CHECKING:
    from console.store.rows import Task

_COLUMNS = (
    Column("rank", "RANK", 5, 9, 9, right=True, grows=5),
    Column("node", "NODE", 8, 20, 8, grows=1),
    Column("cards", "GPU", 4, 6, 5, right=True),
    Column("state", "STATE", 12, 14, 9, grows=2),
    Column("since", "FOR", 6, 6, 6, right=True),
    Column("reason", "", 6, 200, 2, grows=6),
)
_NOW = (
    Column("util", "UTIL", 5, 5, 7, right=True),
    Column("memory", "MEM", 5, 5, 4, right=True),
    Column("silent", "SILENT", 6, 6, 3, right=True),
)
LOW_UTIL = 5.0
_ODD_NAMED = 3
_QUIET_REASONS = frozenset(("", "exited"))


@dataclass(frozen=True, slots=True)
class RankNow:
    """util: percent, mean of its cards. memory_mb: of its fullest card. silent_s: how long its log has been silent."""

    util: float | None
    memory_mb: float | None
    silent_s: float | None


def _shape(tasks: "Sequence[Task]", with_now: bool, cells: int) -> Layout:
    widths = {
        "rank": max((len(str(task.rank)) for task in tasks), default=0),
        "node": max((width(task.node) for task in tasks), default=0),
        "state": max((width(_mark(task).text) for task in tasks), default=0),
    }
    columns = (*_COLUMNS[:-1], *_NOW, _COLUMNS[-1]) if with_now else _COLUMNS
    return laid_out(fitted(columns, widths), cells)


def rank_head(tasks: "Sequence[Task]", now: Mapping[int, RankNow], cells: int) -> Line:
    return _shape(tasks, bool(now), cells).head()


def rank_lines(tasks: "Sequence[Task]", now: Mapping[int, RankNow], now_ms: int, cells: int, most: int) -> list[Line]:
    """The worst first, then those that do what the others do not; more than `most` lines end in a sentence about the
    rest."""
    layout = _shape(tasks, bool(now), cells)
    odd = {task.rank for task in odd_ones(tasks, now)[0]}
    ordered = sorted(tasks, key=lambda task: (-_badness(task), task.rank not in odd, task.rank))
    shown = ordered if len(ordered) <= most else ordered[: max(most - 1, 0)]
    lines = [_line(layout, task, now.get(task.rank), now_ms) for task in shown]
    if len(ordered) > most:
        lines.append(((f"and {len(ordered) - len(lines):,} more ranks, {_rest(ordered[len(lines) :])}", line.DIM),))
    return lines


def odd_ones(tasks: "Sequence[Task]", now: Mapping[int, RankNow]) -> "tuple[list[Task], bool]":
    """The fewer of those whose cards are idle and those whose cards are busy, and whether it is the idle ones; none
    where all do the same. One rank that holds up a collective call idles while the others spin, or works while the
    others wait."""
    idle: list[Task] = []
    busy: list[Task] = []
    for task in tasks:
        if task.status == "running" and (said := now.get(task.rank)) is not None and said.util is not None:
            (idle if said.util < LOW_UTIL else busy).append(task)
    return (idle, True) if len(idle) <= len(busy) else (busy, False)


def odd_line(tasks: "Sequence[Task]", now: Mapping[int, RankNow]) -> str:
    """`rank 5 on gpu-13 is idle while 7 others are busy`, "" where all do the same."""
    odd, idle = odd_ones(tasks, now)
    others = sum(task.status == "running" and task.rank in now for task in tasks) - len(odd)
    if not odd or not others:
        return ""
    named = ", ".join(f"{task.rank} on {task.node}" for task in odd[:_ODD_NAMED])
    more = f" and {len(odd) - _ODD_NAMED} more" if len(odd) > _ODD_NAMED else ""
    many, rest = len(odd) > 1, others > 1
    what, opposite = ("idle", "busy") if idle else ("busy", "idle")
    return (
        f"rank{'s' * many} {named}{more} {'are' if many else 'is'} {what}"
        f" while {others} other{'s' * rest} {'are' if rest else 'is'} {opposite}"
    )


def _badness(task: "Task") -> int:
    return _mark(task).badness


def _mark(task: "Task") -> Mark:
    return task_mark(task.status, task.exit_code, task.signal)


def _rest(tasks: "Sequence[Task]") -> str:
    counted: dict[str, int] = {}
    for task in tasks:
        word = _mark(task).word
        counted[word] = counted.get(word, 0) + 1
    return ", ".join(f"{count:,} {word}" for word, count in counted.items())


def _line(layout: Layout, task: "Task", now: RankNow | None, now_ms: int) -> Line:
    mark = _mark(task)
    running = task.status == "running"
    length = (
        coarse((task.ended_ms or now_ms) - task.started_ms)
        if task.started_ms is not None
        else age(task.bound_ms, now_ms)
        if task.ended_ms is None
        else UNKNOWN
    )
    reason = "" if task.reason in _QUIET_REASONS else task.reason
    if task.ended_ms is not None and not task.released:
        reason = f"{reason}  cards not yet proved clean".strip()
    return layout.row(
        {
            "rank": (str(task.rank), line.TEXT),
            "node": (task.node or UNKNOWN, line.TEXT),
            "cards": (str(len(task.cards)) if task.cards else UNKNOWN, line.TEXT),
            "state": (mark.text, mark.tone),
            "since": (length, line.TEXT if running else line.DIM),
            "reason": (reason, line.DIM),
            **(_now_cells(now) if now is not None and running else {}),
        }
    )


def _now_cells(now: RankNow) -> dict[str, Span]:
    low = now.util is not None and now.util < LOW_UTIL
    memory = f"{now.memory_mb / 1024:.0f}G" if now.memory_mb is not None else UNKNOWN
    silent = coarse(int(now.silent_s * 1000)) if now.silent_s is not None and now.silent_s < 1e9 else UNKNOWN
    return {
        "util": (f"{now.util:.0f} %" if now.util is not None else UNKNOWN, line.WARN if low else line.TEXT),
        "memory": (memory, line.TEXT),
        "silent": (silent, line.DIM),
    }
