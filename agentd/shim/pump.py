"""Moves what the task prints from its pipes into its log."""

import os
import time

from agentd.core.frames import MAX_PAYLOAD
from agentd.logs.writer import LogWriter


class Pump:
    """streams: fd -> stream number. A stream leaves when its last writer has closed it."""

    def __init__(self, streams: dict[int, int], log: LogWriter) -> None:
        self.streams = dict(streams)
        self._log = log
        for fd in streams:
            os.set_blocking(fd, False)

    def move(self, fd: int) -> bool:
        """One read; False where there is nothing to read now."""
        try:
            data = os.read(fd, MAX_PAYLOAD)
        except BlockingIOError:
            return False
        if not data:
            del self.streams[fd]
            os.close(fd)
            return False
        self._log.append(self.streams[fd], data, time.time_ns())
        return True

    def drain(self) -> None:
        """All that is in the pipes now. To be called when no process of the task is left: whoever else still holds a
        pipe open is not waited for."""
        for fd in list(self.streams):
            while self.move(fd):
                pass
