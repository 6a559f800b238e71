"""Attempts that led to nothing: how long the next one waits, and where trying ends.

What fails on one node may work on the next, so the first tries follow at once. What fails everywhere, as a full share
or a missing path, would else be tried as fast as the log goes: each try lets a node rest for everybody, writes events,
and uses up a number. A lost or drained node counts as none: another one will do."""

from typing import Any

from mesh.core.state.group import Group
from schemas.limits import (
    ATTEMPTS_MAX,
    REBUILD_RECOVERED_MS,
    RETRIES_AT_ONCE,
    RETRY_FIRST_MS,
    RETRY_LONGEST_MS,
)
from schemas.rules.failure_classes import UNSCHEDULABLE
from schemas.states import FAILED, PENDING

_SAID_MAX = 3000
# Rollbacks that say nothing about the request.
NODES_OWN = frozenset({"node_lost", "drained", "leaders_changed"})


def note_fruitless(group: Group, code: str, why: str) -> None:
    """The present attempt ends before it came to anything."""
    before = group.row.get("retry") or {"attempt": 0, "in_a_row": 0}
    goes_on = before["attempt"] == group.attempt - 1
    in_a_row = before["in_a_row"] + 1 if goes_on else 1
    group.row["retry"] = {"attempt": group.attempt, "in_a_row": in_a_row, "code": code, "text": why}
    group.touch()


def note_ended_by_host(group: Group, why: str) -> None:
    """One that had run for long by then was worth it."""
    since_ms = group.row.get("runs_since_ms")
    if since_ms is None or group.at_ms - since_ms < REBUILD_RECOVERED_MS:
        note_fruitless(group, "ended_by_host", why)


def wait_again(group: Group, text: str, **about: Any) -> None:
    """Back to its place in the queue, from where it is bound again; not at once where its tries come to nothing."""
    if group.attempt >= ATTEMPTS_MAX:
        _give_up(group)
        return
    group.move(PENDING, text, **about)
    retry = group.row.get("retry")
    if retry is None or retry["attempt"] != group.attempt:
        return
    wait_ms = wait_after_ms(retry["in_a_row"])
    retry["at_ms"], retry["not_before_ms"] = group.at_ms, group.at_ms + wait_ms
    said = f"{retry['text'][:_SAID_MAX].rstrip('.')}; that was try {retry['in_a_row']} in a row"
    said += f", the next is made after {wait_ms // 1000} s" if wait_ms else ""
    details = {"attempt": group.attempt, "in_a_row": retry["in_a_row"], "wait_s": wait_ms // 1000}
    group.row["pending_reason"] = {"code": retry["code"], "text": said, "details": details}


def wait_after_ms(in_a_row: int) -> int:
    if in_a_row < RETRIES_AT_ONCE:
        return 0
    return min(RETRY_FIRST_MS << min(in_a_row - RETRIES_AT_ONCE, 20), RETRY_LONGEST_MS)


def _give_up(group: Group) -> None:
    retry = group.row.get("retry")
    last = f" Last: {retry['text']}" if retry is not None and retry["attempt"] == group.attempt else ""
    text = f"It was tried {group.attempt} times, which is all a group gets.{last}"
    failure = {"class": UNSCHEDULABLE, "rank": None, "exit_code": None, "signal": None, "text": text}
    group.row["failure"] = {**failure, "at_ms": group.at_ms}
    group.move(FAILED, f"Failed: {text}", failure_class=UNSCHEDULABLE)
