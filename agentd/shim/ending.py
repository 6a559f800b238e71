"""When a task must be asked to stop and when it must be killed, and in whose name. Pure."""

from typing import NamedTuple

from agentd.core.deadline import NEVER_NS, Verdict


class Ending(NamedTuple):
    """why: "" while nothing has asked for the end. Once asked, SIGTERM is sent once and the kill only comes nearer."""

    why: str = ""
    kill_at_ns: int = NEVER_NS
    reason: str = ""


def fence(ending: Ending, verdict: Verdict) -> Ending:
    if not verdict.kill:
        return ending
    if ending.why:
        return ending._replace(kill_at_ns=min(ending.kill_at_ns, verdict.kill_at_ns))
    return Ending("fenced", verdict.kill_at_ns, verdict.why)


def stop(ending: Ending, now_ns: int, grace_ns: int, reason: str) -> Ending:
    kill_at_ns = min(ending.kill_at_ns, now_ns + max(grace_ns, 0))
    if ending.why:
        return ending._replace(kill_at_ns=kill_at_ns)
    return Ending("stopped", kill_at_ns, reason)


def abandon(ending: Ending, now_ns: int, reason: str) -> Ending:
    """At once: who would have to end it later cannot find it any more."""
    if ending.why:
        return ending._replace(kill_at_ns=min(ending.kill_at_ns, now_ns))
    return Ending("lost", now_ns, reason)


def why_ended(ending: Ending, signal: int | None) -> str:
    """A stop or a fence that was asked for wins over how the program then ended."""
    if ending.why:
        return ending.why
    return "exited" if signal is None else "killed"
