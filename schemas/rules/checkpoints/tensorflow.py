"""TensorFlow: `ckpt-N.index` with its data files, renamed when written; Keras' one backup, overwritten in place."""

import re
from functools import partial

from schemas.rules.checkpoints.candidate import Candidate, Found
from schemas.rules.checkpoints.names import StepName, looks_unfinished, shown
from schemas.rules.checkpoints.tensor_bundle import INDEX_MAX, data_ends
from schemas.rules.checkpoints.view import Directory, Incomplete, Unreadable
from schemas.rules.checkpoints.whole_files import read_json, require_file, require_hdf5

TRACKER = "checkpoint"
_TRACKER_MAX = 64 << 10
_TRACKED = re.compile(r'model_checkpoint_path:\s*"([^"\n]{1,4096})"')
_PART = re.compile(r"(?P<stem>[^/]*-(?P<number>[0-9]{1,18})(?P<epoch>\.ckpt)?)\.(?:index|data-[0-9]{5}-of-[0-9]{5})\Z")
_KERAS_WEIGHTS, _KERAS_STATE, _KERAS_OLDER = "latest.weights.h5", "training_metadata.json", ".bkp"


def find_tensorflow(place: Directory) -> Found:
    names = place.names()
    found = Found()
    stems: dict[str, StepName] = {}
    for name, kind in names.items():
        if (match := _PART.match(name)) and kind in ("file", "link"):
            # `cp-0010.ckpt` is how Keras' ModelCheckpoint is told to call them: by epochs.
            number = int(match["number"])
            stems[match["stem"]] = StepName(number, None if match["epoch"] else number)
        elif looks_unfinished(name):
            found.rejected.append((name, "a temporary name: the save did not finish"))
    for stem, order in stems.items():
        found.candidates.append(Candidate(stem, order, partial(_judge, stem), in_directory=False))
    for age, end in enumerate(("", _KERAS_OLDER)):
        if _KERAS_WEIGHTS + end in names:
            # No step, and the older one only where the newer is not whole.
            order = StepName(-age, None)
            judge = partial(_judge_keras, _KERAS_WEIGHTS + end, _KERAS_STATE + end)
            found.candidates.append(Candidate(_KERAS_WEIGHTS + end, order, judge, in_directory=False))
    if names.get(TRACKER) == "file":
        _read_tracker(place, stems, found)
    return found


def _read_tracker(place: Directory, stems: dict[str, StepName], found: Found) -> None:
    """Which one is newest by TensorFlow's own record. It may be an absolute path of another container: shown, not
    followed; the files that are here decide."""
    try:
        text = place.read(TRACKER, 0, _TRACKER_MAX).decode("utf-8", "replace")
    except Unreadable as why:
        found.rejected.append((TRACKER, str(why)))
        return
    if (match := _TRACKED.search(text)) is None:
        found.notes.append(f"`{TRACKER}` is cut short or damaged: TensorFlow's latest_checkpoint() finds nothing by it")
        return
    found.tracker = shown(match[1][:200])
    if match[1] not in stems:
        found.notes.append(f"`{TRACKER}` names {found.tracker}, which is not here under that name")


def _judge(stem: str, place: Directory) -> None:
    index = f"{stem}.index"
    if index not in place.names():
        raise Incomplete(f"{shown(index)}, which is written after the data, is missing")
    size = require_file(place, index).size
    if size > INDEX_MAX:
        raise Incomplete(f"{shown(index)} has {size} bytes, more than the {INDEX_MAX} that are read")
    try:
        ends = data_ends(place.read(index, 0, INDEX_MAX))
    except Incomplete as why:
        raise Incomplete(f"{shown(index)}: {why}") from why
    for shard, end in enumerate(ends):
        name = f"{stem}.data-{shard:05}-of-{len(ends):05}"
        found = require_file(place, name)
        if found.size < end:
            raise Incomplete(f"{shown(name)} is cut short: {found.size} of {end} bytes")


def _judge_keras(weights: str, state: str, place: Directory) -> None:
    written = require_file(place, weights)
    require_hdf5(place, weights, written.size)
    if not isinstance(read_json(place, state).get("epoch"), int):
        raise Incomplete(f"{state} tells no epoch")
    if written.mtime_ns > require_file(place, state).mtime_ns:
        raise Incomplete(f"{weights} is newer than {state}: the backup was being written over")
