"""A network inside the process, for tests of what stands on gossip: the same drivers, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mesh.gossip.carrier import Answer, HostRefused, NoAnswer

Handler = Callable[[bytes], bytes]


class MemoryNetwork:
    """Hosts answer at their address; one that is not here refuses, as a host without that process does."""

    def __init__(self) -> None:
        self._hosts: dict[str, Handler] = {}
        self._silent: set[str] = set()
        self._apart: set[frozenset[str]] = set()

    def listen(self, address: str, handler: Handler) -> None:
        self._hosts[address] = handler

    def end(self, address: str) -> None:
        self._hosts.pop(address, None)

    def silence(self, address: str, silent: bool = True) -> None:
        """Packets to it wait for ever, as at a process that is stopped or behind a network that drops."""
        (self._silent.add if silent else self._silent.discard)(address)

    def part(self, one: str, other: str, apart: bool = True) -> None:
        (self._apart.add if apart else self._apart.discard)(frozenset((one, other)))

    def carrier(self, address: str) -> MemoryCarrier:
        """Of the host with this address."""
        return MemoryCarrier(self, address)

    async def exchange(self, source: str, address: str, body: bytes, timeout_s: float) -> Answer:
        await asyncio.sleep(0)
        if {source, address} & self._silent or frozenset((source, address)) in self._apart:
            await asyncio.sleep(timeout_s)
            raise NoAnswer("timeout")
        handler = self._hosts.get(address)
        if handler is None:
            raise HostRefused(f"nobody listens at {address}")
        return Answer(handler(body))


class MemoryCarrier:
    def __init__(self, network: MemoryNetwork, source: str) -> None:
        self._network, self._source = network, source

    async def exchange(self, address: str, body: bytes, timeout_s: float) -> Answer:
        return await self._network.exchange(self._source, address, body, timeout_s)
