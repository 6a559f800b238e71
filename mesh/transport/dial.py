"""How clients reach a voter: an ordered list of endpoints, one backoff for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from pathlib import Path

from aiohttp import ClientError, ClientSession

from mesh.security.wire import PlainWire, Wire
from mesh.transport.carrier import Carrier, OnFrame, OnLost, UnixCarrier, WebSocketCarrier
from mesh.transport.codec import ANSWER_MAX, FRAMES, PREFIX
from mesh.transport.socket_path import bindable

CONNECT_S = 2.0
BACKOFF_MIN_S, BACKOFF_MAX_S = 0.05, 0.5


class Backoff:
    """Doubles to a maximum, with jitter so that many clients do not come back at once."""

    def __init__(self) -> None:
        self._next = BACKOFF_MIN_S

    def reset(self) -> None:
        self._next = BACKOFF_MIN_S

    def pause_s(self) -> float:
        pause, self._next = self._next, min(self._next * 2, BACKOFF_MAX_S)
        return pause * random.uniform(0.5, 1.5)


class Dialer:
    """Endpoints are paths of Unix sockets or HOST:PORT of voters' listeners."""

    def __init__(self, endpoints: Callable[[], list[str]], token: str, wire: Wire | None = None) -> None:
        self._endpoints, self._token, self._wire = endpoints, token, wire or PlainWire()
        self._http: ClientSession | None = None
        self._runs: set[asyncio.Task[None]] = set()

    @property
    def endpoints(self) -> list[str]:
        return self._endpoints()

    async def dial(self, endpoint: str, on_frame: OnFrame, on_lost: OnLost) -> Carrier:
        """Raises OSError or ClientError, also for a refused token and a timeout."""
        async with asyncio.timeout(CONNECT_S):
            if endpoint.startswith("/"):
                return await self._unix(endpoint, on_frame, on_lost)
            return await self._websocket(endpoint, on_frame, on_lost)

    async def _unix(self, path: str, on_frame: OnFrame, on_lost: OnLost) -> Carrier:
        loop = asyncio.get_running_loop()
        with bindable(Path(path)) as name:
            _, carrier = await loop.create_unix_connection(lambda: UnixCarrier(loop, ANSWER_MAX), name)
        carrier.on_frame, carrier.on_lost = on_frame, on_lost
        return carrier

    async def _websocket(self, address: str, on_frame: OnFrame, on_lost: OnLost) -> Carrier:
        if self._http is None:
            self._http = self._wire.session(limit=0)
        url = address if "://" in address else f"ws://{address}/v1/session"
        socket = await self._http.ws_connect(
            url,
            headers={} if self._wire.secure else {"Authorization": f"Bearer {self._token}"},
            protocols=(FRAMES,),
            max_msg_size=ANSWER_MAX + PREFIX,
            compress=0,
            heartbeat=5.0,
        )
        try:
            self._wire.check_voter(socket)
        except ConnectionError:
            await socket.close()
            raise
        carrier = WebSocketCarrier(socket)
        carrier.on_frame = on_frame
        task = asyncio.get_running_loop().create_task(_run(carrier, on_lost))
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)
        return carrier

    async def close(self) -> None:
        for task in tuple(self._runs):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._http is not None:
            await self._http.close()


async def _run(carrier: WebSocketCarrier, on_lost: OnLost) -> None:
    reason = "the client closed"
    try:
        reason = await carrier.run()
    finally:
        on_lost(reason)


DIAL_ERRORS = (OSError, ClientError, TimeoutError)
