"""The real console in a real pseudo-terminal: every byte that it sends, and how it leaves the terminal."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
# That of scripts/try, which starts and ends a mesh.
DEADLINE_S = 60.0


class PtyConsole:
    def __init__(self, process: "subprocess.Popen[bytes]", terminal: int, cooked: list[object]) -> None:
        self.process, self._terminal, self._cooked = process, terminal, cooked
        self.sent = b""

    def read(self, seconds: float = 0.05) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self._terminal], [], [], left)[0]:
                return
            try:
                piece = os.read(self._terminal, 65536)
            except OSError:  # the other end is closed
                return
            if not piece:
                return
            self.sent += piece

    def until(self, text: str, since: int = 0) -> None:
        """Until this text was sent; words of one tone are sent in one piece."""

        def sent() -> bool:
            self.read()
            return text.encode() in self.sent[since:]

        until(lambda: f"{text!r} to be sent; the end of what was: {self.sent[-3000:]!r}", sent, DEADLINE_S, every_s=0)

    def press(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def ended(self) -> int:
        def has_ended() -> bool:
            self.read()
            return self.process.poll() is not None

        until(lambda: f"its end; the last that it sent: {self.sent[-3000:]!r}", has_ended, DEADLINE_S, every_s=0)
        self.read(0.2)
        return self.process.returncode

    def close(self) -> None:
        os.close(self._terminal)

    def hang_up(self) -> None:
        """The terminal goes away; it controls nothing here, so no signal says so."""
        os.close(self._terminal)
        self._terminal = os.open(os.devnull, os.O_RDONLY)

    def is_cooked(self) -> bool:
        return termios.tcgetattr(self._terminal)[:4] == self._cooked[:4]

    def modes_left_on(self) -> set[int]:
        """Private modes that were switched on and not off again."""
        on: set[int] = set()
        for numbers, switch in re.findall(rb"\x1b\[\?([0-9;]+)([hl])", self.sent):
            for number in map(int, numbers.split(b";")):
                (on.add if switch == b"h" else on.discard)(number)
        return on


@contextmanager
def pty_console(
    address: str,
    token_file: Path,
    *options: str,
    size: tuple[int, int] = (120, 40),
    environment: Mapping[str, str] | None = None,
    verb: str = "console",
) -> Iterator[PtyConsole]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    cooked = termios.tcgetattr(ours)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(token_file.parent),
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT),
    } | dict(environment or {})
    command = [sys.executable, "-m", "console.cli.main", verb, "--node", address, "--token-file", str(token_file)]
    process = subprocess.Popen(
        [*command, *options], stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=ROOT, start_new_session=True
    )
    os.close(theirs)
    console = PtyConsole(process, ours, cooked)
    try:
        yield console
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        console.close()
