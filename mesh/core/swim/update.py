"""What is said about a member, and the one rule by which one saying replaces another.

An update is always a whole record, so the newest of any set of updates is the same whatever the order they came in:
the view is a join semilattice (its laws: tests/unit/swim/test_merge_laws.py)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from ipaddress import ip_address

import msgpack

from mesh.core.swim.limits import (
    ADDRESS_MAX,
    ADDRESSES_MAX,
    AGE_MAX_S,
    MEMBERS_MAX,
    META_MAX,
    TAG_NAME_MAX,
    TAG_VALUE_MAX,
    TAGS_MAX,
    VERSION_MAX,
)

S = 1_000_000_000


class State(IntEnum):
    """At equal incarnation the later one wins."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3


@dataclass(frozen=True, slots=True)
class Meta:
    """addresses: HOST:PORT of the member's gossip, the preferred one first; version: of its software; tags: what else
    people and peers look up, for example its API's address."""

    addresses: tuple[str, ...]
    version: str = ""
    tags: tuple[tuple[str, str], ...] = ()

    def to_wire(self) -> list[object]:
        return [self.addresses, self.version, self.tags]

    def packed(self) -> bytes:
        packed: bytes = msgpack.packb(self.to_wire())
        return packed


@dataclass(frozen=True, slots=True)
class Update:
    """by: who says so, counted among a suspicion's accusers; age_s: for how long it has been dead or left, rounded up,
    so that a tombstone handed from one to the other does not grow younger."""

    node: str
    incarnation: int
    state: State
    meta: Meta
    by: str
    age_s: int = 0
    _wire: list[bytes] = field(default_factory=list, init=False, repr=False, compare=False)

    def wire(self) -> bytes:
        """Its msgpack, made once: the same update leaves in many packets."""
        if not self._wire:
            fields = [self.node, self.incarnation, int(self.state), self.meta.to_wire(), self.by, self.age_s]
            self._wire.append(msgpack.packb(fields))
        return self._wire[0]

    def aged(self, age_ns: int) -> Update:
        return replace(self, age_s=min(-(-max(age_ns, 0) // S), AGE_MAX_S))


def supersedes(new: Update, held: Update) -> bool:
    """A total order over what an update says. Only the owner raises the incarnation, so what it says last wins over
    every accusation of what it said before. Honest members never differ in metadata alone; liars are ordered too."""
    if new.incarnation != held.incarnation:
        return new.incarnation > held.incarnation
    if new.state != held.state:
        return new.state > held.state
    return new.meta is not held.meta and new.meta.packed() > held.meta.packed()


_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z")
_TAG_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


@lru_cache(maxsize=MEMBERS_MAX)
def address_refusal(address: str) -> str:
    """Why this is no HOST:PORT that others can reach, or ''. IPv6 stands in brackets; 0.0.0.0 is nobody's address."""
    host, colon, port = address.rpartition(":")
    if len(address) > ADDRESS_MAX or not colon or not port.isascii() or not port.isdigit() or len(port) > 5:
        return f"address {address[:64]!r} is not HOST:PORT"
    if not 0 < int(port) < 65_536:
        return f"port {port} is not between 1 and 65535"
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        ip = ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        return "" if _HOST.match(host) and not bracketed else f"host {host[:64]!r} is neither a name nor an address"
    if (ip.version == 6) != bracketed:
        return f"host {host[:64]!r}: IPv6 addresses, and only those, stand in brackets"
    if ip.is_unspecified or ip.is_multicast:
        return f"host {host[:64]!r} is no address of one host"
    return ""


def meta_refusal(meta: Meta) -> str:
    """Why this metadata may not be spread, or ''."""
    if not 0 < len(meta.addresses) <= ADDRESSES_MAX:
        return f"{len(meta.addresses)} addresses; needs 1 to {ADDRESSES_MAX}"
    for address in meta.addresses:
        if refusal := address_refusal(address):
            return refusal
    if len(meta.version) > VERSION_MAX or not meta.version.isprintable():
        return f"version is not at most {VERSION_MAX} printable characters"
    if len(meta.tags) > TAGS_MAX:
        return f"{len(meta.tags)} tags; at most {TAGS_MAX} fit"
    names = [name for name, _ in meta.tags]
    if names != sorted(set(names)):
        return "tags are not in order, each name once"
    for name, value in meta.tags:
        if len(name) > TAG_NAME_MAX or not _TAG_NAME.match(name):
            return f"tag name {name[:TAG_NAME_MAX]!r} is not a short lower-case word"
        if len(value) > TAG_VALUE_MAX or not value.isprintable():
            return f"tag {name} is not at most {TAG_VALUE_MAX} printable characters"
    size = len(meta.packed())
    return f"metadata of {size} bytes; at most {META_MAX} fit" if size > META_MAX else ""
