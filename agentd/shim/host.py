"""What guard and shim need of the host: the process table, signals that cannot hit a stranger, files made by rename.

Standard library only.
"""

import ctypes
import json
import os
import signal
from collections.abc import Iterable
from typing import Any, NamedTuple

_libc = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class Process(NamedTuple):
    """One row of /proc. start: ticks since boot; with pid and boot id it names a process for ever."""

    pid: int
    ppid: int
    start: int
    state: str
    name: str


def prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def unshare(flags: int) -> None:
    if _libc.unshare(flags) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def mount(source: str, target: str, kind: str, flags: int) -> None:
    if _libc.mount(source.encode(), target.encode(), kind.encode(), flags, None) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def read_process(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name is in brackets and may itself hold brackets and spaces.
    head, _, tail = text.rpartition(b")")
    fields = tail.split()
    if len(fields) < 20:
        return None
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    return Process(pid, int(fields[1]), int(fields[19]), fields[0].decode(), name)


def process_table() -> dict[int, Process]:
    """Every process but zombies and the dead."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = read_process(int(name))
            if process is not None and process.state not in "ZX":
                table[process.pid] = process
    return table


def is_alive(pid: int, start: int) -> bool:
    """A zombie does not count: it runs nothing any more."""
    process = read_process(pid)
    return process is not None and process.start == start and process.state not in "ZX"


def descendants(roots: Iterable[int], table: dict[int, Process]) -> list[Process]:
    """Everything below `roots`, parents before children, without the roots themselves."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.ppid, []).append(process)
    found: list[Process] = []
    queue = list(roots)
    seen = set(queue)
    while queue:
        for child in children.get(queue.pop(), ()):
            if child.pid not in seen:
                seen.add(child.pid)
                found.append(child)
                queue.append(child.pid)
    return found


def send(process: Process, number: int) -> bool:
    """By pidfd, after a look at the start time through it: a reused pid is never hit. False where it is gone."""
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        now = read_process(process.pid)
        if now is None or now.start != process.start:
            return False
        signal.pidfd_send_signal(fd, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(fd)
    return True


def write_json(path: str, value: dict[str, Any]) -> None:
    """By rename: a reader finds the whole file or none. Not synced: what it tells of ends with the host."""
    temporary = f"{path}.{os.getpid()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        data = json.dumps(value).encode()
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)
    os.replace(temporary, path)


def read_json(path: str) -> dict[str, Any] | None:
    """None where it is missing, cut short or no JSON object."""
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
