"""Rows of the state as the API shows them: times as ISO-8601 UTC, one name for one thing, nothing the state does not
say."""

from collections.abc import Iterable, Mapping
from typing import Any

from agentd.http import checkpoint_view
from mesh.core.state.shape import Shape, shape_of
from mesh.core.state.time_limits import limit_of
from schemas.instants import iso_utc
from schemas.states import RUNNING, STARTING
from schemas.task_types import shown_shape

Row = Mapping[str, Any]


def moment(at_ms: int | None) -> str | None:
    return iso_utc(at_ms) if at_ms else None


def summary(group: Row) -> dict[str, Any]:
    """A line of a list."""
    return {
        "group_id": group["group_id"],
        "name": group["name"],
        "task_type": group["task_type"],
        "status": group["status"],
        "attempt": group["attempt"],
        "tenant": group["tenant"],
        "user": group["user"],
        "priority": group["priority"],
        **shown_shape(group["document"]),
        "nodes": group["nodes"],
        "created_at": moment(group["created_ms"]),
        "started_at": moment(group["started_ms"]),
        "ended_at": moment(group["ended_ms"]),
        "pending_reason": group["pending_reason"],
        "failure": failure(group["failure"]),
        "restarts": group["restarts"],
        "drains": group.get("drains", 0),
        "rebuilds": (group.get("rebuild") or {}).get("total", 0),
    }


def detail(group: Row, tasks: Iterable[Row]) -> dict[str, Any]:
    """`config` is the document as it was accepted."""
    return summary(group) | {
        "config": group["document"],
        "master": group["master"],
        "resume": group["resume"],
        "on_isolation": group["on_isolation"],
        "ending": group["ending"],
        "rollbacks": group["rollbacks"],
        "warnings": group["warnings"],
        "resubmit_of": group["resubmit_of"],
        "parent": group.get("parent"),
        "submit_index": group["submit_idx"],
        "image": group.get("image"),
        "rendezvous": rendezvous(group),
        "limit": _limit(group),
        "saved": checkpoint_view.newest(group),
        "at_risk": checkpoint_view.at_risk(group),
        "stop_after": checkpoint_view.stop_after(group),
        "tasks": [task(row, group) for row in tasks],
    }


def rendezvous(group: Row) -> dict[str, Any] | None:
    """Of the newest attempt; None until something was seen, and of groups of one node."""
    seen = group.get("rendezvous")
    if seen is None or seen["attempt"] != group["attempt"]:
        return None
    return {"state": seen["state"], "text": seen["text"], "at": moment(seen["at_ms"])}


def _limit(group: Row) -> dict[str, Any] | None:
    shape = shape_of(group["document"])
    limit = limit_of(dict(group), shape) if isinstance(shape, Shape) else None
    return {"over": limit.over, "at": moment(limit.due_ms)} if limit is not None else None


def failure(row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    told = {name: value for name, value in row.items() if name not in ("at_ms", "exit_ms", "exit_clock")}
    return told | {"at": moment(row["at_ms"])}


def task(row: Row, group: Row) -> dict[str, Any]:
    return {
        "rank": row["rank"],
        "attempt": row["attempt"],
        "node_id": row["node"],
        "status": row["status"],
        "gpus": row["gpus"],
        "port": row["port"] or None,
        "endpoints": _endpoints(row, group),
        "released": row["released"],
        "exit_code": row["exit_code"],
        "signal": row["signal"],
        "reason": row["reason"],
        "image": row.get("image"),
        "bound_at": moment(row["bound_ms"]),
        "started_at": moment(row["started_ms"]),
        "ended_at": moment(row["ended_ms"]),
    }


def _endpoints(row: Row, group: Row) -> dict[str, str]:
    """Where each declared port of a task that runs is reached; those of other attempts lead nowhere."""
    addresses: list[str] = group.get("addresses") or []
    if row["status"] not in (STARTING, RUNNING) or row["attempt"] != group["attempt"] or row["rank"] >= len(addresses):
        return {}
    host = addresses[row["rank"]]
    host = f"[{host}]" if ":" in host else host
    return {name: f"{host}:{port}" for name, port in (group["document"]["task"].get("ports") or {}).items()}


def event(row: Row) -> dict[str, Any]:
    return {
        "at": moment(row["at_ms"]),
        "kind": row["kind"],
        "rank": row["rank"],
        "attempt": row["attempt"],
        "node_id": row["node"],
        "text": row["text"],
        "data": row["data"],
    }


def node(row: Row, holds: Iterable[tuple[str, Row]]) -> dict[str, Any]:
    """Cards of a node are free, held, or releasing (ended, but not yet proved clean). holds: with their keys."""
    held: dict[str, str] = {}
    left: set[str] = set()
    for key, hold in holds:
        left.add(key.split("/")[1])
        held |= dict.fromkeys(hold["gpus"], hold["state"])
    states = [held.get(gpu["uuid"], "free") for gpu in row["gpus"]]
    cordon, drain, window = row.get("cordon"), row.get("drain"), row.get("window")
    return {
        "node_id": row["node_id"],
        "state": row["state"],
        "reason": row["reason"] or row.get("engine_down"),
        "engine_down": row.get("engine_down"),
        "api_addr": row["api_addr"],
        "addresses": row.get("addresses") or [],
        "voter": row["voter_addr"] is not None,
        "gpu_backend": row["gpu_backend"],
        "runtime": row["runtime"],
        "labels": row["labels"],
        "version": row["version"],
        "cpus": row["cpus"],
        "memory_mb": row["memory_mb"],
        "joined_at": moment(row["joined_ms"]),
        "lost_at": moment(row["lost_ms"]),
        "losses": row["losses"],
        "gpus": [gpu | {"state": state} for gpu, state in zip(row["gpus"], states, strict=True)],
        "gpus_total": len(states),
        "gpus_free": states.count("free"),
        "gpus_held": states.count("held"),
        "gpus_releasing": states.count("releasing"),
        "cordon": asked(cordon) if cordon else None,
        "drain": _drain(drain, len(left)) if drain else None,
        "maintenance": _window(window) if window else None,
    }


def asked(row: Row) -> dict[str, Any]:
    return {"by": row["by"], "reason": row["reason"], "at": moment(row["at_ms"])}


def mesh_hold(row: Row) -> dict[str, Any]:
    """left_s: until nodes are given up again, as the leader last wrote it down."""
    until_ms = row["at_ms"] + row["for_ms"]
    return asked(row) | {
        "until_at": moment(until_ms),
        "left_s": -(-row["left_ms"] // 1000),
        "released": not row["granting"],
    }


def _drain(row: Row, left: int) -> dict[str, Any]:
    """left: groups that still have something on the node."""
    return asked(row) | {
        "mode": row["mode"],
        "deadline_at": moment(row["deadline_ms"]),
        "groups": row["groups"],
        "left": left,
        "moved": row["moved"],
        "done_at": moment(row["done_ms"]),
    }


def _window(row: Row) -> dict[str, Any]:
    return asked(row) | {
        "from_at": moment(row["from_ms"]),
        "until_at": moment(row["until_ms"]),
        "mode": row["mode"],
        "deadline_s": row["deadline_s"],
        "open": row["open"],
    }
