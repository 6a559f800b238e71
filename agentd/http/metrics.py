"""`/metrics`: this agent, its voter, and, on the leader's host alone, the mesh; so a sum over all agents counts nothing
twice. What cannot be read now is absent."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web

from agentd.core.exposition import CONTENT_TYPE, COUNTER, GAUGE, SUMMARY, Family, counter, exposition, gauge, gauges
from agentd.http.context import API, Api
from agentd.http.description import Described
from agentd.http.needs import needs
from agentd.http.traffic import TRAFFIC
from agentd.log_loss import LogLoss
from agentd.node_facts import version
from agentd.own_process import process_families
from mesh.client import MeshClient
from schemas.errors import HeteroFlowError
from schemas.rules.permissions import Permission
from schemas.states import GROUP_STATUSES

if TYPE_CHECKING:
    from agentd.lease_keeper import LeaseKeeper
    from mesh.controllers import Controllers

routes = web.RouteTableDef()
_READ_S = 2.0
_NO_REASON = "not_looked_at"


@dataclass(frozen=True, slots=True)
class Vitals:
    """What only a joined agent has. controllers: of a host with a voter."""

    lease: "LeaseKeeper"
    lost: LogLoss
    controllers: "Controllers | None" = None


@routes.get("/metrics")
@needs(Permission.READ_MESH)
@Described("Measurements for Prometheus", kind=CONTENT_TYPE.partition(";")[0])
async def metrics(request: web.Request) -> web.Response:
    """Of this agent and its voter; of the whole mesh on the leader's host. docs/metrics.md lists them."""
    api = request.app[API]
    families = [*_agent(api), *_gossip(api), *process_families(), *request.app[TRAFFIC].families()]
    if api.mesh is not None:
        families += await _mesh(api.mesh, api.node_id, api.vitals)
    return web.Response(body=exposition(families), headers={"Content-Type": CONTENT_TYPE})


def _agent(api: Api) -> list[Family]:
    vitals, health = api.vitals, api.health()
    about = (("node", api.node_id), ("role", str(health.get("role") or "")), ("version", version()))
    families = [
        Family("heteroflow_agent_info", GAUGE, "Always 1; what the agent is, as labels.", [("", about, 1)]),
        gauge("heteroflow_agent_ok", "1: this agent serves and runs tasks as it should.", health["status"] == "ok"),
    ]
    if vitals is not None:
        lease = vitals.lease
        families += [
            gauge("heteroflow_lease_granted", "1: tasks of this host may run.", lease.granted),
            gauge("heteroflow_lease_age_seconds", "Since the last renewal that was granted was sent.", lease.age_s),
            gauge("heteroflow_lease_left_seconds", "Until this host stops its tasks.", lease.left_ms / 1000),
            counter("heteroflow_log_lost_bytes_total", "Output of tasks that no log holds.", vitals.lost.total_bytes),
        ]
    return families


def _gossip(api: Api) -> list[Family]:
    if api.gossip is None:
        return []
    facts = api.gossip.facts()
    return [
        gauges("heteroflow_gossip_members", "Members by state, as this agent sees them.", "state", facts["members"]),
        gauge(
            "heteroflow_gossip_doubt",
            "0: this agent takes itself for healthy; more slows its verdicts.",
            facts["doubt"],
        ),
        Family(
            "heteroflow_gossip_dropped_total",
            COUNTER,
            "Packets that were not taken, by reason.",
            [("", (("reason", reason),), number) for reason, number in sorted(facts["dropped"].items())],
        ),
    ]


async def _mesh(mesh: MeshClient, node_id: str, vitals: Vitals | None) -> list[Family]:
    try:
        async with asyncio.timeout(_READ_S):
            status = await mesh.status()
            if _leader_node(status) != node_id:
                return _consensus(status, node_id)
            found = await mesh.query([{"count": "groups"}], level="stale", timeout_s=_READ_S)
    except (HeteroFlowError, ConnectionError, TimeoutError):
        return [gauge("heteroflow_mesh_readable", "1: a voter answers this agent.", False)]
    (by_status,) = found["results"]
    families = _consensus(status, node_id)
    families.append(
        gauges("heteroflow_groups", "Task groups by status.", "status", dict.fromkeys(GROUP_STATUSES, 0) | by_status)
    )
    silence = [int(ms) for ms in (status.get("silence_ms") or {}).values()]
    families += [
        gauge(
            "heteroflow_node_silence_max_seconds",
            "Since the last renewal of the node that has been silent longest.",
            max(silence) / 1000 if silence else None,
        )
    ]
    if vitals is not None and vitals.controllers is not None:
        families += _scheduler(vitals.controllers)
    return families


def _consensus(status: Mapping[str, Any], node_id: str) -> list[Family]:
    """Of this host's own voter: another host's belongs to the agent there."""
    readable = gauge("heteroflow_mesh_readable", "1: a voter answers this agent.", True)
    voters = status["voters"]
    own = next((voter for voter in voters if voter["raft_id"] == status["raft_id"]), None)
    if own is None or own["node"] != node_id:
        return [readable]
    fsync_ms = status.get("fsync_p99_ms")
    return [
        readable,
        gauge("heteroflow_raft_term", "Term of this voter.", status["term"]),
        gauge("heteroflow_raft_commit_index", "Last committed log index that this voter knows.", status["commit"]),
        gauge("heteroflow_raft_applied_index", "Last log index that is in the state.", status["applied"]),
        gauge("heteroflow_raft_last_index", "Last index of this voter's log.", status["last"]),
        gauge("heteroflow_raft_leading", "1: this voter leads.", status["role"] == "leader"),
        gauge("heteroflow_raft_leader_known", "1: this voter knows a leader.", bool(status["leader"])),
        gauge("heteroflow_raft_voters", "Voters of the mesh.", len(voters)),
        gauge(
            "heteroflow_raft_voters_connected",
            "Voters that this one is in touch with, itself included.",
            sum(1 for voter in voters if voter["connected"]),
        ),
        gauge(
            "heteroflow_raft_quorum_margin",
            "How many more of the voters in touch may fail; below 0 nothing can be decided.",
            status["spare"],
        ),
        gauge("heteroflow_raft_proposals_waiting", "Commands that wait for their commit.", status["waiting"]),
        gauge("heteroflow_raft_subscribers", "Feeds of state changes that are followed here.", status["subscribers"]),
        gauge("heteroflow_raft_disk_full", "1: the log has no room.", bool(status["disk_full"])),
        gauge(
            "heteroflow_raft_fsync_p99_seconds",
            "Of the last writes of the log to disk.",
            None if fsync_ms is None else fsync_ms / 1000,
        ),
    ]


def _leader_node(status: Mapping[str, Any]) -> str | None:
    return next((voter["node"] for voter in status["voters"] if voter["raft_id"] == status["leader"]), None)


def _scheduler(controllers: "Controllers") -> list[Family]:
    families = [
        Family(
            "heteroflow_scheduler_pass_seconds",
            SUMMARY,
            "Passes of the controllers since this host leads, and how long they took.",
            [("_sum", (), controllers.passes_s), ("_count", (), controllers.passes)],
        ),
        gauge("heteroflow_scheduler_last_pass_seconds", "How long the last pass took.", controllers.last_pass_s),
    ]
    tally = controllers.tally()
    if tally is None:
        return families
    reasons = Counter(code or _NO_REASON for code in tally.waiting)
    return [
        *families,
        gauge("heteroflow_queue_depth", "Groups that wait.", len(tally.waiting)),
        gauges("heteroflow_queue_groups", "Groups that wait, by the reason.", "reason", reasons),
        gauges("heteroflow_nodes", "Nodes; lost: given up until they come back.", "state", tally.nodes),
        gauge("heteroflow_nodes_cordoned", "Ready nodes that take no new group.", tally.cordoned),
        gauges(
            "heteroflow_cards",
            "Cards of ready nodes; releasing: ended, not yet proved clean.",
            "state",
            tally.cards,
        ),
        gauge("heteroflow_cards_capacity", "Cards of ready nodes.", sum(tally.cards.values())),
    ]
