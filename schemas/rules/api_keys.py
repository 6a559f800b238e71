"""API keys: their text, their row, and who stands behind one.

    hfk_<id>_<secret>   id: 16 characters, in lists and in the audit; secret: 32 random bytes, its owner's alone

The state keeps sha256 of the whole text. A salt or a slow hash would add nothing against 256 random bits, and the check
runs on every request. Row: `{name, role, tenant, scopes(None or list), sha256, made_ms, made_by, expires_ms(None:
never), revoked_ms(None), revoked_by}`."""

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from schemas.rules.permissions import PERSON, Caller

ID_BYTES, SECRET_BYTES = 10, 32
_KEY = re.compile(r"hfk_([a-z2-7]{16})_([A-Za-z0-9_-]{43})")


def key_id(random: bytes) -> str:
    """random: ID_BYTES of them."""
    return base64.b32encode(random).decode().lower()


def key_text(identity: str, random: bytes) -> str:
    """random: SECRET_BYTES of them."""
    return f"hfk_{identity}_{base64.urlsafe_b64encode(random).decode().rstrip('=')}"


def id_of_key(text: str) -> str | None:
    """The id inside the text of a key; None where it is none."""
    found = _KEY.fullmatch(text)
    return found.group(1) if found else None


def key_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def key_refusal(row: Mapping[str, Any] | None, now_ms: int) -> str | None:
    """Why a key opens nothing now, or None."""
    if row is None:
        return "there is no such API key"
    if row.get("revoked_ms") is not None:
        return "the API key was revoked"
    expires_ms = row.get("expires_ms")
    if expires_ms is not None and now_ms >= expires_ms:
        return "the API key has expired"
    return None


def person_of(identity: str, row: Mapping[str, Any]) -> Caller:
    """The caller behind a key that is not refused."""
    scopes = row.get("scopes")
    return Caller(
        kind=PERSON,
        name=str(row["name"]),
        role=str(row["role"]),
        tenant=str(row["tenant"]),
        scopes=None if scopes is None else frozenset(scopes),
        key=identity,
        expires_ms=row.get("expires_ms"),
    )
