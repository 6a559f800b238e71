"""Who of a task hears SIGTERM: the programs, not the shells around them."""

import os

from agentd.shim.host import Process

SHELLS = frozenset("sh bash dash ash zsh ksh mksh busybox".split())
_SIGTERM_BIT = 1 << 14


def stop_targets(main: Process, table: dict[int, Process]) -> list[Process]:
    """The first processes below `main` that are no shells. `sh -c "a && b; c"` must outlive its worker: whoever waits
    for the shell would take its death for the worker's, and its own trap or next command may be what saves the work. A
    shell that traps SIGTERM gets it too, and so does one that runs no program at all."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.ppid, []).append(process)
    targets: list[Process] = []
    queue = [main]
    while queue:
        process = queue.pop()
        below = children.get(process.pid, [])
        if process.name not in SHELLS or not below:
            targets.append(process)
            continue
        if traps_sigterm(process.pid):
            targets.append(process)
        queue.extend(below)
    return _without_readers(targets)


def _without_readers(targets: list[Process]) -> list[Process]:
    """In `train | tee log` only `train` is asked: without a reader its last words would break it. Readers end with what
    they read."""
    if len(targets) < 2:
        return targets
    written = {process.pid: {pipe_of(process.pid, 1), pipe_of(process.pid, 2)} - {""} for process in targets}
    writers = []
    for process in targets:
        read = pipe_of(process.pid, 0)
        if not any(read in pipes for pid, pipes in written.items() if pid != process.pid):
            writers.append(process)
    return writers or targets


def pipe_of(pid: int, fd: int) -> str:
    """Which pipe a descriptor of another process is; nothing where it is none, or not to be seen."""
    try:
        target = os.readlink(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return ""
    return target if target.startswith("pipe:") else ""


def traps_sigterm(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) & _SIGTERM_BIT)
    except (OSError, ValueError):
        return False
    return False
