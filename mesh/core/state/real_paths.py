"""Where a checkpoint_path leads where a link is in it, as the hosts tell: two names of one directory are one directory,
and two groups in it overwrite each other's checkpoints."""

from typing import Any

from mesh.core.state.group import Group
from mesh.core.state.store import Row
from schemas.limits import TEXT_MAX

PATH_IN_USE = "checkpoint_path_in_use"
# Of one group: as many as there are ways to mount a share. More are not kept.
_PATHS_MAX = 8


def refuse_taken(group: Group, report: Row) -> Row:
    """The report of a claim as it is, and its directory is the group's from now on; a refusal for good in its place
    where another active group has it."""
    path = report.get("checkpoint_real")
    if path is None:
        return report
    user = group.store.get("ckpt", path)
    if user is not None and user["group_id"] != group.id:
        return {
            **report,
            "kind": "claim_failed",
            "code": PATH_IN_USE,
            "text": _text(group, path, user),
            "permanent": True,
        }
    known = group.row.get("real_paths", [])
    if user is None and len(known) < _PATHS_MAX:
        group.store.put("ckpt", path, {"group_id": group.id})
        group.row["real_paths"] = [*known, path]
    return report


def _text(group: Group, path: str, user: Row) -> str:
    other: dict[str, Any] = group.store.get("group", user["group_id"]) or {}
    mine = other.get("tenant") == group.row["tenant"]
    who = f"active group {user['group_id']}" if mine else "a group of another tenant"
    return (
        f"checkpoint_path {group.row['checkpoint_path']} leads through a link to {path}, which {who} uses; two groups "
        "would overwrite each other's checkpoints: wait for it, stop it, or choose another path"
    )[:TEXT_MAX]
