"""Checkpoints that a script makes by its own hand: it has to say when they are finished.

By `.complete` in the directory, made last; or by a directory `step-N` that gets this name by rename when all is
written, as the trainers in `scripts/examples` do. One loose file tells nothing about the other ranks: it counts only
with `NAME.complete` beside it.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial

from schemas.rules.checkpoints.candidate import Candidate, Found
from schemas.rules.checkpoints.dcp import is_dcp, judge_dcp
from schemas.rules.checkpoints.names import CONTAINERS, StepName, is_temporary, shown, some, step_of
from schemas.rules.checkpoints.view import Directory, Incomplete, Kind
from schemas.rules.checkpoints.whole_files import (
    read_json,
    refuse_leftovers,
    require_file,
    require_shards,
    require_whole,
    require_zip,
)

MARKER = ".complete"
META = "meta.json"
_DEPTH_MAX = 3
# Empty files by which scripts tell that something is done.
_SIGN = re.compile(r"[._]*(?:success|done|completed?|finished|ready|(?:git)?keep)\Z|\.nfs", re.IGNORECASE)
_RENAMED = re.compile(r"step-[0-9]{1,18}\Z")
_LOOSE = re.compile(r"(?P<stem>.*[0-9]{1,18})\.(?:pt|pth|pth\.tar|bin|safetensors|npz|pkl|ckpt)\Z")
_UNNUMBERED = re.compile(r"(?!rng|optimizer|scheduler|training_args)[^.].*\.(?:pt|pth|tar|npz|pkl|pdparams)\Z")


def is_marked(name: str, names: Mapping[str, Kind]) -> bool:
    """`names`: of a directory that is of no framework's layout."""
    return MARKER in names or META in names or _RENAMED.match(name) is not None


def judge_marked(name: str, directory: Directory) -> None:
    """Raises Incomplete."""
    names = directory.names()
    data = [inner for inner in names if inner not in (MARKER, META)]
    if not data:
        raise Incomplete("holds nothing but its marker")
    if META in names:
        meta, order = read_json(directory, META), step_of(name)
        if order is None or order.number != meta.get("step"):
            raise Incomplete(f"{META} is of step {str(meta.get('step'))[:40]}, which is not that of the name")
    require_shards(directory, names)
    require_whole(directory, names)
    for inner in data:
        if names[inner] == "file" and not _SIGN.match(inner):
            require_file(directory, inner)
    marked_ns = directory.stat(MARKER).mtime_ns if MARKER in names else None
    for path, written_ns in _written(directory, ""):
        if marked_ns is not None and written_ns > marked_ns:
            raise Incomplete(f"{shown(path)} is newer than {MARKER}: a save over an older one did not finish")


def _written(directory: Directory, above: str) -> Iterator[tuple[str, int]]:
    """(path, time of writing in ns) of each file. What lies in a directory below is judged by what it is: a name that
    is right says nothing about a distributed checkpoint in it. Raises Incomplete."""
    for name, kind in sorted(directory.names().items()):
        path = f"{above}/{name}" if above else name
        if kind == "file":
            yield path, directory.stat(name).mtime_ns
        elif kind == "directory" and path.count("/") < _DEPTH_MAX:
            with directory.open(name) as inner:
                try:
                    refuse_leftovers(inner.names())
                    if is_dcp(inner.names()):
                        judge_dcp(inner)
                    else:
                        require_shards(inner, inner.names())
                        require_whole(inner, inner.names())
                except Incomplete as why:
                    raise Incomplete(f"{shown(path)}: {why}") from why
                yield from _written(inner, path)


def loose_step(name: str) -> StepName | None:
    """Of a file that is a checkpoint by itself, once `NAME.complete` lies beside it."""
    match = _LOOSE.match(name)
    return step_of(match["stem"]) if match and not is_temporary(name) and not name.endswith(".ckpt") else None


def loose_files(names: Mapping[str, Kind], found: Found) -> None:
    """Adds the loose files of one directory to what was found there."""
    for name, kind in names.items():
        order = loose_step(name) if kind == "file" else None
        if order is None:
            continue
        if name + MARKER in names:
            found.candidates.append(Candidate(name, order, partial(_judge_loose, name), in_directory=False))
        else:
            said = "a loose file cannot tell that all ranks have saved: save into a directory by rename, or make "
            found.rejected.append((name, f"{said}{shown(name + MARKER)} when all have"))
    note_loose(names, found)


def note_loose(names: Mapping[str, Kind], found: Found) -> None:
    """Where nothing else is here: that what looks like a checkpoint to people is none."""
    if found.candidates or found.rejected or any(name in CONTAINERS or step_of(name) for name in names):
        return
    if loose := [name for name, kind in names.items() if kind == "file" and _UNNUMBERED.match(name)]:
        found.notes.append(
            f"{some(loose)}: nothing tells the step of a loose file, nor that it is whole; save into a directory with "
            f"the step in its name, and make {MARKER} in it when all ranks have"
        )


def _judge_loose(name: str, place: Directory) -> None:
    found = require_file(place, name)
    if name.endswith((".safetensors", ".pkl")):
        require_whole(place, [name])
    else:
        require_zip(place, name, found.size, alone=True)
    if place.stat(name + MARKER).mtime_ns < found.mtime_ns:
        raise Incomplete(f"is newer than {shown(name + MARKER)}: a save over an older one did not finish")
