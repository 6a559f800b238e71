"""Follows the json-file log of one container through rotation, truncation and the engine's absence.

The engine cuts lines over 16 KiB into records; their texts one after the other are what was written. Records are read
from the files, not through the engine: a place in a file stays exact over an engine's restart, a time stamp does not.
"""

import calendar
import json
import os
import time
from typing import NamedTuple

from agentd.core.frames import ERR, OUT, PLATFORM
from agentd.shim.rotations import Rotations

_READ_BYTES = 1 << 20
_STREAMS = {"stdout": OUT, "stderr": ERR}
# Never inside a record: the quotes of its text are escaped.
_BEGIN = b'{"log":'


class Record(NamedTuple):
    """stream PLATFORM: `data` says what is missing here, `lost` how many bytes of the engine's log that is at least."""

    stream: int
    at_ns: int
    data: bytes
    lost: int = 0


class JsonLog:
    """path: the newest file; older ones are `path.1`, `path.2`, ... file_bytes: which a file has reached when it is
    rotated."""

    def __init__(self, path: str, files: int, file_bytes: int) -> None:
        self._names = [path, *(f"{path}.{number}" for number in range(1, files))]
        self._file_bytes = file_bytes
        self._rotations = Rotations(path)
        # Rotations that had been counted when the file being read was the newest.
        self._born_at = 0
        self._fd = -1
        self._at = 0
        self._rest = b""
        self._second: tuple[str, int] = ("", 0)
        self._last_ns = 0
        self._gap: str | None = None
        self._gap_bytes = 0

    def read(self) -> list[Record]:
        """Whole records from where the last read ended; empty where there is nothing new."""
        if self._fd < 0:
            if not self._open_oldest():
                return []
            if _inode(self._names[-1]):
                self._gap = "output before {1} may be lost to rotation"
        while data := self._more():
            self._at += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            records = [record for line in lines if line for record in self._records(line)]
            if records:
                return records
        return []

    def _more(self) -> bytes:
        data = os.read(self._fd, _READ_BYTES)
        if not data:
            self._look_for_change()
            data = os.read(self._fd, _READ_BYTES)
        return data

    def finish(self) -> list[Record]:
        """To be called when the log is over and `read` gave nothing."""
        lines, self._rest = self._rest.split(b"\n"), b""
        half = [record for line in lines if line for record in self._records(line)]
        return [*half, *self._end_gap("its end", self._last_ns)]

    def close(self) -> None:
        self._rotations.close()
        self._close_file()

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open_oldest(self) -> bool:
        """False where there is no file yet."""
        inodes = self._inodes()
        count = self._rotations.count
        there = [inode for inode in inodes if inode]
        if not there or not self._go_to_inode(there[-1]):
            return False
        # `path` counts also while it is not there: between the two steps of a rotation.
        younger = len(there) - (1 if inodes[0] else 0)
        self._born_at = count - younger if count is not None else 0
        return True

    def _look_for_change(self) -> None:
        """At the end of a file: it was cut, or there is a newer one. What was written to this one before it was put
        aside is read first: the caller asks again."""
        inodes = self._inodes()
        # After the names: only of a file that has been put aside already does its size stay.
        mine = os.fstat(self._fd)
        if mine.st_size < self._at:
            self._gap = "output after {0} may be lost: the engine's log file was cut from outside"
            os.lseek(self._fd, 0, os.SEEK_SET)
            self._at, self._rest = 0, self._rest + b"\n"
            return
        if mine.st_size > self._at:
            return
        if mine.st_ino in inodes:
            # Any name may be free: an engine can be killed between two steps of a rotation.
            younger = [inode for inode in inodes[: inodes.index(mine.st_ino)] if inode]
            if younger and self._go_to_inode(younger[-1]):
                self._born_at += 1
            return
        born_at = self._born_at
        if self._open_oldest():
            self._say_skipped(born_at)

    def _say_skipped(self, born_at: int) -> None:
        """Files that came and went unread. Each was full, to within one record."""
        why = "the engine rotated its log faster than it was read"
        if self._rotations.count is None:
            self._gap = f"output between {{0}} and {{1}} may be lost to rotation, how much is not known: {why}"
            return
        files = self._born_at - born_at - 1
        if files <= 0:
            return
        self._gap_bytes = files * self._file_bytes
        self._gap = f"at least {self._gap_bytes} bytes lost to rotation between {{0}} and {{1}}: {why}"

    def _inodes(self) -> list[int]:
        """By age, the newest first, 0 for one that is not there; all at one moment between two rotations' steps."""
        while True:
            self._rotations.renamed()
            found = [_inode(name) for name in self._names]
            if not self._rotations.renamed():
                return found

    def _go_to_inode(self, inode: int) -> bool:
        """By inode, since a rotation may rename the files between the look and the opening."""
        for name in self._names:
            try:
                fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            if os.fstat(fd).st_ino == inode:
                self._close_file()
                # No record goes on in another file: one that is half there ends here.
                self._fd, self._at, self._rest = fd, 0, self._rest + b"\n"
                return True
            os.close(fd)
        return False

    def _records(self, line: bytes) -> list[Record]:
        if self._gap is not None:
            # A file that was cut begins with a hole where the engine writes on at its old place.
            line = line.lstrip(b"\0")
        try:
            value = json.loads(line)
            stream, at_ns = _STREAMS[value["stream"]], self._time_ns(value["time"])
            record = Record(stream, at_ns, value["log"].encode("utf-8", "surrogatepass"))
        except (ValueError, KeyError, TypeError, AttributeError):
            # An engine killed in mid-record leaves half of one, and the next engine goes on behind it on its line.
            half, begin, whole = line.rpartition(_BEGIN)
            said = f"a record after {_when(self._last_ns)} is lost: the engine's log is damaged there"
            damage = Record(PLATFORM, self._last_ns, said.encode(), len(half or line))
            return [damage, *(self._records(begin + whole) if half else [])]
        said_first = self._end_gap(_when(at_ns), at_ns)
        self._last_ns = at_ns
        return [*said_first, record]

    def _end_gap(self, until: str, at_ns: int) -> list[Record]:
        """Said when it is known what comes behind it."""
        if self._gap is None:
            return []
        said, lost = self._gap.format(_when(self._last_ns), until), self._gap_bytes
        self._gap, self._gap_bytes = None, 0
        return [Record(PLATFORM, at_ns, said.encode(), lost)]

    def _time_ns(self, text: str) -> int:
        second, fraction = text[:19], text[20:].rstrip("Z")
        if second != self._second[0]:
            self._second = (second, calendar.timegm(time.strptime(second, "%Y-%m-%dT%H:%M:%S")))
        return self._second[1] * 1_000_000_000 + int(fraction.ljust(9, "0")[:9] or "0")


def _when(at_ns: int) -> str:
    second, ms = divmod(at_ns // 1_000_000, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)) + f".{ms:03}Z"


def _inode(name: str) -> int:
    try:
        return os.stat(name).st_ino
    except OSError:
        return 0
