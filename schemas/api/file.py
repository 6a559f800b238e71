"""Files of a group."""

from typing import TypedDict


class FileEntry(TypedDict):
    """type: file, directory, link or other. size: in bytes, None of what is no file. tag: of the state that a file is
    in, as the ETag of its content; None of what is no file."""

    name: str
    type: str
    size: int | None
    modified_at: str
    tag: str | None


class FileMount(TypedDict):
    """target: as a task in a container sees it; source: as its host has it."""

    target: str
    source: str
    read_only: bool


class FileList(TypedDict):
    """type: of what was asked for: directory, file, link or other, or mounts where no target_path was given.
    target_path: as a task in a container sees it; entries: in the order of their bytes, itself where it is no
    directory; cut: the directory has more names than are looked at."""

    group_id: str
    attempt: int
    rank: int
    node_id: str
    target_path: str
    type: str
    mounts: list[FileMount]
    entries: list[FileEntry]
    cursor: str | None
    cut: bool


class FileWritten(TypedDict):
    """received: so many bytes are on the disk, from the first on; complete: it is all, and the file stands there;
    sha256: of the whole, None before."""

    target_path: str
    node_id: str
    received: int
    complete: bool
    sha256: str | None
