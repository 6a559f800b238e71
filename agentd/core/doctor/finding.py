"""What the doctor says of one thing: how it stands, why that matters, and what mends it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "fail", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding:
    """fail: the host cannot do its work. warn: it can, worse or less safely. skipped: could not or need not be looked
    at. why and fix are empty where all is well."""

    check: str
    state: State
    what: str
    why: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """In the place of facts: the probe hung or broke."""

    text: str


def ok(check: str, what: str) -> Finding:
    return Finding(check, "ok", what)


def skipped(check: str, what: str) -> Finding:
    return Finding(check, "skipped", what)


def failed(findings: Sequence[Finding]) -> bool:
    return any(finding.state == "fail" for finding in findings)
