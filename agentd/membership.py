"""The mesh that this host is of: founded, joined for the first time, or come back to."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentd.config import Address, AgentConfig, ConfigError
from agentd.core.founding import Founding
from agentd.data_dir import DataDir, Identity
from agentd.join import JoinDesk, ask_to_join, check_same_mesh, keep_founding, load_founding
from mesh.core.identity.join_token import JoinToken
from mesh.security.wire import PlainWire

if TYPE_CHECKING:
    from mesh.security.mesh_tls import MeshTls

log = logging.getLogger(__name__)


class Membership:
    """identity and token: as they are known; both may come with the answer to joining. on_token: is told a token that
    came so."""

    def __init__(
        self,
        config: AgentConfig,
        data: DataDir,
        identity: Identity,
        token: str,
        wire: "MeshTls | PlainWire",
        desk: JoinDesk,
        join_token: JoinToken | None,
        on_token: Callable[[str], None],
    ) -> None:
        self._config, self._data, self.identity, self.token = config, data, identity, token
        self.wire = wire
        self._desk, self._join_token, self._on_token = desk, join_token, on_token

    async def settle(self) -> Founding:
        """The founding record, once there is one. Raises ConfigError."""
        config, identity = self._config, self.identity
        founding = load_founding(self._data)
        if founding is None and identity.role == "founder":
            await self._desk.frozen.wait()
            founding = self._desk.founding
        elif founding is None:
            if config.join is None:
                raise ConfigError(f"{config.data_dir} has not joined yet; say --join HOST:PORT --token-file F")
            founding = await self._ask_to_join(config.join)
        elif config.join is not None:
            await self._check_same_mesh(config.join)
        seat = founding.seat_of(identity.uid)
        if seat is not None and seat.voter_addr != str(config.voter_public):
            raise ConfigError(
                f"this node is a voter at {seat.voter_addr}, and voters do not move in this version; "
                f"start it with --voter {seat.voter_addr}"
            )
        if config.profile is not None and config.profile != founding.profile:
            raise ConfigError(f"this mesh runs profile {founding.profile}, not {config.profile}; leave --profile out")
        self.identity = keep_founding(self._data, identity, founding)
        self._desk.adopt(founding)
        return founding

    async def _ask_to_join(self, address: Address) -> Founding:
        config, identity = self._config, self.identity
        if isinstance(self.wire, PlainWire):
            async with self.wire.session(headers=self.bearer) as session:
                return (await ask_to_join(address, session, config, identity)).founding
        if self.wire.in_force:
            # It died between its certificate and the rest of the answer.
            async with self.wire.session(any_address=True) as session:
                return (await ask_to_join(address, session, config, identity)).founding
        if self._join_token is None:
            raise ConfigError(f"{config.data_dir} has not joined yet; say --join HOST:PORT --token-file F")
        return await self._enrol(address, self.wire, self._join_token)

    async def _enrol(self, address: Address, tls: "MeshTls", token: JoinToken) -> Founding:
        # Only here: a host that is in its mesh does not pay for the machinery of joining over TLS.
        from agentd.identity.enrol import enrol

        founding, self.token = await enrol(address, token, self._config, self.identity, self._data, tls)
        self._on_token(self.token)
        return founding

    async def _check_same_mesh(self, address: Address) -> None:
        """A restart. A certificate that opens nothing any more is replaced by what a join token gives."""
        wire = self.wire
        if isinstance(wire, PlainWire):
            async with wire.session(headers=self.bearer) as session:
                await check_same_mesh(address, session, self._config, self.identity)
        elif wire.in_force:
            try:
                async with wire.session(any_address=True) as session:
                    await check_same_mesh(address, session, self._config, self.identity)
            except ConfigError:
                if self._join_token is None:
                    raise
                await self._enrol(address, wire, self._join_token)
        elif self._join_token is not None:
            await self._enrol(address, wire, self._join_token)
        else:
            log.warning("the certificate of this node is not in force; join again with a join token")

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}
