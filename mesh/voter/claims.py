"""For whom a remote session may speak: the node whose certificate it showed, and nobody else."""

from __future__ import annotations

from typing import Any

from schemas.errors import Problem

_OF_NODES = {"RegisterNode": "node_id", "TaskReports": "node", "RejoinNode": "node_id"}
"""Facts about a host, with the field that names it."""
_OF_CONTROLLERS = frozenset(
    {
        "InitCluster",
        "SetReasons",
        "BindGroup",
        "StartGroup",
        "ContinuePhase",
        "RollbackGroup",
        "FailGroup",
        "ExpireNode",
        "MoveGroup",
        "EndDrain",
        "TurnMaintenance",
        "RecordRendezvous",
    }
)
"""Decisions, made beside the leader and said over its own host's socket."""


def claim_refusal(node: str | None, claimed: Any) -> Problem | None:
    """node: whose certificate was shown; None where there are no certificates, or on the host's own socket."""
    if node is None or claimed in (None, "", node):
        return None
    return Problem("other_node", f"{node} speaks for {str(claimed)[:80]!r}; a node speaks for itself alone", status=403)


def command_claim_refusal(node: str | None, command: Any) -> Problem | None:
    if node is None or not isinstance(command, dict):
        return None
    name = command.get("t")
    if not isinstance(name, str):
        return None
    if name in _OF_CONTROLLERS:
        return Problem("controllers_only", f"{name} is decided beside the leader, not by {node}", status=403)
    return claim_refusal(node, command.get(_OF_NODES[name]) or "nobody") if name in _OF_NODES else None
