"""Proof of life for drills: lines `attempt rank boottime_ns`, appended from a thread while the process lives."""

import os
import threading
import time
from pathlib import Path

PERIOD_S = 0.05


def _write(path: Path, attempt: int, rank: int) -> None:
    # One write of a short line to a file opened for appending: lines of several ranks never mix.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        while True:
            os.write(descriptor, b"%d %d %d\n" % (attempt, rank, time.clock_gettime_ns(time.CLOCK_BOOTTIME)))
            time.sleep(PERIOD_S)
    finally:
        os.close(descriptor)


def start(path: Path, attempt: int, rank: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    threading.Thread(target=_write, args=(path, attempt, rank), name="life-trace", daemon=True).start()
