"""Event files of a path on this host, read once."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from schemas.rules.tfevents.file_order import is_event_file
from schemas.rules.tfevents.run_tree import RunTree
from schemas.rules.tfevents.scan import FileScan

CHUNK_BYTES = 2**20
MOST_DEPTH = 16
MOST_FILES = 10_000


@dataclass(slots=True)
class ReadTree:
    """problems: what could not be read, one sentence each."""

    tree: RunTree = field(default_factory=RunTree)
    problems: list[str] = field(default_factory=list)


def read_tree(path: Path) -> ReadTree:
    """path: a file, whatever its name, or a directory with all below it. Raises OSError if the path is not there."""
    read = ReadTree()
    if not stat.S_ISDIR(path.stat().st_mode):
        _read_file(read, path, "")
        return read
    for count, (file, directory) in enumerate(_event_files(path, read.problems)):
        if count == MOST_FILES:
            read.problems.append(f"there are more than {MOST_FILES} event files; the others are left out")
            break
        _read_file(read, file, directory)
    return read


def _event_files(root: Path, problems: list[str]) -> Iterator[tuple[Path, str]]:
    """`(file, its directory below the root)`. Links to directories are not followed: they can lead round in circles."""

    def not_listed(error: OSError) -> None:
        problems.append(f"{error.filename} cannot be listed: {error.strerror}")

    for here, directories, names in os.walk(root, onerror=not_listed):
        directories.sort()
        below = os.path.relpath(here, root)
        below = "" if below == os.curdir else below
        if below.count(os.sep) >= MOST_DEPTH:
            problems.append(f"{here} is more than {MOST_DEPTH} levels down; what is below it is left out")
            directories.clear()
        for name in sorted(names):
            if is_event_file(name):
                yield Path(here, name), below


def _read_file(read: ReadTree, path: Path, directory: str) -> None:
    try:
        # A pipe with the right name would keep us waiting; a dangling link is somebody's `latest`.
        if not stat.S_ISREG(path.stat().st_mode):
            read.problems.append(f"{path} is no regular file")
            return
        with path.open("rb", buffering=0) as file:
            _read_to_end(read.tree.run(directory).open(path.name), file.fileno())
    except FileNotFoundError:
        return
    except OSError as error:
        read.problems.append(f"{path} cannot be read: {error.strerror}")


def _read_to_end(scan: FileScan, descriptor: int) -> None:
    while True:
        wanted = max(CHUNK_BYTES, scan.need)
        data = os.pread(descriptor, wanted, scan.offset)
        scan.feed(data)
        if scan.unreadable or len(data) < wanted:
            return
