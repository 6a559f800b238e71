"""How often an engine's log was rotated, counted by the kernel: also while nobody could look.

Every rotation renames the newest file to `NAME.1`; inotify keeps the renames of a directory until they are read, 16,384
of them, which is 100 GB of log in files of 32 MB.
"""

import ctypes
import os
import struct

_libc = ctypes.CDLL(None)
_MOVED_TO, _OVERFLOW = 0x80, 0x4000
_EVENT = struct.Struct("iIII")


class Rotations:
    """path: the newest file. count: since this was made; None where the kernel does not tell (too many watches on this
    host, too many renames)."""

    def __init__(self, path: str) -> None:
        directory, name = os.path.split(path)
        self.count: int | None = 0
        self._name = os.fsencode(name)
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0 or _libc.inotify_add_watch(self._fd, ctypes.c_char_p(os.fsencode(directory)), _MOVED_TO) < 0:
            self.count = None

    def renamed(self) -> bool:
        """Whether any of the log's files got another name since the last call; `count` is of now."""
        found = False
        while data := self._read():
            at = 0
            while at < len(data):
                _, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size + length
                name = data[at - length : at].rstrip(b"\0")
                found = found or name.startswith(self._name)
                if mask & _OVERFLOW:
                    self.count = None
                elif self.count is not None and name == self._name + b".1":
                    self.count += 1
        return found

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, 65536) if self._fd >= 0 else b""
        except BlockingIOError:
            return b""
