"""This host's certificate while the agent runs: renewed in time, taken up when its files change, revocations heard."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import aiohttp

from agentd.core.certificate_life import CertificateNow, worth_telling
from agentd.data_dir import DataDir, write_durably
from agentd.identity.ca_desk import CaDesk
from agentd.identity.settle import save_certificate
from mesh.security.certificates import BadCertificate, new_key, read_revocations, signing_request, utc_now
from mesh.security.mesh_tls import MeshTls
from schemas.errors import HeteroFlowError, Unavailable
from schemas.instants import iso_utc

RENEW_PATH, REVOCATIONS_PATH = "/mesh/v1/certificate", "/mesh/v1/revocations"
RENEW_BELOW = 0.5
"""Of its life left: a CA may be away for weeks before anybody has to hurry."""
_LOOK_S, _RENEW_TRY_S, _HEAR_S, _CALL_S = 1.0, 30.0, 60.0, 5.0
_TOLD_AT_ONCE = 32
log = logging.getLogger(__name__)


class IdentityService:
    """reachable_as: hosts that the certificate must name."""

    def __init__(
        self, data: DataDir, tls: MeshTls, ca: CaDesk | None, node: str, reachable_as: tuple[str, ...]
    ) -> None:
        self._data, self.tls, self.ca, self.node = data, tls, ca, node
        self._reachable_as = reachable_as
        self._tried_s = self._heard_s = float("-inf")
        self._told = tls.revoked.number
        self.trouble = ""

    @property
    def mesh_token(self) -> str:
        """What a host gets as it joins: people use it with every agent."""
        return self._data.token() or ""

    def warning(self) -> CertificateNow | None:
        """What people should be told."""
        own, now = self.tls.own, utc_now()
        if own is None:
            return None
        return worth_telling(own.left(now), (own.not_after - now).total_seconds(), self.trouble)

    def facts(self) -> dict[str, Any]:
        own = self.tls.own
        return {
            "certificate_until": None if own is None else iso_utc(int(own.not_after.timestamp() * 1000)),
            "certificate_trouble": self.trouble or None,
            "has_ca": self.ca is not None,
        }

    async def run(
        self,
        session: aiohttp.ClientSession,
        ca_address: Callable[[], Awaitable[str]],
        others: Callable[[], Awaitable[list[str]]],
    ) -> None:
        """ca_address: of the agent that has the CA. others: addresses of all other agents, told of revocations."""
        self._heard_s = time.monotonic() - random.uniform(0, _HEAR_S)  # agents started together ask one after another
        while True:
            try:
                if self.tls.refresh():
                    self._tried_s = float("-inf")
                if self._renewal_due(utc_now()):
                    await self._renew(session, ca_address)
                if self.ca is not None:
                    await self._tell(session, self.ca, others)
                elif time.monotonic() - self._heard_s >= _HEAR_S:
                    self._heard_s = time.monotonic()
                    await self._hear(session, await ca_address())
            except (HeteroFlowError, aiohttp.ClientError, OSError, TimeoutError) as error:
                log.debug("certificates: %s", error)
            except Exception:
                log.exception("looking after the certificate failed; the next round begins anew")
            await asyncio.sleep(_LOOK_S)

    # -- renewal

    def _renewal_due(self, now: datetime) -> bool:
        own = self.tls.own
        if own is None or time.monotonic() - self._tried_s < _RENEW_TRY_S:
            return False
        return own.left(now) < RENEW_BELOW or not set(self._reachable_as) <= set(own.hosts)

    async def _renew(self, session: aiohttp.ClientSession, ca_address: Callable[[], Awaitable[str]]) -> None:
        self._tried_s = time.monotonic()
        own = self.tls.own
        assert own is not None
        key = new_key()
        request = signing_request(key, self.node)
        try:
            if self.ca is not None:
                pem = await asyncio.to_thread(self.ca.renew, own, request, self._reachable_as)
            else:
                pem = await ask_for_renewal(session, await ca_address(), request, self._reachable_as)
        except (HeteroFlowError, aiohttp.ClientError, OSError, TimeoutError) as error:
            self.trouble = str(error) or type(error).__name__
            log.warning("the certificate could not be renewed: %s", self.trouble)
            return
        self.trouble = ""
        await asyncio.to_thread(save_certificate, self._data, key, pem)
        self.tls.refresh()
        log.info("certificate renewed", extra=self.facts())

    # -- revocations

    def take_revocations(self, pem: bytes) -> None:
        """Raises BadCertificate unless the CA signed it; an older list than ours changes nothing."""
        if read_revocations(pem, self.tls.ca).number > self.tls.revoked.number:
            write_durably(self._data.tls_dir / "revoked.pem", pem.decode("ascii"))
            self.tls.refresh()

    async def _hear(self, session: aiohttp.ClientSession, address: str) -> None:
        async with session.get(f"http://{address}{REVOCATIONS_PATH}", timeout=_timeout()) as response:
            pem = await response.read()
            if response.status == 200:
                with contextlib.suppress(BadCertificate):
                    self.take_revocations(pem)

    async def _tell(
        self, session: aiohttp.ClientSession, ca: CaDesk, others: Callable[[], Awaitable[list[str]]]
    ) -> None:
        number = ca.revocations_number
        if number == self._told:
            return
        pem = await asyncio.to_thread(ca.revocations)
        self.take_revocations(pem)
        addresses = await others()
        room = asyncio.Semaphore(_TOLD_AT_ONCE)

        async def tell(address: str) -> None:
            # Who does not hear it now asks within a minute.
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with room, session.post(f"http://{address}{REVOCATIONS_PATH}", data=pem, timeout=_timeout()):
                    pass

        await asyncio.gather(*map(tell, addresses))
        self._told = number


async def ask_for_renewal(
    session: aiohttp.ClientSession, address: str, request: bytes, hosts: tuple[str, ...]
) -> bytes:
    """The new certificate, as PEM. Raises Unavailable, aiohttp.ClientError, TimeoutError."""
    body = {"request": request.decode(), "hosts": list(hosts)}
    async with session.post(f"http://{address}{RENEW_PATH}", json=body, timeout=_timeout()) as response:
        value = await response.json()
        if response.status != 200 or not isinstance(value, dict) or "certificate" not in value:
            message = value.get("message") if isinstance(value, dict) else None
            raise Unavailable("not_renewed", f"the mesh CA at {address} answered {response.status}: {message}")
    return str(value["certificate"]).encode()


def _timeout() -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=_CALL_S, sock_connect=2.0)
