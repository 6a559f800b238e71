"""JAX with Orbax: `N/` or `prefix_N/`, renamed from `*.orbax-checkpoint-tmp*` when all is written (on a bucket:
marked by commit_success.txt instead). flax before that: one file `prefix_N`, renamed when written, with `prefix_N_gda/`
beside it where arrays lie on several hosts."""

import re
from collections.abc import Mapping
from functools import partial

from schemas.rules.checkpoints.candidate import Candidate, Found, directories
from schemas.rules.checkpoints.msgpack_end import require_msgpack
from schemas.rules.checkpoints.names import StepName, is_single_name, is_temporary, shown
from schemas.rules.checkpoints.view import Directory, Incomplete, Kind
from schemas.rules.checkpoints.whole_files import read_json, refuse_leftovers, require_file

_NAME = re.compile(r"(?:[^\W\d_](?:[^\W_]|[.-])*_)*(?P<number>[0-9]{1,18})\Z")
_SUCCESS, _METADATA = "commit_success.txt", "_CHECKPOINT_METADATA"
_MANIFEST, _ARRAYS = "manifest.ocdbt", "d"
_MANIFEST_MAGIC = bytes.fromhex("0cdb3a2a")
# Of older releases, in place of _METADATA.
_AGGREGATE = "checkpoint"
_GDA = "_gda"
_PROCESS = "ocdbt.process_"


def find_orbax(place: Directory) -> Found:
    names = place.names()
    files = {name: order for name, kind in names.items() if kind == "file" and (order := _order(name)) is not None}
    others = {name: kind for name, kind in names.items() if name not in files}
    found = directories(others, _order, lambda _, directory: _judge(directory))
    for name, order in files.items():
        found.candidates.append(Candidate(name, order, partial(_judge_file, name), in_directory=False))
    return found


def _judge_file(name: str, place: Directory) -> None:
    require_msgpack(place, name, require_file(place, name).size)
    arrays = name + _GDA
    if arrays in place.names():
        with place.open(arrays) as inner:
            if _SUCCESS not in inner.names():
                raise Incomplete(f"{shown(arrays)} has no {_SUCCESS}: the arrays of other hosts are not all written")


def _order(name: str) -> StepName | None:
    match = _NAME.match(name)
    if match is None or is_temporary(name):
        return None
    return StepName(int(match["number"]), int(match["number"]))


def _judge(directory: Directory) -> None:
    names = directory.names()
    refuse_leftovers(names)
    if _SUCCESS not in names and _METADATA not in names:
        raise Incomplete(f"has neither {_SUCCESS} nor {_METADATA}")
    items: list[str] = []
    if _METADATA in names:
        metadata = read_json(directory, _METADATA)
        if _SUCCESS not in names and metadata.get("commit_timestamp_nsecs", 0) is None:
            raise Incomplete(f"{_METADATA} has no time of commit: the save did not finish")
        handlers = metadata.get("item_handlers")
        items = sorted(item for item in handlers if is_single_name(item)) if isinstance(handlers, dict) else []
    for item in items:
        if item not in names:
            raise Incomplete(f"{shown(item)}, an item that {_METADATA} names, is missing")
    if _MANIFEST in names or _ARRAYS in names:
        # Without items of its own, as flax saves.
        _judge_item(directory, names)
        return
    for item, kind in sorted(names.items()):
        if kind == "directory":
            with directory.open(item) as inner:
                try:
                    _judge_item(inner, inner.names())
                except Incomplete as why:
                    raise Incomplete(f"{shown(item)}: {why}") from why


def _judge_item(item: Directory, names: Mapping[str, Kind]) -> None:
    """An item of arrays has a manifest, and its data below `d`; others are files of any kind."""
    refuse_leftovers(names)
    if not names:
        raise Incomplete("is empty")
    processes = sorted(name for name in names if name.startswith(_PROCESS))
    if _MANIFEST not in names and (processes or _ARRAYS in names):
        raise Incomplete(f"{_MANIFEST} is missing")
    _require_manifest(item, names)
    if "_METADATA" in names:
        read_json(item, "_METADATA")
    elif _MANIFEST in names and _AGGREGATE not in names:
        raise Incomplete(f"_METADATA, which tells what the arrays in {_MANIFEST} are, is missing")
    for place in (_ARRAYS, *processes):
        if names.get(place) == "directory":
            with item.open(place) as inner:
                _judge_arrays(inner, place)


def _judge_arrays(directory: Directory, above: str) -> None:
    names = directory.names()
    if names.get(_ARRAYS) == "directory" and _MANIFEST not in names:
        raise Incomplete(f"{above}/{_MANIFEST} is missing")
    _require_manifest(directory, names)
    for name, kind in names.items():
        if kind != "directory":
            require_file(directory, name)
        elif name == _ARRAYS:
            with directory.open(name) as inner:
                for data in inner.names():
                    require_file(inner, data)


def _require_manifest(directory: Directory, names: Mapping[str, Kind]) -> None:
    """It begins with its own length. What it says of the arrays is compressed, and not looked at."""
    if _MANIFEST not in names:
        return
    size = require_file(directory, _MANIFEST).size
    head = directory.read(_MANIFEST, 0, 12)
    if _MANIFEST_MAGIC.startswith(head[:4]) and size != (want := int.from_bytes(head[4:], "little")):
        raise Incomplete(f"{_MANIFEST} has {size} bytes, its beginning says {want}")
    if not head.strip(b"\0"):
        raise Incomplete(f"{_MANIFEST} holds nothing but zeros")
