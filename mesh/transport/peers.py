"""Links between voters: one outgoing WebSocket to each peer, bounded queues, and calls that travel on the same links.

Frame: [cluster_id, epoch, from, to, items]. An item is a Raft message (its wire list, which begins with a number),
a call ["call", number, op, args] or its answer ["answer", number, answer]; args and answer are msgpack in bytes, so
that an item's size is known when it is queued. Answers go back on the answering voter's own outgoing link.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientError, ClientSession, ClientWebSocketResponse, WSMsgType, web

from mesh.core.raft.errors import WireError
from mesh.core.raft.message import Message
from mesh.security.wire import PlainWire, Wire
from mesh.transport.codec import WireFault, pack, unpack
from schemas.errors import NotAuthorised
from schemas.limits import FRAME_MAX, WEBSOCKET_MAX

FRAME_ITEMS_MAX = 64
FRAME_FILL = FRAME_MAX // 2
"""An item is at most 256 KiB of entries and one more entry, so a frame filled to here stays below FRAME_MAX."""
QUEUE_ITEMS_MAX = 4_096
QUEUE_BYTES_MAX = 16 * 1024 * 1024
CONNECT_S = 2.0
PING_S = 2.0
BACKOFF_MIN_S, BACKOFF_MAX_S = 0.05, 1.0
RAFT_PATH = "/v1/raft"

_logger = logging.getLogger("heteroflow.peers")


@dataclass(frozen=True, slots=True)
class Envelope:
    """Who speaks: frames of another mesh or epoch, or for another voter, are dropped and counted."""

    cluster_id: str
    epoch: int
    me: int


@dataclass(slots=True)
class Counters:
    foreign_frames: int = 0
    malformed_frames: int = 0
    dropped_items: int = 0


class PeerLink:
    """The way to one peer. `send` never waits and never raises; what does not get through is lost, as Raft allows."""

    def __init__(
        self,
        envelope: Envelope,
        peer: int,
        url: str,
        token: str,
        client: ClientSession,
        counters: Counters,
        on_down: Callable[[int], None],
        check: Callable[[ClientWebSocketResponse], None] = lambda socket: None,
    ) -> None:
        """check: raises ConnectionError where another than the peer is at the other end."""
        self.peer = peer
        self.connected = False
        self._head = [envelope.cluster_id, envelope.epoch, envelope.me, peer]
        self._url, self._token, self._client = url, token, client
        self._counters, self._on_down, self._check = counters, on_down, check
        self._urgent: deque[Any] = deque()
        self._queue: deque[tuple[Any, int]] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self._retry = asyncio.Event()

    def send(self, messages: Iterable[Message]) -> None:
        if not self.connected:
            return
        for message in messages:
            self._push(message.to_wire(), sum([len(e.data) + 16 for e in message.entries]) + 64)

    def call(self, number: int, op: str, payload: bytes, urgent: bool = False) -> bool:
        """payload: the packed arguments, at most ENTRY_MAX. False when there is no link to send it on."""
        return self._send_item(["call", number, op, payload], len(payload) + 64, urgent)

    def answer(self, number: int, value: Any, problem: Any, urgent: bool = False) -> None:
        payload = pack([value, problem])
        self._send_item(["answer", number, payload], len(payload) + 64, urgent)

    def _send_item(self, item: list[Any], size: int, urgent: bool) -> bool:
        if not self.connected:
            return False
        if urgent:
            if len(self._urgent) >= QUEUE_ITEMS_MAX:
                self._urgent.popleft()
                self._counters.dropped_items += 1
            self._urgent.append(item)
            self._wake.set()
        else:
            self._push(item, size)
        return True

    def _push(self, item: list[Any], size: int) -> None:
        queue = self._queue
        while queue and (len(queue) >= QUEUE_ITEMS_MAX or self._queued_bytes + size > QUEUE_BYTES_MAX):
            self._queued_bytes -= queue.popleft()[1]
            self._counters.dropped_items += 1
        queue.append((item, size))
        self._queued_bytes += size
        self._wake.set()

    def retry_now(self) -> None:
        """The peer was heard: there is no reason to wait longer before connecting."""
        self._retry.set()

    async def run(self) -> None:
        """Connect, send, reconnect, until cancelled."""
        backoff = BACKOFF_MIN_S
        while True:
            try:
                async with asyncio.timeout(CONNECT_S):
                    socket = await self._client.ws_connect(
                        self._url,
                        headers={"Authorization": f"Bearer {self._token}"},
                        max_msg_size=WEBSOCKET_MAX,
                        compress=0,
                        heartbeat=PING_S,
                        autoclose=False,
                    )
            except (ClientError, OSError, TimeoutError) as error:
                _logger.debug("no link to voter %x at %s (%s)", self.peer, self._url, error)
            else:
                if await self._is_the_peer(socket):
                    backoff = BACKOFF_MIN_S
                    await self._serve(socket)
            self._retry.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff * random.uniform(0.5, 1.5)):
                    await self._retry.wait()
            backoff = min(backoff * 2, BACKOFF_MAX_S)

    async def _is_the_peer(self, socket: ClientWebSocketResponse) -> bool:
        try:
            self._check(socket)
        except ConnectionError as error:
            _logger.warning("no link to voter %x at %s: %s", self.peer, self._url, error)
            await socket.close()
            return False
        return True

    async def _serve(self, socket: ClientWebSocketResponse) -> None:
        self.connected = True
        reader = asyncio.create_task(self._watch(socket))
        try:
            while not reader.done():
                await self._wake.wait()
                self._wake.clear()
                while (items := self._next_items()) and not reader.done():
                    await socket.send_bytes(pack([*self._head, items]))
        except (ClientError, ConnectionError, OSError, RuntimeError) as error:
            _logger.debug("link to voter %x broke (%s)", self.peer, error)
        finally:
            self.connected = False
            self._urgent.clear()
            self._queue.clear()
            self._queued_bytes = 0
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            with contextlib.suppress(ClientError, ConnectionError, OSError, TimeoutError):
                async with asyncio.timeout(0.5):
                    await socket.close()
            self._on_down(self.peer)

    async def _watch(self, socket: ClientWebSocketResponse) -> None:
        """The peer sends nothing here; reading notices its end, and the pings a peer that hangs."""
        async for message in socket:
            if message.type is not WSMsgType.BINARY:
                break
        self._wake.set()

    def _next_items(self) -> list[Any]:
        items: list[Any] = []
        size = 0
        while self._urgent and len(items) < FRAME_ITEMS_MAX:
            items.append(self._urgent.popleft())
        queue = self._queue
        while queue and len(items) < FRAME_ITEMS_MAX and (size < FRAME_FILL or not items):
            item, item_size = queue.popleft()
            self._queued_bytes -= item_size
            size += item_size
            items.append(item)
        return items


@dataclass(slots=True)
class Received:
    sender: int
    messages: list[Message]
    calls: list[tuple[int, str, Any]]
    answers: list[tuple[int, Any, Any]]


def read_frame(raw: bytes, envelope: Envelope, peers: frozenset[int]) -> Received | None:
    """None for a frame that is not for this voter. Raises WireFault for one that is no frame."""
    frame = unpack(raw)
    if not isinstance(frame, list) or len(frame) != 5 or not isinstance(frame[4], list):
        raise WireFault("a peer frame is [cluster_id, epoch, from, to, items]")
    cluster_id, epoch, sender, to, items = frame
    if not all(type(number) is int for number in (epoch, sender, to)):
        return None
    if cluster_id != envelope.cluster_id or epoch != envelope.epoch or to != envelope.me or sender not in peers:
        return None
    if len(items) > FRAME_ITEMS_MAX:
        raise WireFault(f"a frame holds at most {FRAME_ITEMS_MAX} items, not {len(items)}")
    received = Received(sender, [], [], [])
    for item in items:
        _read_item(item, sender, received)
    return received


def _read_item(item: Any, sender: int, received: Received) -> None:
    kind = item[0] if isinstance(item, list) and item else None
    if kind == "call" and len(item) == 4 and isinstance(item[2], str):
        received.calls.append((_number(item[1]), item[2], _inner(item[3])))
    elif kind == "answer" and len(item) == 3:
        answer = _inner(item[2])
        if not isinstance(answer, list) or len(answer) != 2:
            raise WireFault("an answer is a value and a problem")
        received.answers.append((_number(item[1]), answer[0], answer[1]))
    else:
        try:
            message = Message.from_wire(item)
        except WireError as error:
            raise WireFault(str(error)) from error
        if message.from_ != sender:
            raise WireFault(f"a message from {message.from_} came in a frame of {sender}")
        received.messages.append(message)


def _number(raw: Any) -> int:
    if not isinstance(raw, int):
        raise WireFault("calls are numbered")
    return raw


def _inner(raw: Any) -> Any:
    if not isinstance(raw, bytes):
        raise WireFault("what a call carries is msgpack in bytes")
    return unpack(raw)


class PeerServer:
    """The receiving end of /v1/raft."""

    def __init__(
        self,
        envelope: Envelope,
        peers: Mapping[int, str],
        counters: Counters,
        on_received: Callable[[Received], None],
        wire: Wire | None = None,
    ) -> None:
        """peers: the node of each."""
        self._envelope, self._counters, self._on_received = envelope, counters, on_received
        self._peers, self._wire = dict(peers), wire or PlainWire()

    def _may_speak_for(self, request: web.Request) -> frozenset[int]:
        """With certificates: only for the voter of the caller's own name. Raises NotAuthorised."""
        caller = self._wire.caller(request)
        if not self._wire.secure:
            return frozenset(self._peers)
        node = caller.name.node if caller is not None and caller.name.voter else None
        speaks_for = frozenset(raft_id for raft_id, name in self._peers.items() if name == node)
        if not speaks_for:
            who = caller.name.node if caller is not None else "nobody known"
            raise NotAuthorised(
                "voters_only", f"{who} is no voter of this mesh; only voters agree on its log", status=403
            )
        return speaks_for

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        speaks_for = self._may_speak_for(request)
        socket = web.WebSocketResponse(max_msg_size=WEBSOCKET_MAX, compress=False, heartbeat=PING_S * 2)
        await socket.prepare(request)
        async for message in socket:
            if message.type is not WSMsgType.BINARY:
                break
            try:
                received = read_frame(message.data, self._envelope, speaks_for)
            except WireFault as fault:
                self._counters.malformed_frames += 1
                _logger.warning("closing a peer's link: %s", fault)
                break
            if received is None:
                self._counters.foreign_frames += 1
            else:
                self._on_received(received)
        await socket.close()
        return socket
