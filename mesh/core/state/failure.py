"""What one rank's exit says about the group. A later classifier on the host sets the report's `class`, which wins
here."""

from typing import Any

from schemas.states import ENDING_FAILED, ENDING_RECOVERING

MESH_CLOCK, HOST_CLOCK = "mesh", "host"
_SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
}


def exit_text(exit_code: int | None, signal: int | None) -> str:
    if signal is not None and signal > 0:
        return f"was killed by {_SIGNALS.get(signal, 'signal')} ({signal})"
    if exit_code is None:
        return "ended without an exit status"
    if 128 < exit_code < 128 + 65:
        return (
            f"exited {exit_code}, which a shell gives for {_SIGNALS.get(exit_code - 128, 'signal')} ({exit_code - 128})"
        )
    return f"exited {exit_code}"


def judge_exit(report: dict[str, Any]) -> str | None:
    """How an unasked-for exit ends the attempt: None for success, else an ending. A fenced rank did not fail, whatever
    its code: its host lost the lease. A lost one, or one without any status, fell with its host."""
    exit_code, signal, why = report["exit_code"], report["signal"], report.get("why", "")
    if why in ("fenced", "lost") or (exit_code is None and not signal and why != "start_failed"):
        return ENDING_RECOVERING
    if exit_code == 0 and not signal and why not in ("stopped", "killed", "start_failed"):
        return None
    return ENDING_FAILED


def is_own(report: dict[str, Any]) -> bool:
    """Whether the program failed before its host ended it."""
    return judge_exit(report) == ENDING_FAILED and report.get("why") != "stopped"


def failure_of(report: dict[str, Any], node: str, at_ms: int, sent_ms: int | None) -> dict[str, Any]:
    """at_ms: when the report was committed; sent_ms: when it was sent, by the host's clock."""
    rank, exit_code, signal = report["rank"], report["exit_code"], report["signal"]
    text = f"rank {rank} on {node} {exit_text(exit_code, signal)}."
    if report.get("why") == "start_failed":
        text = f"rank {rank} on {node} could not be started."
    if report.get("text"):
        text = f"{text} {report['text']}"
    return {
        "class": report.get("class") or _class(exit_code, signal, report.get("why", "")),
        "rank": rank,
        "exit_code": exit_code,
        "signal": signal,
        "text": text[0].upper() + text[1:],
        **_exit_time(report, at_ms, sent_ms),
    }


def _exit_time(report: dict[str, Any], at_ms: int, sent_ms: int | None) -> dict[str, Any]:
    """By the mesh's clock where the report says how long ago it was, whatever the host's clock shows."""
    exit_ms = report.get("at_ms")
    if exit_ms is None or sent_ms is None:
        return {"exit_ms": exit_ms, "exit_clock": HOST_CLOCK}
    return {"exit_ms": at_ms - max(0, sent_ms - exit_ms), "exit_clock": MESH_CLOCK}


def _class(exit_code: int | None, signal: int | None, why: str) -> str:
    if why == "start_failed":
        return "user_entrypoint"
    if signal:
        return "killed"
    return "user_code" if exit_code else "unknown"
