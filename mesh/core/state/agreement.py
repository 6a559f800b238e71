"""Whether all nodes of an attempt see the same checkpoints, and one to begin from. Those that do not have no shared
storage: some ranks would resume, the others begin at zero, and the world would hang or train on nonsense."""

from collections.abc import Sequence
from typing import Any

from mesh.core.state.group import Group
from mesh.core.state.store import Row
from schemas.limits import SHARED_STORAGE_TRIES
from schemas.states import CHECKPOINT_PATH, RESUME_INCOMPLETE, RESUME_MISSING

STORAGE_NOT_SHARED = "storage_not_shared"
# Different ones kept. Two already end the attempt; the others only tell an operator more.
_VIEWS_KEPT = 4
# What ends an attempt is tried again: other nodes may have the share, and caches be late.
TRIED_AGAIN = frozenset((STORAGE_NOT_SHARED, RESUME_MISSING, RESUME_INCOMPLETE))
_WHAT_TO_DO = {
    RESUME_MISSING: "mount the share that holds it on every node, or name another path",
    RESUME_INCOMPLETE: "name one that is whole, or leave the field out to begin at the newest complete one",
}


def note_view(group: Row, rank: int, node: str, sees: Row) -> None:
    """Each different one once, under the lowest rank that has it, so that a gang of a thousand stays one short row."""
    views = list(group.get("views") or [])
    for view in views:
        if view["digest"] == sees["digest"]:
            view["ranks"] += 1
            if rank < view["rank"]:
                view.update(rank=rank, node=node)
            break
    else:
        if len(views) < _VIEWS_KEPT:
            views.append({**sees, "rank": rank, "node": node, "ranks": 1})
    group["views"] = sorted(views, key=lambda view: int(view["rank"]))


def disagreement(views: Sequence[Row]) -> str | None:
    """What is wrong, in a sentence that names nodes; None where all that looked see the same."""
    if len(views) < 2:
        return None
    same_name = len({view["pick"] for view in views}) == 1
    told = "; ".join(_told(view, same_name) for view in views)
    field = views[0].get("field", CHECKPOINT_PATH)
    return f"The nodes see different checkpoints, so {field} is not shared storage: {told}."


def no_beginning(views: Sequence[Row]) -> tuple[str, str] | None:
    """(code, sentence) where all see that no rank can begin at the path that the document names. Another checkpoint in
    its place, or zero, would be another training than what was asked for."""
    view = next((view for view in views if view.get("code")), None)
    if view is None:
        return None
    code = str(view["code"])
    # Of a later version there may be others.
    to_do = f"; {_WHAT_TO_DO[code]}" if code in _WHAT_TO_DO else ""
    return code, f"{view['field']} cannot be begun from: {_who(view)} says that {view['text']}{to_do}."


def found_there(group: Row) -> str:
    """What was looked at and passed over, for the timeline; nothing where nobody looked."""
    views = group.get("views") or []
    return f" Seen there: {views[0]['text']}." if views else ""


def odd_one(views: Sequence[Row]) -> Row:
    """Rank 0's node is where checkpoints are written, mostly; another one is to be avoided at the next placement."""
    return views[1]


def _told(view: Row, same_name: bool) -> str:
    who = _who(view)
    if same_name and view["pick"]:
        return f"{who} sees {view['pick']} with other files or bytes in it"
    return f"{who} sees {view['pick'] or 'none that is complete'} ({view['text'][:300]})"


def _who(view: Row) -> str:
    more = f" and {view['ranks'] - 1} more" if view["ranks"] > 1 else ""
    return f"rank {view['rank']} on {view['node']}{more}"


def out_of_tries(group: Group) -> bool:
    """Counts one more. Caches of a network file system may show a rename late, so once is no proof; but a gang that has
    no other nodes would go round for ever."""
    group.row["unshared"] = int(group.row.get("unshared", 0)) + 1
    return bool(group.row["unshared"] >= SHARED_STORAGE_TRIES)


def storage_failure(group: Group, code: str, text: str) -> dict[str, Any]:
    views = group.row.get("views") or []
    rank = odd_one(views)["rank"] if len(views) > 1 else None
    said = f"{text} Tried {group.row['unshared']} times."
    return {"class": code, "rank": rank, "exit_code": None, "signal": None, "text": said}
