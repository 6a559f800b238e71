"""A host gets its certificate: it makes sure whose mesh that is before it says anything, then asks with its token."""

from __future__ import annotations

import asyncio
import logging
import ssl

import aiohttp

from agentd.config import Address, AgentConfig, ConfigError
from agentd.core.founding import Founding
from agentd.data_dir import DataDir, Identity, write_durably
from agentd.identity.own_certificate import pending_key, save_certificate
from agentd.identity.paths import AUTHORITIES_PATH, CA_PATH
from agentd.identity.trust import checked, keep
from agentd.join import ASK_S, RETRY_MAX_S, RETRY_MIN_S, ask_to_join, connection_fault
from mesh.core.identity.authorities import Authorities
from mesh.core.identity.join_token import JoinToken
from mesh.security.certificates import PEM_MAX, belongs_to, signed_by, signing_request, split
from mesh.security.mesh_tls import MeshTls
from mesh.security.node_certificate import BadCertificate

log = logging.getLogger(__name__)


async def enrol(
    address: Address, token: JoinToken, config: AgentConfig, identity: Identity, data: DataDir, tls: MeshTls
) -> tuple[Founding, str]:
    """The founding record and the mesh token; certificate and CA are in `data` then. Raises ConfigError."""
    ca = await _trusted_ca(address, token)
    write_durably(data.tls_dir / "ca.pem", ca.decode(), 0o644)
    if (said := await _statement(address, ca)) is not None:
        keep(data.tls_dir, said)
        ca = said.bundle
    tls.refresh()
    key = pending_key(data)
    headers = {"Authorization": f"Bearer {token}"}
    async with tls.session(any_address=True, anonymous=True, headers=headers) as session:
        joined = await ask_to_join(address, session, config, identity, signing_request(key, identity.node_id))
    try:
        fits = signed_by(joined.certificate, ca) and belongs_to(joined.certificate, key)
    except BadCertificate:
        fits = False
    if not fits or not joined.token:
        raise ConfigError(f"{address} answered without a certificate for this host; is it of another version?")
    data.save_token(joined.token)
    save_certificate(data, key, joined.certificate)
    tls.refresh()
    return joined.founding, joined.token


async def _trusted_ca(address: Address, token: JoinToken) -> bytes:
    """Its certificate, once the one that the token was made with is shown; nothing is said until then."""
    unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    said, pause_s = "", RETRY_MIN_S
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=unchecked)) as session:
        while True:
            try:
                timeout = aiohttp.ClientTimeout(total=ASK_S)
                async with session.get(f"https://{address}{CA_PATH}", timeout=timeout) as response:
                    status, pem = response.status, await response.content.read(PEM_MAX)
                if status == 200:
                    return _checked(pem, address, token)
                state = f"it answers {status} where the mesh CA is asked for"
            except (aiohttp.ClientError, TimeoutError) as error:
                state = connection_fault(error, str(address))
            if state != said:
                log.warning("joining %s: %s; trying again", address, state)
                said, pause_s = state, RETRY_MIN_S
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, RETRY_MAX_S)


async def _statement(address: Address, ca: bytes) -> Authorities | None:
    """Which CAs this mesh believes, where that was ever more than one or it has moved: as the trusted one signed it."""
    unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    try:
        timeout = aiohttp.ClientTimeout(total=ASK_S)
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=unchecked)) as session,
            session.get(f"https://{address}{AUTHORITIES_PATH}", timeout=timeout) as response,
        ):
            return checked(await response.json(), ca) if response.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, BadCertificate, ValueError) as error:
        log.warning("joining %s: it does not say which CAs it believes (%s)", address, error)
        return None


def _checked(pem: bytes, address: Address, token: JoinToken) -> bytes:
    """Of all that are shown only the one that the token was made with is believed."""
    try:
        if (found := split(pem).get(token.fingerprint)) is not None:
            return found
    except BadCertificate:
        pass
    raise ConfigError(
        f"{address} shows another mesh CA than the one this join token was made with: another mesh is there, or "
        f"someone is between; the token was not sent. Check the address, or make a token in that mesh"
    )
