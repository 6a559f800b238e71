"""Which of a run's files came first: writers put the moment of their start into the name, copies lose it elsewhere."""

import re

MARK = "tfevents"
_TIMESTAMP = re.compile(r"tfevents\.(\d{1,12})(?:\.|\Z)")


def is_event_file(name: str) -> bool:
    """By name; an empty `.profile-empty` only tells TensorBoard's profiler that it may look here."""
    return MARK in name and not name.endswith(".profile-empty")


def started_at(name: str) -> int | None:
    """Unix seconds in `events.out.tfevents.SECONDS.host...`; None for writers that leave it out."""
    found = _TIMESTAMP.search(name)
    return int(found.group(1)) if found else None
