"""A sans-I/O Raft core: feed it ticks, messages and proposals, do what each Ready says. See RawNode and DESIGN.md."""

from mesh.core.raft.config import Config, Rng, etcd_options
from mesh.core.raft.entry import NO_LIMIT, Entry, EntryKind, HardState, entry_bytes
from mesh.core.raft.errors import (
    CompactedError,
    DropReason,
    InvariantViolation,
    MessageRefused,
    ProposalDropped,
    RaftError,
    ReadDropped,
    UnavailableError,
    WireError,
)
from mesh.core.raft.message import Message, MsgType
from mesh.core.raft.progress import ProgressState
from mesh.core.raft.quorum import Majority, Quorum, VoteResult
from mesh.core.raft.rawnode import PeerStatus, RawNode, Status
from mesh.core.raft.ready import ReadState, Ready, Role, SoftState
from mesh.core.raft.storage import MemoryStorage, Storage

__all__ = [
    "NO_LIMIT",
    "CompactedError",
    "Config",
    "DropReason",
    "Entry",
    "EntryKind",
    "HardState",
    "InvariantViolation",
    "Majority",
    "MemoryStorage",
    "Message",
    "MessageRefused",
    "MsgType",
    "PeerStatus",
    "ProgressState",
    "ProposalDropped",
    "Quorum",
    "RaftError",
    "RawNode",
    "ReadDropped",
    "ReadState",
    "Ready",
    "Rng",
    "Role",
    "SoftState",
    "Status",
    "Storage",
    "UnavailableError",
    "VoteResult",
    "WireError",
    "entry_bytes",
    "etcd_options",
]
