"""PruneGroups: ended groups that were kept long enough go, with their tasks and events. What is active is never
touched, whatever a command says."""

from mesh.core.state.outcome import Outcome, done
from mesh.core.state.store import Row, StateStore
from mesh.core.state.submit import remove_group
from schemas.limits import RETENTION_LEAST_MS
from schemas.states import TERMINAL

# Of one command: its changes are one transaction and one frame of the feed.
ROWS_AT_ONCE = 2_000


def prune_groups(store: StateStore, idx: int, command: Row) -> Outcome:
    pruned: list[str] = []
    kept: list[str] = []
    rows = 0
    for group_id in command["group_ids"]:
        if rows >= ROWS_AT_ONCE:
            break
        row = store.get("group", group_id)
        if row is None:
            continue
        young = row["ended_ms"] is None or command["at_ms"] - row["ended_ms"] < RETENTION_LEAST_MS
        removed = None if row["status"] not in TERMINAL or young else remove_group(store, row)
        if isinstance(removed, int):
            pruned.append(group_id)
            rows += removed
        else:
            kept.append(group_id)
    return done(pruned=pruned, kept=kept, changed=len(pruned))
