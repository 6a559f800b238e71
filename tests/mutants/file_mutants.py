"""Deliberate gaps in how files of a group are served, as context managers that patch one named decision each. Each is
killed by test_file_mutants.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from agentd.files.host_files import HostFiles, OpenFile, tag_of
from agentd.files.part_file import PartFile
from agentd.files.source import LocalSource
from agentd.files.uploads import UploadOrder
from agentd.http import files
from schemas.errors import InvalidInput
from schemas.rules.frameworks.rank import MountPoint
from schemas.rules.target_path import Place


@contextmanager
def files_are_opened_by_their_path() -> Iterator[None]:
    """Whatever is in it, links too."""

    def opened(self: HostFiles, place: Place) -> OpenFile:
        descriptor = os.open("/".join([place.mount.source, *place.segments]), os.O_RDONLY)
        found = os.fstat(descriptor)
        return OpenFile(descriptor, found.st_size, found.st_mtime_ns, tag_of(found))

    with mock.patch.object(HostFiles, "open", opened):
        yield


@contextmanager
def paths_are_compared_letter_by_letter() -> Iterator[None]:
    def place_of(target_path: str, mounts: Sequence[MountPoint]) -> Place:
        for mount in mounts:
            if target_path.startswith(mount.source):
                rest = target_path[len(mount.source) :]
                sibling = MountPoint(mount.source + rest.partition("/")[0], mount.target, mount.read_only)
                return Place(sibling, tuple(part for part in rest.partition("/")[2].split("/") if part))
        raise InvalidInput("invalid_target_path", "outside", "", "target_path")

    with mock.patch.object(files, "place_of", place_of):
        yield


@contextmanager
def uploads_are_written_in_their_place() -> Iterator[None]:
    part = property(lambda self: self.place.segments[-1])
    with (
        mock.patch.object(UploadOrder, "part", part),
        mock.patch.object(PartFile, "_require_room_for_name", lambda self, name: None),
    ):
        yield


@contextmanager
def resent_parts_are_taken_unread() -> Iterator[None]:
    honest = PartFile.write

    def write(self: PartFile, at: int, block: bytes, summed: Any) -> None:
        honest(self, self.size, block, summed)

    with mock.patch.object(PartFile, "write", write):
        yield


@contextmanager
def a_file_may_change_while_it_is_sent() -> Iterator[None]:
    def block(self: LocalSource, at: int, length: int, last: bool) -> bytes:
        return os.pread(self._opened.descriptor, length, at)

    with mock.patch.object(LocalSource, "_block", block):
        yield


@contextmanager
def only_the_entry_judges_the_tenant_of_a_file() -> Iterator[None]:
    with mock.patch.object(files, "_visible", lambda request, group_id, group: group):
        yield


@contextmanager
def downloads_leave_no_trace() -> Iterator[None]:
    async def told(*_: Any) -> None:
        pass

    with mock.patch.object(files, "_told", told):
        yield


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "files-are-opened-by-their-path": files_are_opened_by_their_path,
    "paths-are-compared-letter-by-letter": paths_are_compared_letter_by_letter,
    "uploads-are-written-in-their-place": uploads_are_written_in_their_place,
    "resent-parts-are-taken-unread": resent_parts_are_taken_unread,
    "a-file-may-change-while-it-is-sent": a_file_may_change_while_it_is_sent,
    "only-the-entry-judges-the-tenant-of-a-file": only_the_entry_judges_the_tenant_of_a_file,
    "downloads-leave-no-trace": downloads_leave_no_trace,
}
