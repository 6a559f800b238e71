"""Whether single files are whole: by the end of a zip, the header of safetensors and HDF5, an index of shards. No
weights are read and nothing is unpickled."""

import json
import re
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from schemas.rules.checkpoints.names import is_silly_rename, is_single_name, is_temporary, may_be_temporary, shown, some
from schemas.rules.checkpoints.view import Directory, Incomplete, Kind, Stat

# A trainer_state.json with a line for each of 100,000 steps has some 20 MiB. Each pair of brackets costs memory.
JSON_MAX = 32 << 20
JSON_PARTS_MAX = 1_000_000
SAFETENSORS_HEADER_MAX = 32 << 20
# Between a save and the one over it lies at least a restart. Within this, the order may be that of a copy.
SAME_SAVE_NS = 2 * 10**9
_ZIP_FILE = b"PK\x03\x04"
_ZIP_ENTRY = b"PK\x01\x02"
_ZIP_END, _ZIP_END_BYTES = b"PK\x05\x06", 22
_ZIP64_LOCATOR, _ZIP64_LOCATOR_BYTES = b"PK\x06\x07", 20
_ZIP64_END = b"PK\x06\x06"
_ZIP_COMMENT_MAX = 65_535
_HDF5 = b"\x89HDF\r\n\x1a\n"
_PICKLE, _PICKLE_STOP = b"\x80", b"."
_ZIPPED = (".pt", ".pth", ".bin", ".ckpt", ".npz")
_PICKLED = (".pdparams", ".pdopt", ".pkl")
_DATA = (*_ZIPPED, *_PICKLED, ".safetensors", ".distcp", ".h5", ".json", ".msgpack", ".npy")
_NUMBERED = re.compile(r"(?P<stem>.+)-(?P<at>[0-9]{5})-of-(?P<of>[0-9]{5})(?P<end>\.[a-z.]+)\Z")


def require_file(directory: Directory, name: str) -> Stat:
    """Raises Incomplete: missing, empty, a link, no regular file."""
    found = directory.stat(name)
    if found.kind != "file":
        said = "a symbolic link, which can lead outside the volume" if found.kind == "link" else f"a {found.kind}"
        raise Incomplete(f"{shown(name)} is {said}, no regular file")
    if found.size == 0:
        raise Incomplete(f"{shown(name)} is empty")
    return found


def refuse_leftovers(names: Mapping[str, Kind]) -> None:
    """Raises Incomplete over temporary files and links among the names of a checkpoint."""
    if "link" not in names.values() and not may_be_temporary(names):
        return
    for name in sorted(names):
        if is_silly_rename(name):
            continue
        if is_temporary(name):
            raise Incomplete(f"{shown(name)} in it is a temporary file: the save did not finish")
        if names[name] == "link":
            raise Incomplete(
                f"{shown(name)} in it is a symbolic link, which can lead outside the volume: links are not followed"
            )


def require_whole(directory: Directory, names: Iterable[str]) -> None:
    """Raises Incomplete over the first data file that is empty or cut short, as far as its kind can tell."""
    for name in sorted(names):
        if not name.endswith(_DATA) or is_silly_rename(name):
            continue
        size = require_file(directory, name).size
        if name.endswith(".safetensors"):
            _require_safetensors(directory, name, size)
        elif name.endswith(_ZIPPED):
            require_zip(directory, name, size, alone=False)
        elif name.endswith(_PICKLED):
            _require_pickle_end(directory, name, size)
        elif name.endswith(".json"):
            _require_json_end(directory, name)
        elif name.endswith(".h5"):
            require_hdf5(directory, name, size)


def require_zip(directory: Directory, name: str, size: int, alone: bool) -> int:
    """Where the directory of the zip lies, which is written last. alone: a file of another format cannot be judged, so
    it is refused; beside other evidence it is let pass (0) unless it begins with zeros, a hole of a crash, or ends
    within what tells its format."""
    head = directory.read(name, 0, 4)
    if len(head) < len(_ZIP_FILE) and (_ZIP_FILE.startswith(head) or head.startswith(_PICKLE)):
        raise Incomplete(f"{shown(name)} is cut short: it has {size} bytes")
    if head != _ZIP_FILE:
        if alone or not head.strip(b"\0"):
            raise Incomplete(f"{shown(name)} does not begin like a file of torch.save or numpy: it may be half written")
        return 0
    tail = directory.read(name, -(_ZIP_END_BYTES + _ZIP64_LOCATOR_BYTES), _ZIP_END_BYTES + _ZIP64_LOCATOR_BYTES)
    at = len(tail) - _ZIP_END_BYTES
    if tail[at : at + 4] != _ZIP_END:
        tail = directory.read(name, -(_ZIP_COMMENT_MAX + 64), _ZIP_COMMENT_MAX + 64)
        at = tail.rfind(_ZIP_END)
    if at < 0 or len(tail) - at < _ZIP_END_BYTES:
        raise Incomplete(f"{shown(name)} is cut short: the directory at the end of the zip is missing")
    entries, length, start = struct.unpack_from("<HII", tail, at + 10)
    end = size - len(tail) + at
    locator = at - _ZIP64_LOCATOR_BYTES
    if locator >= 0 and tail[locator : locator + 4] == _ZIP64_LOCATOR:
        (end,) = struct.unpack_from("<Q", tail, locator + 8)
        record = directory.read(name, min(end, size), 56)
        if len(record) < 56 or record[:4] != _ZIP64_END:
            raise Incomplete(f"{shown(name)} is damaged: the end of the zip does not fit the file")
        entries, length, start = struct.unpack_from("<QQQ", record, 32)
    if start + length != end or (entries and directory.read(name, start, 4) != _ZIP_ENTRY):
        raise Incomplete(f"{shown(name)} is damaged: the directory of the zip does not lie where its end says")
    return int(start)


def _require_safetensors(directory: Directory, name: str, size: int) -> None:
    head = directory.read(name, 0, 8)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or not 2 <= length <= min(SAFETENSORS_HEADER_MAX, size - 8):
        raise Incomplete(f"{shown(name)} has no header of safetensors")
    header = _object(directory.read(name, 8, length), name)
    ends = [0]
    for key, tensor in header.items():
        if key == "__metadata__":
            continue
        offsets = tensor.get("data_offsets") if isinstance(tensor, dict) else None
        if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(offset) is int for offset in offsets)):
            raise Incomplete(f"{shown(name)} has no header of safetensors")
        ends.append(offsets[1])
    if size != (want := 8 + length + max(ends)):
        raise Incomplete(f"{shown(name)} has {size} bytes, its header says {want}")


def require_hdf5(directory: Directory, name: str, size: int) -> None:
    """The superblock says where the file ends."""
    head = directory.read(name, 0, 64)
    if len(head) < 64 or head[:8] != _HDF5:
        raise Incomplete(f"{shown(name)} does not begin like an HDF5 file")
    version = head[8]
    place = {0: 40, 1: 44, 2: 28, 3: 28}.get(version)
    if place is None or head[13 if version < 2 else 9] != 8:
        return
    if size < (want := int.from_bytes(head[place : place + 8], "little")):
        raise Incomplete(f"{shown(name)} is cut short: {size} of {want} bytes")


def _require_pickle_end(directory: Directory, name: str, size: int) -> None:
    """Or that of a zip, which torch.save makes whatever the name."""
    head = directory.read(name, 0, 4)
    if _ZIP_FILE.startswith(head) or not head.strip(b"\0"):
        require_zip(directory, name, size, alone=False)
    elif head[:1] == _PICKLE and directory.read(name, -1, 1) != _PICKLE_STOP:
        raise Incomplete(f"{shown(name)} is cut short: it does not end like a pickle")


def _require_json_end(directory: Directory, name: str) -> None:
    """Of a configuration or a tokenizer, which may be large."""
    opens, ends = directory.read(name, 0, 1), directory.read(name, -64, 64).rstrip()[-1:]
    if opens == b"\0" or {b"{": b"}", b"[": b"]"}.get(opens, ends) != ends:
        raise Incomplete(f"{shown(name)} is no whole JSON: it is cut short or damaged")


def read_json(directory: Directory, name: str) -> dict[str, Any]:
    """Raises Incomplete: missing, empty, too large, no JSON object."""
    size = require_file(directory, name).size
    if size > JSON_MAX:
        raise Incomplete(f"{shown(name)} has {size} bytes, more than the {JSON_MAX} that are read")
    return _object(directory.read(name, 0, JSON_MAX), name)


def _object(data: bytes, name: str) -> dict[str, Any]:
    if data.count(b"[") + data.count(b"{") > JSON_PARTS_MAX:
        raise Incomplete(f"{shown(name)} has more than {JSON_PARTS_MAX} lists and objects")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Incomplete(f"{shown(name)} is no whole JSON: it is cut short or damaged") from error
    if not isinstance(value, dict):
        raise Incomplete(f"{shown(name)} is no JSON object")
    return value


def require_shards(directory: Directory, names: Mapping[str, Kind]) -> bool:
    """Every file that an index or a name `-00001-of-00003` speaks of is there; True if there was such an index or
    name. That they are whole is `require_whole`."""
    wanted: set[str] = set()
    for name in sorted(names):
        if name.endswith(".index.json"):
            weights = read_json(directory, name).get("weight_map")
            files = set(weights.values()) if isinstance(weights, dict) and _texts(weights) else set()
            if not files or not all(is_single_name(file) for file in files):
                raise Incomplete(f"{shown(name)} has no map of weights to files of this directory")
            wanted |= files
        elif match := _NUMBERED.match(name):
            stem, of, end = match["stem"], int(match["of"]), match["end"]
            # A name is no reason to believe in 99,999 files; more than a directory has are missing anyhow.
            wanted |= {f"{stem}-{at:05}-of-{of:05}{end}" for at in range(1, min(of, len(names) + 1) + 1)}
    empty = sorted(name for name in wanted if name in names and directory.stat(name).size == 0)
    missing = sorted(name for name in wanted if name not in names)
    if missing or empty:
        parts = [f"{some(missing)} missing"] if missing else []
        parts += [f"{some(empty)} empty"] if empty else []
        raise Incomplete("of the numbered files, " + " and ".join(parts))
    return bool(wanted)


def _texts(table: dict[str, Any]) -> bool:
    return all(isinstance(value, str) for value in table.values())
