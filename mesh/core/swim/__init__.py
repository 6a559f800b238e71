"""A sans-I/O SWIM core with Lifeguard's refinements: feed it ticks and packets, carry out its effects. See Swim and
DESIGN.md."""

from mesh.core.swim.codec import decode, encode
from mesh.core.swim.config import Config
from mesh.core.swim.effects import Changed, Conflict, Departed, Effect, Refused, Send
from mesh.core.swim.errors import ConfigRefused, Oversized, SwimError, Truncated, WireError
from mesh.core.swim.message import (
    Ack,
    Gossip,
    Message,
    Nack,
    Packet,
    Ping,
    PingReq,
    Reason,
    Refuse,
    Sync,
    SyncReply,
)
from mesh.core.swim.probe_order import Rng
from mesh.core.swim.profile import LAN, LOCAL, PROFILES, WAN, Profile, plain_swim
from mesh.core.swim.replay import Heard
from mesh.core.swim.swim import Swim
from mesh.core.swim.update import Meta, State, Update, supersedes

__all__ = [
    "LAN",
    "LOCAL",
    "PROFILES",
    "WAN",
    "Ack",
    "Changed",
    "Config",
    "ConfigRefused",
    "Conflict",
    "Departed",
    "Effect",
    "Gossip",
    "Heard",
    "Message",
    "Meta",
    "Nack",
    "Oversized",
    "Packet",
    "Ping",
    "PingReq",
    "Profile",
    "Reason",
    "Refuse",
    "Refused",
    "Rng",
    "Send",
    "State",
    "Swim",
    "SwimError",
    "Sync",
    "SyncReply",
    "Truncated",
    "Update",
    "WireError",
    "decode",
    "encode",
    "plain_swim",
    "supersedes",
]
