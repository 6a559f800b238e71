"""Paddle: `step_N/` with `*.pdparams` and `*.pdopt`; its distributed checkpoint; PaddleNLP's trainer.

The distributed one writes its metadata *before* the shards: the metadata tells which shards there must be, not that
they are written. They are pickles, so their last byte tells that.
"""

import re
from collections.abc import Mapping

from schemas.rules.checkpoints.candidate import Found, directories, require_contiguous
from schemas.rules.checkpoints.inert_pickle import BYTES_MAX, Node, NoPickle, read_facts
from schemas.rules.checkpoints.marked import MARKER, note_loose
from schemas.rules.checkpoints.names import StepName, is_single_name, shown, some, step_of
from schemas.rules.checkpoints.trainer import PADDLE_DONE, is_trainer, judge_trainer
from schemas.rules.checkpoints.view import Directory, Incomplete, Kind
from schemas.rules.checkpoints.whole_files import refuse_leftovers, require_file, require_shards, require_whole

_METADATA = re.compile(r"[0-9]+\.metadata\Z")
_SHARD = re.compile(r"([0-9]+)_([0-9]+)\.distcp\Z")


def find_paddle(place: Directory) -> Found:
    found = directories(place.names(), _order, _judge)
    note_loose(place.names(), found)
    return found


def _order(name: str) -> StepName | None:
    order = step_of(name)
    # Of two of one step the plain one has the better evidence.
    return StepName(order.number, order.step, -1) if order is not None and name.startswith("dist_") else order


def _judge(name: str, directory: Directory) -> None:
    names = directory.names()
    refuse_leftovers(names)
    if any(_METADATA.match(inner) or _SHARD.match(inner) for inner in names):
        _judge_distributed(directory, names)
    elif PADDLE_DONE in names:
        require_shards(directory, names)
        _require_pair(names)
        require_whole(directory, names)
    elif is_trainer(name, names):
        judge_trainer(name, directory)
    else:
        _require_pair(names)
        require_whole(directory, names)


def _require_pair(names: Mapping[str, Kind]) -> None:
    for what, ends in (("parameters", (".pdparams", ".safetensors")), ("optimizer state", (".pdopt", ".safetensors"))):
        if not any(name.endswith(ends) for name in names):
            raise Incomplete(f"has no {what} (*{ends[0]})")


def _judge_distributed(directory: Directory, names: Mapping[str, Kind]) -> None:
    listed = sorted(name for name in names if _METADATA.match(name))
    if not listed:
        raise Incomplete("0.metadata, which names the shards, is missing")
    wanted: set[str] = set()
    for name in listed:
        size = require_file(directory, name).size
        if size > BYTES_MAX:
            raise Incomplete(f"{name} has {size} bytes, more than the {BYTES_MAX} that are read")
        try:
            storage = read_facts(directory.read(name, 0, BYTES_MAX)).fields.get("storage_metadata")
        except NoPickle as error:
            raise Incomplete(f"{name} cannot be read: {error}") from error
        files = storage.values if isinstance(storage, Node) else []
        if not files or not all(type(file) is str and is_single_name(file) for file in files):
            raise Incomplete(f"{name} does not name shards of this directory")
        wanted.update(files)
    if missing := sorted(wanted - set(names)):
        raise Incomplete(f"{some(missing)} missing")
    shards = sorted(wanted | {name for name in names if _SHARD.match(name)})
    require_contiguous((int(match[1]) for name in shards if (match := _SHARD.match(name))), "the shard of rank {}")
    for name in shards:
        require_file(directory, name)
        if directory.read(name, 0, 1) == b"\x80" and directory.read(name, -1, 1) != b".":
            raise Incomplete(f"{shown(name)} is cut short: it does not end like a pickle")
        if MARKER in names and directory.stat(name).mtime_ns > directory.stat(MARKER).mtime_ns:
            raise Incomplete(f"{shown(name)} is newer than {MARKER}: a save over an older one did not finish")
