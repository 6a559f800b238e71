"""What the rules see of a directory, whoever reads it.

Incomplete       is raised when a checkpoint cannot be taken as complete; its text is the reason, for people
|- Unreadable    is raised when something cannot be read: it is missing, a link, no regular file, too large
`- Unknown       is raised when it is of no layout that is known here: nothing says that it is whole, nor that it is not
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, Protocol, Self

Kind = Literal["file", "directory", "link", "other"]

# Names of one directory. What is beyond is not looked at, and that is said.
NAMES_MAX = 100_000


class Incomplete(Exception):
    """str() is the reason: what is wrong, with the name of the file."""


class Unreadable(Incomplete):
    pass


class Unknown(Incomplete):
    pass


class Stat(NamedTuple):
    """size in bytes; mtime_ns: of the last write, by the clock of whoever holds the disk."""

    kind: Kind
    size: int
    mtime_ns: int


class Directory(Protocol):
    """One directory. Names are single segments; nothing here follows a link. To be closed by `with`."""

    @property
    def cut(self) -> bool:
        """More than NAMES_MAX names: `names` has the first of them."""

    @property
    def memo(self) -> dict[str, Any]:
        """What a rule keeps for the next checkpoint of this look, by its own name: one for all directories below."""

    def names(self) -> Mapping[str, Kind]: ...

    def stat(self, name: str) -> Stat:
        """Raises Unreadable."""

    def read(self, name: str, at: int, length: int) -> bytes:
        """Bytes of a regular file from offset `at`, fewer at its end; a negative `at` counts from the end. Raises
        Unreadable."""

    def open(self, name: str) -> "Directory":
        """Raises Unreadable."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


@contextmanager
def opened(root: Directory, path: str) -> Iterator[Directory]:
    """The directory at `path` below the root, "" for the root itself. Raises Unreadable."""
    if not path:
        yield root
        return
    first, _, rest = path.partition("/")
    with root.open(first) as directory, opened(directory, rest) as found:
        yield found
