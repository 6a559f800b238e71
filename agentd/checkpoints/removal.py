"""Removes whole checkpoints: into a trash beside them by rename, then for good, by open directories and single names.

A rename is at once, so no half of a checkpoint is ever seen under its own name; what a kill leaves in the trash is
finished by the next call. Of a file with a marker beside it the marker goes first: without it the file is nobody's
checkpoint, and the marker in the trash tells the next call to take the file too. A link that somebody puts in the way
is renamed and removed as a link: nothing behind it is touched.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator

from schemas.rules.checkpoints.fence import FencedDirectory
from schemas.rules.checkpoints.manifest import DIRECTORY
from schemas.rules.checkpoints.marked import MARKER, loose_step
from schemas.rules.checkpoints.names import CONTAINERS
from schemas.rules.checkpoints.saved import saved_of
from schemas.rules.checkpoints.view import Unreadable

TRASH = "trash"
# A name of one segment that leads back to the place: `checkpoints:step-5` was `checkpoints/step-5`.
_BETWEEN = ":"
_DEPTH_MAX = 16
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_checkpoints(
    root: FencedDirectory, superseded: Iterable[tuple[str, str]], may_go_on: Callable[[], bool]
) -> list[str]:
    """What is gone now, of these and of an earlier call. superseded: (path below root, mark of the save that was
    judged): one that was saved again since stays. may_go_on: asked before each. Raises OSError."""
    trash = _open_trash(root)
    try:
        if (left := [name for name in os.listdir(trash) if _is_marker(name)]) and not may_go_on():
            return []
        for name in left:
            _follow(root, name.removesuffix(MARKER), trash)
        gone = _empty(trash)
        for path, mark in superseded:
            if not may_go_on():
                break
            if _is_same(root, path, mark) and _move(root, path, trash):
                gone += _empty(trash)
        return gone
    finally:
        os.close(trash)


def _open_trash(root: FencedDirectory) -> int:
    """Ours: a directory that another put there as a link does not open."""
    above = made_directory(DIRECTORY, root.descriptor, 0o755)
    try:
        trash = made_directory(TRASH, above, 0o700)
    finally:
        os.close(above)
    if os.fstat(trash).st_dev != os.fstat(root.descriptor).st_dev:
        os.close(trash)
        raise OSError(errno.EXDEV, f"{root.path}/{DIRECTORY}/{TRASH} is on another file system")
    return trash


def made_directory(name: str, above: int, mode: int) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=above)
    return os.open(name, _OPEN, dir_fd=above)


def _is_same(root: FencedDirectory, path: str, mark: str) -> bool:
    try:
        return saved_of(root, path).mark == mark
    except Unreadable:
        return False


def _move(root: FencedDirectory, path: str, trash: int) -> bool:
    place, _, name = path.rpartition("/")
    if not name or (place and place not in CONTAINERS):
        raise Unreadable(f"{path[:200]!r} is no checkpoint of this directory")
    if name in (".", ".."):
        raise Unreadable(f"{name[:200]!r} is no single name in this directory")
    as_name = f"{place}{_BETWEEN}{name}" if place else name
    with _opened(root, place) as above:
        if above is None:
            return False
        if _kind(name, above) == stat.S_IFDIR:
            return _renamed(name, above, as_name, trash)
        marked = loose_step(name) is not None and _kind(name + MARKER, above) == stat.S_IFREG
        if not marked or not _renamed(name + MARKER, above, as_name + MARKER, trash):
            return False
    return _follow(root, as_name, trash)


def _follow(root: FencedDirectory, as_name: str, trash: int) -> bool:
    """Takes the file whose marker lies in the trash, unless it was saved again since."""
    place, name = _place_of(as_name)
    with _opened(root, place) as above:
        if above is None:
            return False
        try:
            marker = os.stat(as_name + MARKER, dir_fd=trash, follow_symlinks=False)
            file = os.stat(name, dir_fd=above, follow_symlinks=False)
        except FileNotFoundError:
            return False
        again = file.st_mtime_ns > marker.st_mtime_ns or _kind(name + MARKER, above)
        if again or not stat.S_ISREG(marker.st_mode) or not stat.S_ISREG(file.st_mode):
            return False
        return _renamed(name, above, as_name, trash)


@contextlib.contextmanager
def _opened(root: FencedDirectory, place: str) -> Iterator[int | None]:
    """Of the directory that holds checkpoints; None where it is gone, or a link."""
    try:
        below = root.open(place) if place else None
    except Unreadable:
        yield None
        return
    if below is None:
        yield root.descriptor
        return
    with below:
        yield below.descriptor


def _is_marker(name: str) -> bool:
    return name.endswith(MARKER) and loose_step(_place_of(name.removesuffix(MARKER))[1]) is not None


def _place_of(as_name: str) -> tuple[str, str]:
    place, between, name = as_name.partition(_BETWEEN)
    return (place, name) if between and place in CONTAINERS else ("", as_name)


def _kind(name: str, above: int) -> int:
    """0 where there is nothing."""
    try:
        return stat.S_IFMT(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return 0


def _renamed(name: str, above: int, as_name: str, trash: int) -> bool:
    try:
        os.rename(name, as_name, src_dir_fd=above, dst_dir_fd=trash)
    except FileNotFoundError:
        return False
    return True


def _empty(trash: int) -> list[str]:
    gone = []
    # A file before its marker, in the order of their names.
    for name in sorted(os.listdir(trash)):
        _remove(trash, name, os.fstat(trash).st_dev, _DEPTH_MAX)
        if not _is_marker(name):
            gone.append("/".join(filter(None, _place_of(name))))
    return gone


def _remove(above: int, name: str, device: int, depth: int) -> None:
    """Never through a link, never onto another file system, never without end."""
    try:
        os.unlink(name, dir_fd=above)
        return
    except (IsADirectoryError, PermissionError):
        pass  # a directory; POSIX lets unlink say EPERM of one
    except FileNotFoundError:
        return
    if depth == 0:
        raise OSError(errno.ELOOP, f"{name[:200]!r} is nested too deep to be removed")
    inner = os.open(name, _OPEN, dir_fd=above)
    try:
        if os.fstat(inner).st_dev != device:
            raise OSError(errno.EXDEV, f"{name[:200]!r} is another file system")
        for below in os.listdir(inner):
            _remove(inner, below, device, depth - 1)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=above)
