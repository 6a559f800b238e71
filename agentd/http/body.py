"""Request bodies: bounded, strict, and of a type that was asked for."""

import asyncio
from typing import Any

import msgpack
from aiohttp import hdrs, web

from agentd.http.answer import MSGPACK
from schemas.errors import HeteroFlowError, InvalidInput
from schemas.lexemes import kind_of
from schemas.limits import DOCUMENT_MAX
from schemas.strict_json import BodyTooLarge, parse_strict_json

BODY_S = 30.0


class BodyTooSlow(HeteroFlowError):
    status = 408


class WrongBodyType(HeteroFlowError):
    status = 415


async def read_document(request: web.Request, limit: int = DOCUMENT_MAX) -> dict[str, Any]:
    """A JSON or msgpack map. Raises InvalidInput, BodyTooLarge, WrongBodyType."""
    packed = request.content_type == MSGPACK
    if not packed and request.content_type != "application/json":
        raise WrongBodyType(
            "wrong_content_type",
            f"a body of type {request.content_type[:80]} is not taken here",
            "send Content-Type: application/json",
        )
    if request.charset is not None and request.charset.lower() not in ("utf-8", "utf8"):
        raise WrongBodyType("wrong_charset", f"JSON is UTF-8, not {request.charset[:40]}", "send UTF-8")
    raw = await read_bounded(request, limit)
    value = _unpack(raw) if packed else parse_strict_json(raw)
    if not isinstance(value, dict):
        raise InvalidInput("invalid_body", f"the body must be a map, not {kind_of(value)}", "send one JSON object")
    return value


async def read_bounded(request: web.Request, limit: int) -> bytes:
    too_large = BodyTooLarge(
        "body_too_large",
        f"the body is larger than {limit} bytes, which is what this route takes",
        "make the document smaller",
    )
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
        raise WrongBodyType("packed_body", "a packed body is not taken: it could unpack to any size", "send it plain")
    if request.content_length is not None and request.content_length > limit:
        raise too_large
    raw = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.content.iter_chunked(64 << 10):
                raw += chunk
                if len(raw) > limit:
                    raise too_large
    except web.RequestPayloadError as error:
        raise InvalidInput("invalid_body", "the body broke off, or is not framed as its headers say") from error
    except TimeoutError as error:
        raise BodyTooSlow("body_too_slow", f"the body did not arrive within {BODY_S:.0f} s", "send it again") from error
    return bytes(raw)


def _unpack(raw: bytes) -> Any:
    try:
        return msgpack.unpackb(raw, raw=False, strict_map_key=True)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise InvalidInput(
            "invalid_body", f"the body is not msgpack ({type(error).__name__})", "send one msgpack map"
        ) from error


async def read_nothing(request: web.Request) -> None:
    """For actions that take no body: an empty one or `{}`."""
    if request.can_read_body and await read_document(request, 4096) != {}:
        raise InvalidInput("invalid_body", "this action takes no fields", "send no body")
