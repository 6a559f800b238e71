"""How requests reach the application: what aiohttp would answer by itself becomes a problem object too.

A request that is no HTTP never gets to a middleware, and neither does one with an Expect header that nobody knows.
aiohttp answers them in plain text and writes a traceback, with the stranger's bytes in it, to the log."""

import asyncio
import logging
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from agentd.http.answer import SAFE_HEADERS, SERVER, json_bytes
from agentd.http.connections import KEEP_ALIVE_S, Connections
from agentd.http.gate import problem_of
from schemas.errors import Problem

# A log reader that goes on at another node names its place in each rank: 30 bytes for each of up to 1,250.
REQUEST_LINE_MAX = 64 * 1024
log = logging.getLogger(__name__)


class AgentRunner(web.AppRunner):
    def __init__(self, app: web.Application, connections: Connections | None = None, **options: Any) -> None:
        self.connections = connections or Connections()
        options.setdefault("keepalive_timeout", KEEP_ALIVE_S)
        super().__init__(
            app,
            access_log=None,
            max_line_size=REQUEST_LINE_MAX,
            # A body is as long as it arrives: whoever packs it would have us unpack any amount.
            auto_decompress=False,
            # How long the rest of a refused body is read, so that its sender gets to see the refusal.
            lingering_time=3.0,
            **options,
        )

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _Server(
            self.connections,
            made.request_handler,
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            loop=asyncio.get_running_loop(),
            **made._kwargs,
        )


class _Server(web.Server):
    def __init__(self, connections: Connections, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._guests = connections

    def __call__(self) -> web.RequestHandler:
        return _Connection(self._guests, self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    __slots__ = ("_connections", "_opened")

    def __init__(self, connections: Connections, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._connections = connections
        self._opened: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if isinstance(transport, asyncio.Transport):
            self._opened = transport
            self._connections.opened(transport)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._request_count and self._opened is not None:
            self._connections.asked(self._opened)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self._opened is not None:
            self._connections.closed(self._opened)
            self._opened = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun, so no other can be given")
        if isinstance(exc, HttpProcessingError) or status < 500:
            log.debug("no HTTP from %s: %s", request.remote, type(exc).__name__)
            problem = Problem(
                "malformed_request",
                "this is no HTTP request that can be answered",
                "send HTTP/1.1 with headers of usual size; over TLS where the mesh has it",
                status=400,
            )
        else:
            log.error("a request failed outside of every handler", exc_info=exc)
            problem = Problem("internal_error", "this agent failed while answering", "see agent.log", status=500)
        response = _plain(problem)
        response.force_close()
        return response

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.HTTPException) and resp.status >= 400:
            resp = _plain(problem_of(resp))
        return await super().finish_response(request, resp, start_time)


def _plain(problem: Problem) -> web.Response:
    """In JSON: of such a request nothing is known, nor what it accepts."""
    headers = {"Server": SERVER, **SAFE_HEADERS}
    return web.Response(
        body=json_bytes(problem.to_dict()), status=problem.status, content_type="application/json", headers=headers
    )
