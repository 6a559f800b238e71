"""The agent of the leader's host, as the other agents reach it."""

import time
from dataclasses import dataclass
from math import isfinite
from typing import Any

import aiohttp
import msgpack

from agentd.core.alert_book import Alert
from agentd.core.clocks import Clock, measured
from agentd.core.telemetry_blob import BlobRefused, NodeNow, unpack_node
from agentd.telemetry.desk import TelemetryDesk
from mesh.client import MeshClient
from schemas.errors import NoLeader, Unavailable
from schemas.instants import iso_utc

_ADDRESS_S = 30.0
_CACHED_S = 1.0
_READ_S = 5.0
NODE_HEADER = "X-HeteroFlow-Node"
CLOCK_HEADER = "X-HeteroFlow-Clock"
"""Of the answer: the leader's wall clock, Unix seconds."""


@dataclass(frozen=True, slots=True)
class Picture:
    """nodes: aged to now. verdicts: `{(group, attempt): {state, text, stalled_s}}`. raised, cleared: alerts as in the
    API. leader: the node that judged."""

    leader: str
    nodes: list[NodeNow]
    verdicts: dict[tuple[str, int], dict[str, Any]]
    raised: list[dict[str, Any]]
    cleared: list[dict[str, Any]]


class LeaderAgent:
    def __init__(self, node_id: str, mesh: MeshClient, desk: TelemetryDesk, session: aiohttp.ClientSession) -> None:
        self._node_id, self._mesh, self._desk, self.session = node_id, mesh, desk, session
        self._addresses: dict[str, tuple[float, str]] = {}
        self._cached: tuple[float, Picture] | None = None

    async def tell(self, leader: str, blob: bytes, timeout_s: float) -> Clock | None:
        """This host's clock against the leader's, None where he does not say.

        Raises aiohttp.ClientError, TimeoutError, Unavailable."""
        headers = {"Content-Type": "application/msgpack", NODE_HEADER: self._node_id}
        url = f"http://{await self.address(leader)}/mesh/v1/telemetry"
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=2.0)
        try:
            asked_s = time.time()
            async with self.session.post(url, data=blob, headers=headers, timeout=timeout) as response:
                answered_s = time.time()
                await response.read()
            return _clock(asked_s, response.headers.get(CLOCK_HEADER, ""), answered_s)
        except (aiohttp.ClientError, TimeoutError):
            self._addresses.pop(leader, None)
            raise

    async def picture(self) -> Picture:
        """At most a second old. Raises NoLeader, Unavailable."""
        now = time.monotonic()
        if self._cached is not None and now - self._cached[0] < _CACHED_S:
            return self._cached[1]
        leader = self._mesh.leader
        if leader is None or leader.node is None:
            raise NoLeader("no_leader", "no leader is known, and only he hears all nodes", "try again in a few seconds")
        if leader.node == self._node_id:
            packed = pack_picture(self._desk)
        else:
            packed = await self._fetch(leader.node)
        picture = _unpacked(leader.node, packed)
        self._cached = (now, picture)
        return picture

    async def _fetch(self, leader: str) -> bytes:
        timeout = aiohttp.ClientTimeout(total=_READ_S, sock_connect=2.0)
        try:
            url = f"http://{await self.address(leader)}/mesh/v1/telemetry"
            async with self.session.get(url, timeout=timeout) as response:
                if response.status == 200:
                    return await response.read()
                why = f"it answered {response.status}"
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._addresses.pop(leader, None)
            why = str(error) or type(error).__name__
        raise Unavailable(
            "leader_unreachable",
            f"the leader's agent on {leader} does not answer ({why})",
            "try again in a few seconds",
        )

    async def address(self, node: str) -> str:
        """Of a node's agent. Raises Unavailable."""
        known = self._addresses.get(node)
        if known is not None and time.monotonic() - known[0] < _ADDRESS_S:
            return known[1]
        found = await self._mesh.query([{"get": ["node", node]}], level="stale")
        (row,) = found["results"]
        if row is None:
            raise Unavailable("unknown_node", f"node {node} is not registered in the mesh", "see /api/v1/nodes")
        self._addresses[node] = (time.monotonic(), str(row["api_addr"]))
        return str(row["api_addr"])


def _clock(asked_s: float, said: str, answered_s: float) -> Clock | None:
    try:
        leader_s = float(said)
    except ValueError:
        return None
    return measured(asked_s, leader_s, answered_s) if isfinite(leader_s) else None


def pack_picture(desk: TelemetryDesk) -> bytes:
    """Blobs leave as they came."""
    packed: bytes = msgpack.packb(
        {
            "nodes": [[age_s, blob] for age_s, blob in desk.blobs().values()],
            "verdicts": [
                [*key, {"state": verdict.state, "text": verdict.text, "stalled_s": verdict.stalled_s}]
                for key, verdict in desk.verdicts.items()
            ],
            "raised": [alert_answer(alert) for alert in desk.book.raised()],
            "cleared": [alert_answer(alert) for alert in desk.book.cleared()],
        }
    )
    return packed


def alert_answer(alert: Alert) -> dict[str, Any]:
    return {
        "id": alert.id,
        "rule": alert.rule,
        "group_id": alert.group_id or None,
        "attempt": alert.attempt or None,
        "node_id": alert.node_id or None,
        "level": alert.level,
        "text": alert.text,
        "advice": alert.advice,
        "state": alert.state,
        "since": iso_utc(alert.since_ms),
        "since_ms": alert.since_ms,
        "cleared": None if alert.cleared_ms is None else iso_utc(alert.cleared_ms),
    }


def _unpacked(leader: str, packed: bytes) -> Picture:
    try:
        value = msgpack.unpackb(packed, raw=False)
        nodes = []
        for age_s, blob in value["nodes"]:
            try:
                nodes.append(unpack_node(blob).aged(age_s))
            except BlobRefused:
                continue  # a node of another version: its line is missing, the others are right
        verdicts = {(group_id, attempt): verdict for group_id, attempt, verdict in value["verdicts"]}
        return Picture(leader, sorted(nodes, key=lambda n: n.node_id), verdicts, value["raised"], value["cleared"])
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise Unavailable(
            "leader_unreadable",
            f"the leader's agent on {leader} answers in another version ({error})",
            "finish the upgrade of all agents",
        ) from error
