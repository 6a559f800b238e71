"""Who may do what: roles, scopes and tenants as pure rules, the same in agents, reducers and console.

What is not said is not allowed: an unknown role has no permission, and a scope only ever takes away."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Permission(StrEnum):
    """The values are the scopes an API key may be narrowed to."""

    OPEN = "open"  # nobody is asked who he is
    SELF = "self"  # anyone who is known: what concerns only himself
    READ_GROUPS = "tasks:read"
    WRITE_GROUPS = "tasks:write"
    READ_MESH = "mesh:read"  # nodes, voters
    OPERATE = "mesh:operate"  # cordon, drain, hold
    READ_AUDIT = "audit:read"
    MANAGE_KEYS = "keys:write"
    PEER = "mesh:peer"  # between the agents of the mesh


DEFAULT_TENANT = "default"
VIEWER, MEMBER, OPERATOR, ADMIN = ROLES = ("viewer", "member", "operator", "admin")
MESH, NODE, PERSON = KINDS = ("mesh", "node", "person")
_VIEWER = frozenset({Permission.SELF, Permission.READ_GROUPS, Permission.READ_MESH})
_MEMBER = _VIEWER | {Permission.WRITE_GROUPS}
_OPERATOR = _MEMBER | {Permission.OPERATE, Permission.READ_AUDIT}
_ADMIN = _OPERATOR | {Permission.MANAGE_KEYS}
_GRANTED = {VIEWER: _VIEWER, MEMBER: _MEMBER, OPERATOR: _OPERATOR, ADMIN: _ADMIN}
SCOPES = tuple(str(permission) for permission in Permission if permission in _ADMIN - {Permission.SELF})
_VERBS = {
    Permission.READ_GROUPS: "look at task groups",
    Permission.WRITE_GROUPS: "submit, stop or change task groups",
    Permission.READ_MESH: "look at nodes and voters",
    Permission.OPERATE: "operate nodes",
    Permission.READ_AUDIT: "read the audit",
    Permission.MANAGE_KEYS: "manage API keys",
    Permission.PEER: "use the routes between agents",
}


def granted(role: str, scopes: Iterable[str] | None = None) -> frozenset[Permission]:
    """What a role may, narrowed to `scopes` where there are any."""
    allowed = _GRANTED.get(role, frozenset())
    if scopes is None:
        return allowed
    narrowed = set(scopes)
    return frozenset(item for item in allowed if item is Permission.SELF or item in narrowed)


def least_role(permission: Permission) -> str | None:
    """The humblest role that has it; None where no role has."""
    return next((role for role in ROLES if permission in _GRANTED[role]), None)


@dataclass(frozen=True, slots=True)
class Caller:
    """kind: mesh (holder of the mesh token, an administrator), node (an agent, by its certificate) or person (an API
    key). key: its id, "" for the others. scopes: None where the role is not narrowed. expires_ms: None for never."""

    kind: str
    name: str
    role: str = ""
    tenant: str = ""
    scopes: frozenset[str] | None = None
    key: str = ""
    expires_ms: int | None = None

    def may(self, permission: Permission) -> bool:
        if permission is Permission.OPEN:
            return True
        if self.kind == MESH:
            return True
        if self.kind == NODE:
            return permission is Permission.PEER
        return self.kind == PERSON and permission in granted(self.role, self.scopes)

    @property
    def sees_all(self) -> bool:
        """Whether the groups of every tenant are his to see and to steer."""
        return self.kind in (MESH, NODE) or (self.kind == PERSON and self.role in (OPERATOR, ADMIN))

    def sees(self, tenant: str) -> bool:
        return self.sees_all or (self.kind == PERSON and bool(self.tenant) and self.tenant == tenant)

    def refusal(self, permission: Permission) -> tuple[str, str] | None:
        """(what is refused and why, what to do), or None where he may."""
        if self.may(permission):
            return None
        what = _VERBS.get(permission, f"use {permission}")
        if self.kind != PERSON:
            return f"a {self.kind} certificate may not {what}", "use an API key: heteroflow login"
        role = least_role(permission)
        if role is None:
            return f"{self.name} may not {what}: no API key may", "agents do this among themselves"
        if permission in granted(self.role):
            return (
                f"{self.name} may not {what}: the key {self.key} is narrowed to {', '.join(sorted(self.scopes or ()))}",
                f"ask an admin for a key with the scope {permission}: heteroflow key create --scope {permission}",
            )
        return (
            f"{self.name} may not {what}: the role {self.role or 'none'} does not allow it, {role} does",
            f"ask an admin for a key with that role: heteroflow key create NAME --role {role}",
        )


THE_MESH = Caller(MESH, "mesh", ADMIN)
