"""Answers on their way back: one callback, called exactly once with a value or a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from schemas.errors import DiskFull as DiskFullError
from schemas.errors import HeteroFlowError, InvalidInput, NoLeader, OutcomeUnknown, Overloaded, Problem
from schemas.limits import ENTRY_MAX

Reply = Callable[[Any, Problem | None], None]
"""reply(value, None) or reply(None, problem)."""


def no_leader() -> Problem:
    return NoLeader(
        "no_leader",
        "no leader is known here: an election is under way or a majority of voters is unreachable.",
        "Try again in a few seconds.",
    ).problem


def outcome_unknown(why: str) -> Problem:
    return OutcomeUnknown(
        "timeout_unknown", f"{why}; the command may or may not have been accepted.", "Retry with the same request id."
    ).problem


def overloaded() -> Problem:
    return Overloaded(
        "overloaded", "too many commands wait to be written; this one was not taken.", "Try again in a second."
    ).problem


def too_large(name: str, size: int) -> Problem:
    return InvalidInput(
        "invalid_command",
        f"the {name} command has {size} bytes; a log entry holds at most {ENTRY_MAX}.",
        "Make the document, its parameters or the gang smaller.",
    ).problem


def disk_full() -> Problem:
    return DiskFullError(
        "disk_full",
        "the leader's disk is full: it cannot write commands until there is space again. Reads still work.",
        "Free some space on the leader's data directory; it goes on by itself.",
    ).problem


def old_term(planned: int, now: int) -> Problem:
    return HeteroFlowError(
        "planned_in_old_term",
        f"the command was planned in term {planned}, the leader is in term {now}; it was not proposed.",
        "Plan again on the present state.",
        status=409,
    ).problem


def problem_from_wire(raw: object) -> Problem:
    return Problem.from_dict(raw if isinstance(raw, Mapping) else {})
