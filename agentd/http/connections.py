"""Who is connected to one agent: how many there may be, and how long one may say nothing."""

import asyncio
import contextlib
import logging
import resource
import socket

log = logging.getLogger(__name__)
# Each agent of the largest mesh has one to the leader's, beside consoles; each costs a descriptor and some 50 KiB.
CONNECTIONS_MAX = 4096
# Of one address: an office behind one router, or a host with its console, scripts and agents.
OF_ADDRESS_MAX = 1024
# That have not sent a whole request yet. Beyond it the one that waits longest goes: whoever hoards drives out himself.
WAITING_MAX = 256
# For the head of the first request; behind it bodies have their own time, and later requests the keep-alive's.
FIRST_REQUEST_S = 15.0
KEEP_ALIVE_S = 75.0
# Nothing that was sent is taken: a reader that stalls, or a host that is gone. A paused terminal reads on; this is the
# kernel's own buffer.
UNREAD_MS = 120_000


class Connections:
    def __init__(
        self,
        most: int | None = None,
        of_address: int = OF_ADDRESS_MAX,
        waiting: int = WAITING_MAX,
        first_request_s: float = FIRST_REQUEST_S,
    ) -> None:
        # Half of the descriptors are for files, voters and peers.
        self._most = most or min(CONNECTIONS_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._of_address_most, self._waiting_most, self._first_s = of_address, waiting, first_request_s
        self._of_address: dict[str, int] = {}
        self._addresses: dict[asyncio.Transport, str] = {}
        self._waiting: dict[asyncio.Transport, asyncio.TimerHandle] = {}
        self.refused = 0
        """Connections that were ended because there were too many, or because they said nothing."""

    @property
    def count(self) -> int:
        return len(self._addresses)

    def opened(self, transport: asyncio.Transport) -> None:
        """Ends it at once where there are too many."""
        name = transport.get_extra_info("peername")
        address = str(name[0]) if isinstance(name, tuple) else ""
        if self.count >= self._most or self._of_address.get(address, 0) >= self._of_address_most:
            self._end(transport)
            return
        self._addresses[transport] = address
        self._of_address[address] = self._of_address.get(address, 0) + 1
        loop = asyncio.get_running_loop()
        self._waiting[transport] = loop.call_later(self._first_s, self._end, transport)
        if len(self._waiting) > self._waiting_most:
            self._end(next(iter(self._waiting)))
        if (plain := transport.get_extra_info("socket")) is not None:
            with contextlib.suppress(OSError):
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS)

    def asked(self, transport: asyncio.Transport) -> None:
        """A whole head of a request has come."""
        if (timer := self._waiting.pop(transport, None)) is not None:
            timer.cancel()

    def closed(self, transport: asyncio.Transport) -> None:
        self.asked(transport)
        address = self._addresses.pop(transport, None)
        if address is None:
            return
        left = self._of_address[address] - 1
        if left:
            self._of_address[address] = left
        else:
            del self._of_address[address]

    def _end(self, transport: asyncio.Transport) -> None:
        self.refused += 1
        if self.refused in (1, 10, 100) or self.refused % 1000 == 0:
            log.warning(
                "%d connections were ended unanswered: too many, or silent; %d are open", self.refused, self.count
            )
        self.asked(transport)
        transport.abort()
