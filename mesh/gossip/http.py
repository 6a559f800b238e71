"""Gossip by aiohttp: one POST an exchange, over connections that are kept."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import aiohttp

from mesh.gossip.batch import BODY_MAX, PATH
from mesh.gossip.carrier import Answer, HostRefused, NoAnswer

CONTENT_TYPE = "application/msgpack"


class ProvenResponse(aiohttp.ClientResponse):
    """Keeps the certificate (DER) that it came under: when somebody asks, its connection may serve the next request."""

    certificate: bytes | None = None

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        end = connection.transport
        ssl_object = end.get_extra_info("ssl_object") if end is not None else None
        self.certificate = ssl_object.getpeercert(binary_form=True) if ssl_object is not None else None
        return await super().start(connection)


class HttpCarrier:
    """session: carries the credentials. url_of: base URL of HOST:PORT; raises ValueError for an address that they may
    not be sent to. node_of: whom a certificate (DER) names; with it a session of ProvenResponses is needed, and no
    answer is taken without a certificate. None: nobody proves anything."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url_of: Callable[[str], str],
        node_of: Callable[[bytes], str] | None = None,
    ) -> None:
        self._session, self._url_of, self._node_of = session, url_of, node_of

    async def exchange(self, address: str, body: bytes, timeout_s: float) -> Answer:
        try:
            url = self._url_of(address) + PATH
        except ValueError as error:
            raise NoAnswer(str(error)) from error
        headers = {"Content-Type": CONTENT_TYPE}
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.post(
                url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                if response.status != 200:
                    raise NoAnswer(f"HTTP status {response.status}")
                return Answer(await _bounded(response), self._proven(response))
        except aiohttp.ClientConnectorError as error:
            if error.os_error.errno == errno.ECONNREFUSED:
                raise HostRefused("nobody listens there") from error
            raise NoAnswer(str(error)) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise NoAnswer(str(error) or type(error).__name__) from error

    def _proven(self, response: aiohttp.ClientResponse) -> str | None:
        if self._node_of is None:
            return None
        certificate = response.certificate if isinstance(response, ProvenResponse) else None
        if certificate is None:
            raise NoAnswer("an answer without a certificate")
        return self._node_of(certificate)


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(64 << 10):
        body += chunk
        if len(body) > BODY_MAX:
            raise NoAnswer(f"an answer of more than {BODY_MAX} bytes")
    return bytes(body)
