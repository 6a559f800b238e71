"""A group's events, newest at the end, as lines."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from console.core import line
from console.core.format import age
from console.core.line import Line, cell, hung
from schemas.instants import iso_utc

if TYPE_CHECKING:
    from console.store.rows import Event

_BAD = frozenset(("failed", "root_failure", "rank_lost", "node_lost", "stalled", "deadline_over"))
_WARN = frozenset(
    ("recovering", "rolled_back", "claim_failed", "node_isolated", "requeued", "stopping", "log_lost", "rebuilding")
)
_GOOD = frozenset(("running", "node_returned", "completed"))
EVENTS_SHOWN = 300
# One for each rank: of no use in a summary of a few lines.
_CHATTER = frozenset(("claimed", "rank_started"))


def tone_of(kind: str) -> str:
    return line.BAD if kind in _BAD else line.WARN if kind in _WARN else line.GOOD if kind in _GOOD else line.TEXT


def clock(at_ms: int | None) -> str:
    return iso_utc(at_ms)[11:19] if at_ms is not None else "--:--:--"


def event_line(event: "Event") -> Line:
    return ((f"{clock(event.at_ms)}  ", line.DIM), (_words(event), tone_of(event.kind)))


def event_log(events: "Sequence[Event]", now_ms: int, cells: int) -> list[Line]:
    """All that is known, newest first, each in full with its day and its age."""
    told = told_once(events)
    left_out = len(told) - EVENTS_SHOWN
    lines = [part for event in reversed(told[-EVENTS_SHOWN:]) for part in _dated(event, now_ms, cells)]
    older: Line = ((f" {left_out:,} older ones are in `heteroflow events`", line.DIM),)
    return [*lines, older] if left_out > 0 else lines


def _dated(event: "Event", now_ms: int, cells: int) -> list[Line]:
    when = f"{iso_utc(event.at_ms)[:10]} " if event.at_ms is not None else ""
    since = cell(age(event.at_ms, now_ms), 6, line.DIM, right=True)
    head: Line = ((f" {when}{clock(event.at_ms)}  ", line.DIM), since, ("  ", line.TEXT))
    return hung(head, _words(event), tone_of(event.kind), cells)


def _words(event: "Event") -> str:
    return event.text or event.kind


def told_once(events: "Sequence[Event]") -> "list[Event]":
    """One command may record an exit, the failure that it is and the end of the group, each in the words of the one
    before: of neighbours of one moment the one that says all of it stands for the others."""
    told: list[Event] = []
    for event in events:
        while told and told[-1].at_ms == event.at_ms and _words(told[-1]) in _words(event):
            told.pop()
        if not told or told[-1].at_ms != event.at_ms or _words(event) not in _words(told[-1]):
            told.append(event)
    return told


def newest(events: "Sequence[Event]", most: int) -> "list[Event]":
    """The last few that say something about the group as a whole."""
    telling = told_once([event for event in events if event.kind not in _CHATTER])
    return telling[-most:] if most > 0 else []
