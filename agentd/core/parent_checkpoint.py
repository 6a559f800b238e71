"""Which checkpoint of another group a new one begins from, and what speaks against it. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from schemas.errors import Finding
from schemas.states import TERMINAL
from schemas.task_group import ParentNamed
from schemas.task_group.parent import FIELD

Row = Mapping[str, Any]


def chosen(named: ParentNamed, group: Row, saves: Iterable[Row]) -> dict[str, Any] | Finding:
    """`{group_id, checkpoint_path, path, step}`. group: the parent; saves: of its ledger, oldest first."""
    there = [row for row in saves if _is_own(row)]
    if named.step is None:
        newest = group.get("saved")
        picked = (newest["pick"], newest["step"]) if newest else None
    else:
        picked = next(((row["pick"], row["step"]) for row in reversed(there) if row["step"] == named.step), None)
    directory = group["checkpoint_path"]
    if picked is None or directory is None:
        wanted = "no complete checkpoint" if named.step is None else f"no complete checkpoint of step {named.step}"
        steps = sorted({row["step"] for row in there if row["step"] is not None}, reverse=True)
        told = f" It has those of the steps {', '.join(map(str, steps[:10]))}." if steps else ""
        hint = "See heteroflow checkpoint ls; a path of the host goes into training.resume_from_checkpoint."
        message = f"{FIELD}: {wanted} of group {named.group_id} is known.{told}"
        return Finding("no_parent_checkpoint", FIELD, message, hint)
    return {
        "group_id": named.group_id,
        "checkpoint_path": directory,
        "path": f"{directory.rstrip('/')}/{picked[0]}",
        "step": picked[1],
    }


def same_directory(checkpoint_path: str, parent: Row) -> Finding | None:
    """checkpoint_path: of the new group."""
    theirs, own = parent["checkpoint_path"], checkpoint_path.rstrip("/")
    if theirs != own and not theirs.startswith(f"{own}/"):
        return None
    field, other = "training.checkpoint_path", parent["group_id"]
    message = f"{field} {checkpoint_path} holds the checkpoints of {other}: whose is whose could not be told"
    hint = f"Name another directory; to go on in this one, leave parent_checkpoint out (heteroflow clone {other})."
    return Finding("parent_directory", field, message, hint)


def may_vanish(group: Row, parent: Row) -> dict[str, str] | None:
    """A warning where the parent still runs and removes its older checkpoints."""
    keep = (group["document"].get("training") or {}).get("keep_last_n")
    if keep is None or group["status"] in TERMINAL:
        return None
    message = f"{parent['group_id']} is {group['status']} and keeps its last {keep}: {parent['path']} may be removed"
    return Finding("parent_may_vanish", FIELD, f"{message} before this group starts", "Stop it first.").to_dict()


def _is_own(row: Row) -> bool:
    """Below its own directory: what it was given to begin from is there by the whole path."""
    return bool(row["complete"] and row["removed_ms"] is None and not row["pick"].startswith("/"))
