"""Starts the task's program so that everything it ever starts can be ended as one.

The shim forks a go-between that makes the PID namespace, forks the namespace's PID 1 and leaves; as a subreaper the
shim inherits PID 1. (A process that unshared its own PID namespace could start nothing outside of it any more.) PID 1
starts the program only after the shim has recorded it, so there is never a task that guard and agent cannot find.
"""

import contextlib
import os
import select
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

from agentd.shim import init
from agentd.shim.host import PR_SET_PDEATHSIG, mount, prctl, unshare

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
# As they are outside: in a new user namespace everyone is nobody until mapped.
_UID, _GID = os.geteuid(), os.getegid()
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_SLAVE = 2, 4, 8, 0x4000, 0x80000


# A namespace that was made and then could not be used: whoever is in it can only leave, and another begins afresh.
_HALF = "half"


class Program(NamedTuple):
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    isolation: Sequence[str]


class Held(NamedTuple):
    """A task that waits for its go. pid: of PID 1, or of the program itself where there is no namespace.

    go_fd: one byte starts the program; closing it unused ends the task unborn. status_fd: lines from PID 1."""

    ns: str
    pid: int
    go_fd: int
    status_fd: int
    out_fd: int
    err_fd: int


def hold(program: Program, private_fds: Sequence[int]) -> Held:
    """private_fds: the shim's own, closed in everything it starts. Raises OSError where nothing can be forked."""
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    go_read, go_write = os.pipe()
    status_read, status_write = os.pipe()
    between = os.fork()
    if between == 0:
        signal.set_wakeup_fd(-1)
        for fd in (out_read, err_read, go_write, status_read, *private_fds):
            os.close(fd)
        _go_between(program, go_read, status_write, out_write, err_write)
    for fd in (out_write, err_write, go_read, status_write):
        os.close(fd)
    os.waitpid(between, 0)
    kind, _, rest = os.read(status_read, 256).decode().strip().partition(" ")
    if kind == _HALF:
        for fd in (out_read, err_read, go_write, status_read):
            os.close(fd)
        return hold(program._replace(isolation=[one for one in program.isolation if one != rest]), private_fds)
    if kind not in ("pidns", "userns", "subreaper"):
        raise OSError(f"no process could be made for the task: {rest or 'its go-between died'}")
    os.set_blocking(status_read, False)
    return Held(kind, int(rest), go_write, status_read, out_read, err_read)


def _go_between(program: Program, go: int, status: int, out: int, err: int) -> NoReturn:
    code = 1
    try:
        ns, usable = _unshare(program.isolation)
        pid = os.fork() if usable else 0
        if usable and pid == 0:
            _inside(program, ns, go, status, out, err)
        os.write(status, f"{ns} {pid}\n".encode() if usable else f"{_HALF} {ns}\n".encode())
        code = 0
    except OSError as error:
        os.write(status, f"failed {error.strerror}\n".encode())
    finally:
        os._exit(code)


def _unshare(kinds: Sequence[str]) -> tuple[str, bool]:
    """The first kind that this host allows, and whether it can be used."""
    for kind in kinds:
        if kind == "subreaper":
            break
        try:
            # One call makes all or nothing.
            unshare((_CLONE_NEWUSER if kind == "userns" else 0) | _CLONE_NEWPID | _CLONE_NEWNS)
        except OSError:
            continue
        return kind, kind != "userns" or _map_own_user()
    return "subreaper", True


def _map_own_user() -> bool:
    """Some hosts let anyone make a user namespace and no one be somebody in it."""
    try:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{_UID} {_UID} 1")
        _write("/proc/self/gid_map", f"{_GID} {_GID} 1")
    except OSError:
        return False
    return True


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _inside(program: Program, ns: str, go: int, status: int, out: int, err: int) -> NoReturn:
    try:
        if not os.read(go, 1):
            os._exit(0)
        # Only now: the go-between was the parent before, and its end would have been taken for the shim's.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if _hung_up(go):
            os._exit(0)
        if ns == "subreaper":
            init.become(program.argv, program.env, program.cwd, status, out, err)
        _mount_proc()
        init.run(program.argv, program.env, program.cwd, status, out, err)
    finally:
        os._exit(127)


def _hung_up(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def _mount_proc() -> None:
    """So that a program finds itself in /proc by the pid it knows. Not everywhere allowed, and not needed to end it."""
    with contextlib.suppress(OSError):
        mount("none", "/", "", _MS_REC | _MS_SLAVE)
        mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
