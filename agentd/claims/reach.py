"""Whether the ranks of a group can reach rank 0 at its port, and whether it is he who answers.

Rank 0's agent listens there while the group is claimed and says who it is; the others come when its claim is known.
Private addresses repeat: at 10.0.0.5 another machine may answer, even one of another mesh. Nothing listens any more
when the last rank's claim is told, since a trainer that came early would be accepted here and then cut off.
"""

import asyncio
import ipaddress
import json
import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agentd.claims.port_hold import hold_port
from agentd.core.claim import ClaimRefused

# A host that trains has no idle core, and one that is late here costs the whole start.
REACH_S = 4.0
# For the addresses that are not preferred, once the preferred one has answered.
_OTHERS_S = 0.5
_SLOW_CLIENT_S = 10.0
_LINE_MAX = 1024
_CONNECTIONS_MAX = 4096
_BACKLOG = 1024
# A connection that is cut leaves nothing behind that would keep a trainer from the port.
_CUT = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class MeetingPoint:
    """node: rank 0's; addresses: its own, in order of preference; world: how many ranks there are."""

    cluster_id: str
    group_id: str
    attempt: int
    node: str
    addresses: tuple[str, ...]
    port: int
    rank: int
    world: int

    @property
    def mark(self) -> dict[str, Any]:
        return {"cluster": self.cluster_id, "group": self.group_id, "attempt": self.attempt, "node": self.node}


@dataclass(frozen=True, slots=True)
class Reach:
    """unreached: `{addr, why}`."""

    reached: tuple[str, ...]
    unreached: tuple[dict[str, str], ...]


class _NotThere(Exception):
    """Why, to follow the address in a sentence."""


class Door:
    """Rank 0's port, held at every address of this host and answered until all other ranks have come."""

    def __init__(self, point: MeetingPoint, held: Sequence[socket.socket]) -> None:
        self._point, self._held = point, list(held)
        self._waiting = set(range(1, point.world))
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting: list[asyncio.Task[None]] = []

    @staticmethod
    def open(point: MeetingPoint, own_host: str) -> "Door | ClaimRefused":
        """own_host: where the API of this agent is called. Addresses that are not this host's own lead here by
        translation, and are not bound."""
        held: list[socket.socket] = []
        refusal: ClaimRefused | None = None
        literal = [address for address in dict.fromkeys((*point.addresses, own_host)) if _is_literal(address)]
        for address in literal or [own_host]:
            taken = hold_port(address, point.port)
            if isinstance(taken, ClaimRefused):
                refusal = taken if taken.code == "port_taken" else refusal or taken
            else:
                held.append(taken)
        if refusal is not None and (not held or refusal.code == "port_taken"):
            for one in held:
                one.close()
            return refusal
        door = Door(point, held)
        for one in held:
            one.setblocking(False)
            one.listen(_BACKLOG)
            door._accepting.append(asyncio.create_task(door._accept(one)))
        return door

    def close(self) -> None:
        """At once: the next to bind the port is the trainer."""
        self._shut()
        for one in self._held:
            one.close()
        self._held = []
        for task in self._tasks:
            task.cancel()

    def _shut(self) -> None:
        """Nobody is let in any more; the port stays held."""
        for task in self._accepting:
            task.cancel()
        self._accepting = []
        for one in self._held:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(0.1)
                continue
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CUT)
            if len(self._tasks) >= _CONNECTIONS_MAX:
                accepted.close()
                continue
            task = asyncio.create_task(self._answer(accepted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, accepted: socket.socket) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(_SLOW_CLIENT_S):
                reader, writer = await asyncio.open_connection(sock=accepted, limit=_LINE_MAX)
                asked = _read(await reader.readline())
                mark = self._point.mark
                if any(asked.get(name) != value for name, value in mark.items()):
                    return  # a stranger is told nothing
                writer.write(_line({**mark, "nonce": asked.get("nonce")}))
                if _read(await reader.readline()).get("done") is not True:
                    return
                if isinstance(rank := asked.get("rank"), int):
                    self._waiting.discard(rank)
                if not self._waiting:
                    self._shut()
                writer.write(_line({"ok": True}))
                await writer.drain()
                # Whoever closes first keeps the port busy for a minute.
                await reader.read(1)
        except (OSError, ValueError, TimeoutError):
            pass
        finally:
            if writer is not None:
                writer.transport.abort()
            else:
                accepted.close()


async def reach(point: MeetingPoint) -> Reach:
    """Tries all addresses at once. Of another rank than 0 the last word is that it will not come again."""
    tries = [asyncio.create_task(_greet(point, address)) for address in point.addresses]
    try:
        preferred = tries[0]
        before = asyncio.get_running_loop().time()
        await asyncio.wait({preferred}, timeout=REACH_S)
        left_s = REACH_S - (asyncio.get_running_loop().time() - before)
        if preferred.done() and preferred.exception() is None:
            left_s = min(left_s, _OTHERS_S)
        await asyncio.wait(tries, timeout=max(left_s, 0.0))
        reached: list[str] = []
        unreached: list[dict[str, str]] = []
        for address, one in zip(point.addresses, tries, strict=True):
            if one.done() and one.exception() is None:
                reached.append(address)
            else:
                unreached.append({"addr": address, "why": _why(one)})
        if reached and point.rank:
            await _leave(tries[point.addresses.index(reached[0])].result())
        return Reach(tuple(reached), tuple(unreached))
    finally:
        for one in tries:
            if not one.done():
                one.cancel()
            elif not one.cancelled() and one.exception() is None:
                one.result()[1].close()


def _is_literal(host: str) -> bool:
    """A name is one of the addresses again, or leads here from elsewhere."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _why(tried: "asyncio.Task[Any]") -> str:
    error = tried.exception() if tried.done() else None
    return str(error)[:200] if isinstance(error, _NotThere) else f"does not answer within {REACH_S:g} s"


async def _greet(point: MeetingPoint, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The connection, once rank 0's agent has said who it is. Raises _NotThere."""
    try:
        reader, writer = await asyncio.open_connection(address, point.port, limit=_LINE_MAX)
    except OSError as error:
        raise _NotThere(_failure(error)) from error
    try:
        nonce = os.urandom(8).hex()
        writer.write(_line({**point.mark, "rank": point.rank, "nonce": nonce}))
        if _read(await reader.readline()) == {**point.mark, "nonce": nonce}:
            return reader, writer
        raise _NotThere("is another machine, which does not know this group")
    except (OSError, ValueError) as error:
        writer.close()
        raise _NotThere("is another machine, which does not know this group") from error
    except BaseException:
        writer.close()
        raise


def _failure(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refuses the connection"
    if isinstance(error, socket.gaierror):
        return "is a name that cannot be resolved"
    return f"cannot be reached ({error.strerror or os.strerror(error.errno or 0)})"


async def _leave(way: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    reader, writer = way
    with suppress(OSError, ValueError, TimeoutError):
        async with asyncio.timeout(REACH_S):
            writer.write(_line({"done": True}))
            await reader.readline()


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _read(line: bytes) -> dict[str, Any]:
    """Raises ValueError."""
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value
