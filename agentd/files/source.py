"""A file that is sent, whichever host has it: what is known of it, and its bytes from anywhere in it."""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from typing import Any, Protocol

import aiohttp

from agentd.files.disk_thread import DiskThread
from agentd.files.host_files import OpenFile, tag_of
from schemas.api import FileEntry
from schemas.errors import Conflict, HeteroFlowError, Problem, Unavailable
from schemas.instants import MS_MAX, parse_iso_utc
from schemas.limits import FILE_PART_MAX

BLOCK = 1 << 20
_PASSED_ON = 256 << 10
_LATER = frozenset((429, 502, 503, 504))
_RETRY_S, _GIVE_UP_S = 0.3, 30.0
# A disk that is slow over there is given a minute by its own agent.
_PEER = aiohttp.ClientTimeout(total=None, sock_connect=3.0, sock_read=75.0)


class SourceBroken(Exception):
    """Bytes that were promised do not come: the file changed meanwhile, or its host is gone."""


class Source(Protocol):
    """last_modified: for the header of that name."""

    size: int
    tag: str
    last_modified: str

    def read(self, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """All of them, in pieces of at most BLOCK. Raises SourceBroken instead of an early end."""


class LocalSource:
    def __init__(self, disk: DiskThread, opened: OpenFile) -> None:
        self._disk, self._opened = disk, opened
        self.size, self.tag = opened.size, opened.tag
        self.last_modified = _http_date(opened.mtime_ns // 1_000_000)

    async def read(self, start: int, end: int) -> AsyncGenerator[bytes, None]:
        at = start
        while at < end:
            last = end - at <= BLOCK
            try:
                block = await self._disk.call(partial(self._block, at, min(BLOCK, end - at), last))
            except (OSError, HeteroFlowError) as error:
                raise SourceBroken(str(error)) from error
            at += len(block)
            yield block

    def _block(self, at: int, length: int, last: bool) -> bytes:
        block = os.pread(self._opened.descriptor, length, at)
        if not block:
            raise SourceBroken("the file became shorter")
        # Written to in place meanwhile: then what was sent is neither the old file nor the new one.
        # One that lost its name to another is read to its end.
        if last and tag_of(os.fstat(self._opened.descriptor)) != self.tag:
            raise SourceBroken("the file was written to meanwhile")
        return block


@dataclass(frozen=True, slots=True)
class Peer:
    """The agent that has the files. url: of one rank's; headers: for whom it is asked."""

    session: aiohttp.ClientSession
    node: str
    url: str
    headers: Mapping[str, str]
    lost: str
    """Why the mesh holds that node for lost, else empty."""

    async def list(self, params: Mapping[str, str]) -> Any:
        """Raises what it refuses, and Unavailable where it does not answer."""
        try:
            async with self.session.get(self.url, params=params, headers=self.headers, timeout=_PEER) as response:
                return await self._json(response)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise self.silent(error) from error

    async def put(self, params: Mapping[str, str], size: int | None, body: AsyncIterator[bytes]) -> Any:
        """Raises as `list`."""
        headers = {**self.headers, "Content-Type": "application/octet-stream"}
        if size is not None:
            headers["Content-Length"] = str(size)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=3.0, sock_read=1900.0)
        url = f"{self.url}/content"
        try:
            async with self.session.put(url, params=params, headers=headers, data=body, timeout=timeout) as response:
                return await self._json(response)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise self.silent(error) from error

    async def source(self, target_path: str) -> "PeerSource":
        """Raises as `list`, and Conflict for what is no regular file."""
        params = {"target_path": target_path}
        found = await self.list(params)
        if found["type"] != "file":
            raise not_a_file(target_path, str(found["type"]))
        return PeerSource(self, params, found["entries"][0])

    async def _json(self, response: aiohttp.ClientResponse) -> Any:
        value = json.loads(await response.read())
        if response.status == 200:
            return value
        if not isinstance(value, dict):
            raise ValueError(f"its agent answered {response.status}")
        problem = Problem.from_dict(value)
        if problem.code == "not_found":
            raise ValueError("its agent is of a version without files")
        raise HeteroFlowError(
            problem.code, problem.message, problem.hint, problem.field, problem.findings, response.status
        )

    def silent(self, error: BaseException) -> Unavailable:
        why = str(error) or type(error).__name__
        if self.lost:
            return Unavailable(
                "node_lost",
                f"node {self.node}, which has the files, is lost ({self.lost}) and does not answer",
                "wait for it, or ask by the rank of another node if the path is on a share that it has too",
            )
        return Unavailable(
            "node_unreachable",
            f"node {self.node}, which has the files, does not answer ({why})",
            "try again; or ask by the rank of another node if the path is on a share that it has too",
        )


class PeerSource:
    """From another agent, a part at a time: each is judged there anew, and one that breaks off is asked for again,
    so that an agent that is started anew meanwhile costs a pause and not the download."""

    def __init__(self, peer: Peer, params: Mapping[str, str], entry: FileEntry) -> None:
        if entry["size"] is None or entry["tag"] is None:
            raise peer.silent(ValueError("its agent tells no size"))
        self._peer, self._params = peer, params
        self.size, self.tag = entry["size"], entry["tag"]
        self.last_modified = _http_date(parse_iso_utc(entry["modified_at"]))

    async def read(self, start: int, end: int) -> AsyncGenerator[bytes, None]:
        at, heard_s = start, time.monotonic()
        while at < end:
            try:
                part = self._part(at, min(end, at + FILE_PART_MAX))
                async with contextlib.aclosing(part) as blocks:
                    async for block in blocks:
                        at, heard_s = at + len(block), time.monotonic()
                        yield block
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                if time.monotonic() - heard_s > _GIVE_UP_S:
                    raise SourceBroken(str(self._peer.silent(error))) from error
                await asyncio.sleep(_RETRY_S)

    async def _part(self, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """Ends early where the connection does."""
        headers = {**self._peer.headers, "Range": f"bytes={start}-{end - 1}", "If-Match": self.tag}
        url = f"{self._peer.url}/content"
        async with self._peer.session.get(url, params=self._params, headers=headers, timeout=_PEER) as response:
            if response.status in _LATER:
                raise aiohttp.ClientError(f"its agent answered {response.status}")
            if response.status != 206:
                raise SourceBroken(f"its agent answered {response.status}: the file is another now, or not there")
            async for block in response.content.iter_chunked(_PASSED_ON):
                yield block


def not_a_file(target_path: str, kind: str) -> Conflict:
    return Conflict(
        "not_a_file", f"{target_path} is a {kind}, no regular file", "links are not followed; list a directory"
    )


def _http_date(at_ms: int) -> str:
    return formatdate(min(max(at_ms, 0), MS_MAX) // 1000, usegmt=True)
