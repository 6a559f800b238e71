"""Which ended groups have been kept long enough. Pure: rows and times in, ids out."""

from collections.abc import Sequence
from dataclasses import dataclass

from mesh.core.state.keys import ended_of_key
from schemas.limits import PRUNED_AT_ONCE, RETENTION_LEAST_MS


@dataclass(frozen=True, slots=True)
class Retention:
    """keep_ms: how long an ended group is kept; keep_groups: how many of them. None: without that bound."""

    keep_ms: int | None
    keep_groups: int | None


def overdue(oldest: Sequence[str], total: int, now_ms: int, retention: Retention) -> list[str]:
    """oldest: keys of `ended`, oldest first, as many as are at hand; total: how many there are. Group ids, the longest
    ended first, no more than one command takes. What ended a moment ago stays whatever the bounds say: somebody is
    looking at it, and a wrong bound can be put right."""
    surplus = 0 if retention.keep_groups is None else max(total - retention.keep_groups, 0)
    found = []
    for place, key in enumerate(oldest):
        ended_ms, group_id = ended_of_key(key)
        age_ms = now_ms - ended_ms
        too_old = retention.keep_ms is not None and age_ms > retention.keep_ms
        if age_ms >= RETENTION_LEAST_MS and (too_old or place < surplus):
            found.append(group_id)
    return found[:PRUNED_AT_ONCE]
