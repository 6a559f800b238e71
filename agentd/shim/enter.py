"""Starts one more program beside a running task, within its namespaces. `enter.py [--tty] PID START NS CWD -- WORDS`.

Standard library only: it is a process of its own, since whoever enters a PID namespace cannot leave it. Its exit
status is the program's. The program gets a session of its own inside, so that it and not we hear the terminal's keys.
"""

import ctypes
import fcntl
import os
import signal
import sys
import termios
from collections.abc import Sequence
from typing import NoReturn

PR_SET_PDEATHSIG = 1
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
# In this order: who has entered the user namespace may enter those that belong to it.
NAMESPACES = {
    "pidns": (("mnt", CLONE_NEWNS), ("pid", CLONE_NEWPID)),
    "userns": (("user", CLONE_NEWUSER), ("mnt", CLONE_NEWNS), ("pid", CLONE_NEWPID)),
    "subreaper": (),
}
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
_KEYS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
NOT_FOUND, NOT_RUNNABLE = 127, 126
_GRACE_S = 2.0
_libc = ctypes.CDLL(None, use_errno=True)


def main(argv: Sequence[str]) -> int:
    words = list(argv)
    tty = words[0] == "--tty"
    pid, start, ns, cwd, dashes, *program = words[1:] if tty else words
    if dashes != "--" or not program:
        raise SystemExit("usage: enter.py [--tty] PID START NS CWD -- WORDS (started by the agent)")
    # Not at once: what the program has started is to be told, too.
    _die_with_parent(signal.SIGHUP)
    _enter(int(pid), int(start), ns)
    child = os.fork()
    if child == 0:
        _become(program, cwd, tty)
    for number in _KEYS:
        signal.signal(number, signal.SIG_IGN)
    for number in _PASSED_ON:
        signal.signal(number, lambda told, _: _hang_up(child, told))
    signal.signal(signal.SIGALRM, lambda *_: _tell(child, signal.SIGKILL))
    for fd in (0, 1, 2):
        # The program's end is to be the end of its output.
        os.close(fd)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        ended_by = os.WTERMSIG(status)
        if ended_by != signal.SIGKILL:
            signal.signal(ended_by, signal.SIG_DFL)
        os.kill(os.getpid(), ended_by)
    return os.waitstatus_to_exitcode(status)


def _hang_up(child: int, number: int) -> None:
    """The program and whatever of it is in its process group; what is left of them a moment later is killed."""
    _tell(child, number)
    signal.setitimer(signal.ITIMER_REAL, _GRACE_S)


def _tell(child: int, number: int) -> None:
    try:
        os.killpg(child, number)
    except ProcessLookupError:
        os.kill(child, number)  # it has no group of its own yet


def _enter(pid: int, start: int, ns: str) -> None:
    """Raises OSError; a pid that was used again is refused."""
    opened = [(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY), kind) for name, kind in NAMESPACES[ns]]
    with open(f"/proc/{pid}/stat", "rb") as file:
        if int(file.read().rpartition(b")")[2].split()[19]) != start:
            raise ProcessLookupError(f"process {pid} is another one now")
    for fd, kind in opened:
        if _libc.setns(fd, kind) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        os.close(fd)


def _become(program: Sequence[str], cwd: str, tty: bool) -> NoReturn:
    code = NOT_RUNNABLE
    what = f"working directory {cwd}"
    try:
        _die_with_parent(signal.SIGKILL)
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)  # the interpreter has others
        if tty:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.chdir(cwd)
        what = f"program {program[0]}"
        os.execvp(program[0], list(program))
    except FileNotFoundError as error:
        code = NOT_FOUND
        _say(f"{what}: {error.strerror}")
    except (OSError, ValueError) as error:
        _say(f"{what}: {error}")
    finally:
        os._exit(code)


def _say(text: str) -> None:
    os.write(2, f"{text}\n".encode("utf-8", "replace")[:4000])


def _die_with_parent(number: int) -> None:
    _libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


if __name__ == "__main__":
    try:
        os._exit(main(sys.argv[1:]))
    except OSError as error:
        _say(f"the task cannot be entered: {error}")
        os._exit(NOT_RUNNABLE)
