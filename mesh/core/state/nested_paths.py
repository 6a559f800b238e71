"""A checkpoint directory within that of another group: each may take what the other saved for its own."""

from typing import Any

from mesh.core.state.store import Row, StateStore
from schemas.rules.permissions import Caller

_TOLD_MAX = 3


def nested_warning(store: StateStore, path: str, person: Caller | None) -> dict[str, Any] | None:
    """path: normalised. person: who submits, None where an agent does."""
    above = ["/".join(path.split("/")[:depth]) for depth in range(2, path.count("/") + 1)]
    found = [(one, row) for one in above if (row := store.get("ckpt", one)) is not None]
    found += store.scan("ckpt", f"{path}/", limit=_TOLD_MAX)
    if not found:
        return None
    told = "; ".join(_told(store, where, row, path, person) for where, row in found[:_TOLD_MAX])
    return {
        "code": "checkpoint_path_nested",
        "path": "training.checkpoint_path",
        "message": f"checkpoint_path {path} {told}",
        "hint": "Give each group a directory of its own, beside the others.",
    }


def _told(store: StateStore, where: str, row: Row, path: str, person: Caller | None) -> str:
    relation = "lies within that of" if path.startswith(f"{where}/") else "holds that of"
    group = store.get("group", row["group_id"])
    if person is not None and (group is None or not person.sees(group["tenant"])):
        return f"{relation} an active group of another tenant"
    return f"{relation} active group {row['group_id']} ({where})"
