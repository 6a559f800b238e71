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

from agentd.config import AgentConfig
from agentd.core.certificate_life import CertificateNow, worth_telling
from agentd.data_dir import DataDir, Identity, write_durably
from agentd.identity.ca_desk import CaDesk
from agentd.identity.own_certificate import open_tls, save_certificate
from agentd.identity.paths import AUTHORITIES_PATH, RENEW_PATH, REVOCATIONS_PATH
from agentd.identity.settle import reachable_as
from agentd.identity.trust import Trust
from mesh.security.certificates import new_key, read_revocations, signing_request, utc_now
from mesh.security.mesh_tls import MeshTls
from mesh.security.node_certificate import BadCertificate
from schemas.errors import HeteroFlowError, Unavailable
from schemas.instants import iso_utc

RENEW_BELOW = 0.5
"""Of its life left: a CA may be away for weeks before anybody has to hurry."""
_LOOK_S, _RENEW_TRY_S, _HEAR_S, _CALL_S = 1.0, 30.0, 60.0, 5.0
_HEAR_SOON_S = 5.0
"""While the CA is being replaced, which waits for each node."""
_TOLD_AT_ONCE = 32
log = logging.getLogger(__name__)


class IdentityService:
    """reachable_as: hosts that the certificate must name. address: of this agent, as others call it."""

    def __init__(
        self, data: DataDir, tls: MeshTls, ca: CaDesk | None, node: str, reachable_as: tuple[str, ...], address: str
    ) -> None:
        self._data, self.tls, self.ca, self.node = data, tls, ca, node
        self._reachable_as = reachable_as
        self.trust = Trust(data.tls_dir)
        self._address = address
        self._tried_s = self._heard_s = float("-inf")
        self._told = tls.revoked.number
        self._said = 0
        self.trouble = ""

    @classmethod
    def open(cls, config: AgentConfig, data: DataDir, identity: Identity) -> IdentityService:
        """Raises DataDirRefused."""
        tls, ca = open_tls(config, data, identity)
        return cls(data, tls, ca, identity.node_id, reachable_as(config), str(config.api_public))

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
        if self.ca is not None:
            # While this host was down the CA may have gone to another.
            await self._compare(others)
        while True:
            try:
                if self.tls.refresh():
                    self._tried_s = float("-inf")
                if self.ca is None and CaDesk.exists(self._data.ca_dir):
                    self.ca = await asyncio.to_thread(CaDesk, self._data.ca_dir)
                    log.warning("this host has the mesh CA now")
                if self._renewal_due(utc_now()):
                    await self._renew(session, ca_address)
                if self.ca is not None:
                    await self._keep_ca(self.ca)
                if self.ca is not None:
                    await self._tell(session, self.ca, others)
                if time.monotonic() - self._heard_s >= (_HEAR_SOON_S if self.trust.unsettled else _HEAR_S):
                    self._heard_s = time.monotonic()
                    await (self._hear(session, await ca_address()) if self.ca is None else self._compare(others))
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
        return (
            own.left(now) < RENEW_BELOW
            or not set(self._reachable_as) <= set(own.hosts)
            or self.trust.issuer not in ("", self.tls.authority)
        )

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
        """The list first: who says that it believes a statement has the list that goes with it."""
        async with session.get(f"http://{address}{REVOCATIONS_PATH}", timeout=_timeout()) as response:
            pem = await response.read()
            if response.status != 200:
                return
            with contextlib.suppress(BadCertificate):
                self.take_revocations(pem)
        await self._ask_authorities(address)

    async def _tell(
        self, session: aiohttp.ClientSession, ca: CaDesk, others: Callable[[], Awaitable[list[str]]]
    ) -> None:
        number, said = ca.revocations_number, self.trust.statement
        news: list[tuple[str, dict[str, Any]]] = []
        if said is not None and said.number != self._said:
            news.append((AUTHORITIES_PATH, {"json": said.to_dict()}))
        if number != self._told:
            pem = await asyncio.to_thread(ca.revocations)
            self.take_revocations(pem)
            news.append((REVOCATIONS_PATH, {"data": pem}))
        if not news:
            return
        addresses = await others()
        room = asyncio.Semaphore(_TOLD_AT_ONCE)

        async def tell(address: str) -> None:
            # Who does not hear it now asks within a minute.
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                for path, body in news:
                    async with room, session.post(f"http://{address}{path}", timeout=_timeout(), **body):
                        pass

        await asyncio.gather(*map(tell, addresses))
        self._told, self._said = number, said.number if said is not None else 0

    # -- which CA, and where

    def take_authorities(self, raw: Any) -> None:
        """Raises BadCertificate unless a CA that is believed here signed it."""
        if not self.trust.take(raw):
            return
        self.tls.refresh()
        # Renew where that is due, and say at once that it is believed.
        self._tried_s = self._heard_s = float("-inf")

    async def _keep_ca(self, ca: CaDesk) -> None:
        if (elsewhere := self._moved_to(ca)) is not None:
            self.ca, aside = None, ca.moved_away()
            log.warning("the mesh CA is on %s now; what was here is kept in %s, remove it", elsewhere, aside)
            return
        await asyncio.to_thread(ca.advance, self.node, self._address)
        # A statement is signed by each CA in it, and this asks each second.
        if ca.trust_number > self.trust.number and (said := await asyncio.to_thread(ca.statement)) is not None:
            self.take_authorities(said.to_dict())
        if self.tls.own is not None:
            await asyncio.to_thread(ca.heard, self.tls.own, self.trust.number)

    def _moved_to(self, ca: CaDesk) -> str | None:
        said = self.trust.statement
        return said.node if said is not None and said.node != self.node and said.number > ca.trust_number else None

    async def _ask_authorities(self, address: str) -> None:
        """On a connection of its own: one that was kept shows the certificate of when it was made."""
        url = f"http://{address}{AUTHORITIES_PATH}?have={self.trust.number}"
        async with self.tls.session(limit=1) as session, session.get(url, timeout=_timeout()) as response:
            if response.status == 200:
                with contextlib.suppress(BadCertificate):
                    self.take_authorities(await response.json())

    async def _compare(self, others: Callable[[], Awaitable[list[str]]]) -> None:
        """With one of the others: whoever has the CA hears of nobody else that it went away."""
        with contextlib.suppress(HeteroFlowError, aiohttp.ClientError, OSError, TimeoutError):
            if addresses := await others():
                await self._ask_authorities(random.choice(addresses))


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
