"""Feed rows as their caller may see them: groups of his tenant with all that hangs on them, nodes where his scopes name
them, and of others' groups only that their cards are taken."""

import hashlib
from typing import Any

from schemas.rules.redaction import without_secrets

Row = dict[str, Any]
Change = list[Any]
"""[entity, key, row or None]"""

_OF_NODE = frozenset({"node", "hold"})
_OF_KEEPER = frozenset({"behind", "behind_name", "behind_tenant"})
_OF_GROUP = frozenset({"group", "active", "task", "event"})


def reason_for(tenant: str, reason: Row | None) -> Row | None:
    """Why a group waits, without the name of the group of another tenant that it waits behind."""
    details = (reason or {}).get("details") or {}
    if reason is None or "behind" not in details or details.get("behind_tenant") == tenant:
        return reason
    told = {name: value for name, value in details.items() if name not in _OF_KEEPER}
    text = f"waits behind a group of another tenant (needs {details['behind_needs']}, free {details['behind_free']})"
    return {**reason, "text": text, "details": told}


def group_for(tenant: str, row: Row) -> Row:
    """A group's row as its own tenant may see it."""
    shown = reason_for(tenant, row.get("pending_reason"))
    return row if shown is row.get("pending_reason") else {**row, "pending_reason": shown}


def hidden(row: Row) -> Row:
    """A group's row for who may look and not act."""
    return {**row, "document": without_secrets(row["document"])}


class TenantRows:
    """Kinds of rows that it does not know are not shown. tenant: None where he sees every tenant's. secrets: whether
    values under names that sound secret are shown, nodes: whether nodes are."""

    def __init__(self, tenant: str | None, secrets: bool = True, nodes: bool = True) -> None:
        self._tenant, self._secrets, self._nodes = tenant, secrets, nodes
        self._groups: set[str] = set()

    def snapshot(self, parts: list[list[Change]]) -> list[list[Change]]:
        """All parts of one snapshot: rows of a group may come before the group itself."""
        self._groups = set()
        for part in parts:
            self._learn(part)
        return [self._shown(part) for part in parts]

    def changes(self, changes: list[Change]) -> list[Change]:
        """Of one index."""
        self._learn(changes)
        shown = self._shown(changes)
        self._groups.difference_update(key for entity, key, row in changes if entity == "group" and row is None)
        return shown

    def _learn(self, rows: list[Change]) -> None:
        for entity, key, row in rows:
            if entity == "group" and row is not None and row.get("tenant") == self._tenant:
                self._groups.add(key)

    def _shown(self, rows: list[Change]) -> list[Change]:
        shown: list[Change] = []
        for entity, key, row in rows:
            if entity in _OF_NODE and not self._nodes:
                continue
            if entity in ("meta", "node") or (entity in _OF_GROUP and self._sees(key.partition("/")[0])):
                known = entity == "group" and row is not None
                shown.append([entity, key, self._group(row) if known else row])
            elif entity == "hold":
                shown.append(self._hold(key, row))
        return shown

    def _sees(self, group_id: str) -> bool:
        return self._tenant is None or group_id in self._groups

    def _group(self, row: Row) -> Row:
        shown = row if self._tenant is None else group_for(self._tenant, row)
        return shown if self._secrets or "document" not in shown else hidden(shown)

    def _hold(self, key: str, row: Row | None) -> Change:
        node, group_id, rest = key.split("/", 2)
        if self._sees(group_id):
            return ["hold", key, row]
        # The same name each time, at every node, so that its end is understood; it leads back to no id.
        masked = f"{node}/hidden-{hashlib.sha256(group_id.encode()).hexdigest()[:16]}/{rest}"
        ports = {"port": 0, **({"ports": []} if row is not None and "ports" in row else {})}
        return ["hold", masked, None if row is None else {**row, **ports}]
