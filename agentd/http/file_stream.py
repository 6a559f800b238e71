"""Bytes of files over HTTP: sent as fast as they are taken and cut rather than ended where they cannot all be; taken in
blocks, within bounds, from a body that may break off."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
from aiohttp import hdrs, web

from agentd.core.byte_range import Span
from agentd.files.source import BLOCK, Source, SourceBroken
from agentd.http.body import BodyTooSlow, WrongBodyType
from agentd.http.stream_end import lapse
from schemas.errors import HeteroFlowError, InvalidInput, Unavailable
from schemas.limits import FILE_PART_MAX
from schemas.strict_json import BodyTooLarge

T = TypeVar("T")
# Between two pieces of a body, however long the whole takes.
PIECE_S = 30.0


async def send(
    request: web.Request, source: Source, span: Span, partial: bool, headers: dict[str, str]
) -> web.StreamResponse:
    """partial: 206. An answer that cannot be finished is cut, so that nobody takes what came for the whole."""
    response = web.StreamResponse(status=206 if partial else 200, headers=headers)
    response.content_length = span.end - span.start
    if partial:
        response.headers[hdrs.CONTENT_RANGE] = f"bytes {span.start}-{span.end - 1}/{source.size}"
    if request.method == hdrs.METH_HEAD or span.start == span.end:
        await response.prepare(request)
        await response.write_eof()
        return response
    async with contextlib.aclosing(source.read(span.start, span.end)) as blocks:
        try:
            # Before the head: what cannot be had at all is refused, and not cut.
            first = await anext(blocks)
        except SourceBroken as error:
            raise Unavailable("file_broken", f"the file cannot be read: {error}", "try again in a moment") from error
        await response.prepare(request)
        writing, lapsing = asyncio.create_task(_write(response, first, blocks)), asyncio.create_task(lapse(request))
        try:
            await asyncio.wait({writing, lapsing}, return_when=asyncio.FIRST_COMPLETED)
            whole = writing.done() and writing.result()
            if not whole and request.transport is not None:
                request.transport.abort()
        finally:
            for task in (writing, lapsing):
                task.cancel()
            await asyncio.gather(writing, lapsing, return_exceptions=True)
    return response


async def _write(response: web.StreamResponse, first: bytes, blocks: AsyncIterator[bytes]) -> bool:
    """Whether all of it went out."""
    try:
        await response.write(first)
        async for block in blocks:
            await response.write(block)
        await response.write_eof()
    except (ConnectionError, SourceBroken):
        return False
    return True


class Body:
    """part: it may be FILE_PART_MAX at most; a whole file is as large as its disk."""

    def __init__(self, request: web.Request, part: bool) -> None:
        self._request, self._part = request, part
        self._failed: BaseException | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        """As they come. Raises BodyTooLarge, BodyTooSlow, InvalidInput."""
        try:
            size = 0
            while piece := await self._next():
                size += len(piece)
                if self._part and size > FILE_PART_MAX:
                    raise BodyTooLarge(
                        "body_too_large",
                        f"a part of an upload is at most {FILE_PART_MAX >> 20} MiB",
                        "send more parts, each at its offset",
                    )
                yield piece
        except HeteroFlowError as error:
            self._failed = error
            raise

    async def blocks(self) -> AsyncIterator[bytes]:
        """The same in pieces of about a MiB: each costs a turn of the disk's thread."""
        held = bytearray()
        async for piece in self.pieces():
            held += piece
            if len(held) >= BLOCK:
                yield bytes(held)
                held.clear()
        if held:
            yield bytes(held)

    async def judged(self, sending: Coroutine[Any, Any, T]) -> T:
        """What is said of a body that was passed on: its own fault before that of the connection it went over."""
        try:
            return await sending
        except HeteroFlowError as error:
            if isinstance(self._failed, HeteroFlowError):
                raise self._failed from error
            raise

    async def _next(self) -> bytes:
        try:
            async with asyncio.timeout(PIECE_S):
                return await self._request.content.readany()
        except TimeoutError as error:
            raise BodyTooSlow(
                "body_too_slow", f"nothing of the body came for {PIECE_S:.0f} s", "go on with the upload"
            ) from error
        except (web.RequestPayloadError, aiohttp.ClientPayloadError, aiohttp.http_exceptions.HttpProcessingError,
                ConnectionError) as error:  # fmt: skip
            raise InvalidInput("invalid_body", "the body broke off, or is not framed as its headers say") from error


async def while_allowed(request: web.Request, work: Coroutine[Any, Any, T]) -> T:
    """`work`, cut when whoever asked may not any more."""
    working, lapsing = asyncio.create_task(work), asyncio.create_task(lapse(request))
    try:
        await asyncio.wait({working, lapsing}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        problem = lapsing.result()
        raise HeteroFlowError(problem.code, problem.message, problem.hint, status=problem.status)
    finally:
        for task in (working, lapsing):
            task.cancel()
        await asyncio.gather(working, lapsing, return_exceptions=True)


def require_plain(request: web.Request, kind: str) -> None:
    """Raises WrongBodyType."""
    if request.content_type != kind:
        raise WrongBodyType(
            "wrong_content_type",
            f"a body of type {request.content_type[:80]} is not taken here",
            f"send Content-Type: {kind}",
        )
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
        raise WrongBodyType("packed_body", "a packed body is not taken: it could unpack to any size", "send it plain")


def attachment(name: str) -> str:
    """A header that saves and shows nothing, whatever the name is; the second form is RFC 6266's, of any name."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:200] or "file"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='', errors='replace')}"
