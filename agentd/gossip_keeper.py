"""Gossip of one agent: made from what the agent knows, given seeds, remembered over restarts."""

import asyncio
import logging
import random
from collections.abc import Sequence
from functools import lru_cache

import aiohttp

from agentd.config import AgentConfig
from agentd.core.founding import Founding
from agentd.data_dir import Identity
from agentd.gossip_file import GossipFile
from agentd.node_facts import version
from mesh.client import MeshClient
from mesh.core.swim import LAN, LOCAL, WAN, Config, Meta
from mesh.core.swim.limits import BOOT_MAX, MEMBERS_MAX, SEEDS_MAX, VERSION_MAX
from mesh.core.swim.update import address_refusal
from mesh.gossip import UID_TAG, Carrier, GossipDriver, HttpCarrier, ProvenResponse
from mesh.gossip.links import POSTS_MAX
from mesh.security.node_certificate import BadCertificate
from mesh.security.wire import Wire
from schemas.errors import HeteroFlowError
from schemas.loopback import is_loopback

log = logging.getLogger(__name__)
PROFILES = {"fast": LOCAL, "lan": LAN, "wan": WAN}
"""By the mesh's lease profile. `fast` is for meshes on one host or switch."""
KEEP_S = 60.0
ASK_S = 5.0
ROWS_ASKED = 64


class GossipKeeper:
    def __init__(
        self,
        config: AgentConfig,
        identity: Identity,
        founding: Founding,
        file: GossipFile,
        mesh: MeshClient,
        carrier: Carrier,
    ) -> None:
        self._file, self._mesh, self._own = file, mesh, str(config.api_public)
        life = file.next_life()
        # What may not be asked (an address of an older version) is left out rather than refused.
        founders = [seat.api_addr for seat in founding.seats if seat.uid != identity.uid and _usable(seat.api_addr)]
        self._founders = founders[:SEEDS_MAX]
        meta = Meta((self._own,), version()[:VERSION_MAX], ((UID_TAG, identity.uid),))
        self.driver = GossipDriver(
            Config(
                identity.node_id,
                # The epoch too: what was before a mesh was made anew from its remains is no part of it.
                f"{founding.cluster_id}.{founding.epoch}",
                meta,
                life.boot % BOOT_MAX,
                PROFILES[founding.profile],
                self._seeds(list(life.members.values())),
            ),
            carrier,
            life.heard,
        )

    async def run(self) -> None:
        """Until the driver has departed or this is cancelled."""
        keeping = asyncio.create_task(self._keep())
        asking = asyncio.create_task(self._ask_for_seeds())
        try:
            await self.driver.run()
        finally:
            keeping.cancel()
            asking.cancel()
            # Nothing is awaited before it: the stop that lets the driver depart cancels this as well.
            self._file.keep(self.driver.remembered())

    def _seeds(self, others: Sequence[str]) -> tuple[str, ...]:
        """The founders, and as many of the others as may be asked, at random: all hosts may start together."""
        known = (*self._founders, self._own)
        rest = sorted({address for address in others if address not in known and _usable(address)})
        random.shuffle(rest)
        return (*self._founders, *rest)[:SEEDS_MAX]

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(KEEP_S)
            remembered = self.driver.remembered()
            await asyncio.to_thread(self._file.keep, remembered)

    async def _ask_for_seeds(self) -> None:
        """Who knows nobody looks into the log for registered nodes: founders may all be gone, or have moved."""
        while True:
            await asyncio.sleep(ASK_S)
            if not self.driver.alone:
                continue
            try:
                found = await self._mesh.query([{"scan": ["node", "", "", ROWS_ASKED]}], level="stale")
            except HeteroFlowError:
                continue
            (rows,) = found["results"]
            self.driver.set_seeds(self._seeds([str(row["api_addr"]) for _, row in rows]))


def _usable(address: str) -> bool:
    return not address_refusal(address)


async def say_goodbye(driver: GossipDriver) -> None:
    """Whatever becomes of it, the agent goes on to stop."""
    try:
        await driver.leave()
    except Exception:
        log.exception("gossip: the word of leaving could not be spread")


def gossip_session(wire: Wire, token: str) -> aiohttp.ClientSession:
    """For gossip alone: what streams and transfers take of connections must not delay a probe."""
    headers = {} if wire.secure else {"Authorization": f"Bearer {token}"}
    return wire.session(limit=POSTS_MAX, keepalive_s=30.0, headers=headers, response_class=ProvenResponse)


def gossip_carrier(wire: Wire, session: aiohttp.ClientSession) -> HttpCarrier:
    """session: as gossip_session makes it."""
    if wire.secure:
        return HttpCarrier(session, lambda address: f"https://{address}", proven_node)
    return HttpCarrier(session, plain_url)


@lru_cache(maxsize=MEMBERS_MAX)
def proven_node(certificate: bytes) -> str:
    """Whom it names; "", which is nobody's name, where it names no node. TLS has checked who signed it."""
    # Only here: a mesh without TLS does not pay for the library that reads certificates.
    from mesh.security.certificates import read_der

    try:
        return read_der(certificate).name.node
    except BadCertificate:
        return ""


def plain_url(address: str) -> str:
    """Without TLS the mesh token goes to loopback addresses only, whatever address a member claims to have. Raises
    ValueError."""
    if not is_loopback(address.rpartition(":")[0]):
        raise ValueError(f"{address} is not a loopback address: gossip without TLS stays on loopback")
    return f"http://{address}"
