"""What needs a hand right now, seen from the state alone: the alerts view and the number in the header."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from console.core.group_list import FRESH_FAILURE_MS
from console.core.line import BAD, WARN

if TYPE_CHECKING:
    from console.store.mesh_store import MeshStore


@dataclass(frozen=True, slots=True)
class Attention:
    """since_ms: None where the state does not say. target: ("group" | "node" | "mesh", id)."""

    tone: str
    subject: str
    text: str
    advice: str
    since_ms: int | None
    target: tuple[str, str]


def attention(
    mesh: "MeshStore", status: Mapping[str, Any], now_ms: int, raised: Sequence[Mapping[str, Any]] = ()
) -> list[Attention]:
    """raised: alerts that the agents raised themselves. The worst first; of the equally bad what is about the whole
    mesh, then the newest."""
    found = [*_of_consensus(status), *_of_nodes(mesh), *_of_groups(mesh, now_ms), *_raised(mesh, raised)]
    return sorted(
        found, key=lambda item: (item.tone != BAD, item.target[0] != "mesh", -(item.since_ms or 0), item.subject)
    )


def _of_consensus(status: Mapping[str, Any]) -> list[Attention]:
    consensus = status.get("consensus") or {}
    if not consensus:
        return []
    found = []
    voters = consensus.get("voters") or []
    if not consensus.get("leader"):
        advice = "Commands wait until a majority of voters can talk; running jobs go on within their lease."
        found.append(Attention(BAD, "mesh", "no leader is known", advice, None, ("mesh", "")))
    else:
        for voter in voters:
            if not voter.get("connected"):
                text = f"voter {voter.get('node')} does not answer; spare {consensus.get('spare')}"
                advice = "Start its agent again, or look at its host."
                tone = BAD if not consensus.get("spare") else WARN
                found.append(Attention(tone, "mesh", text, advice, None, ("mesh", "")))
    if alarm := consensus.get("alarm"):
        advice = "Voters disagree about the state. Keep their data directories and report it."
        found.append(Attention(BAD, "mesh", str(alarm), advice, None, ("mesh", "")))
    if consensus.get("disk_full"):
        found.append(
            Attention(BAD, "mesh", "a voter's disk is full", "Make room; it recovers by itself.", None, ("mesh", ""))
        )
    return found


def _of_nodes(mesh: "MeshStore") -> list[Attention]:
    found = []
    for node in mesh.nodes.values():
        if node.state == "lost":
            text = f"lost: {node.reason}" if node.reason else "lost"
            advice = "Its ranks were ended or requeued. Start the agent there, or remove the host."
            found.append(Attention(WARN, node.id, text, advice, node.lost_ms, ("node", node.id)))
        elif node.engine_down:
            text = f"no containers: {node.engine_down}"
            advice = "What runs there goes on. Look at the engine: systemctl status docker."
            found.append(Attention(WARN, node.id, text, advice, None, ("node", node.id)))
    return found


def _of_groups(mesh: "MeshStore", now_ms: int) -> list[Attention]:
    found = []
    for group in mesh.in_status("recovering", "failed"):
        if group.status == "recovering":
            advice = "It goes back to the queue by itself once every rank is proved gone."
            found.append(Attention(WARN, group.name, group.why, advice, None, ("group", group.id)))
        elif group.status == "failed" and group.ended_ms is not None and now_ms - group.ended_ms < FRESH_FAILURE_MS:
            text = f"failed: {group.why}"
            found.append(
                Attention(
                    BAD,
                    group.name,
                    text,
                    "d explains, l shows its log, r submits it again.",
                    group.ended_ms,
                    ("group", group.id),
                )
            )
    return found


def _raised(mesh: "MeshStore", raised: Sequence[Mapping[str, Any]]) -> list[Attention]:
    found = []
    for item in raised:
        group_id, node = item.get("group_id"), item.get("node_id")
        group = mesh.groups.get(str(group_id))
        target = ("group", str(group_id)) if group_id else ("node", str(node)) if node else ("mesh", "")
        since = item.get("since_ms")
        found.append(
            Attention(
                BAD if item.get("level") == "critical" else WARN,
                group.name if group is not None else str(group_id or node or "mesh"),
                str(item.get("text") or item.get("rule") or ""),
                str(item.get("advice") or ""),
                since if isinstance(since, int) else None,
                target,
            )
        )
    return found
