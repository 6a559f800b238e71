"""Which group is meant: an exact id, or an exact name that only one group has. Never a prefix."""

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from console.core.format import age, moment_ms, status_text
from schemas.errors import Finding, InvalidInput, NotFound

if TYPE_CHECKING:
    from console.client import MeshClient

_ID = re.compile(r"tg-[0-9a-z]{20}\Z")
_CANDIDATES_SHOWN, _NEAR_SHOWN = 10, 3
_LOOKED_AT = 500


async def group_id_of(client: "MeshClient", reference: str) -> str:
    """Raises NotFound, InvalidInput(ambiguous_name) with the candidates."""
    if _ID.match(reference):
        return reference
    found: list[dict[str, str]] = []
    params = {"name": reference, "limit": "1000"}
    while True:
        answer = await client.read("/api/v1/task-groups", params)
        found += [group for group in answer.value["groups"] if group["name"] == reference]
        cursor = answer.value.get("cursor")
        if cursor is None or len(found) > _CANDIDATES_SHOWN:
            break
        params["cursor"] = str(cursor)
    if not found:
        hint = "`heteroflow ls` lists groups with their ids; ids and names are matched whole."
        if near := await _near(client, reference):
            hint = f"Did you mean {near}? {hint}"
        raise NotFound("no_such_group", f"there is no task group {reference[:100]!r}", hint)
    if len(found) > 1:
        listed = [
            Finding(
                "candidate",
                group["group_id"],
                f"{group['group_id']}  {status_text(group['status'])}  {_when(group, answer.now_ms)}",
            )
            for group in found[:_CANDIDATES_SHOWN]
        ]
        more = "" if len(found) <= _CANDIDATES_SHOWN else f", the first {_CANDIDATES_SHOWN} of them"
        message = f"more than one group is named {reference[:100]!r}{more}: use the id"
        raise InvalidInput("ambiguous_name", message, findings=listed)
    return found[0]["group_id"]


async def _near(client: "MeshClient", reference: str) -> str:
    """Names like this one, and ids that begin so, of the newest groups."""
    groups = (await client.read("/api/v1/task-groups", {"limit": str(_LOOKED_AT)})).value["groups"]
    ids = [group["group_id"] for group in groups if group["group_id"].startswith(reference)]
    if len(reference) > len("tg-") and ids:
        return " or ".join(ids[:_NEAR_SHOWN])
    names = {group["name"].casefold(): group["name"] for group in groups}
    close = get_close_matches(reference.casefold(), list(names), n=_NEAR_SHOWN, cutoff=0.7)
    return " or ".join(names[name] for name in close)


def _when(group: dict[str, str], now_ms: int) -> str:
    return f"submitted {age(moment_ms(group.get('created_at')), now_ms)} ago"
