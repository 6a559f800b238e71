"""Who asks: keys, access, and what was done by whom."""

from typing import TypedDict


class WhoAmI(TypedDict):
    """kind: mesh (the mesh token), node or person (an API key, whose id is key_id). scopes: None where the role is not
    narrowed."""

    kind: str
    name: str
    role: str
    tenant: str
    key_id: str | None
    scopes: list[str] | None
    permissions: list[str]
    sees_all_tenants: bool
    expires_at: str | None


class AccessToken(TypedDict):
    token: str
    token_type: str
    expires_at: str


class ApiKey(TypedDict):
    """state: good, expired or revoked. scopes: None where the role is not narrowed."""

    key_id: str
    name: str
    role: str
    tenant: str
    scopes: list[str] | None
    state: str
    made_at: str
    made_by: str
    expires_at: str | None
    revoked_at: str | None
    revoked_by: str | None


class KeyList(TypedDict):
    keys: list[ApiKey]
    cursor: str | None


class NewKey(TypedDict):
    """key: the secret, told this once."""

    key_id: str
    key: str
    name: str
    role: str
    tenant: str
    scopes: list[str] | None
    expires_at: str | None


class KeyRevoked(TypedDict):
    key_id: str
    name: str
    revoked: bool


class AuditEntry(TypedDict):
    """who, kind, key_id: as in WhoAmI. node_id: the agent that took the request. code: of a refusal, else empty."""

    number: int
    at: str
    who: str
    kind: str
    key_id: str | None
    node_id: str
    what: str
    target: str | None
    details: dict[str, str]
    ok: bool
    code: str


class Audit(TypedDict):
    entries: list[AuditEntry]
    cursor: int | None
