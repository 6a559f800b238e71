"""A group's events, newest at the end, as lines."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from console.core import line
from console.core.format import age
from console.core.line import Line, cell
from schemas.instants import iso_utc

if TYPE_CHECKING:
    from console.store.rows import Event

_BAD = frozenset(("failed", "root_failure", "rank_lost", "node_lost", "stalled", "deadline_over"))
_WARN = frozenset(
    ("recovering", "rolled_back", "claim_failed", "node_isolated", "requeued", "stopping", "log_lost", "rebuilding")
)
_GOOD = frozenset(("running", "node_returned", "completed"))
# One for each rank: of no use in a summary of a few lines.
_CHATTER = frozenset(("claimed", "rank_started"))


def tone_of(kind: str) -> str:
    return line.BAD if kind in _BAD else line.WARN if kind in _WARN else line.GOOD if kind in _GOOD else line.TEXT


def clock(at_ms: int | None) -> str:
    return iso_utc(at_ms)[11:19] if at_ms is not None else "--:--:--"


def event_line(event: "Event", now_ms: int, dated: bool = False) -> Line:
    """dated: its day too, and its age."""
    when = f"{iso_utc(event.at_ms)[:10]} " if dated and event.at_ms is not None else ""
    spans: Line = ((f"{when}{clock(event.at_ms)}  ", line.DIM),)
    if dated:
        spans = (*spans, cell(age(event.at_ms, now_ms), 6, line.DIM, right=True), ("  ", line.TEXT))
    return (*spans, (event.text or event.kind, tone_of(event.kind)))


def newest(events: "Sequence[Event]", most: int) -> "list[Event]":
    """The last few that say something about the group as a whole."""
    telling = [event for event in events if event.kind not in _CHATTER]
    return telling[-most:] if most > 0 else []
