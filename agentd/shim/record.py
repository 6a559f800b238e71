"""The files of a task directory, as written by the agent (spec, stop) and the shim (pid, lost, exit)."""

import os
from typing import Any, NamedTuple

from agentd.shim.host import read_json

SPEC, PID, EXIT, STOP, LOCK, LOG = "spec.json", "pid.json", "exit.json", "stop.json", "shim.lock", "log"
CONTAINER = "container.json"
# How much of a running task's output is lost so far; at its end exit.json says it.
LOST = "lost.json"
# Marks every process of a task in its environment, for hosts where no namespace holds them together.
MARK = "HETEROFLOW_TASK_DIR"
NAMESPACES = ("pidns", "userns")


class TaskRecord(NamedTuple):
    """pid, start: the PID 1 of the task's namespace; without one (`ns` "subreaper") the task's first process."""

    shim_pid: int
    shim_start: int
    pid: int
    start: int
    boot_id: str
    ns: str
    policy: str
    started_ns: int


def read_record(directory: str) -> TaskRecord | None:
    """What pid.json says; None where there is none or it was cut short."""
    value = read_json(os.path.join(directory, PID))
    if value is None:
        return None
    try:
        return TaskRecord(
            int(value["shim_pid"]),
            int(value["shim_start"]),
            int(value["pid"]),
            int(value["start"]),
            str(value["boot_id"]),
            str(value["ns"]),
            str(value["policy"]),
            int(value["started_ns"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def record_json(record: TaskRecord, token: Any, started_ms: int) -> dict[str, Any]:
    return {**record._asdict(), "token": token, "started_ms": started_ms}


def has_ended(directory: str) -> bool:
    return os.path.exists(os.path.join(directory, EXIT))
