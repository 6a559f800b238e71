"""What the core asks its driver to do."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.core.swim.message import Packet, Reason
from mesh.core.swim.update import State, Update


@dataclass(frozen=True, slots=True)
class Send:
    """Send encode(packet), once, without retry. reply: it answers the packet just handled, and may go back the way that
    one came (several may); address is "" where no other way is known. address: HOST:PORT."""

    packet: Packet
    address: str
    reply: bool = False


@dataclass(frozen=True, slots=True)
class Changed:
    """A member's record is another one now. previous: its state before, None where it was unknown. Never about this
    node itself."""

    update: Update
    previous: State | None


@dataclass(frozen=True, slots=True)
class Refused:
    """Another member would not take our packet: it is of another mesh, another node, or knows a later life of ours."""

    reason: Reason
    by: str
    mesh: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another process uses this node's name: for people, who must rename one of the two. addresses: where it says that
    it is, if it said so."""

    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Departed:
    """The word of our leaving has been spread, or its time is over: the driver may stop."""


Effect = Send | Changed | Refused | Conflict | Departed
