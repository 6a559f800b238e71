"""The list of groups: columns, one row's line, orders."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from console.core import line
from console.core.columns import Column, Layout, fitted, laid_out
from console.core.format import UNKNOWN, age, coarse, folded_nodes, number, width
from console.core.line import Line, Span
from console.core.marks import QUIET, STALLED, Mark, group_mark
from console.core.ticks import short

if TYPE_CHECKING:
    from console.store.rows import Group

GUTTER = 2
STEP_CELLS = 9
LOW_UTIL = 5.0
QUIET_MS = 180_000  # longer than a healthy writer keeps its points to itself
FRESH_FAILURE_MS = 3_600_000  # a failure of the last hour stands on top; later it is history
FILTER_FIELDS = ("status", "user", "tenant", "name", "node", "id", "gpu", "type", "framework", "kind", "attempt")

_NODES_MOST, _NODES_COUNTED = 14, 16  # of more nodes the text is not made only to know its width
_BASE = (
    Column("name", "NAME", 14, 30, 9, grows=2),
    Column("status", "STATE", 12, 12, 9),
    Column("gpu", "GPU", 4, 5, 6, right=True, grows=4),
    Column("nodes", "NODES", 9, _NODES_MOST, 3, grows=3),
    Column("step", "STEP", STEP_CELLS, STEP_CELLS, 3, right=True),
    Column("loss", "LOSS", 8, 8, 3, right=True),
    Column("seen", "SEEN", 5, 5, 2, right=True),
    Column("util", "UTIL", 5, 5, 4, right=True),
    Column("run", "RUN", 6, 6, 5, right=True),
    Column("age", "AGE", 6, 6, 2, right=True),
    Column("user", "WHO", 6, 12, 1, grows=1),
    Column("why", "WHY", 24, 400, 8, grows=9),
)
_TELEMETRY = ("step", "loss", "seen", "util")


@dataclass(frozen=True, slots=True)
class Progress:
    """What a running group last said. stalled: why it is called so, "" where it is not. quiet: what speaks against
    that though no step has come for minutes, "" where one has. util: percent of its cards."""

    step: float | None
    loss: float | None
    at_ms: int | None
    stalled: str = ""
    util: float | None = None
    quiet: str = ""


def layout(cells: int, with_progress: bool, widths: Mapping[str, int]) -> Layout:
    """widths: of what stands in some columns, as `text_widths` counts them."""
    # A reason that is cut after three words is none: on a wide terminal it comes before ages.
    columns = [
        replace(column, least=max(column.least, cells // 4)) if column.name == "why" else column
        for column in _BASE
        if with_progress or column.name not in _TELEMETRY
    ]
    return laid_out(fitted(columns, widths), cells - GUTTER)


def text_widths(group: "Group") -> dict[str, int]:
    """Cells of what differs most from mesh to mesh."""
    nodes = _NODES_MOST if len(group.nodes) > _NODES_COUNTED else width(folded_nodes(group.nodes))
    gpus = width(number(group.gpus))
    return {"name": width(group.name or group.id), "gpu": gpus, "nodes": nodes, "user": width(group.user)}


def head_line(shape: Layout, sort: str, down: bool) -> Line:
    return ((" " * GUTTER, line.TEXT), *shape.head({sort: "▽" if down else "△"}))


def mark_and_why(group: "Group", progress: Progress | None) -> tuple[Mark, str]:
    """A running group whose steps do not come is called stalled, and says since when; where that is not sure it runs,
    and says what is known."""
    if progress is not None and group.status == "running":
        if progress.stalled:
            return STALLED, progress.stalled
        if progress.quiet:
            return QUIET, progress.quiet
    return group_mark(group.status), group.why


def row_cells(group: "Group", now_ms: int, progress: Progress | None) -> dict[str, Span]:
    """Every column's text and tone."""
    mark, why = mark_and_why(group, progress)
    quiet = line.DIM if group.terminal and group.status != "failed" else line.TEXT
    return {
        "name": (group.name or group.id, quiet),
        "status": (mark.text, mark.tone),
        "gpu": (number(group.gpus), quiet),
        "nodes": (folded_nodes(group.nodes), quiet if group.nodes else line.DIM),
        "run": (run_time(group, now_ms), quiet),
        "age": (_in_minutes(group.created_ms, now_ms), line.DIM),
        "user": (group.user or UNKNOWN, line.DIM),
        "why": (why, mark.tone if mark.badness >= 5 else line.DIM),
        **_progress(progress, group, now_ms),
    }


def _in_minutes(since_ms: int | None, now_ms: int) -> str:
    """Nobody looks at the seconds since a submission, and every row would be sent at every tick."""
    if since_ms is None:
        return UNKNOWN
    minutes = (now_ms - since_ms) // 60_000
    return "<1m" if minutes < 1 else f"{minutes}m" if minutes < 100 else coarse(now_ms - since_ms)


def row_line(
    shape: Layout, group: "Group", now_ms: int, here: bool, marked: bool, stale: bool, progress: Progress | None
) -> Line:
    """stale: nothing was heard for a while, so every value is dimmed."""
    cells = row_cells(group, now_ms, progress)
    if here:
        cells["name"] = (cells["name"][0], line.STRONG)
    gutter = ("▌" if here else " ", line.ACCENT), ("●" if marked else " ", line.KEY)
    row = shape.row(cells)
    return (*gutter, *(tuple((text, line.DIM) for text, _ in row) if stale else row))


def _progress(progress: Progress | None, group: "Group", now_ms: int) -> dict[str, Span]:
    if progress is None or group.status not in ("running", "stopping", "pausing"):
        return dict.fromkeys(_TELEMETRY, (UNKNOWN, line.DIM))
    old = progress.at_ms is not None and now_ms - progress.at_ms > QUIET_MS
    tone = line.DIM if old else line.TEXT
    return {
        "step": (_step_text(progress.step), tone),
        "loss": (value_text(progress.loss), tone),
        "seen": (age(progress.at_ms, now_ms), line.WARN if old else line.DIM),
        "util": (percent(progress.util), tone if progress.util is None or progress.util >= LOW_UTIL else line.WARN),
    }


def _step_text(step: float | None) -> str:
    """Of as many cells as its column has; the pane has room for all its digits."""
    if step is None:
        return UNKNOWN
    said = f"{step:,.0f}"
    return said if len(said) <= STEP_CELLS else short(step)


def value_text(value: float | None) -> str:
    """Fixed width and precision; what is no number says so."""
    if value is None:
        return UNKNOWN
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+inf" if value > 0 else "-inf"
    size = abs(value)
    if size and (size < 0.001 or size >= 100_000):
        return f"{value:.1e}"
    return f"{value:.4f}" if size < 100 else f"{value:.1f}"


def percent(value: float | None) -> str:
    return f"{value:.0f} %" if value is not None else UNKNOWN


def run_time(group: "Group", now_ms: int) -> str:
    if group.started_ms is None:
        return UNKNOWN
    return coarse((group.ended_ms or now_ms) - group.started_ms)


def search_text(group: "Group") -> str:
    return " ".join((group.name, group.id, group.user, group.status, group.why, *group.nodes)).lower()


def filter_fields(group: "Group") -> dict[str, Callable[[], object]]:
    return {
        "status": lambda: group.status,
        "user": lambda: group.user,
        "tenant": lambda: group.tenant,
        "name": lambda: group.name,
        "node": lambda: " ".join(group.nodes),
        "id": lambda: group.id,
        "gpu": lambda: group.gpus,
        "type": lambda: " ".join(group.gpu_type),
        "framework": lambda: group.framework,
        "kind": lambda: group.task_type,
        "attempt": lambda: group.attempt,
    }


# Orders: what a column's key is. `state` is the first one: what needs a hand, then what moves, then history.
_CLASS = {
    "recovering": 0,
    "stopping": 1,
    "pausing": 1,
    "starting": 1,
    "scheduling": 1,
    "running": 2,
    "pending": 3,
    "paused": 4,
}


def _by_state(group: "Group", now_ms: int) -> Any:
    if group.terminal:
        ended = group.ended_ms or group.created_ms or 0
        fresh = group.status == "failed" and now_ms - ended < FRESH_FAILURE_MS
        return (0 if fresh else 5, -ended, 0)
    return (_CLASS.get(group.status, 2), -group.priority if group.status == "pending" else 0, _submitted(group))


def _submitted(group: "Group") -> int:
    return group.submit_index if group.status == "pending" else -(group.created_ms or 0)


ORDERS: dict[str, Callable[["Group", int], Any]] = {
    "status": _by_state,
    "name": lambda group, _: group.name.lower(),
    "gpu": lambda group, _: -(group.gpus or 0),
    "nodes": lambda group, _: group.nodes,
    "run": lambda group, now: -((group.ended_ms or now) - group.started_ms) if group.started_ms is not None else 1,
    "age": lambda group, _: -(group.created_ms or 0),
    "user": lambda group, _: group.user.lower(),
}


def order_key(name: str, group: "Group", progress: Progress | None, now_ms: int) -> Any:
    """now_ms: of the last time that everything was put in order, so that rows do not crawl meanwhile."""
    if name == "status" and progress is not None and group.status == "running" and (progress.stalled or progress.quiet):
        return (0 if progress.stalled else 1, -(group.started_ms or 0), 0)
    return ORDERS[name](group, now_ms)


def needs_a_hand(group: "Group", progress: Progress | None) -> bool:
    return group.status in ("failed", "recovering") or bool(
        progress is not None and (progress.stalled or progress.quiet)
    )
