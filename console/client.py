"""One client of the HTTP API: any node will do, and when it dies the next one does.

A write carries its request id on every try, so trying again is safe even where the first answer was lost.
"""

import asyncio
import contextlib
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp

from console.core.sanitize import sanitize_all
from console.endpoints import Target
from console.tls import trusting
from schemas.api import HEADER_REQUEST_ID
from schemas.errors import Problem
from schemas.tls_faults import alert_fault, certificate_fault

CONNECT_S = 2.0
TRY_S = 6.0  # a frozen agent accepts connections and never answers
SILENCE_S = 16.0  # streams beat every 5 s
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.1, 1.0
_PASSES_WHERE_NOBODY_LISTENS = 3
_LATER = frozenset((502, 503, 504))
_STREAM_LIMIT = 4 << 20


class Refused(Exception):
    """A node answered, and the answer is no."""

    def __init__(self, problem: Problem, node: str) -> None:
        super().__init__(problem.message)
        self.problem, self.node = problem, node


class NoNodeAnswers(Exception):
    """tried: what each node did. maybe_done: a write may have been made although no answer came."""

    def __init__(self, tried: Mapping[str, str], waited_s: float, maybe_done: bool = False) -> None:
        self.tried, self.waited_s, self.maybe_done = dict(tried), waited_s, maybe_done
        listed = ", ".join(f"{node} ({why})" for node, why in self.tried.items())
        super().__init__(f"no node answers: tried {listed} for {waited_s:.0f} s")


class StreamBroken(Exception):
    """A stream that had begun was cut off; whoever reads it opens it elsewhere from its last place."""

    def __init__(self, node: str, why: str) -> None:
        super().__init__(f"{node}: {why}")
        self.node, self.why = node, why


@dataclass(frozen=True, slots=True)
class Answer:
    """now_ms: the server's clock, against which ages are counted; the clock of this host may be wrong."""

    value: Any
    node: str
    now_ms: int


@dataclass(slots=True)
class _Failure:
    why: str
    listening: bool  # something accepted the connection


class MeshClient:
    """clean: texts in answers are made safe for a terminal. deadline_s: how long one call may try."""

    def __init__(self, target: Target, deadline_s: float = 20.0, clean: bool = True) -> None:
        self._nodes = list(target.nodes)
        self._scheme = target.scheme
        self._tls = trusting(target.ca_file) if target.ca_file else None
        self._headers = {"Authorization": f"Bearer {target.token}", "Accept": "application/json"}
        self._clean = clean
        self.deadline_s = deadline_s
        self._session: aiohttp.ClientSession | None = None
        self._learned = False

    async def __aenter__(self) -> "MeshClient":
        connector = aiohttp.TCPConnector(ssl=self._tls) if self._tls is not None else None
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            trust_env=False,
            auto_decompress=True,
            read_bufsize=_STREAM_LIMIT,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    @property
    def token(self) -> str:
        """Never to be shown: it is what must be taken out."""
        return self._headers["Authorization"].partition(" ")[2]

    @property
    def nodes(self) -> tuple[str, ...]:
        """In the order in which they are tried."""
        return tuple(self._nodes)

    def put_last(self, node: str) -> None:
        if node in self._nodes:
            self._nodes.remove(node)
            self._nodes.append(node)

    async def learn(self) -> None:
        """Where else the mesh can be reached, for when this node dies. What fails here is no failure."""
        if self._learned:
            return
        with contextlib.suppress(Refused, NoNodeAnswers):
            answer = await self._ask("GET", "/api/v1/nodes", {"consistency": "stale"}, None, None, deadline_s=3.0)
            rows = answer.value.get("nodes", []) if isinstance(answer.value, dict) else []
            addresses = [
                str(row.get("api_addr")) for row in rows if row.get("state") == "ready" and row.get("api_addr")
            ]
            self.know(addresses)

    def know(self, addresses: Iterable[str]) -> None:
        """Other nodes of the mesh; they are tried after those that are known."""
        found = dict.fromkeys(addresses)
        known = set(self._nodes)
        self._nodes += [address for address in found if address not in known]
        self._learned |= bool(found)

    async def read(self, path: str, params: Mapping[str, str] | None = None, clean: bool | None = None) -> Answer:
        """clean: for this answer, where its reader cleans the few texts he takes. Raises Refused, NoNodeAnswers."""
        return await self._ask("GET", path, params or {}, None, None, self.deadline_s, clean)

    async def write(self, path: str, request_id: str, body: bytes | None = None, method: str = "POST") -> Answer:
        """Done once, whatever is lost on the way. Raises Refused, NoNodeAnswers."""
        await self.learn()
        return await self._ask(method, path, {}, body, request_id, self.deadline_s)

    async def _ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None,
        request_id: str | None,
        deadline_s: float,
        clean: bool | None = None,
    ) -> Answer:
        headers = {HEADER_REQUEST_ID: request_id} if request_id else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        patience = _Patience(deadline_s)
        while True:
            for node in self.nodes:
                try:
                    answer = await self._try(method, node, path, params, body, headers, patience.left_s, clean)
                except aiohttp.ClientError as error:
                    patience.note(node, self._failed(error, node), sent=request_id is not None)
                except TimeoutError:
                    patience.silent(node, sent=request_id is not None)
                else:
                    if not isinstance(answer, _Failure):
                        return answer
                    patience.note(node, answer)
                self.put_last(node)
            await patience.pause()

    async def _try(
        self,
        method: str,
        node: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None,
        headers: Mapping[str, str],
        left_s: float,
        clean: bool | None = None,
    ) -> "Answer | _Failure":
        assert self._session is not None
        timeout = aiohttp.ClientTimeout(total=max(min(TRY_S, left_s), 0.5), sock_connect=CONNECT_S)
        request = self._session.request(
            method,
            f"{self._scheme}://{node}{path}",
            params=params,
            data=body,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
        )
        async with request as response:
            raw = await response.read()
            if response.status in _LATER:
                return _Failure(_problem(response.status, raw, self._clean).message, listening=True)
            if not 200 <= response.status < 300:
                raise Refused(_problem(response.status, raw, self._clean), node)
            return Answer(
                self._decoded(raw, node, self._clean if clean is None else clean), node, server_now_ms(response.headers)
            )

    def _decoded(self, raw: bytes, node: str, clean: bool) -> Any:
        try:
            value = json.loads(raw) if raw else None
        except (ValueError, RecursionError) as error:
            message = f"{node} answered something that is no JSON; is an agent listening there?"
            raise Refused(Problem("not_an_agent", message, "Check the address.", status=502), node) from error
        return sanitize_all(value) if clean else value

    async def ndjson(self, path: str, params: Mapping[str, str], again: bool = False) -> AsyncIterator[dict[str, Any]]:
        """Objects of a stream as they come, `{}` heartbeats too, texts unchanged. again: it was cut, so that an agent
        is coming back also where none listens now.

        Raises Refused and NoNodeAnswers before the first one, StreamBroken once it has begun.
        """
        response = await self.opened(path, params, again)
        node = response.url.authority
        try:
            while raw := await response.content.readline():
                if not raw.endswith(b"\n"):
                    raise StreamBroken(node, "the connection ended within a line")
                value = json.loads(raw)
                yield value if isinstance(value, dict) else {}
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.put_last(node)
            raise StreamBroken(node, self._failed(error, node).why) from error
        except ValueError as error:
            self.put_last(node)
            raise StreamBroken(node, "it sent something that is no JSON line") from error
        finally:
            response.close()

    async def opened(
        self,
        path: str,
        params: Mapping[str, str],
        again: bool = False,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: Callable[[], AsyncIterator[bytes]] | None = None,
        silence_s: float = SILENCE_S,
    ) -> aiohttp.ClientResponse:
        """A good answer whose body is still to be read, and then to be closed. body: made anew for each try. Raises
        Refused, NoNodeAnswers."""
        assert self._session is not None
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s)
        patience = _Patience(self.deadline_s, again)
        while True:
            for node in self.nodes:
                try:
                    response = await self._session.request(
                        method,
                        f"{self._scheme}://{node}{path}",
                        params=params,
                        headers=headers,
                        data=None if body is None else body(),
                        timeout=timeout,
                        allow_redirects=False,
                    )
                    if response.status in (200, 206):
                        return response
                    raw = await response.read()
                    if response.status not in _LATER:
                        raise Refused(_problem(response.status, raw, self._clean), node)
                    patience.note(node, _Failure(_problem(response.status, raw, self._clean).message, listening=True))
                except (aiohttp.ClientError, TimeoutError) as error:
                    patience.note(node, self._failed(error, node))
                self.put_last(node)
            await patience.pause()

    async def websocket(self, path: str, params: Mapping[str, str]) -> "tuple[aiohttp.ClientWebSocketResponse, str]":
        """An open WebSocket and the node it is with. Raises Refused, NoNodeAnswers."""
        assert self._session is not None
        patience = _Patience(self.deadline_s)
        while True:
            for node in self.nodes:
                try:
                    timeout = aiohttp.ClientWSTimeout(ws_close=1.0)
                    async with asyncio.timeout(TRY_S):
                        socket = await self._session.ws_connect(
                            f"{self._scheme}://{node}{path}",
                            params=params,
                            timeout=timeout,
                            heartbeat=10.0,
                            max_msg_size=_STREAM_LIMIT,
                        )
                    return socket, node
                except aiohttp.WSServerHandshakeError as error:
                    if error.status not in _LATER:
                        raise Refused(await self._handshake_problem(node, path, params, error), node) from error
                    patience.note(node, _Failure(f"it answered {error.status}", listening=True))
                except (aiohttp.ClientError, TimeoutError) as error:
                    patience.note(node, self._failed(error, node))
                self.put_last(node)
            await patience.pause()

    def _failed(self, error: BaseException, node: str) -> _Failure:
        failure = _failure(error, node)
        if self._tls is None and isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
            # What a listener with TLS does to whoever comes without.
            failure.why += "; if that mesh has TLS, give --ca-file F" if failure.listening else ""
        return failure

    async def _handshake_problem(
        self, node: str, path: str, params: Mapping[str, str], error: aiohttp.WSServerHandshakeError
    ) -> Problem:
        """A refused handshake hides its body; the same request without the upgrade shows why."""
        try:
            await self._try("GET", node, path, params, None, {}, TRY_S)
        except Refused as refused:
            if refused.problem.status == error.status:
                return refused.problem
        except (aiohttp.ClientError, TimeoutError):
            pass
        return Problem("refused", f"the node refused the watch ({error.status})", status=error.status)


class _Patience:
    """Tries until the deadline; much shorter where nobody listens at all, because waiting starts no agent, unless one
    was there a moment ago (`known`): its guard starts it again."""

    def __init__(self, deadline_s: float, known: bool = False) -> None:
        self._began = time.monotonic()
        self._deadline_s = deadline_s
        self._failures: dict[str, _Failure] = {}
        self._passes = 0
        self._known = known
        self._pause_s = _PAUSE_MIN_S
        self._maybe_done = False

    @property
    def left_s(self) -> float:
        return self._began + self._deadline_s - time.monotonic()

    def note(self, node: str, failure: _Failure, sent: bool = False) -> None:
        self._failures[node] = failure
        self._maybe_done |= sent and failure.listening

    def silent(self, node: str, sent: bool) -> None:
        """A last try that our own deadline cut short tells less of a node than what it did before."""
        before = self._failures.get(node) if self.left_s <= 0 else None
        self.note(node, _Failure(before.why if before else "no answer in time", listening=True), sent)

    async def pause(self) -> None:
        """Between two passes over all nodes. Raises NoNodeAnswers."""
        self._passes += 1
        deaf = not any(failure.listening for failure in self._failures.values())
        if self.left_s <= self._pause_s or (
            deaf and not (self._maybe_done or self._known) and self._passes >= _PASSES_WHERE_NOBODY_LISTENS
        ):
            tried = {node: failure.why for node, failure in self._failures.items()}
            raise NoNodeAnswers(tried, time.monotonic() - self._began, self._maybe_done)
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 1.7, _PAUSE_MAX_S)


def _failure(error: BaseException, node: str) -> _Failure:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        found = error.certificate_error
        code = found.verify_code if isinstance(found, ssl.SSLCertVerificationError) else 0
        return _Failure("; ".join(certificate_fault(code, str(found), node)), listening=False)
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        said = alert_fault(str(getattr(error.os_error, "reason", "")), node)
        return _Failure(said or "no TLS connection could be made", listening=False)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return _Failure("the name does not resolve", listening=False)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return _Failure("no connection in time", listening=False)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _Failure(_system_text(error.os_error), listening=False)
    if isinstance(error, TimeoutError):
        return _Failure("it fell silent", listening=True)
    if isinstance(error, aiohttp.ClientResponseError):
        return _Failure("it does not speak HTTP as an agent does", listening=True)
    return _Failure("the connection was cut", listening=True)


def _system_text(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else "no connection"


def _problem(status: int, raw: bytes, clean: bool) -> Problem:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or "code" not in value:
        message = f"the answer was HTTP {status} without a problem object; is an agent listening there?"
        return Problem("not_an_agent", message, "Check the address.", status=status)
    return Problem.from_dict({**(sanitize_all(value) if clean else value), "status": status})


def server_now_ms(headers: Mapping[str, str]) -> int:
    """By the Date header; this host's clock only where it is missing."""
    try:
        return int(parsedate_to_datetime(headers["Date"]).timestamp() * 1000)
    except (KeyError, ValueError, TypeError):
        return time.time_ns() // 1_000_000
