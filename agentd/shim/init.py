"""PID 1 of a task's namespace: starts the program, passes signals on, reaps, and says how the program ended.

When it returns, the kernel kills whatever the program left behind. Lines on the status pipe: `run`, `fail TEXT`,
`term` (a SIGTERM came: the shim knows who must hear it), `end WAIT_STATUS`.
"""

import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import NoReturn

_PASSED_ON = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)


def run(argv: Sequence[str], env: Mapping[str, str], cwd: str, status: int, out: int, err: int) -> NoReturn:
    main = os.fork()
    if main == 0:
        become(argv, env, cwd, status, out, err)
    os.close(out)
    os.close(err)
    _pass_signals_on(main, status)
    while True:
        pid, wait_status = os.wait()
        if pid == main:
            os.write(status, f"end {wait_status}\n".encode())
            os._exit(0)


def become(argv: Sequence[str], env: Mapping[str, str], cwd: str, status: int, out: int, err: int) -> NoReturn:
    """Turns this process into the program. `run` is said just before: what follows can only fail by saying so."""
    what = "standard streams"
    try:
        os.setsid()
        null = os.open("/dev/null", os.O_RDONLY)
        for fd, target in ((null, 0), (out, 1), (err, 2)):
            os.dup2(fd, target)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGCHLD, *_PASSED_ON):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        what = f"working directory {cwd}"
        os.chdir(cwd)
        what = f"program {argv[0]}"
        os.write(status, b"run\n")
        os.execvpe(argv[0], list(argv), dict(env))
    except OSError as error:
        os.write(status, f"fail {what}: {error.strerror}\n".encode("utf-8", "replace")[:4000])
    except ValueError as error:
        os.write(status, f"fail {what}: {error}\n".encode("utf-8", "replace")[:4000])
    finally:
        os._exit(127)


def _pass_signals_on(main: int, status: int) -> None:
    def pass_on(number: int, _: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(main, number)

    def tell(_: int, __: FrameType | None) -> None:
        os.write(status, b"term\n")

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    signal.signal(signal.SIGTERM, tell)
