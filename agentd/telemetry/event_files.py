"""Event files of a directory tree, followed as they grow.

A turn costs a stat for each directory and file, and reads only what grew: thousands of idle runs are looked at in
milliseconds, and no file stays open between turns. A file is known by (path, device, inode); where another took its
place, or it became shorter, its directory is read again from the beginning.
"""

import os
import stat
import time
from dataclasses import dataclass, field

from schemas.rules.tfevents.file_order import is_event_file
from schemas.rules.tfevents.frames import HEAD_BYTES
from schemas.rules.tfevents.run_tree import RunTree
from schemas.rules.tfevents.scan import FileScan

# What one turn reads at most takes some 30 ms of CPU. A single record may be larger, up to frames.MAX_RECORD_BYTES.
TURN_BYTES = 2**20
MOST_DEPTH = 8
MOST_DIRECTORIES = 2000
MOST_FILES = 2000
MOST_ENTRIES = 100_000
# A directory's time has the grain of a clock tick, and on a share its own clock: one that changed lately is listed
# again, and every one now and then.
_SETTLED_NS = 2 * 10**9
_TURNS_UNLISTED = 60
_UNREAD = -1


@dataclass(slots=True)
class _File:
    path: str
    inode: int
    device: int
    scan: FileScan
    size: int = _UNREAD
    """The file's size when everything in it had been read that could be."""


@dataclass(slots=True)
class _Directory:
    path: str
    below: str
    """The path below the root, "" for the root."""
    depth: int
    files: dict[str, _File] = field(default_factory=dict)
    changed_ns: int = -1
    unlisted: int = 0
    """Turns until it is listed again although its time stands still."""


class EventFiles:
    """root need not exist yet. `tree` holds what was read. Not for two threads at once."""

    def __init__(self, root: str, turn_bytes: int = TURN_BYTES) -> None:
        self.tree = RunTree()
        self.problems: dict[str, str] = {}
        """Path -> why it could not be read, or was left out."""
        self.revision = 0
        """Grows with all that was read."""
        self._turn_bytes = turn_bytes
        self._directories = [_Directory(root, "", 0)]
        self._known = {""}
        self._files = 0
        self._first = 0

    def turn(self) -> bool:
        """Reads what grew, up to the limit of a turn; True if there is more to read already."""
        grown: list[tuple[_File, int]] = []
        # Directories found on the way are appended, and looked at in the same turn.
        for directory in self._directories:
            try:
                changed_ns = os.stat(directory.path).st_mtime_ns
            except OSError as error:
                self._cannot(directory.path, error)
                continue
            directory.unlisted -= 1
            if changed_ns != directory.changed_ns or directory.unlisted < 0:
                self._list(directory, changed_ns)
            if directory.files:
                grown += self._grown(directory)
        return self._read_all(grown) if grown else False

    def _grown(self, directory: _Directory) -> list[tuple[_File, int]]:
        grown: list[tuple[_File, int]] = []
        for file in directory.files.values():
            try:
                now = os.stat(file.path)
            except OSError as error:
                self._cannot(file.path, error)
                continue
            size = now.st_size
            if size == file.size and now.st_ino == file.inode and now.st_dev == file.device:
                continue
            if now.st_ino != file.inode or now.st_dev != file.device or size < file.scan.offset:
                self._begin_again(directory)
                return []
            grown.append((file, size))
        return grown

    def _list(self, directory: _Directory, changed_ns: int) -> None:
        # Taken before the listing: what comes during it is found by the next one.
        directory.changed_ns = changed_ns
        recent = abs(time.time_ns() - changed_ns) < _SETTLED_NS
        # Not all in the same turn.
        directory.unlisted = 0 if recent else _TURNS_UNLISTED + changed_ns // 1000 % _TURNS_UNLISTED
        self.problems.pop(directory.path, None)
        try:
            with os.scandir(directory.path) as entries:
                for count, entry in enumerate(entries):
                    if count >= MOST_ENTRIES:
                        self.problems[directory.path] = f"holds more than {MOST_ENTRIES} names; the others are left out"
                        return
                    if is_event_file(entry.name):
                        self._add_file(directory, entry)
                    # Links to directories are not followed: they can lead round in circles, and anywhere.
                    elif entry.is_dir(follow_symlinks=False):
                        self._add_directory(directory, entry)
        except OSError as error:
            self._cannot(directory.path, error)

    def _add_file(self, directory: _Directory, entry: os.DirEntry[str]) -> None:
        if entry.name in directory.files:
            return
        try:
            found = entry.stat()
        except OSError as error:
            self._cannot(entry.path, error)
            return
        if not stat.S_ISREG(found.st_mode):
            self.problems[entry.path] = "is no regular file"
        elif self._files >= MOST_FILES:
            self.problems[directory.path] = f"there are more than {MOST_FILES} event files; the others are left out"
        else:
            self._files += 1
            self.revision += 1
            scan = self.tree.run(directory.below).open(entry.name)
            directory.files[entry.name] = _File(entry.path, found.st_ino, found.st_dev, scan)

    def _add_directory(self, parent: _Directory, entry: os.DirEntry[str]) -> None:
        below = f"{parent.below}/{entry.name}" if parent.below else entry.name
        if below in self._known:
            return
        if parent.depth >= MOST_DEPTH:
            self.problems[entry.path] = f"is more than {MOST_DEPTH} levels down and left out"
        elif len(self._directories) >= MOST_DIRECTORIES:
            self.problems[parent.path] = f"there are more than {MOST_DIRECTORIES} directories; the others are left out"
        else:
            self._known.add(below)
            self._directories.append(_Directory(entry.path, below, parent.depth + 1))

    def _begin_again(self, directory: _Directory) -> None:
        """What the file that is gone did to the others of its run cannot be taken back point by point."""
        self.revision += 1
        self.tree.forget(directory.below)
        self._files -= len(directory.files)
        directory.files = {}
        directory.changed_ns = -1

    def _read_all(self, grown: list[tuple[_File, int]]) -> bool:
        # Not the same file first each time: one that grows as fast as it is read must not starve the others.
        self._first += 1
        left = self._turn_bytes
        more = False
        for at in range(len(grown)):
            if left <= 0:
                return True
            file, size = grown[(self._first + at) % len(grown)]
            try:
                left -= self._read(file, size, left)
            except OSError as error:
                self._cannot(file.path, error)
                continue
            more = more or file.size == _UNREAD
        return more

    def _read(self, file: _File, size: int, left: int) -> int:
        """How many bytes were read."""
        scan = file.scan
        if size < scan.offset + scan.need:
            file.size = size
            return 0
        if scan.unreadable:
            # A share may show zeros for what has not arrived yet; a header that is really bad stays as it is.
            wanted = HEAD_BYTES
        else:
            wanted = min(max(left, scan.need), size - scan.offset)
        descriptor = os.open(file.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_ino != file.inode:
                return 0
            data = os.pread(descriptor, wanted, scan.offset)
        finally:
            os.close(descriptor)
        scan.feed(data)
        self.revision += 1
        self.problems.pop(file.path, None)
        # Shorter than asked: it is shrinking under us, and the next stat will tell.
        caught_up = scan.unreadable or size < scan.offset + scan.need or len(data) < wanted
        file.size = size if caught_up else _UNREAD
        return len(data)

    def _cannot(self, path: str, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            self.problems[path] = f"cannot be read: {error.strerror}"
