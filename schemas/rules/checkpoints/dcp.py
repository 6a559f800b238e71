"""PyTorch's distributed checkpoint: shards `__R_K.distcp`, and `.metadata`, renamed into place when all are written.

`.metadata` lists every piece of every shard with its place: which files there must be, and how many bytes. A save over
an older one leaves the older `.metadata` until it ends: then a shard is newer than it.
"""

import re
from collections.abc import Mapping

from schemas.rules.checkpoints.inert_pickle import BYTES_MAX, Node, NoPickle, TooLarge, read_facts
from schemas.rules.checkpoints.names import is_single_name, shown, some
from schemas.rules.checkpoints.view import Directory, Incomplete, Kind
from schemas.rules.checkpoints.whole_files import require_file

METADATA = ".metadata"
NAMED_MAX = 256 << 20
_CHUNK, _OVERLAP = 1 << 20, 64
_SHARD = re.compile(rb"__[0-9]{1,18}_[0-9]{1,18}\.distcp")


def is_dcp(names: Mapping[str, Kind]) -> bool:
    return METADATA in names or any(name.startswith("__") and name.endswith(".distcp") for name in names)


def judge_dcp(directory: Directory) -> None:
    """Raises Incomplete."""
    names = directory.names()
    if METADATA not in names:
        tmp = " (only .metadata.tmp is there)" if ".metadata.tmp" in names else ""
        raise Incomplete(f"{METADATA}, which is written when all shards are, is missing{tmp}")
    marker = require_file(directory, METADATA)
    large = marker.size > BYTES_MAX
    data = b"" if large else directory.read(METADATA, 0, BYTES_MAX)
    # Most of what is wrong shows in the names alone, a thousand times faster than in the places.
    named = _named_in_chunks(directory, marker.size) if large else _named(data)
    _require_present(named, names)
    ends = None if large else _shard_ends(data)
    if ends is None:
        # Of the largest models the places would take minutes: their shards are taken at any size but none.
        if not named or directory.read(METADATA, -1, 1) != b".":
            raise Incomplete(f"{METADATA} is cut short, or names no shards")
        ends = dict.fromkeys(named, 1)
    _require_present(ends, names)
    for name in sorted(ends):
        found = require_file(directory, name)
        if found.size < ends[name]:
            raise Incomplete(f"{shown(name)} is cut short: {found.size} of {ends[name]} bytes")
        if found.mtime_ns > marker.mtime_ns:
            raise Incomplete(
                f"{shown(name)} is newer than {METADATA}: a save over an older one did not finish (or a copy did not "
                f"keep the times; then run `touch {METADATA}` in it)"
            )


def _require_present(wanted: "set[str] | dict[str, int]", names: Mapping[str, Kind]) -> None:
    if missing := [name for name in wanted if name not in names]:
        there = len(wanted) - len(missing)
        raise Incomplete(f"{some(missing)} missing: {METADATA} names {len(wanted)} shards, {there} are here")


def _named(data: bytes) -> set[str]:
    """The names of shards that stand as texts in the pickle, each with its length before it."""
    found = set()
    for match in _SHARD.finditer(data):
        name, at = match[0], match.start()
        if data[max(0, at - 2) : at] == b"\x8c%c" % len(name) or data[max(0, at - 5) : at] == b"X%c\0\0\0" % len(name):
            found.add(name.decode())
    return found


def _named_in_chunks(directory: Directory, size: int) -> set[str]:
    if size > NAMED_MAX:
        raise Incomplete(f"{METADATA} has {size} bytes, more than the {NAMED_MAX} that are read")
    found: set[str] = set()
    for at in range(0, size, _CHUNK):
        # A name that lies across two chunks is whole in one of them.
        found |= _named(directory.read(METADATA, at, _CHUNK + _OVERLAP))
    return found


def _shard_ends(data: bytes) -> dict[str, int] | None:
    """Shard -> the bytes that it must have at least; None where there are too many places to look at."""
    try:
        storage = read_facts(data).fields.get("storage_data")
    except TooLarge:
        return None
    except NoPickle as error:
        raise Incomplete(f"{METADATA} cannot be read: {error}") from error
    ends: dict[str, int] = {}
    for piece in storage.values if isinstance(storage, Node) else ():
        facts = piece.fields if isinstance(piece, Node) else {}
        name, offset, length = facts.get("relative_path"), facts.get("offset"), facts.get("length")
        if type(name) is not str or type(offset) is not int or type(length) is not int or min(offset, length) < 0:
            raise Incomplete(f"{METADATA} is not what torch.distributed.checkpoint writes")
        if not is_single_name(name):
            raise Incomplete(f"{METADATA} names {shown(name[:200])!r}, which is no single name in this directory")
        ends[name] = max(ends.get(name, 0), offset + length)
    if not ends:
        raise Incomplete(f"{METADATA} names no shards")
    return ends
