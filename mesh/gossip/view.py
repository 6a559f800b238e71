"""What this member believes of the others, with since when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mesh.core.swim import State, Update

S = 1_000_000_000
UID_TAG = "uid"
"""Metadata under which a member says which installation it is."""


@dataclass(frozen=True, slots=True)
class MemberView:
    """state: alive, suspect, dead or left, since_s ago as far as is known here. addr: HOST:PORT."""

    node_id: str
    state: str
    incarnation: int
    since_s: float
    addr: str
    version: str
    tags: Mapping[str, str]


class Since:
    """When each member's state became what it is (driver's clock, ns)."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}

    def changed(self, update: Update, previous: State | None, now_ns: int) -> None:
        if previous is not update.state:
            self._at[update.node] = now_ns - update.age_s * S

    def views(self, members: Mapping[str, Update], now_ns: int) -> list[MemberView]:
        """By name."""
        for node in [node for node in self._at if node not in members]:
            del self._at[node]
        return [
            MemberView(
                name,
                update.state.name.lower(),
                update.incarnation,
                round(max(now_ns - self._at.get(name, now_ns), 0) / S, 1),
                update.meta.addresses[0],
                update.meta.version,
                dict(update.meta.tags),
            )
            for name, update in sorted(members.items())
        ]
