"""A file of a group to this host and back, through any node: what came stays when a connection breaks, and the same
command goes on with it."""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from console.client import MeshClient, NoNodeAnswers, Refused
from console.new_file import give_name
from schemas.errors import Conflict, InvalidInput
from schemas.limits import FILE_PART_MAX

_BLOCK = 1 << 20
# A disk that is slow is given a minute by its agent; the last part of an upload is answered when all of it is on disk.
_SILENCE_S, _LAST_PART_S = 75.0, 1900.0
Progress = Callable[[int, int], None]
"""Of how many bytes there are, and how many there will be."""


class TransferCut(Exception):
    """No byte came for as long as a call may try. str() says what there is, and what to do."""


@dataclass(frozen=True, slots=True)
class Remote:
    """path: of the API. rank: whose node."""

    client: MeshClient
    group_id: str
    rank: int
    target_path: str

    @property
    def path(self) -> str:
        return f"/api/v1/task-groups/{self.group_id}/files"

    @property
    def params(self) -> dict[str, str]:
        return {"target_path": self.target_path, "rank": str(self.rank)}

    async def entry(self) -> dict[str, Any]:
        """Of the file. Raises InvalidInput, Refused, NoNodeAnswers."""
        found = (await self.client.read(self.path, self.params)).value
        if found["type"] != "file":
            hint = "`heteroflow files ls` lists it" if found["type"] == "directory" else "links are not followed"
            raise InvalidInput("not_a_file", f"{self.target_path} is a {found['type']}, no file", hint)
        return dict(found["entries"][0])

    async def exists(self) -> bool:
        try:
            return bool((await self.client.read(self.path, self.params)).value)
        except Refused as refused:
            if refused.problem.code == "no_such_file":
                return False
            raise


def part_of(out: Path, tag: str) -> Path:
    """Where bytes are kept until all have come: of one state of the file, so that two are never mixed."""
    return out.with_name(f"{out.name}.{tag.strip(chr(34))[:16]}.part")


async def download(remote: Remote, entry: dict[str, Any], out: Path, force: bool, progress: Progress) -> int:
    """How many bytes were there already. Raises Conflict, Refused, NoNodeAnswers, TransferCut, OSError."""
    part = part_of(out, entry["tag"])
    await remote.client.learn()
    file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        began = await _fill(remote, entry, part, file, progress)
        os.fsync(file)
    finally:
        if os.fstat(file).st_size == 0 and entry["size"]:
            os.unlink(part)
        os.close(file)
    if force:
        os.replace(part, out)
        return began
    try:
        give_name(part, out)
    except FileExistsError as error:
        raise file_exists(out) from error
    return began


async def _fill(remote: Remote, entry: dict[str, Any], part: Path, file: int, progress: Progress) -> int:
    """Where it began."""
    size, found = int(entry["size"]), os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_size > size:
        raise Conflict("not_a_part", f"{part} is no part of that file", "remove it")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Conflict("busy", f"another command writes {part}", "wait for it, or name another file") from error
    at = os.lseek(file, 0, os.SEEK_END)
    progress(at, size)
    moved_s = time.monotonic()
    while at < size:
        try:
            async with contextlib.aclosing(_bytes(remote, entry["tag"], at, size)) as blocks:
                async for block in blocks:
                    _write(file, block)
                    at, moved_s = at + len(block), time.monotonic()
                    progress(at, size)
        except NoNodeAnswers as error:
            if not at:
                raise
            raise TransferCut(_cut_text(part, at, size, str(error))) from error
        except _Broken as error:
            if time.monotonic() - moved_s > remote.client.deadline_s:
                raise TransferCut(_cut_text(part, at, size, str(error))) from error
            await asyncio.sleep(0.3)
    return int(found.st_size)


def file_exists(out: Path) -> Conflict:
    return Conflict("file_exists", f"{out} exists", "name another file, or say --force")


class _Broken(Exception):
    """The connection of one try."""


async def _bytes(remote: Remote, tag: str, start: int, size: int) -> Any:
    """Raises _Broken, Refused, NoNodeAnswers; TransferCut where the file is another now."""
    headers = {"Range": f"bytes={start}-", "If-Match": tag}
    try:
        response = await remote.client.opened(
            f"{remote.path}/content", remote.params, again=start > 0, headers=headers, silence_s=_SILENCE_S
        )
    except Refused as refused:
        if refused.problem.status == 412:
            raise Conflict(
                "file_changed", f"{remote.target_path} was written to meanwhile", "run the same command again"
            ) from refused
        raise
    at = start
    try:
        if response.status == 200 and start:
            raise _Broken("it sent the file from its beginning")
        while block := await response.content.read(_BLOCK):
            at += len(block)
            yield block
    except (aiohttp.ClientError, TimeoutError) as error:
        remote.client.put_last(response.url.authority)
        raise _Broken(f"{response.url.authority} ended the transfer at byte {at}") from error
    finally:
        response.close()
    if at != size:
        raise _Broken(f"{response.url.authority} ended the transfer at byte {at}")


def _cut_text(part: Path, at: int, size: int, why: str) -> str:
    return f"{at} of {size} bytes are in {part}: {why}; run the same command again to go on"


def _write(file: int, block: bytes) -> None:
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(file, rest) :]


async def upload(
    remote: Remote, source: Path, overwrite: bool, parents: bool, progress: Progress
) -> tuple[dict[str, Any], int]:
    """The last answer, and how many bytes were there already. Raises InvalidInput, Refused, NoNodeAnswers, OSError."""
    with source.open("rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise InvalidInput("not_a_file", f"{source} is no regular file", "name a file")
        size = found.st_size
        # The same for the same state of the same file, so that another run goes on where this one was.
        words = [str(source.resolve()), str(size), str(found.st_mtime_ns), remote.group_id, remote.target_path]
        flags = {"overwrite": str(overwrite).lower(), "parents": str(parents).lower()}
        how = {
            **remote.params,
            **flags,
            "upload": hashlib.sha256("\0".join(words).encode("utf-8", "replace")).hexdigest()[:40],
            "size": str(size),
        }
        digest = hashlib.sha256()
        hashed = at = 0
        await remote.client.learn()
        if not overwrite and await remote.exists():
            # The agent may remember that it took this very file, and would say yes once more.
            raise Conflict("file_exists", f"{remote.target_path} exists", "name another file, or say --force")
        # An empty part: refusals come before any byte is sent, and it says how far an earlier run came.
        answer = await _put(remote, how, file.fileno(), 0, 0, size)
        began = int(answer["received"])
        while not answer["complete"]:
            at = int(answer["received"])
            progress(at, size)
            end = min(at + FILE_PART_MAX, size)
            for start in range(hashed, end, _BLOCK):
                digest.update(os.pread(file.fileno(), min(_BLOCK, end - start), start))
            hashed = end
            last = {"sha256": digest.hexdigest()} if end == size else {}
            answer = await _put(remote, how | last, file.fileno(), at, end, size, progress)
            if int(answer["received"]) <= at:
                raise Conflict("upload_stuck", f"the upload does not go on at byte {at}", "run the same command again")
        progress(size, size)
        return answer, min(began, at)


async def _put(
    remote: Remote, how: dict[str, str], file: int, start: int, end: int, size: int, progress: Progress | None = None
) -> dict[str, Any]:
    async def body() -> AsyncIterator[bytes]:
        at = start
        while at < end:
            block = os.pread(file, min(_BLOCK, end - at), at)
            if not block:
                raise InvalidInput("file_changed", "the file became shorter meanwhile", "run the same command again")
            at += len(block)
            yield block
            if progress is not None:
                progress(at, size)

    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(end - start)}
    silence_s = _LAST_PART_S if end == size else _SILENCE_S
    response = await remote.client.opened(
        f"{remote.path}/content",
        how | {"offset": str(start)},
        method="PUT",
        headers=headers,
        body=body,
        silence_s=silence_s,
    )
    try:
        return dict(json.loads(await response.read()))
    finally:
        response.close()
