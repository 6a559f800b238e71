"""Looks at a host from processes of their own, all at once, each with its time: one that hangs in the kernel is left.

A thread would do for most, but not for a share or a driver that hangs: a process with such a thread cannot end.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from agentd.core.doctor.finding import Unanswered

Look = Callable[[], Any]


def look_at_all(looks: Mapping[str, Look], within_s: float) -> dict[str, Any]:
    """What each look gave, as JSON carries it; Unanswered where it hung, raised or died. To be called from a process
    with one thread, since it forks."""
    sys.stdout.flush()
    sys.stderr.flush()
    pending: dict[int, tuple[str, int, bytearray]] = {}
    for name, look in looks.items():
        fd, pid = _start(look)
        pending[fd] = (name, pid, bytearray())
    deadline = time.monotonic() + within_s
    answers: dict[str, Any] = {}
    while pending:
        ready, _, _ = select.select(list(pending), [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            break
        for fd in ready:
            name, pid, heard = pending[fd]
            chunk = os.read(fd, 65536)
            heard += chunk
            if not chunk:
                del pending[fd]
                os.close(fd)
                answers[name] = _answer(bytes(heard), os.waitpid(pid, 0)[1])
    for fd, (name, pid, _) in pending.items():
        os.close(fd)
        # Where it hangs in the kernel the signal waits, and so would we: it is nobody's child once this process ends.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        answers[name] = Unanswered(f"did not answer within {within_s:g} s")
    return {name: answers[name] for name in looks}


def _start(look: Look) -> tuple[int, int]:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _become(look, write)
    os.close(write)
    return read, pid


def _become(look: Look, write: int) -> NoReturn:
    try:
        # What libraries print is no answer.
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        try:
            said = {"facts": look()}
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        with os.fdopen(write, "wb") as file:
            file.write(json.dumps(said).encode())
    finally:
        os._exit(0)


def _answer(heard: bytes, status: int) -> Any:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return Unanswered(f"ended by signal {-code}")
    try:
        said = json.loads(heard)
    except ValueError:
        return Unanswered("gave no answer")
    return Unanswered(f"failed: {said['error']}") if "error" in said else said["facts"]
