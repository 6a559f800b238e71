"""A file on its way in: beside its place under a name that nobody is shown, and there by one rename when all of it is
on the disk. All calls here may block; they are for one thread."""

import contextlib
import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from agentd.files.host_files import HostFiles, give_to_owner, tag_of, unreadable
from agentd.logs.writer import reserved_bytes
from schemas.errors import Conflict, DiskFull, HeteroFlowError, InvalidInput, NotFound
from schemas.rules.checkpoints.fence import FencedDirectory
from schemas.rules.target_path import NO_SECOND_NAME, UPLOAD_PREFIX, Place, new_name_refusal

# An upload that nobody went on with for so long is given up; found when another begins beside it.
GIVEN_UP_S = 24 * 3600
_LOOKED_AT = 10_000
_READ = 1 << 20
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_FINISHED_MODE = 0o644


@dataclass(slots=True)
class Summed:
    """The digest of the first `size` bytes of a part file, carried from one request to the next."""

    digest: Any
    size: int = 0

    @staticmethod
    def nothing() -> "Summed":
        return Summed(hashlib.sha256())


class PartFile:
    """open, then write any number of times, then finish or drop; close in any case."""

    def __init__(self, files: HostFiles, place: Place, name: str, overwrite: bool, parents: bool) -> None:
        self._files, self._place, self._part = files, place, name
        self._overwrite, self._parents = overwrite, parents
        self._stack = contextlib.ExitStack()
        self._directory = self._file = -1
        self.size = 0

    def open(self, new: bool) -> None:
        """new: nothing of it is there yet. Raises NotFound, Conflict, InvalidInput, DiskFull."""
        place = self._place
        if not place.segments:
            raise Conflict("not_a_file", f"{place.path} is the mount itself", "name a file in it")
        name = place.segments[-1]
        if (refusal := new_name_refusal(name)) is not None:
            raise InvalidInput("invalid_target_path", f"{name[:80]!r} {refusal}", "name it otherwise", "target_path")
        try:
            self._directory = self._stack.enter_context(self._above()).descriptor
            self._require_room_for_name(name)
            if new:
                self._give_up_old_ones()
            self._file = self._open_part()
        except OSError as error:
            raise self._said(error) from error

    @contextlib.contextmanager
    def _above(self) -> Iterator[FencedDirectory]:
        """Of the new file it is no fault that it is missing."""
        try:
            opened = self._files.directory(self._place, len(self._place.segments) - 1, self._parents)
            with opened as directory:
                yield directory
        except NotFound as error:
            above = self._place.path.rpartition("/")[0]
            raise NotFound(
                "no_such_file", f"the directory {above} is missing", "say --parents (parents=true) to have it made"
            ) from error

    def _open_part(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        file = os.open(self._part, flags, 0o600, dir_fd=self._directory)
        self._stack.callback(os.close, file)
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            # Put there by somebody else: a second name of a file could be the name of any file.
            raise Conflict("not_a_file", f"the unfinished upload {self._part} is no file of ours", "remove it there")
        self.size = found.st_size
        return file

    def _require_room_for_name(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            there = os.stat(name, dir_fd=self._directory, follow_symlinks=False)
            if not stat.S_ISREG(there.st_mode):
                raise Conflict("not_a_file", f"{self._place.path} is there, and is no regular file", "name another")
            if not self._overwrite:
                raise file_exists(self._place)

    def sum(self) -> Summed:
        """Read again, where nobody remembers it."""
        summed = Summed.nothing()
        while block := os.pread(self._file, _READ, summed.size):
            summed.digest.update(block)
            summed.size += len(block)
        return summed

    def require_room(self, more: int) -> None:
        """What the voter of this host needs stays free. Raises DiskFull."""
        disk = os.fstatvfs(self._file)
        free = disk.f_bavail * disk.f_frsize - reserved_bytes(disk.f_blocks * disk.f_frsize)
        if more > free:
            raise DiskFull(
                "disk_full",
                f"{self._place.path} needs {more} bytes more, and its disk has {max(free, 0)} free",
                "free some there, or upload to another mount",
            )

    def write(self, at: int, block: bytes, summed: Summed) -> None:
        """Where some of it is there already it must be the same. Raises Conflict, DiskFull."""
        try:
            there = max(min(self.size - at, len(block)), 0)
            if there and _read_fully(self._file, there, at) != block[:there]:
                raise Conflict(
                    "upload_differs",
                    f"bytes {at} to {at + there} of this upload came before, and were others",
                    "begin the upload again under another upload id",
                )
            rest = memoryview(block)[there:]
            if rest:
                self.require_room(len(rest))
            left = rest
            while left:
                written = os.pwrite(self._file, left, self.size)
                self.size, left = self.size + written, left[written:]
            # Last: a sum that is shorter than the file is made anew.
            summed.digest.update(rest)
            summed.size += len(rest)
        except OSError as error:
            raise self._said(error) from error

    def finish(self, summed: Summed, sha256: str) -> str:
        """The file stands at its place, whole and on the disk. Raises Conflict, InvalidInput, DiskFull."""
        found = str(summed.digest.hexdigest())
        if sha256 and sha256 != found:
            raise InvalidInput(
                "digest_differs", f"what arrived has the SHA-256 {found}, not {sha256}", "upload it again", "sha256"
            )
        name = self._place.segments[-1]
        try:
            give_to_owner(self._file, self._directory)
            os.fchmod(self._file, _FINISHED_MODE)
            os.fsync(self._file)
            if self._overwrite:
                os.rename(self._part, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            else:
                self._link(name)
            os.fsync(self._directory)
        except FileExistsError as error:
            raise file_exists(self._place) from error
        except OSError as error:
            raise self._said(error) from error
        return found

    def _link(self, name: str) -> None:
        """A second name is refused where one is there, which a rename is not."""
        try:
            os.link(self._part, name, src_dir_fd=self._directory, dst_dir_fd=self._directory, follow_symlinks=False)
        except OSError as error:
            if error.errno not in NO_SECOND_NAME:
                raise
            self._require_room_for_name(name)
            os.rename(self._part, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        else:
            os.unlink(self._part, dir_fd=self._directory)

    def tag(self) -> str:
        return tag_of(os.fstat(self._file))

    def drop(self) -> None:
        """Nothing of it is left."""
        if self._directory >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self._part, dir_fd=self._directory)

    def close(self) -> None:
        self._stack.close()

    def _give_up_old_ones(self) -> None:
        until_s = time.time() - GIVEN_UP_S
        with os.scandir(self._directory) as entries:
            names = [entry.name for entry in islice(entries, _LOOKED_AT) if entry.name.startswith(UPLOAD_PREFIX)]
        for name in names:
            with contextlib.suppress(OSError):
                found = os.stat(name, dir_fd=self._directory, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode) and found.st_mtime < until_s:
                    os.unlink(name, dir_fd=self._directory)

    def _said(self, error: OSError) -> HeteroFlowError:
        if error.errno in _FULL:
            return DiskFull(
                "disk_full",
                f"{self._place.path} found no room: {os.strerror(error.errno or 0)}",
                "free some there, or upload to another mount",
            )
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            why = os.strerror(error.errno)
            return Conflict("not_writable", f"the agent of that host cannot write {self._place.path}: {why}")
        return unreadable(self._place, error)


def file_exists(place: Place) -> Conflict:
    return Conflict("file_exists", f"{place.path} exists", "say overwrite=true (put --force) to replace it")


def _read_fully(file: int, length: int, at: int) -> bytes:
    found = bytearray()
    while len(found) < length and (block := os.pread(file, length - len(found), at + len(found))):
        found += block
    return bytes(found)
