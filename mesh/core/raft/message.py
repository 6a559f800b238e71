"""Messages between members, and their wire form: compact lists for msgpack.

Wire: [type, to, from, term, log_term, index, commit, reject, reject_hint, context, [[term, kind, data], ...]].
Indexes of entries are not sent: entry i has index message.index + 1 + i.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from mesh.core.raft.entry import Entry, EntryKind
from mesh.core.raft.errors import WireError


class MsgType(IntEnum):
    """The first three are local: they never cross the network."""

    HUP = 0  # start a campaign
    BEAT = 1  # the leader's heartbeat is due
    PROP = 2  # append these entries
    APP = 3
    APP_RESP = 4
    VOTE = 5
    VOTE_RESP = 6
    PRE_VOTE = 7
    PRE_VOTE_RESP = 8
    HEARTBEAT = 9
    HEARTBEAT_RESP = 10
    READ_INDEX = 11  # a follower asks the leader; context is the request's id; carries no term
    READ_INDEX_RESP = 12  # index to wait for, same context
    TIMEOUT_NOW = 13  # a leader that gave up the lead tells its successor to stand at once


LOCAL_TYPES = frozenset({MsgType.HUP, MsgType.BEAT, MsgType.PROP})
_BY_NUMBER = {int(t): t for t in MsgType if t not in LOCAL_TYPES}
_KINDS = {int(k): k for k in EntryKind}
_FIELDS = 11
_MAX_INT = 1 << 63
MAX_CONTEXT_BYTES = 256
TRANSFER = b"CampaignTransfer"
"""Context of a vote asked for on the leader's word: granted although that leader was heard a moment ago."""


@dataclass(slots=True)
class Message:
    type: MsgType
    to: int
    from_: int = 0
    term: int = 0
    log_term: int = 0
    index: int = 0
    entries: list[Entry] = field(default_factory=list)
    commit: int = 0
    reject: bool = False
    reject_hint: int = 0
    context: bytes = b""

    def to_wire(self) -> list[object]:
        return [
            int(self.type), self.to, self.from_, self.term, self.log_term, self.index, self.commit,
            self.reject, self.reject_hint, self.context,
            [[e.term, int(e.kind), e.data] for e in self.entries],
        ]  # fmt: skip

    @classmethod
    def from_wire(cls, raw: Any) -> Message:
        """Decode a list made by to_wire. Raises WireError for anything else, whatever its shape."""
        if type(raw) not in (list, tuple) or len(raw) != _FIELDS:
            raise WireError(f"a message is a list of {_FIELDS} fields")
        kind, to, from_, term, log_term, index, commit, reject, hint, context, raw_entries = raw
        for name, value in (("type", kind), ("to", to), ("from", from_), ("term", term), ("log_term", log_term),
                            ("index", index), ("commit", commit), ("reject_hint", hint)):  # fmt: skip
            if type(value) is not int or not 0 <= value < _MAX_INT:
                raise WireError(f"{name} is not an unsigned 63-bit integer")
        msg_type = _BY_NUMBER.get(kind)
        if msg_type is None:
            raise WireError(f"message type {kind} is unknown or local")
        if to == 0 or from_ == 0:
            raise WireError("to and from must name members")
        if type(reject) is not bool:
            raise WireError("reject is not a boolean")
        if type(context) is not bytes or len(context) > MAX_CONTEXT_BYTES:
            raise WireError(f"context is not at most {MAX_CONTEXT_BYTES} bytes")
        # A term of zero marks a local message inside the core, so it must not come in from outside.
        if (term == 0) != (msg_type is MsgType.READ_INDEX):
            raise WireError(f"{msg_type.name} with term {term}")
        entries = _entries_from_wire(raw_entries, index, log_term, term)
        if entries and msg_type is not MsgType.APP:
            raise WireError(f"{msg_type.name} carries entries")
        return cls(msg_type, to, from_, term, log_term, index, entries, commit, reject, hint, context)


def _entries_from_wire(raw: Any, index: int, log_term: int, term: int) -> list[Entry]:
    if type(raw) not in (list, tuple):
        raise WireError("entries is not a list")
    entries: list[Entry] = []
    last = log_term
    for item in raw:
        if type(item) not in (list, tuple) or len(item) != 3:
            raise WireError("an entry is a list of term, kind and data")
        entry_term, kind_no, data = item
        kind = _KINDS.get(kind_no) if type(kind_no) is int else None
        if kind is None or type(data) is not bytes or type(entry_term) is not int:
            raise WireError("an entry has a wrong kind, term or data")
        # Terms along a log never fall and never pass the sender's own term.
        if not last <= entry_term <= term or entry_term == 0:
            raise WireError(f"entry term {entry_term} is not between {last} and {term}")
        last = entry_term
        index += 1
        entries.append(Entry(index, entry_term, kind, data))
    return entries
