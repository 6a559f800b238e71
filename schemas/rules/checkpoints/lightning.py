"""Lightning's files, under whatever name the patterns of the user give them: `epoch=0-step=20.ckpt`, `last.ckpt`.

Each begins with its step, whatever it is called, so that `last.ckpt`, old after a restart, has its place among the
others. A name counts only where the file does not tell.
"""

import re
import struct
from collections.abc import Mapping
from functools import partial

from schemas.rules.checkpoints.candidate import Candidate, Found
from schemas.rules.checkpoints.names import StepName, lightning_step
from schemas.rules.checkpoints.view import Directory, Incomplete, Kind, Unreadable
from schemas.rules.checkpoints.whole_files import require_file, require_zip

END = ".ckpt"
# The pickle is the first thing in the zip, and the version and the step the first things in the pickle.
_HEAD = 4096
_STEP = re.compile(
    rb"[X\x8c]\x0b(?:\0\0\0)?global_step(?:q.|r.{4}|\x94)?(?:K(?P<one>.)|M(?P<two>..)|J(?P<four>.{4}))", re.DOTALL
)
_VERSION_KEY, _OPTIMIZER_KEY = b"pytorch-lightning_version", b"optimizer_states"
_PICKLE_MAX = 16 << 20
# Of more files in one directory only the names are looked at.
_HEADS_MAX = 1000
# Of two of one step: the one that has the step in its name.
_UNNAMED = -1


def lightning_files(place: Directory, names: Mapping[str, Kind], found: Found) -> None:
    """Adds the files of Lightning to what was found in the directory."""
    files = sorted(name for name, kind in names.items() if kind == "file" and name.endswith(END))
    for name in files:
        order = lightning_step(name)
        if len(files) <= _HEADS_MAX and (step := _step_inside(place, name)) is not None:
            order = StepName(step, step, _UNNAMED if order is None else order.version)
        if order is not None:
            found.candidates.append(Candidate(name, order, partial(_judge, name), in_directory=False))
        elif not name.startswith("last"):
            found.rejected.append((name, "neither its name (step=N) nor its beginning (global_step) tells a step"))


def _step_inside(place: Directory, name: str) -> int | None:
    try:
        match = _STEP.search(place.read(name, 0, _HEAD))
    except Unreadable:
        return None
    number = int.from_bytes(match["one"] or match["two"] or match["four"], "little") if match else -1
    return number if 0 <= number < 1 << 31 else None


def _judge(name: str, place: Directory) -> None:
    directory_at = require_zip(place, name, require_file(place, name).size, alone=True)
    if _VERSION_KEY not in place.read(name, 0, _HEAD):
        return
    first = place.read(name, directory_at, 24)
    length = struct.unpack_from("<I", first, 20)[0] if len(first) == 24 else 0
    if 0 < length <= _PICKLE_MAX and _OPTIMIZER_KEY not in place.read(name, 0, _HEAD + length):
        raise Incomplete("has no optimizer state: weights only (save_weights_only), nothing to resume")
