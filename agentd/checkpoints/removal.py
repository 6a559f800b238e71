"""Removes whole checkpoints: into a trash beside them by rename, then for good, by open directories and single names.

A rename is at once, so no half of a checkpoint is ever seen under its own name; what a kill leaves in the trash is
finished by the next call. A link that somebody puts in the way is renamed and removed as a link: nothing behind it is
touched.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable

from schemas.rules.checkpoints.fence import FencedDirectory
from schemas.rules.checkpoints.manifest import DIRECTORY
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
    if not place:
        return _renamed(root.descriptor, name, name, trash)
    try:
        below = root.open(place)
    except Unreadable:
        return False
    with below:
        return _renamed(below.descriptor, name, f"{place}{_BETWEEN}{name}", trash)


def _renamed(above: int, name: str, as_name: str, trash: int) -> bool:
    if name in (".", "..") or "/" in name:
        raise Unreadable(f"{name[:200]!r} is no single name in this directory")
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            return False
        os.rename(name, as_name, src_dir_fd=above, dst_dir_fd=trash)
    except FileNotFoundError:
        return False
    return True


def _empty(trash: int) -> list[str]:
    gone = []
    for name in sorted(os.listdir(trash)):
        _remove(trash, name, os.fstat(trash).st_dev, _DEPTH_MAX)
        place, between, rest = name.partition(_BETWEEN)
        gone.append(f"{place}/{rest}" if between and place in CONTAINERS else name)
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
