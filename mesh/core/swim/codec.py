"""Packets as bytes: msgpack lists, every field checked for type and size before anything is kept.

packet  [1, mesh, sender, boot, seq, to, message, [update...]]
message [kind, fields...]: 1 gossip, 2 ping, 3 ping-req, 4 ack, 5 nack, 6 sync, 7 sync reply, 8 refuse
update  [node, incarnation, state, [[address...], version, [[tag, value]...]], by, age_s]
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

import msgpack

from mesh.core.swim.errors import Oversized, Truncated, WireError
from mesh.core.swim.limits import (
    ADDRESSES_MAX,
    AGE_MAX_S,
    BOOT_MAX,
    INCARNATION_MAX,
    MEMBERS_MAX,
    META_MAX,
    NODE_MAX,
    NUMBER_MAX,
    PACKET_MAX,
    SEQ_MAX,
    SYNC_MAX,
    TAGS_MAX,
    UPDATES_MAX,
    WAIT_MAX_MS,
)
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
from mesh.core.swim.update import Meta, State, Update, meta_refusal
from schemas.ids import node_id_refusal, segment_refusal

WIRE_VERSION = 1
_HEAD_OF_8 = b"\x98"
_ARRAY_32 = struct.Struct(">BI")
UPDATES_HEAD = _ARRAY_32.size
_STATES = {int(state): state for state in State}
_REASONS = {int(reason): reason for reason in Reason}


def head(packet: Packet) -> bytes:
    """Everything before the updates."""
    fields = [packet.mesh, packet.sender, packet.boot, packet.seq, packet.to, _message_to_wire(packet.message)]
    return _HEAD_OF_8 + bytes(msgpack.packb([WIRE_VERSION, *fields]))[1:]


def encode(packet: Packet) -> bytes:
    updates = packet.updates
    return head(packet) + _ARRAY_32.pack(0xDD, len(updates)) + b"".join([update.wire() for update in updates])


def decode(data: bytes) -> Packet:
    """Raises WireError for whatever is not one whole packet within the limits."""
    if len(data) > SYNC_MAX:
        raise Oversized(f"{len(data)} bytes; at most {SYNC_MAX} fit")
    try:
        raw = msgpack.unpackb(
            data, max_array_len=UPDATES_MAX, max_map_len=0, max_ext_len=0, max_bin_len=0, max_str_len=META_MAX
        )
    except (ValueError, RecursionError, msgpack.exceptions.UnpackException) as error:
        if "incomplete input" in str(error):  # msgpack has no type of its own for it
            raise Truncated(f"the packet is cut off after {len(data)} bytes") from error
        raise WireError(f"not a msgpack value within limits ({type(error).__name__})") from error
    version, mesh, sender, boot, seq, to, raw_message, raw_updates = _list(raw, 8, "packet")
    if version != WIRE_VERSION or type(version) is not int:
        raise WireError("of another version of the protocol")
    message = _message_from_wire(raw_message)
    if len(data) > PACKET_MAX and not isinstance(message, Sync | SyncReply):
        raise Oversized(f"{type(message).__name__} of {len(data)} bytes; at most {PACKET_MAX} fit")
    return Packet(
        _mesh(mesh),
        _node(sender, "sender"),
        _number(boot, BOOT_MAX, "boot"),
        _number(seq, SEQ_MAX, "seq"),
        _node(to, "to") if to != "" else "",
        message,
        tuple([_update(raw_update) for raw_update in _list(raw_updates, None, "updates")]),
    )


def _message_to_wire(message: Message) -> list[object]:
    match message:
        case Gossip():
            return [1]
        case Ping(number):
            return [2, number]
        case PingReq(number, target, wait_ms):
            return [3, number, target, wait_ms]
        case Ack(number):
            return [4, number]
        case Nack(number):
            return [5, number]
        case Sync():
            return [6]
        case SyncReply():
            return [7]
        case Refuse(reason, boot):
            return [8, int(reason), boot]


def _message_from_wire(raw: Any) -> Message:
    match _list(raw, None, "message"):
        case [1]:
            return Gossip()
        case [2, number]:
            return Ping(_number(number, NUMBER_MAX, "number"))
        case [3, number, target, wait_ms]:
            return PingReq(
                _number(number, NUMBER_MAX, "number"),
                _node(target, "target"),
                _number(wait_ms, WAIT_MAX_MS, "wait_ms"),
            )
        case [4, number]:
            return Ack(_number(number, NUMBER_MAX, "number"))
        case [5, number]:
            return Nack(_number(number, NUMBER_MAX, "number"))
        case [6]:
            return Sync()
        case [7]:
            return SyncReply()
        case [8, reason, boot] if type(reason) is int and reason in _REASONS:
            return Refuse(_REASONS[reason], _number(boot, BOOT_MAX, "boot"))
    raise WireError("message has an unknown kind or the wrong number of fields")


def _update(raw: Any) -> Update:
    node, incarnation, state, meta, by, age_s = _list(raw, 6, "update")
    if type(state) is not int or state not in _STATES:
        raise WireError("state is unknown")
    return Update(
        _node(node, "node"),
        _number(incarnation, INCARNATION_MAX, "incarnation"),
        _STATES[state],
        _meta(meta),
        _node(by, "by"),
        _number(age_s, AGE_MAX_S, "age_s"),
    )


def _meta(raw: Any) -> Meta:
    addresses, version, tags = _list(raw, 3, "meta")
    addresses, tags = _list(addresses, None, "addresses"), _list(tags, None, "tags")
    if len(addresses) > ADDRESSES_MAX or len(tags) > TAGS_MAX:
        raise WireError("too many addresses or tags")
    pairs = [tuple(_list(tag, 2, "tag")) for tag in tags]
    if not all(type(text) is str for text in (*addresses, version, *(text for pair in pairs for text in pair))):
        raise WireError("metadata is text only")
    meta = Meta(tuple(addresses), version, tuple(pairs))
    if refusal := _meta_refusal(meta):
        raise WireError(refusal)
    return meta


# The same members come again and again; a liar can only make these forget.
_meta_refusal = lru_cache(maxsize=MEMBERS_MAX)(meta_refusal)


@lru_cache(maxsize=MEMBERS_MAX)
def _node_fault(value: str) -> bool:
    return node_id_refusal(value) is not None


def _node(value: Any, what: str) -> str:
    if type(value) is not str or len(value) > NODE_MAX or _node_fault(value):
        raise WireError(f"{what} is no node name")
    return value


def _mesh(value: Any) -> str:
    if segment_refusal(value, "mesh") is not None:
        raise WireError("mesh is no id")
    return str(value)


def _number(value: Any, limit: int, what: str) -> int:
    if type(value) is not int or not 0 <= value <= limit:
        raise WireError(f"{what} is not an integer from 0 to {limit}")
    return value


def _list(value: Any, length: int | None, what: str) -> list[Any]:
    if type(value) is not list or (length is not None and len(value) != length):
        raise WireError(f"{what} is not a list" + (f" of {length}" if length is not None else ""))
    return value
