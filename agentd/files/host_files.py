"""A group's files on this host, read behind a fence: below the group's own mounts, links never followed, regular files
alone. All calls here may block."""

import contextlib
import errno
import heapq
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from agentd.checkpoints.fenced import open_fenced
from agentd.claims.task_paths import source_refusal
from agentd.core.byte_range import file_tag
from schemas.api import FileEntry
from schemas.errors import Conflict, HeteroFlowError, NotFound
from schemas.instants import iso_utc
from schemas.rules.checkpoints.fence import FencedDirectory
from schemas.rules.checkpoints.view import Unreadable
from schemas.rules.target_path import UPLOAD_PREFIX, Place, new_name_refusal

# Names of a directory that a list looks at. What is beyond is not shown, and that is said.
LISTED_MAX = 200_000


class Names(NamedTuple):
    """type: of what was asked for. entries: in the order of their bytes. after: "" at the end, else what the next page
    begins behind. cut: there are more than LISTED_MAX names."""

    type: str
    entries: list[FileEntry]
    after: str
    cut: bool


class OpenFile(NamedTuple):
    """descriptor: for whoever opened it to close."""

    descriptor: int
    size: int
    mtime_ns: int
    tag: str


class HostFiles:
    """roots: what this host allows groups to use. private: what is the agent's own."""

    def __init__(self, roots: Sequence[str], private: Sequence[str]) -> None:
        self._roots, self._private = tuple(roots), tuple(private)

    @contextmanager
    def directory(self, place: Place, depth: int, make: bool = False) -> Iterator[FencedDirectory]:
        """The directory `depth` segments below the mount. make: what is missing of it. Raises NotFound, Conflict."""
        with self._mount(place) as below:
            directory, opened = below, list[FencedDirectory]()
            try:
                for segment in place.segments[:depth]:
                    try:
                        directory = _made(directory, segment) if make else directory.open(segment)
                    except (OSError, Unreadable) as error:
                        raise unreadable(place, error) from error
                    opened.append(directory)
                yield directory
            finally:
                for one in reversed(opened):
                    one.__exit__()

    def list(self, place: Place, after: str, limit: int) -> Names:
        """after: of the page before. Raises NotFound, Conflict."""
        if (name := self._file_name(place)) is not None:
            with self._parent(place) as above:
                entry = self._entry(above, name, place)
            return Names(entry["type"], [entry], "", False)
        with self.directory(place, len(place.segments)) as directory:
            return _names(directory, after, limit, place)

    def open(self, place: Place) -> OpenFile:
        """Raises NotFound, Conflict."""
        with self._parent(place) as above:
            name = place.segments[-1] if place.segments else os.path.basename(self._real(place))
            if name.startswith(UPLOAD_PREFIX):
                raise no_such_file(place, "is missing")
            try:
                descriptor, found = above.open_file(name)
            except Unreadable as error:
                raise unreadable(place, error) from error
        return OpenFile(descriptor, found.st_size, found.st_mtime_ns, tag_of(found))

    def _file_name(self, place: Place) -> str | None:
        """The name in its directory of what is no directory; None for one."""
        if not place.segments:
            real = self._real(place)
            return None if os.path.isdir(real) else os.path.basename(real)
        name = place.segments[-1]
        with self._parent(place) as above:
            try:
                found = above.stat(name)
            except Unreadable as error:
                raise unreadable(place, error) from error
        return None if found.kind == "directory" else name

    def _entry(self, above: FencedDirectory, name: str, place: Place) -> FileEntry:
        if name.startswith(UPLOAD_PREFIX):
            raise no_such_file(place, "is missing")
        found = entry_of(above.descriptor, name)
        if found is None:
            raise no_such_file(place, "is missing")
        return found

    @contextmanager
    def _parent(self, place: Place) -> Iterator[FencedDirectory]:
        if place.segments:
            with self.directory(place, len(place.segments) - 1) as above:
                yield above
            return
        # A mount may be a file: then it is looked for in the directory that holds it.
        real = self._real(place)
        if os.path.isdir(real):
            raise Conflict("not_a_file", f"{place.path} is a directory, no regular file", "list it")
        try:
            opened = open_fenced(os.path.dirname(real))
        except OSError as error:
            raise unreadable(place, error) from error
        with opened as above:
            yield above

    @contextmanager
    def _mount(self, place: Place) -> Iterator[FencedDirectory]:
        real = self._real(place)
        try:
            opened = open_fenced(real)
        except OSError as error:
            raise unreadable(place, error) from error
        with opened as directory:
            yield directory

    def _real(self, place: Place) -> str:
        """Judged as when a task is given it, every time: a link may have been turned since."""
        source = place.mount.source
        refusal = source_refusal("mount", source, self._roots, self._private)
        if refusal is not None:
            raise Conflict("mount_refused", refusal.text, "ask who runs that host: --allow-path")
        return os.path.realpath(source)


def _made(above: FencedDirectory, segment: str) -> FencedDirectory:
    """Made first, since a look before would say nothing of the moment after."""
    if new_name_refusal(segment) is not None:
        return above.open(segment)
    try:
        os.mkdir(segment, 0o755, dir_fd=above.descriptor)
    except FileExistsError:
        return above.open(segment)
    opened = above.open(segment)
    give_to_owner(opened.descriptor, above.descriptor)
    return opened


def give_to_owner(made: int, directory: int) -> None:
    """As if whoever has the directory had made it: a task that runs as another user can go on with it. Both are
    descriptors."""
    if os.geteuid() == 0:
        owner = os.fstat(directory)
        with contextlib.suppress(OSError):  # a share that maps users has its own mind
            os.fchown(made, owner.st_uid, owner.st_gid)


def _names(directory: FencedDirectory, after: str, limit: int, place: Place) -> Names:
    seen = 0
    behind = os.fsencode(after)

    def wanted(entries: Iterator[os.DirEntry[str]]) -> Iterator[bytes]:
        nonlocal seen
        for entry in islice(entries, LISTED_MAX):
            seen += 1
            name = os.fsencode(entry.name)
            if name > behind and not entry.name.startswith(UPLOAD_PREFIX):
                yield name

    try:
        with os.scandir(directory.descriptor) as entries:
            # The smallest of a million names without holding a million.
            found = heapq.nsmallest(limit + 1, wanted(entries))
            cut = next(entries, None) is not None
    except OSError as error:
        raise unreadable(place, error) from error
    page = [os.fsdecode(name) for name in found[:limit]]
    shown = [entry for name in page if (entry := entry_of(directory.descriptor, name)) is not None]
    return Names("directory", shown, page[-1] if len(found) > limit else "", cut)


def entry_of(directory: int, name: str) -> FileEntry | None:
    """None for what went away meanwhile."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None
    regular = stat.S_ISREG(found.st_mode)
    return {
        # JSON has no place for bytes that are no text: such a name is shown, and cannot be asked for.
        "name": name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
        "type": _type(found.st_mode),
        "size": found.st_size if regular else None,
        "modified_at": iso_utc(found.st_mtime_ns // 1_000_000),
        "tag": tag_of(found) if regular else None,
    }


def tag_of(found: os.stat_result) -> str:
    return file_tag(found.st_ino, found.st_size, found.st_mtime_ns)


def unreadable(place: Place, error: Exception) -> HeteroFlowError:
    """What the disk said, as a refusal. Raises nothing."""
    cause = error if isinstance(error, OSError) else error.__cause__
    number = cause.errno if isinstance(cause, OSError) else None
    said = str(error) if isinstance(error, Unreadable) else f"cannot be opened: {os.strerror(number or errno.EIO)}"
    if number in (errno.ENOENT, errno.ENAMETOOLONG):
        return no_such_file(place, "is missing")
    return Conflict("not_readable", f"{place.path}: {said}", "links are not followed, and regular files alone are read")


def no_such_file(place: Place, why: str) -> NotFound:
    return NotFound("no_such_file", f"{place.path} {why}", "list the directory: `heteroflow files ls`")


def _type(mode: int) -> str:
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "link"))
    return next((name for is_it, name in kinds if is_it(mode)), "other")
