"""The shim's end of a log. Never raises for the disk: a full disk costs output, counted and said, never the task."""

import os
from collections.abc import Iterator

from agentd.core.frames import (
    AFTER_LOSS,
    CONTINUES,
    MAX_PAYLOAD,
    PLATFORM,
    Segment,
    pack_frame,
    pack_segment,
    segment_base,
    segment_name,
)

# The disk is looked at no more often; between two looks so much may go into the reserve.
_LOOK_BYTES = 1 << 20
_RESERVE_BYTES = 256 << 20


def reserved_bytes(disk_bytes: int) -> int:
    """What output leaves free of a disk: a voter that cannot write its log takes its part of the mesh down with it."""
    return min(_RESERVE_BYTES, disk_bytes // 20)


class LogWriter:
    """One writer a directory. `end`: logical offset after the last frame; `lost_bytes`: output that found no room, or
    that the writer's caller never got. reserve: whether room is left on the disk for what matters more than output."""

    def __init__(self, directory: str, max_bytes: int, files: int, reserve: bool = False) -> None:
        self.end = 0
        self.lost_bytes = 0
        self._directory = directory
        self._max_bytes = max_bytes
        self._files = max(files, 1)
        self._reserve = reserve
        self._unlooked, self._short = _LOOK_BYTES, False
        self._fd = -1
        self._size = 0
        self._unsaid_loss = 0
        self._loss_reason = ""
        self._line_from: dict[int, int] = {}
        # Streams that lost output since their last frame, and whether what they write next begins inside a line.
        self._lost_in: dict[int, bool] = {}
        os.makedirs(directory, mode=0o700, exist_ok=True)

    def append(self, stream: int, data: bytes, at_ns: int) -> None:
        for start in range(0, len(data), MAX_PAYLOAD):
            self._append(stream, data[start : start + MAX_PAYLOAD], at_ns)

    def say(self, text: str, at_ns: int) -> None:
        """A line of the platform: its stream number is one that no task can write."""
        self._append(PLATFORM, text.encode("utf-8", "replace")[:MAX_PAYLOAD], at_ns)

    def lose(self, size: int) -> None:
        """Output never got here: a line left open before it ends there, unfinished."""
        self.lost_bytes += size
        self._lost_in.update(dict.fromkeys(self._line_from, False))

    def sync(self, at_ns: int) -> None:
        self._say_loss(at_ns)
        if self._fd >= 0:
            try:
                os.fdatasync(self._fd)
            except OSError as error:
                self._loss_reason = error.strerror or str(error)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, stream: int, payload: bytes, at_ns: int) -> None:
        self._say_loss(at_ns)
        if self._put(stream, payload, at_ns):
            return
        if stream != PLATFORM:
            self.lost_bytes += len(payload)
            self._unsaid_loss += len(payload)
            self._lost_in[stream] = not payload.endswith(b"\n")

    def _say_loss(self, at_ns: int) -> None:
        if not self._unsaid_loss:
            return
        text = f"{self._unsaid_loss} bytes of output were lost here: the log could not be written ({self._loss_reason})"
        if self._put(PLATFORM, text.encode(), at_ns):
            self._unsaid_loss = 0

    def _put(self, stream: int, payload: bytes, at_ns: int) -> bool:
        if self._reserve and not self._has_room(len(payload)):
            return False
        if self._is_over() and not self._next_segment():
            return False
        lost = stream in self._lost_in
        inside = self._lost_in.get(stream, stream in self._line_from)
        flags = (CONTINUES if inside else 0) | (AFTER_LOSS if lost else 0)
        frame = pack_frame(stream, flags, at_ns, payload)
        if not self._write(frame):
            return False
        if lost:
            # Only now: until here a reader must be led to the head of the line that the loss broke off.
            del self._lost_in[stream]
            self._line_from.pop(stream, None)
        self._note_line(stream, payload)
        self.end += len(frame)
        return True

    def _has_room(self, size: int) -> bool:
        self._unlooked += size
        if self._short or self._unlooked >= _LOOK_BYTES:
            self._unlooked = 0
            try:
                found = os.statvfs(self._directory)
            except OSError:
                return True  # the write will tell
            kept = reserved_bytes(found.f_blocks * found.f_frsize)
            self._short = found.f_bavail * found.f_frsize < kept
            if self._short:
                amount = f"{kept >> 20} MiB" if kept >= 1 << 20 else f"{kept >> 10} KiB"
                self._loss_reason = f"the last {amount} of the disk are kept for the mesh's own log"
        return not self._short

    def _is_over(self) -> bool:
        """Full, or cut or taken away from outside: what is written behind a hole nobody could read."""
        if self._fd < 0 or self._size >= self._max_bytes:
            return True
        now = os.fstat(self._fd)
        return now.st_size != self._size or now.st_nlink == 0

    def _note_line(self, stream: int, payload: bytes) -> None:
        if stream == PLATFORM or payload.endswith(b"\n"):
            self._line_from.pop(stream, None)
        elif b"\n" in payload:
            self._line_from[stream] = self.end
        else:
            self._line_from.setdefault(stream, self.end)

    def _write(self, data: bytes) -> bool:
        try:
            written = 0
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            self._loss_reason = error.strerror or str(error)
            # A reader must never find half a frame before a whole one.
            os.ftruncate(self._fd, self._size)
            os.lseek(self._fd, self._size, os.SEEK_SET)
            return False
        self._size += len(data)
        return True

    def _next_segment(self) -> bool:
        path = os.path.join(self._directory, segment_name(self.end))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        before = (self._fd, self._size)
        try:
            self._fd, self._size = os.open(path, flags, 0o600), 0
        except OSError as error:
            self._loss_reason = error.strerror or str(error)
            return False
        header = pack_segment(Segment(self.end, min(self._line_from.values(), default=self.end)))
        if not self._write(header):
            os.close(self._fd)
            os.unlink(path)
            self._fd, self._size = before
            return False
        if before[0] >= 0:
            os.close(before[0])
        self._drop_oldest()
        return True

    def _drop_oldest(self) -> None:
        for base in sorted(self._bases())[: -self._files]:
            try:
                os.unlink(os.path.join(self._directory, segment_name(base)))
            except OSError as error:
                self._loss_reason = error.strerror or str(error)

    def _bases(self) -> Iterator[int]:
        for name in os.listdir(self._directory):
            base = segment_base(name)
            if base is not None:
                yield base
