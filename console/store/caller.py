"""Who the mesh takes this console for, by its own rules: what it would refuse is not asked."""

from typing import Any

from console.core.sanitize import sanitize
from schemas.rules.permissions import Caller


def caller_in(answer: Any) -> Caller | None:
    """Of an answer of `/whoami`; None where it is none, and then nothing is known to be refused."""
    if not isinstance(answer, dict) or not isinstance(answer.get("kind"), str):
        return None
    scopes = answer.get("scopes")
    return Caller(
        kind=answer["kind"],
        name=sanitize(str(answer.get("name") or "")),
        role=str(answer.get("role") or ""),
        tenant=sanitize(str(answer.get("tenant") or "")),
        scopes=frozenset(map(str, scopes)) if isinstance(scopes, list) else None,
        key=sanitize(str(answer.get("key_id") or "")),
    )
