"""What a complete checkpoint is on its disk: how large, when written, how long that took."""

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.rules.checkpoints.view import Directory, Stat, Unreadable, opened

# Of one directory; a checkpoint of more files is told as at least as large.
_FILES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Saved:
    """mark: another one where the same name was saved again. Times by the clock of whoever holds the disk."""

    mark: str
    bytes: int
    files: int
    written_ns: int
    took_ms: int


def saved_of(root: Directory, pick: str) -> Saved:
    """pick: as a probe gives it, below `root`. Raises Unreadable where it is gone meanwhile."""
    place, _, name = pick.rpartition("/")
    if place:
        with opened(root, place) as below:
            return saved_of(below, name)
    names = root.names()
    if names.get(name) == "directory":
        with root.open(name) as directory:
            stats = [*_files(directory, [*directory.names()], nested=True)]
    else:
        stats = [*_files(root, [one for one in names if one == name or one.startswith(f"{name}.")])]
    if not stats:
        raise Unreadable(f"{name} has no files any more")
    times = [stat.mtime_ns for stat in stats]
    size = sum(stat.size for stat in stats)
    written_ns = max(times)
    return Saved(str(written_ns), size, len(stats), written_ns, (written_ns - min(times)) // 1_000_000)


def _files(directory: Directory, names: list[str], nested: bool = False) -> Iterator[Stat]:
    kinds = directory.names()
    for name in sorted(names)[:_FILES_MAX]:
        if kinds[name] == "file":
            yield directory.stat(name)
        elif kinds[name] == "directory" and nested:
            with directory.open(name) as below:
                yield from _files(below, [*below.names()])
