"""Which processes a task is made of, and how all of them end. Used by shim, guard and runtime alike."""

import os
import signal
from collections.abc import Callable, Collection, Sequence

from agentd.shim.host import Process, descendants, process_table, read_process, send
from agentd.shim.record import MARK, NAMESPACES, TaskRecord
from agentd.shim.targets import SHELLS, stop_targets


def task_processes(record: TaskRecord, directory: str, table: dict[int, Process]) -> Sequence[Process]:
    """All living processes of the task; with a namespace its PID 1 comes first."""
    first = table.get(record.pid)
    if first is not None and first.start != record.start:
        first = None
    found = {} if first is None else {p.pid: p for p in (first, *descendants([first.pid], table))}
    if record.ns not in NAMESPACES:
        shim = table.get(record.shim_pid)
        if shim is not None and shim.start == record.shim_start:
            found.update((p.pid, p) for p in descendants([shim.pid], table))
        found.update((p.pid, p) for p in _marked(directory, table))
    return list(found.values())


def terminate(record: TaskRecord, directory: str) -> Sequence[Process]:
    """SIGTERM to the programs of the task; who was there to hear it."""
    table = process_table()
    first = table.get(record.pid)
    if first is None or first.start != record.start:
        return [process for process in task_processes(record, directory, table) if _ask(process)]
    # PID 1 is the shim's own. Orphans that came to it, or to the shim, are below no shell and hear it directly.
    parent = first.pid if record.ns in NAMESPACES else record.shim_pid
    mains = [process for process in table.values() if process.ppid == parent]
    if record.ns not in NAMESPACES and first not in mains:
        mains.append(first)
    targets = {target.pid: target for main in mains for target in stop_targets(main, table)}
    return [target for target in targets.values() if _ask(target)]


def ask_again(asked: Sequence[Process]) -> Sequence[Process]:
    """A shell's child heard the signal before it became its program, with the shell's handler, and the program never
    did. Returns `asked` as they are now called."""
    now = [read_process(process.pid) for process in asked]
    same = [new for old, new in zip(asked, now, strict=True) if new is not None and new.start == old.start]
    called = {process.pid: process.name for process in asked}
    for process in same:
        if called[process.pid] in SHELLS and process.name not in SHELLS:
            _ask(process)
    return same


def _ask(process: Process) -> bool:
    """A stopped process hears nothing before it goes on."""
    return send(process, signal.SIGTERM) and (process.state not in "Tt" or send(process, signal.SIGCONT))


def kill(record: TaskRecord, directory: str) -> bool:
    """One round of SIGKILL; True once nothing of the task is alive. To be repeated until then."""
    if record.ns in NAMESPACES:
        # The kernel kills all of a namespace with its PID 1, and lets that go only after the last of them.
        first = read_process(record.pid)
        if first is None or first.start != record.start:
            return True
        send(first, signal.SIGKILL)
        return _is_gone(record)
    return _kill_all(lambda: task_processes(record, directory, process_table()))


def kill_marked(directory: str) -> bool:
    """As `kill`, where the record of the task is lost: by the mark that its processes carry."""
    return _kill_all(lambda: _marked(directory, process_table()))


def kill_strays(root: str, known: Collection[str]) -> bool:
    """As `kill`, of whatever carries the mark of a task below `root` that is none of the known directories."""
    start = f"{MARK}={root.rstrip('/')}/".encode()
    marks = {f"{MARK}={directory}".encode() for directory in known}

    def strays() -> Sequence[Process]:
        table = process_table()
        return [
            process
            for process in table.values()
            if any(word.startswith(start) and word not in marks for word in _environment(process.pid))
        ]

    return _kill_all(strays)


def _kill_all(find: Callable[[], Sequence[Process]]) -> bool:
    processes = find()
    # Stopped first, so that none can leave a child behind between the look and the kill.
    for process in processes:
        send(process, signal.SIGSTOP)
    for process in find() if processes else ():
        send(process, signal.SIGKILL)
    return not processes


def _is_gone(record: TaskRecord) -> bool:
    process = read_process(record.pid)
    return process is None or process.start != record.start or process.state in "ZX"


def _marked(directory: str, table: dict[int, Process]) -> Sequence[Process]:
    wanted = f"{MARK}={directory}".encode()
    return [process for process in table.values() if wanted in _environment(process.pid)]


def _environment(pid: int) -> Sequence[bytes]:
    if pid == os.getpid():
        return ()
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return ()
