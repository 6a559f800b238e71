"""Which file of a group a path names: by segments, below one of the group's own mounts, before any disk is asked.

Nothing is resolved here: `..` and `.` are refused instead, and where a name on the disk leads to is for the fence.
"""

import errno
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from schemas.errors import InvalidInput
from schemas.rules.frameworks.rank import MountPoint

TARGET_MAX = 4096  # bytes, as the kernel's own for a path
SEGMENT_MAX = 255  # bytes, as file systems have it
DEPTH_MAX = 64  # segments below a mount; each is opened by itself
UPLOAD_PREFIX = ".heteroflow-upload-"
"""Of files that are not whole yet. They are shown to nobody."""
NO_SECOND_NAME = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS))
"""What file systems say that give no file a second name: FAT, some shares, most in user space."""
_FIELD = "target_path"


class Place(NamedTuple):
    """segments: below the mount; none for the mount itself."""

    mount: MountPoint
    segments: tuple[str, ...]

    @property
    def path(self) -> str:
        """As a task in a container sees it, whichever way it was asked for."""
        return "/".join([self.mount.target.rstrip("/"), *self.segments]) or "/"


def place_of(target_path: str, mounts: Sequence[MountPoint]) -> Place:
    """target_path: by the name that a mount has in the task (`/checkpoint/a`), or by that of the host; the longest
    mount wins, and the task's names before the host's. Raises InvalidInput."""
    segments = _segments(target_path)
    for names in ([mount.target for mount in mounts], [mount.source for mount in mounts]):
        roots = [tuple(part for part in name.split("/") if part) for name in names]
        found = [at for at, root in enumerate(roots) if segments[: len(root)] == root]
        if found:
            best = max(found, key=lambda at: len(roots[at]))
            below = segments[len(roots[best]) :]
            if len(below) > DEPTH_MAX:
                raise _refused(target_path, f"has more than {DEPTH_MAX} segments below its mount")
            return Place(mounts[best], below)
    own = ", ".join(mount.target for mount in mounts) or "none: the document names no checkpoint_path, dataset or mount"
    raise _refused(target_path, "is not inside the group's own mounts", f"they are {own}")


def new_name_refusal(name: str) -> str | None:
    """Why a file or directory of this name is not made, or None. What is on the disk already may be called anything."""
    if name.startswith(UPLOAD_PREFIX):
        return f"begins with {UPLOAD_PREFIX}, the mark of uploads that are not finished"
    # Cc: line breaks and escapes; Cf: what turns text round; Cs: half of a pair; Zl, Zp: line breaks.
    if any(unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") for sign in name):
        return "holds characters that drive a terminal or break a line"
    return None


def _segments(target_path: str) -> tuple[str, ...]:
    try:
        size = len(target_path.encode())
    except UnicodeEncodeError:
        raise _refused(target_path, "is no text") from None
    if size > TARGET_MAX:
        raise _refused(target_path, f"has {size} bytes; at most {TARGET_MAX} may be")
    if not target_path.startswith("/"):
        raise _refused(target_path, "is not absolute", "begin with /checkpoint or /dataset, or as the host has it")
    if "\0" in target_path:
        raise _refused(target_path, "holds a NUL")
    segments = tuple(part for part in target_path.split("/") if part)
    if any(part in (".", "..") for part in segments):
        raise _refused(target_path, "holds . or .. as a segment", "write the path without")
    if any(len(part.encode()) > SEGMENT_MAX for part in segments):
        raise _refused(target_path, f"has a segment of more than {SEGMENT_MAX} bytes")
    return segments


def _refused(target_path: str, why: str, hint: str = "") -> InvalidInput:
    shown = target_path if len(target_path) <= 80 else target_path[:79] + "…"
    return InvalidInput("invalid_target_path", f"target_path {shown!r} {why}", hint, field=_FIELD)
