"""Sums of vectors over all ranks, through rank 0, on plain sockets.

Frames are `u8 kind, u32 length, bytes`, big-endian. Rank 0 adds in rank order, so that a sum is the same in every run.
When a rank is lost, rank 0 tells the others which one before it ends: a victim never names another victim. A rank that
ends says so before it goes, for the siblings that its node ends with it may be missed first.
"""

import contextlib
import json
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np

from numpy_ddp.regression import Vector

HELLO, WELCOME, VECTOR, LOST, REFUSED, LEAVING = range(6)
HEADER = struct.Struct(">BI")
MAX_FRAME_BYTES = 64 * 2**20
POLL_S = 0.05
HELLO_TIMEOUT_S = 2.0


CLOSED = "it closed the connection"


class PeerLost(Exception):
    """Is raised when the sum cannot be completed because a rank is gone."""

    def __init__(self, rank: int, why: str) -> None:
        super().__init__(f"lost rank {rank}: {why}")
        self.rank = rank
        self.why = why


class RendezvousFailed(Exception):
    """Is raised when the ranks do not find each other in time, or rank 0 refuses this one."""


class StopRequested(Exception):
    """Is raised when the rendezvous is told to end."""


@dataclass(frozen=True)
class Rank:
    """`job` names group and attempt: a left-over rank of another attempt is refused."""

    rank: int
    world: int
    job: str


@dataclass(frozen=True)
class Rendezvous:
    host: str
    port: int
    deadline_s: float
    silence_s: float
    stopping: Callable[[], bool]


class Link(Protocol):
    def reduce(self, vector: Vector) -> Vector: ...
    def close(self) -> None: ...


def _send(peer: socket.socket, kind: int, data: bytes) -> None:
    peer.sendall(HEADER.pack(kind, len(data)) + data)


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = peer.recv(min(size - len(data), 1 << 20))
        if not chunk:
            raise ConnectionError(CLOSED)
        data += chunk
    return bytes(data)


def _receive(peer: socket.socket) -> tuple[int, bytes]:
    kind, size = HEADER.unpack(_exactly(peer, HEADER.size))
    if size > MAX_FRAME_BYTES:
        raise ConnectionError(f"it sent a frame of {size} bytes")
    return kind, _exactly(peer, size)


def _why(error: OSError) -> str:
    return "it said nothing in time" if isinstance(error, TimeoutError) else str(error)


class Hub:
    """Rank 0's side."""

    def __init__(self, me: Rank, peers: dict[int, socket.socket]) -> None:
        self._me = me
        self._peers = peers

    def reduce(self, vector: Vector) -> Vector:
        total = vector.copy()
        for rank in range(1, self._me.world):
            try:
                kind, data = _receive(self._peers[rank])
                if kind == LEAVING:
                    raise ConnectionError(CLOSED)
            except OSError as error:
                raise self._lost(rank, _why(error)) from error
            total += np.frombuffer(data, dtype=np.float64)
        payload = total.tobytes()
        for rank in range(1, self._me.world):
            try:
                _send(self._peers[rank], VECTOR, payload)
            except OSError as error:
                raise self._lost(rank, _why(error)) from error
        return total

    def _lost(self, rank: int, why: str) -> PeerLost:
        left = next((other for other in self._peers if self._is_leaving(other)), None)
        if left is not None:
            rank, why = left, CLOSED
        notice = json.dumps({"rank": rank, "why": why}).encode()
        for other, peer in self._peers.items():
            if other != rank:
                try:
                    _send(peer, LOST, notice)
                except OSError:
                    continue  # it is gone too, and its own end says so
        return PeerLost(rank, why)

    def _is_leaving(self, rank: int) -> bool:
        peer = self._peers[rank]
        poll = select.poll()
        poll.register(peer, select.POLLIN)
        try:
            return bool(poll.poll(0)) and peer.recv(1, socket.MSG_PEEK) == bytes([LEAVING])
        except OSError:
            return False

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()


class Spoke:
    """The side of every other rank."""

    def __init__(self, hub: socket.socket) -> None:
        self._hub = hub

    def reduce(self, vector: Vector) -> Vector:
        try:
            _send(self._hub, VECTOR, vector.tobytes())
        except OSError as error:
            raise self._last_words(error) from error
        try:
            kind, data = _receive(self._hub)
        except OSError as error:
            raise PeerLost(0, _why(error)) from error
        if kind == LOST:
            notice = json.loads(data)
            raise PeerLost(notice["rank"], notice["why"])
        return np.frombuffer(data, dtype=np.float64).copy()

    def _last_words(self, error: OSError) -> PeerLost:
        """Rank 0 may have said whom it lost before it closed."""
        try:
            kind, data = _receive(self._hub)
        except OSError:
            return PeerLost(0, _why(error))
        if kind != LOST:
            return PeerLost(0, _why(error))
        notice = json.loads(data)
        return PeerLost(notice["rank"], notice["why"])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            _send(self._hub, LEAVING, b"")
        self._hub.close()


def _admit(me: Rank, peer: socket.socket, present: dict[int, socket.socket]) -> int | None:
    """The rank behind a new connection, or None after it was told why not."""
    peer.settimeout(HELLO_TIMEOUT_S)
    try:
        kind, data = _receive(peer)
        hello = Rank(**json.loads(data)) if kind == HELLO else None
    except (OSError, ValueError, TypeError):
        return None
    if hello is None:
        return None
    refusal = ""
    if (hello.job, hello.world) != (me.job, me.world):
        refusal = f"this is {me.job} with {me.world} ranks, not {hello.job} with {hello.world}"
    elif hello.rank in present or not 0 < hello.rank < me.world:
        refusal = f"rank {hello.rank} is taken or out of range"
    if refusal:
        _send(peer, REFUSED, refusal.encode())
        return None
    return hello.rank


def gather(me: Rank, at: Rendezvous, start: Vector) -> Hub:
    """Rank 0: wait for all others and give each the vector to start from."""
    peers: dict[int, socket.socket] = {}
    deadline = time.monotonic() + at.deadline_s
    family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
    with socket.create_server((at.host, at.port), family=family, backlog=1024) as server:
        server.settimeout(POLL_S)
        while len(peers) < me.world - 1:
            if at.stopping():
                raise StopRequested
            if time.monotonic() > deadline:
                missing = [rank for rank in range(1, me.world) if rank not in peers]
                raise RendezvousFailed(f"ranks {missing} did not come within {at.deadline_s:g} s")
            try:
                peer, _ = server.accept()
            except TimeoutError:
                continue
            rank = _admit(me, peer, peers)
            if rank is None:
                peer.close()
                continue
            _settle(peer, at)
            _send(peer, WELCOME, start.tobytes())
            peers[rank] = peer
    return Hub(me, peers)


def find(me: Rank, at: Rendezvous) -> tuple[Spoke, Vector]:
    """Any other rank: reach rank 0, and the vector that it starts from."""
    deadline = time.monotonic() + at.deadline_s
    while True:
        if at.stopping():
            raise StopRequested
        try:
            hub = socket.create_connection((at.host, at.port), timeout=at.deadline_s)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise RendezvousFailed(
                    f"rank 0 did not answer at {at.host}:{at.port} within {at.deadline_s:g} s: {error}"
                ) from error
            time.sleep(POLL_S)
    try:
        _send(hub, HELLO, json.dumps(asdict(me)).encode())
        kind, data = _receive(hub)
    except OSError as error:
        hub.close()
        raise RendezvousFailed(f"rank 0 at {at.host}:{at.port} went away during the rendezvous: {error}") from error
    if kind != WELCOME:
        hub.close()
        raise RendezvousFailed(f"rank 0 refused this rank: {data.decode(errors='replace')}")
    _settle(hub, at)
    return Spoke(hub), np.frombuffer(data, dtype=np.float64).copy()


def _settle(peer: socket.socket, at: Rendezvous) -> None:
    peer.settimeout(at.silence_s)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
