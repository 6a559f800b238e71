"""What the agent ordered for one task: spec.json and stop.json."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentd.shim.host import read_json
from agentd.shim.record import CONTAINER, MARK, SPEC, STOP

ISOLATION = ("pidns", "userns", "subreaper")


class ContainerOrder(NamedTuple):
    """A container that the agent has made and not started. socket: the engine's; log_files: how many its log has, each
    rotated at log_file_bytes."""

    id: str
    socket: str
    log_files: int
    log_file_bytes: int


class Spec(NamedTuple):
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    stop_grace_s: float
    policy: str
    log_max_bytes: int
    log_files: int
    lease_path: str
    isolation: Sequence[str]
    token: Any


class StopOrder(NamedTuple):
    """The grace runs from at_ns (CLOCK_BOOTTIME), when the agent wrote it down, not from when it was read."""

    at_ns: int
    grace_s: float
    why: str


def read_spec(directory: str) -> Spec:
    """Raises ValueError for a file that is missing or does not make sense."""
    value = read_json(os.path.join(directory, SPEC))
    if value is None:
        raise ValueError(f"{SPEC} in {directory} is missing or damaged")
    try:
        shell, log = value.get("shell", ""), value["log"]
        argv = ["/bin/sh", "-c", str(shell)] if shell else [str(word) for word in value["argv"]]
        if not argv:
            raise ValueError(f"{SPEC} in {directory} names no program")
        env = {str(name): str(text) for name, text in value["env"].items()}
        return Spec(
            argv,
            {**env, MARK: directory},
            str(value.get("cwd") or directory),
            float(value["stop_grace_s"]),
            str(value["on_isolation"]),
            int(log["max_bytes"]),
            int(log["files"]),
            str(value["lease_path"]),
            [kind for kind in value.get("isolation") or ISOLATION if kind in ISOLATION],
            value["token"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{SPEC} in {directory} is not as expected: {error!r}") from error


def read_container(directory: str) -> ContainerOrder | None:
    """None for a task that is no container. Raises ValueError for a file that does not make sense."""
    value = read_json(os.path.join(directory, CONTAINER))
    if value is None:
        return None
    try:
        return ContainerOrder(
            str(value["id"]), str(value["socket"]), int(value["log_files"]), int(value["log_file_bytes"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{CONTAINER} in {directory} is not as expected: {error!r}") from error


def read_stop(directory: str) -> StopOrder | None:
    value = read_json(os.path.join(directory, STOP))
    if value is None:
        return None
    try:
        return StopOrder(int(value["at_ns"]), float(value["grace_s"]), str(value["why"]))
    except (KeyError, TypeError, ValueError):
        return None
