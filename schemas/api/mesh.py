"""The mesh as the answering node sees it."""

from typing import Any, NotRequired, TypedDict

from schemas.api.node import Asked, MeshHold


class Health(TypedDict):
    """status: joining, ok or degraded."""

    status: str
    reasons: list[str]


class NodeReport(TypedDict):
    """Without secrets. problem: why there is no more than that; config: as the agent was started; health: as /healthz;
    host: of its kernel, memory and disk; logs: the end of each, by file; voter: the mesh as the agent's voter sees
    it."""

    node_id: str
    problem: NotRequired[str]
    at: NotRequired[str]
    versions: NotRequired[dict[str, str]]
    config: NotRequired[dict[str, Any]]
    health: NotRequired[dict[str, Any]]
    host: NotRequired[dict[str, Any]]
    logs: NotRequired[dict[str, str]]
    voter: NotRequired[dict[str, Any]]


class MeshShown(TypedDict):
    """consensus: as the voter sees it that the agent is with; agent: the one that answers."""

    cluster_id: str | None
    epoch: int | None
    cluster_version: int | None
    profile: str | None
    created_at: str | None
    voters: list[dict[str, Any]]
    scheduling_paused: Asked | None
    hold: MeshHold | None
    consensus: dict[str, Any]
    agent: dict[str, Any]
