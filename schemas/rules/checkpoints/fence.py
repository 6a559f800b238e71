"""A directory on a disk, fenced: every access starts at its open descriptor and names one segment, so that no link, put
there before or meanwhile, leads out of it.

The system calls are arguments, `os` and ctypes belong to the callers; only flags and errors are known here.
"""

import errno
import os
import stat
import struct
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, Self

from schemas.rules.checkpoints.view import NAMES_MAX, Kind, Stat, Unreadable

_OPENAT2 = 437  # the same number on every architecture that Python runs on, alpha aside
_INSIDE = 0x02 | 0x04 | 0x08  # RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH
_COMMON = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO would keep an open() without O_NONBLOCK waiting; a device could do anything.
_FILE = _COMMON | os.O_NONBLOCK | os.O_NOCTTY
_DIRECTORY = _COMMON | os.O_DIRECTORY

# Over one probe. Files are never read whole: a tail, a head, an index.
READ_MAX = 512 << 20


class Calls(Protocol):
    """What is used of the module `os`."""

    def open(self, path: str, flags: int, mode: int = ..., *, dir_fd: int | None = ...) -> int: ...
    def close(self, fd: int) -> None: ...
    def pread(self, fd: int, length: int, offset: int) -> bytes: ...
    def fstat(self, fd: int) -> os.stat_result: ...
    def stat(self, path: str, *, dir_fd: int | None = ..., follow_symlinks: bool = ...) -> os.stat_result: ...
    def scandir(self, path: int) -> "AbstractContextManager[Any]": ...


@dataclass(slots=True)
class Kernel:
    """calls: the module `os`. syscall and get_errno: of libc, or None where ctypes has none.

    openat2: whether the kernel has it; found out by the first call.
    """

    calls: Calls
    syscall: Callable[..., int] | None = None
    get_errno: Callable[[], int] = lambda: 0
    openat2: bool = True
    read_left: int = field(default=READ_MAX)
    memo: dict[str, Any] = field(default_factory=dict)

    def open(self, name: str, flags: int, dir_fd: int) -> int:
        """`name` may have several segments with openat2 only. Raises OSError."""
        if self.syscall is not None and self.openat2:
            how = struct.pack("=QQQ", flags, 0, _INSIDE)
            descriptor = self.syscall(_OPENAT2, dir_fd, os.fsencode(name), how, len(how))
            if descriptor >= 0:
                return descriptor
            failed = self.get_errno()
            # EPERM: a container's filter of system calls that does not know this one.
            if failed not in (errno.ENOSYS, errno.EPERM):
                raise OSError(failed, os.strerror(failed), name)
            self.openat2 = False
        return self.calls.open(name, flags, dir_fd=dir_fd)


def open_root(kernel: Kernel, path: str) -> "FencedDirectory":
    """`path` as the caller trusts it: links in it are followed. Raises OSError."""
    return FencedDirectory(kernel, kernel.calls.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), path)


def open_without_links(kernel: Kernel, path: str) -> "FencedDirectory":
    """`path` absolute and resolved before: a link that took a segment's place since is an error. Raises OSError."""
    descriptor = kernel.calls.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for segment in path.strip("/").split("/"):
        above = descriptor
        try:
            descriptor = kernel.open(segment, _DIRECTORY, above)
        finally:
            kernel.calls.close(above)
    return FencedDirectory(kernel, descriptor, path)


class FencedDirectory:
    """Owns its descriptor. Not for two threads at once."""

    def __init__(self, kernel: Kernel, descriptor: int, path: str) -> None:
        self._kernel, self.descriptor, self.path = kernel, descriptor, path
        self._names: dict[str, Kind] | None = None
        self.cut = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._kernel.calls.close(self.descriptor)

    @property
    def memo(self) -> dict[str, Any]:
        return self._kernel.memo

    def names(self) -> Mapping[str, Kind]:
        if self._names is None:
            self._names = {}
            try:
                with self._kernel.calls.scandir(self.descriptor) as entries:
                    for entry in islice(entries, NAMES_MAX):
                        # Most are files, and this is where most of a probe's time goes.
                        file = entry.is_file(follow_symlinks=False)
                        self._names[entry.name] = "file" if file else _other_kind(entry)
                    self.cut = next(iter(entries), None) is not None
            except OSError as error:
                raise Unreadable(f"cannot be listed: {error.strerror}") from error
        return self._names

    def stat(self, name: str) -> Stat:
        if self._names is None or name not in self._names:
            _segment(name)
        try:
            found = self._kernel.calls.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except OSError as error:
            raise _unreadable(name, error) from error
        return Stat(_kind(found.st_mode), found.st_size, found.st_mtime_ns)

    def read(self, name: str, at: int, length: int) -> bytes:
        if length > self._kernel.read_left:
            raise Unreadable(f"{name} would be more than {READ_MAX >> 20} MiB to read in one look")
        calls = self._kernel.calls
        file, found = self.open_file(name)
        try:
            # A buffer as large as what may be asked for would cost more than the read.
            data = calls.pread(file, min(length, found.st_size), at if at >= 0 else max(0, found.st_size + at))
        except OSError as error:
            raise _unreadable(name, error) from error
        finally:
            calls.close(file)
        self._kernel.read_left -= len(data)
        return data

    def open_file(self, name: str) -> tuple[int, os.stat_result]:
        """A descriptor to read a regular file by, for the caller to close, and what the file is. Raises Unreadable."""
        calls = self._kernel.calls
        try:
            # What it is, before it is opened: opening a FIFO or a device can already do something.
            before = calls.stat(_segment(name), dir_fd=self.descriptor, follow_symlinks=False)
            if not stat.S_ISREG(before.st_mode):
                raise Unreadable(f"{name} is {_what(_kind(before.st_mode))}, no regular file")
            file = self._kernel.open(name, _FILE, self.descriptor)
        except OSError as error:
            raise _unreadable(name, error) from error
        try:
            found = calls.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise Unreadable(f"{name} is {_what(_kind(found.st_mode))}, no regular file")
        except OSError as error:
            calls.close(file)
            raise _unreadable(name, error) from error
        except BaseException:
            calls.close(file)
            raise
        return file, found

    def open(self, name: str) -> "FencedDirectory":
        try:
            descriptor = self._kernel.open(_segment(name), _DIRECTORY, self.descriptor)
        except OSError as error:
            raise _unreadable(name, error) from error
        return FencedDirectory(self._kernel, descriptor, f"{self.path}/{name}")


def _segment(name: str) -> str:
    try:
        single = name not in ("", ".", "..") and not {0, 0x2F} & {*os.fsencode(name)}
    except UnicodeEncodeError:
        single = False
    if not single:
        raise Unreadable(f"{name[:200]!r} is no single name in this directory")
    return name


def _unreadable(name: str, error: OSError) -> Unreadable:
    if error.errno == errno.ENOENT:
        return Unreadable(f"{name} is missing")
    if error.errno in (errno.ELOOP, errno.EXDEV):
        return Unreadable(f"{name} is {_what('link')}")
    if error.errno == errno.ENOTDIR:
        return Unreadable(f"{name} is no directory, or a symbolic link: links are not followed")
    return Unreadable(f"{name} cannot be read: {error.strerror}")


def _what(kind: Kind) -> str:
    return {
        "link": "a symbolic link, which can lead outside the volume: links are not followed",
        "directory": "a directory",
        "other": "a pipe, socket or device",
        "file": "a file",
    }[kind]


def _other_kind(entry: Any) -> Kind:
    try:
        if entry.is_dir(follow_symlinks=False):
            return "directory"
        return "link" if entry.is_symlink() else "other"
    except OSError:
        return "other"


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"
