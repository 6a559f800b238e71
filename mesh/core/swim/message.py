"""Messages between members. Each travels in a packet, which also carries updates about members."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from mesh.core.swim.update import Update


@dataclass(frozen=True, slots=True)
class Gossip:
    """Nothing but the packet's updates."""


@dataclass(frozen=True, slots=True)
class Ping:
    number: int


@dataclass(frozen=True, slots=True)
class PingReq:
    """Probe `target` for me; say so by a nack if it has not answered you within `wait_ms`. The target's address is the
    relay's own knowledge: nobody makes another send to an address of his choice."""

    number: int
    target: str
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Ack:
    number: int


@dataclass(frozen=True, slots=True)
class Nack:
    """From a relay: I am here, your target has not answered me."""

    number: int


@dataclass(frozen=True, slots=True)
class Sync:
    """Push/pull: the updates are everything the sender knows. Answered by a SyncReply."""


@dataclass(frozen=True, slots=True)
class SyncReply:
    pass


class Reason(IntEnum):
    WRONG_MESH = 1
    WRONG_NODE = 2  # another member lives at this address now
    STALE_BOOT = 3  # an earlier life of the sender, or its clock went back


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer to a packet that was dropped. boot: the newest boot known of the one refused. Never itself answered."""

    reason: Reason
    boot: int = 0


Message = Gossip | Ping | PingReq | Ack | Nack | Sync | SyncReply | Refuse


@dataclass(frozen=True, slots=True)
class Packet:
    """boot rises with each life of the sender, seq with each of its packets; to is "" if only an address is known."""

    mesh: str
    sender: str
    boot: int
    seq: int
    to: str
    message: Message
    updates: tuple[Update, ...] = ()
