"""How an answer leaves: JSON for people and tools, msgpack by Accept; problems in the same clothes."""

import json
from collections.abc import Mapping
from typing import Any

import msgpack
from aiohttp import web

from schemas.errors import HeteroFlowError, Problem

MSGPACK = "application/msgpack"
SERVER = "heteroflow"
SAFE_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def json_bytes(value: Any) -> bytes:
    """Strict JSON: no NaN, and a lone surrogate (which no UTF-8 can carry) becomes a replacement mark."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def answer(
    request: web.Request, value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    packed = MSGPACK in request.headers.get("Accept", "")
    return web.Response(
        body=msgpack.packb(value, unicode_errors="replace") if packed else json_bytes(value),
        status=status,
        content_type=MSGPACK if packed else "application/json",
        headers={**SAFE_HEADERS, **(headers or {})},
    )


async def same_clothes(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Every answer: no browser guesses what it is, nothing on the way keeps it, and it names no version to those who
    look for old ones."""
    response.headers["Server"] = SERVER
    for name, value in SAFE_HEADERS.items():
        response.headers.setdefault(name, value)


def problem_answer(request: web.Request, problem: Problem, headers: Mapping[str, str] | None = None) -> web.Response:
    extra = dict(headers or {})
    if problem.status == 503:
        extra.setdefault("Retry-After", "1")
    if problem.status == 426:
        extra.setdefault("Upgrade", "websocket")
    return answer(request, problem.to_dict(), problem.status, extra)


def error_answer(request: web.Request, error: HeteroFlowError) -> web.Response:
    return problem_answer(request, error.problem)
