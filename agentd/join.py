"""Founding and joining, on disk and on the wire.

Order of the durable steps, each safe to crash after: node.json (name, uid), token, founding.json (the freeze),
roster.json, and only then a voter. A joiner repeats its request until it is answered; the answer is a function of its
uid.
"""

import asyncio
import json
import logging
import time
from dataclasses import dataclass
from typing import Any

import aiohttp

from agentd.config import Address, AgentConfig, ConfigError
from agentd.core.founding import Candidate, Founding, Gathering, Refusal, Seat, seat_or_refusal
from agentd.data_dir import (
    DataDir,
    DataDirRefused,
    Identity,
    new_cluster_id,
    new_raft_id,
    new_token,
    new_uid,
    read_token_file,
    write_durably,
)
from schemas.errors import Conflict, Unavailable
from schemas.limits import DEFAULT_PROFILE
from schemas.tls_faults import alert_fault, certificate_fault

JOIN_PATH = "/mesh/v1/join"
RETRY_MIN_S, RETRY_MAX_S = 0.2, 2.0
ASK_S = 5.0
log = logging.getLogger(__name__)


def settle_identity(data: DataDir, config: AgentConfig) -> Identity:
    """Who this node is, made durable before anyone hears of it. Raises ConfigError, DataDirRefused."""
    identity = data.identity()
    if identity is None:
        if not config.bootstrap and config.join is None:
            raise ConfigError(
                f"{config.data_dir} is new and neither --bootstrap nor --join was said: a node alone would be a mesh "
                f"of its own; "
                f"say --bootstrap on the first host and --join HOST:PORT --token-file F on the others"
            )
        identity = Identity(config.name, new_uid(), role="founder" if config.bootstrap else "joiner")
        if config.bootstrap:
            identity = Identity(
                config.name,
                identity.uid,
                role="founder",
                cluster_id=new_cluster_id(),
                epoch=1,
                profile=config.profile or DEFAULT_PROFILE,
                voters_wanted=config.voters,
            )
    elif identity.node_id != config.name:
        raise DataDirRefused(
            f"{config.data_dir} belongs to node {identity.node_id}, not {config.name}; start with --name "
            f"{identity.node_id} "
            f"or with another --data-dir"
        )
    elif config.bootstrap and not identity.voters_wanted:
        raise DataDirRefused(
            f"{config.data_dir} belongs to a node that joined cluster {identity.cluster_id or '(none yet)'}; "
            f"--bootstrap would make a second mesh: leave it out, or choose another --data-dir"
        )
    return data.save(
        Identity(**{**_as_dict(identity), "api_addr": str(config.api_public), "voter_addr": str(config.voter_public)})
    )


def _as_dict(identity: Identity) -> dict[str, Any]:
    return {name: getattr(identity, name) for name in identity.__slots__}


def settle_token(data: DataDir, config: AgentConfig, identity: Identity, tls: bool = False) -> str:
    """The mesh token; empty on a host that will get it as it joins over TLS."""
    own = data.token()
    given = read_token_file(config.token_file) if config.token_file is not None and not tls else None
    if own is not None and given is not None and own != given:
        raise DataDirRefused(
            f"{config.data_dir} holds the token of another mesh than {config.token_file}; choose another --data-dir "
            f"for that mesh"
        )
    if own is not None:
        return own
    if given is not None:
        return data.save_token(given)
    if identity.role == "founder" and data.founding() is None:
        return data.save_token(new_token())
    if tls:
        return ""
    raise ConfigError(
        "the mesh token is missing: --join needs --token-file F with a copy of data-dir/token of an agent of the "
        "mesh (mode 0600)"
    )


def load_founding(data: DataDir) -> Founding | None:
    raw = data.founding()
    if raw is None:
        return None
    try:
        return Founding.from_dict(raw)
    except (KeyError, TypeError, ValueError) as error:
        raise DataDirRefused(
            f"{data.founding_path} is damaged ({error}); copy it from another agent of this mesh, or choose another "
            f"--data-dir"
        ) from error


def keep_founding(data: DataDir, identity: Identity, founding: Founding) -> Identity:
    """founding.json first: it decides; the roster and node.json follow from it after any crash."""
    if data.founding() is None:
        data.save_founding(founding.to_dict())
    seat = founding.seat_of(identity.uid)
    if seat is not None and not data.roster_path.exists():
        write_durably(data.roster_path, json.dumps(founding.roster(), indent=1) + "\n")
    return data.learn(
        identity,
        cluster_id=founding.cluster_id,
        epoch=founding.epoch,
        profile=founding.profile,
        role="voter" if seat is not None else "member",
        raft_id=seat.raft_id if seat is not None else 0,
    )


class JoinDesk:
    """Answers `POST /mesh/v1/join` on every agent: a founder gathers, all others tell what is frozen."""

    def __init__(self, data: DataDir, identity: Identity, founding: Founding | None) -> None:
        self._data = data
        self._identity = identity
        self._founding = founding
        self._gathering: Gathering | None = None
        self.frozen = asyncio.Event()
        if founding is not None:
            self.frozen.set()
        elif identity.role == "founder":
            founder = Candidate(identity.node_id, identity.uid, identity.api_addr, identity.voter_addr)
            self._gathering = Gathering(founder, identity.voters_wanted)
            self._freeze_when_complete()

    @property
    def founding(self) -> Founding:
        assert self._founding is not None
        return self._founding

    @property
    def founder(self) -> Seat | None:
        """Whose host has the mesh CA, where this agent knows."""
        return self._founding.seats[0] if self._founding is not None else None

    def adopt(self, founding: Founding) -> None:
        self._founding = founding
        self.frozen.set()

    def hear(self, candidate: Candidate, cluster_id: str, profile: str) -> dict[str, Any]:
        """The answer for a candidate. Raises Conflict (permanent) and Unavailable (ask again)."""
        own_cluster = self._founding.cluster_id if self._founding else self._identity.cluster_id
        own_profile = self._founding.profile if self._founding else self._identity.profile
        if cluster_id and own_cluster and cluster_id != own_cluster:
            raise Conflict(
                "other_cluster",
                f"that data directory belongs to cluster {cluster_id}, this is cluster {own_cluster}",
                "choose another --data-dir, or join the right mesh",
            )
        if profile and own_profile and profile != own_profile:
            raise Conflict(
                "profile_differs", f"this mesh runs profile {own_profile}, not {profile}", "leave --profile out"
            )
        if self._founding is None and self._gathering is not None:
            self._gathering, heard = self._gathering.hear(candidate, time.monotonic())
            if isinstance(heard, Refusal):
                raise Conflict(heard.code, heard.text, heard.hint)
            self._freeze_when_complete()
            if self._founding is None:
                return {"state": "waiting", "have": heard.have, "need": heard.need}
        if self._founding is None:
            raise Unavailable(
                "not_joined", "this agent is itself waiting to join", "ask the agent that said --bootstrap"
            )
        place = seat_or_refusal(self._founding, candidate)
        if isinstance(place, Refusal):
            raise Conflict(place.code, place.text, place.hint)
        return {"state": "seated" if isinstance(place, Seat) else "member", "founding": self._founding.to_dict()}

    def _freeze_when_complete(self) -> None:
        if self._gathering is None or not self._gathering.complete:
            return
        raft_ids: list[int] = []
        while len(raft_ids) < self._identity.voters_wanted:
            raft_id = new_raft_id()
            if raft_id not in raft_ids:
                raft_ids.append(raft_id)
        founding = self._gathering.freeze(self._identity.cluster_id, self._identity.profile, raft_ids)
        self._data.save_founding(founding.to_dict())
        self._founding, self._gathering = founding, None
        log.info("roster frozen", extra={"cluster_id": founding.cluster_id, "voters": [s.node for s in founding.seats]})
        self.frozen.set()


@dataclass(frozen=True, slots=True)
class Joined:
    """certificate: PEM, and token: the mesh token, where the mesh has TLS and both came with the answer."""

    founding: Founding
    certificate: bytes = b""
    token: str = ""


async def ask_to_join(
    address: Address, session: aiohttp.ClientSession, config: AgentConfig, identity: Identity, request: bytes = b""
) -> Joined:
    """Until answered with a founding record. `session` carries what lets this host in; `request` asks for a
    certificate. Raises ConfigError for refusals that asking again cannot change."""
    body = _about(config, identity) | ({"request": request.decode()} if request else {})
    said, pause_s = "", RETRY_MIN_S
    while True:
        state, joined = await _ask_once(session, address, body)
        if joined is not None:
            return joined
        if state != said:
            log.warning("joining %s: %s", address, state)
            said, pause_s = state, RETRY_MIN_S
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, RETRY_MAX_S)


async def check_same_mesh(
    address: Address, session: aiohttp.ClientSession, config: AgentConfig, identity: Identity
) -> None:
    """A restart with --join: ask once whether that mesh is ours; silence is no reason not to start."""
    await _ask_once(session, address, _about(config, identity))


def _about(config: AgentConfig, identity: Identity) -> dict[str, Any]:
    return {
        "node_id": identity.node_id,
        "uid": identity.uid,
        "api_addr": str(config.api_public),
        "voter_addr": str(config.voter_public),
        "cluster_id": identity.cluster_id,
        "profile": config.profile or "",
    }


async def _ask_once(
    session: aiohttp.ClientSession, address: Address, body: dict[str, Any]
) -> tuple[str, Joined | None]:
    timeout = aiohttp.ClientTimeout(total=ASK_S)
    try:
        async with session.post(f"http://{address}{JOIN_PATH}", json=body, timeout=timeout) as response:
            value = await response.json()
            status = response.status
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return f"{connection_fault(error, str(address))}; trying again", None
    if not isinstance(value, dict):
        return "something else than an agent answers there; trying again", None
    if status == 401:
        raise ConfigError(f"{address} refuses the token (401): {value.get('message')}; {value.get('hint')}")
    if status == 409 and value.get("code") == "other_cluster":
        raise DataDirRefused(f"{address}: {value.get('message')}; {value.get('hint')}")
    if status in (400, 409):
        raise ConfigError(f"{address} refuses this node: {value.get('message')}; {value.get('hint')}")
    if status == 200:
        if value.get("state") == "waiting":
            return f"waiting for voters, {value.get('have')} of {value.get('need')} are here", None
        try:
            founding = Founding.from_dict(value["founding"])
            return "", Joined(founding, str(value.get("certificate", "")).encode(), str(value.get("token", "")))
        except (KeyError, TypeError, ValueError):
            return "the answer holds no founding record (another version?); trying again", None
    return f"{value.get('message', f'HTTP status {status}')}; trying again", None


def connection_fault(error: Exception, address: str) -> str:
    """What a failed request means, for people."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        found = error.certificate_error
        return ": ".join(certificate_fault(getattr(found, "verify_code", 0), str(found), address))
    reason = getattr(getattr(error, "os_error", error), "reason", None)
    said = alert_fault(str(reason), address)
    return said or f"no agent answers there ({error or type(error).__name__})"
