"""What the agent one is attached to sees of the others, beside what the mesh decided. A gate as rows.py: what comes out
may be painted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from console.core.sanitize import sanitize

ONLY_GOSSIP = "only_gossip"


@dataclass(frozen=True, slots=True)
class GossipSeen:
    """states: by node. differences: by node, what differs from what the mesh decided. strangers: those among them that
    are not registered."""

    states: Mapping[str, str] = field(default_factory=dict)
    differences: Mapping[str, str] = field(default_factory=dict)
    strangers: tuple[str, ...] = ()

    @property
    def troubled(self) -> bool:
        return any(state != "alive" for state in self.states.values())


def gossip_of(value: Any) -> GossipSeen:
    members = _parts(value, "members")
    differences = _parts(value, "differences")
    return GossipSeen(
        {_text(member, "node_id"): _text(member, "state") for member in members},
        {_text(difference, "node_id"): _text(difference, "text") for difference in differences},
        tuple(_text(difference, "node_id") for difference in differences if difference.get("kind") == ONLY_GOSSIP),
    )


def _parts(value: Any, name: str) -> list[Mapping[str, Any]]:
    found = value.get(name) if isinstance(value, Mapping) else None
    return [part for part in found if isinstance(part, Mapping)] if isinstance(found, list) else []


def _text(part: Mapping[str, Any], name: str) -> str:
    return sanitize(str(part.get(name) or ""))
