"""A program on a pseudo-terminal: every piece it sends with its time, what it costs, and the screen that it leaves."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyte

COLUMNS, LINES = 120, 40
QUIET_S = 0.04
CPU_CLOCK_OF_A_PROCESS = 2  # clock_getcpuclockid(3), which Python has for threads only
_ROW = re.compile(r"(run-\d{5})\b.*?#(\d+):")


class Terminal:
    """bytes_per_s: how fast the reader takes what is sent; None is at once."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], cwd: Path) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=dict(environment), cwd=cwd, start_new_session=True
        )
        os.close(theirs)
        self.bytes_per_s: float | None = None
        self.pieces: list[tuple[float, bytes]] = []
        self._fed = 0
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            limit = self.bytes_per_s
            try:
                piece = os.read(self._ours, 65_536 if limit is None else 1024)
            except OSError:  # the other end is closed
                return
            if not piece:
                return
            self.pieces.append((time.monotonic(), piece))
            if limit is not None:
                time.sleep(len(piece) / limit)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def sent_bytes(self) -> int:
        return sum(len(piece) for _, piece in self.pieces)

    def cpu_s(self) -> float:
        """User and system time of the whole process, by its own clock: /proc counts in hundredths of a second."""
        return time.clock_gettime(~self.process.pid << 3 | CPU_CLOCK_OF_A_PROCESS)

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) / 1024

    # The screen

    def shown(self, until: float = float("inf")) -> list[str]:
        """The lines after everything that came before this moment. A moment may not lie before an earlier one."""
        while self._fed < len(self.pieces) and self.pieces[self._fed][0] <= until:
            self._stream.feed(self.pieces[self._fed][1])
            self._fed += 1
        return list(self._screen.display)

    def rows(self, until: float = float("inf")) -> dict[str, int]:
        """`{name: value}` of the waiting groups in sight."""
        found = (_ROW.search(line) for line in self.shown(until))
        return {row.group(1): int(row.group(2)) for row in found if row is not None}

    def until(self, text: str, within_s: float = 60.0) -> float:
        """When this text stood on the screen. Raises TimeoutError, with what stands there instead."""
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            while self._fed < len(self.pieces):
                at = self.pieces[self._fed][0]
                if any(text in line for line in self.shown(at)):
                    return at
            if self.process.poll() is not None:
                break
            time.sleep(0.005)
        raise TimeoutError(f"{text!r} did not come; the screen is\n" + "\n".join(self.shown()))

    def paint_ms(self, key: str, within_s: float = 5.0) -> float:
        """From a key to the end of what it brought on the screen, on a screen that is quiet otherwise."""
        seen, struck = len(self.pieces), time.monotonic()
        self.press(key)
        while time.monotonic() < struck + within_s:
            if len(self.pieces) > seen and time.monotonic() - self.pieces[-1][0] > QUIET_S:
                return (self.pieces[-1][0] - struck) * 1000
            time.sleep(0.001)
        raise TimeoutError(f"nothing was painted for the key {key!r}")

    def close(self, within_s: float = 15.0) -> None:
        """Asks it to end as a user would, and ends it."""
        self.bytes_per_s = None
        if self.process.poll() is None:
            self.press("\x03")
        try:
            self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self._reader.join()  # or it would go on with whatever gets the number of the closed file next
        os.close(self._ours)
