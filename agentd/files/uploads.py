"""Uploads to the files of this host. One request may carry a whole file, of which nothing is left when it breaks off;
or a file comes in parts under an upload id, each at its offset, and goes on where it was, also after a lost answer, a
broken connection or a new agent: how far it is says the part file itself."""

import asyncio
import contextlib
import hashlib
import os
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from agentd.files.disk_thread import DiskThread
from agentd.files.host_files import HostFiles
from agentd.files.part_file import PartFile, Summed
from schemas.errors import Conflict, HeteroFlowError, InvalidInput
from schemas.rules.target_path import UPLOAD_PREFIX, Place

V = TypeVar("V")
# Whoever sends a part again because its answer was lost may come before the first one's end was noticed.
_TURN_S = 20.0
_REMEMBERED = 512
_DROP_S = 5.0
_SUM_S = 1800.0  # a part file that is read again, after this agent was started anew


@dataclass(frozen=True, slots=True)
class UploadOrder:
    """upload: "" where the request carries the whole. size: of the whole file, None where the body's end says it.
    sha256: "" where nothing is to be compared."""

    place: Place
    group_id: str
    upload: str
    offset: int
    size: int | None
    overwrite: bool
    parents: bool
    sha256: str

    @property
    def part(self) -> str:
        """The name of the part file: of one group, place, id and size, so that nobody goes on with another's."""
        words = [self.group_id, self.place.path, self.upload or secrets.token_hex(16), str(self.size)]
        said = "\0".join(words)
        return f"{UPLOAD_PREFIX}{hashlib.sha256(said.encode()).hexdigest()[:40]}"


@dataclass(frozen=True, slots=True)
class Received:
    """Of a whole file with its digest, else so many bytes from its beginning on."""

    size: int
    sha256: str | None = None


class Uploads:
    def __init__(self, files: HostFiles) -> None:
        self._files = files
        self._turns: dict[str, asyncio.Lock] = {}
        self._waiting: dict[str, int] = {}
        self._sums: OrderedDict[str, Summed] = OrderedDict()
        self._finished: OrderedDict[str, _Finished] = OrderedDict()

    async def receive(self, order: UploadOrder, blocks: AsyncIterator[bytes]) -> Received:
        """Raises NotFound, Conflict, InvalidInput, DiskFull, Unavailable, and what `blocks` raises."""
        if order.place.mount.read_only:
            raise Conflict(
                "mount_read_only",
                f"{order.place.path} is below {order.place.mount.target}, which is read-only in this group",
                "upload below /checkpoint, or give the mount read_only: false in the document",
            )
        part = order.part
        turn = self._turns.setdefault(part, asyncio.Lock())
        self._waiting[part] = self._waiting.get(part, 0) + 1
        try:
            try:
                async with asyncio.timeout(_TURN_S):
                    await turn.acquire()
            except TimeoutError as error:
                raise Conflict(
                    "upload_busy", "another request of this upload is still under way", "send one part at a time"
                ) from error
            try:
                return await self._receive(order, part, blocks)
            finally:
                turn.release()
        finally:
            self._waiting[part] -= 1
            if not self._waiting[part]:
                del self._waiting[part], self._turns[part]

    async def _receive(self, order: UploadOrder, part: str, blocks: AsyncIterator[bytes]) -> Received:
        async with DiskThread() as disk:
            if (finished := self._finished.get(part)) is not None:
                if order.offset == finished.offset and await disk.call(lambda: self._stands(order, finished)):
                    return finished.received
                if order.offset:
                    raise Conflict("upload_finished", f"this upload has ended, and {order.place.path} is whole")
            file = PartFile(self._files, order.place, part, order.overwrite, order.parents)
            disk.at_end(file.close)
            begins = order.offset == 0
            await disk.call(lambda: file.open(begins and part not in self._sums))
            kept = False
            try:
                received = await self._write(order, part, disk, file, blocks)
                kept = True
                return received
            except BaseException as error:
                # What came is whole as far as it goes: the next request goes on from there.
                kept = bool(order.upload) and file.size > 0 and not _hopeless(error)
                raise
            finally:
                if not kept:
                    self._sums.pop(part, None)
                    with contextlib.suppress(HeteroFlowError):
                        await disk.call(file.drop, _DROP_S)

    async def _write(
        self, order: UploadOrder, part: str, disk: DiskThread, file: PartFile, blocks: AsyncIterator[bytes]
    ) -> Received:
        at = order.offset
        if at > file.size:
            raise Conflict(
                "upload_gap",
                f"{file.size} bytes of this upload are here, and the request begins at {at}",
                f"go on at offset {file.size}",
            )
        summed = self._sums.get(part)
        if summed is None or summed.size != file.size:
            summed = await disk.call(file.sum, _SUM_S)
        _remember(self._sums, part, summed)
        if order.size is not None:
            missing = order.size - file.size
            await disk.call(lambda: file.require_room(missing))
        async for block in blocks:
            if order.size is not None and at + len(block) > order.size:
                raise InvalidInput(
                    "upload_too_long", f"more came than the {order.size} bytes that were said", "say the size", "size"
                )
            await disk.call(partial(file.write, at, block, summed))
            at += len(block)
        if order.size is not None and file.size < order.size:
            if not order.upload:
                raise InvalidInput("upload_too_short", f"{file.size} bytes came, {order.size} were said", "", "size")
            return Received(file.size)
        digest = await disk.call(partial(file.finish, summed, order.sha256), _SUM_S)
        received = Received(file.size, digest)
        self._sums.pop(part, None)
        if order.upload:
            tag = await disk.call(file.tag)
            _remember(self._finished, part, _Finished(order.offset, received, tag))
        return received

    def _stands(self, order: UploadOrder, finished: "_Finished") -> bool:
        """Whether what was uploaded is still what is there."""
        try:
            found = self._files.open(order.place)
        except HeteroFlowError:
            return False
        os.close(found.descriptor)
        return found.tag == finished.tag


@dataclass(frozen=True, slots=True)
class _Finished:
    """offset: of the part that was the last."""

    offset: int
    received: Received
    tag: str


def _remember(kept: "OrderedDict[str, V]", part: str, value: V) -> None:
    kept[part] = value
    kept.move_to_end(part)
    if len(kept) > _REMEMBERED:
        kept.popitem(last=False)


def _hopeless(error: BaseException) -> bool:
    """Going on cannot help: no room, or what came is not what was said."""
    if not isinstance(error, HeteroFlowError):
        return False
    return error.code in ("disk_full", "digest_differs", "upload_too_long", "file_exists")
