"""PyTorch's distributed checkpoint: shards `__R_K.distcp`, and `.metadata`, renamed into place when all are written.

`.metadata` lists every piece of every shard with its place: which files there must be, and how many bytes. A save over
an older one leaves the older `.metadata` until it ends: then a shard is newer than it. With `use_collectives=False`
each rank lists its own shards in a `__R.metadata`, and no file says that all have ended.
"""

import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass

from schemas.rules.checkpoints.candidate import require_contiguous
from schemas.rules.checkpoints.inert_pickle import BYTES_MAX, Node, NoPickle, TooLarge, read_facts
from schemas.rules.checkpoints.names import is_single_name, shown, some
from schemas.rules.checkpoints.same_places import ReadPickle
from schemas.rules.checkpoints.view import Directory, Incomplete, Kind
from schemas.rules.checkpoints.whole_files import require_file

METADATA = ".metadata"
NAMED_MAX = 256 << 20
_CHUNK, _OVERLAP = 1 << 20, 64
# What _shard_ends looks up.
_FIELDS = {b"storage_data", b"relative_path", b"offset", b"length"}
_OWN_METADATA, _SHARD_OF = re.compile(r"__([0-9]{1,9})\.metadata\Z"), re.compile(r"__([0-9]{1,9})_[0-9]+\.distcp\Z")
_SHARD = re.compile(rb"__[0-9]{1,18}_[0-9]{1,18}\.distcp")


def is_dcp(names: Mapping[str, Kind]) -> bool:
    return METADATA in names or any(name.startswith("__") and name.endswith(".distcp") for name in names)


@dataclass(frozen=True, slots=True)
class _Places:
    """ends: shard -> the bytes that it must have at least, by name."""

    ends: dict[str, int]
    read: ReadPickle


def judge_dcp(directory: Directory) -> None:
    """Raises Incomplete."""
    names = directory.names()
    if METADATA in names:
        _judge_listed(directory, METADATA)
        return
    markers = {match[1]: name for name in names if (match := _OWN_METADATA.match(name))}
    if not markers:
        tmp = " (only .metadata.tmp is there)" if ".metadata.tmp" in names else ""
        raise Incomplete(f"{METADATA}, which is written when all shards are, is missing{tmp}")
    ranks = markers.keys() | {match[1] for name in names if (match := _SHARD_OF.match(name))}
    require_contiguous(map(int, sorted(ranks)), "__{}" + METADATA)
    if unfinished := sorted(ranks - markers.keys(), key=int):
        rank = unfinished[0]
        raise Incomplete(f"__{rank}{METADATA}, which rank {rank} writes when its shards are, is missing")
    for marker in markers.values():
        _judge_listed(directory, marker)


def _judge_listed(directory: Directory, marker: str) -> None:
    """The shards that one metadata file names. Raises Incomplete."""
    written = require_file(directory, marker)
    ends = _ends(directory, marker, written.size)
    _require_present(ends, marker, directory.names())
    for name, end in ends.items():
        found = require_file(directory, name)
        if found.size < end:
            raise Incomplete(f"{shown(name)} is cut short: {found.size} of {end} bytes")
        if found.mtime_ns > written.mtime_ns:
            raise Incomplete(
                f"{shown(name)} is newer than {marker}: a save over an older one did not finish (or a copy did not "
                f"keep the times; then run `touch {marker}` in it)"
            )


def _ends(directory: Directory, marker: str, size: int) -> dict[str, int]:
    if size > BYTES_MAX:
        named = _named_in_chunks(directory, marker, size)
        _require_present(named, marker, directory.names())
        return _of_any_size(directory, marker, named)
    data = directory.read(marker, 0, BYTES_MAX)
    before: _Places | None = directory.memo.get(marker)
    if before is not None and before.read.says_the_same_as(data):
        return before.ends
    # Most of what is wrong shows in the names alone, a thousand times faster than in the places.
    named = _named(data)
    _require_present(named, marker, directory.names())
    texts = array("Q")
    try:
        ends = _shard_ends(marker, data, texts)
    except TooLarge:
        return _of_any_size(directory, marker, named)
    telling = _FIELDS | {name.encode("utf-8", "surrogatepass") for name in ends}
    directory.memo[marker] = _Places(ends, ReadPickle(data, texts, telling))
    return ends


def _of_any_size(directory: Directory, marker: str, named: set[str]) -> dict[str, int]:
    """Of the largest models the places would take minutes: their shards are taken at any size but none."""
    if not named or directory.read(marker, -1, 1) != b".":
        raise Incomplete(f"{marker} is cut short, or names no shards")
    return dict.fromkeys(sorted(named), 1)


def _require_present(wanted: "set[str] | dict[str, int]", marker: str, names: Mapping[str, Kind]) -> None:
    if missing := [name for name in wanted if name not in names]:
        there = len(wanted) - len(missing)
        raise Incomplete(f"{some(missing)} missing: {marker} names {len(wanted)} shards, {there} are here")


def _named(data: bytes) -> set[str]:
    """The names of shards that stand as texts in the pickle, each with its length before it."""
    found = set()
    for match in _SHARD.finditer(data):
        name, at = match[0], match.start()
        if data[max(0, at - 2) : at] == b"\x8c%c" % len(name) or data[max(0, at - 5) : at] == b"X%c\0\0\0" % len(name):
            found.add(name.decode())
    return found


def _named_in_chunks(directory: Directory, marker: str, size: int) -> set[str]:
    if size > NAMED_MAX:
        raise Incomplete(f"{marker} has {size} bytes, more than the {NAMED_MAX} that are read")
    found: set[str] = set()
    for at in range(0, size, _CHUNK):
        # A name that lies across two chunks is whole in one of them.
        found |= _named(directory.read(marker, at, _CHUNK + _OVERLAP))
    return found


def _shard_ends(marker: str, data: bytes, texts: "array[int]") -> dict[str, int]:
    """Raises TooLarge where there are too many places to look at, and Incomplete. texts: see read_facts."""
    try:
        storage = read_facts(data, texts).fields.get("storage_data")
    except TooLarge:
        raise
    except NoPickle as error:
        raise Incomplete(f"{marker} cannot be read: {error}") from error
    ends: dict[str, int] = {}
    for piece in storage.values if isinstance(storage, Node) else ():
        facts = piece.fields if isinstance(piece, Node) else {}
        name, offset, length = facts.get("relative_path"), facts.get("offset"), facts.get("length")
        if type(name) is not str or type(offset) is not int or type(length) is not int or min(offset, length) < 0:
            raise Incomplete(f"{marker} is not what torch.distributed.checkpoint writes")
        if not is_single_name(name):
            raise Incomplete(f"{marker} names {shown(name[:200])!r}, which is no single name in this directory")
        ends[name] = max(ends.get(name, 0), offset + length)
    if not ends:
        raise Incomplete(f"{marker} names no shards")
    return dict(sorted(ends.items()))
