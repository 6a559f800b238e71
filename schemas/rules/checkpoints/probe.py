"""The newest complete checkpoint of a directory, by the rules of one framework."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from schemas.rules.checkpoints.candidate import Candidate, Found, rank_files, writers
from schemas.rules.checkpoints.deepspeed import find_deepspeed
from schemas.rules.checkpoints.manifest import world_of
from schemas.rules.checkpoints.megatron import find_megatron
from schemas.rules.checkpoints.names import (
    CONTAINERS,
    LIGHTNING_EPOCH,
    LIGHTNING_LOGS,
    LIGHTNING_VERSION,
    is_single_name,
    looks_unfinished,
    shown,
    some,
)
from schemas.rules.checkpoints.orbax import find_orbax
from schemas.rules.checkpoints.paddle import find_paddle
from schemas.rules.checkpoints.tensorflow import find_tensorflow
from schemas.rules.checkpoints.torch_layouts import find_torch
from schemas.rules.checkpoints.view import Directory, Incomplete, Unknown, Unreadable, opened
from schemas.rules.checkpoints.whole_files import require_file, require_whole

Finder = Callable[[Directory], Found]

FRAMEWORKS: Mapping[str, tuple[Finder, ...]] = {
    "ddp": (find_torch,),
    "fsdp": (find_torch,),
    "deepspeed": (find_deepspeed, partial(find_torch, deepspeed=True)),
    "megatron": (find_megatron,),
    "tensorflow": (find_tensorflow,),
    "paddle": (find_paddle,),
    "jax": (find_orbax,),
}
# Judging one costs up to some milliseconds; a directory with more of them is not somebody's checkpoints.
JUDGED_MAX = 10_000
_LOOKED_BACK = 8
_VERSIONS_MAX = 100
_NUMBERS = re.compile(r"[0-9]+")
# The pick goes into an environment, commands and terminals.
_UNTOLD = "has a name that no rank can be told (control characters, a backslash, bytes that are no UTF-8): rename it"


@dataclass(slots=True)
class Probe:
    """pick: path below the probed directory, None where nothing is complete; step: None where its number counts no
    steps; rejected: (name, reason), those that their names alone reject first, then the others, newest first; tracker:
    what the framework's own record says; reason: for people."""

    pick: str | None = None
    step: int | None = None
    rejected: list[tuple[str, str]] = field(default_factory=list)
    tracker: str | None = None
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "pick": self.pick,
            "step": self.step,
            "rejected": [list(item) for item in self.rejected],
            "tracker": self.tracker,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class _Placed:
    """A candidate, and the directory below the root that holds it ("" for the root itself)."""

    place: str
    candidate: Candidate

    @property
    def path(self) -> str:
        return f"{self.place}/{self.candidate.name}" if self.place else self.candidate.name


def probe(root: Directory, framework: str, world: int | None = None) -> Probe:
    """world: how many processes wrote, where the caller knows; else the platform's manifest in the directory tells it,
    or nothing does. Never raises for what is in the directory."""
    result = Probe()
    try:
        _probe(root, framework, world, result)
    except Incomplete as why:
        result.reason = f"the directory {why}; training starts from zero"
    result.rejected = [(shown(name), shown(why)) for name, why in result.rejected]
    return result


@dataclass(frozen=True, slots=True)
class Verdict:
    """path: below the root; tracker: what the framework's own record says, the same in all; why: what is wrong with it,
    None where it is complete."""

    path: str
    candidate: Candidate
    tracker: str | None
    why: str | None


def verdicts(root: Directory, framework: str, world: int | None = None) -> Iterator[Verdict]:
    """Of every candidate, newest first, each judged as it is asked for. Raises Incomplete where `root` cannot be
    listed."""
    found = Probe()
    placed = _collect(root, framework, found, [])
    for at, item in enumerate(placed[:JUDGED_MAX]):
        try:
            _judge(root, placed, at, world)
        except Incomplete as why:
            yield Verdict(item.path, item.candidate, found.tracker, str(why))
        else:
            yield Verdict(item.path, item.candidate, found.tracker, None)


def require_complete(root: Directory, framework: str | None, name: str) -> int | None:
    """The step of one entry of `root`, whatever is newer. framework: None where what lies beside it is not to be asked.
    Raises Incomplete; Unknown where it is of no layout of the framework and nothing is seen to be wrong with it."""
    for item in _collect(root, framework, Probe(), []) if framework is not None else ():
        if item.path == name:
            # Alone: that the one before it has more is a guess, and who named it may know of a smaller world.
            _judge(root, [item], 0, None)
            return item.candidate.order.step
    if looks_unfinished(name):
        raise Incomplete("has a temporary name: the save did not finish")
    if f"{name}.index" in root.names():
        pass  # a stem of TensorFlow's without a number
    elif root.stat(name).kind == "directory":
        with root.open(name) as directory:
            if not directory.names():
                raise Incomplete("is empty")
    else:
        require_file(root, name)
        require_whole(root, [name])
    raise Unknown("is of no layout that is known here")


def _collect(root: Directory, framework: str, result: Probe, notes: list[str]) -> list[_Placed]:
    """Newest first."""
    placed: list[_Placed] = []
    for place in _places(root, notes):
        _find(root, place, framework, placed, result, notes)
    placed.sort(key=lambda item: (item.candidate.order.newer, item.path), reverse=True)
    return placed


def _places(root: Directory, notes: list[str]) -> list[str]:
    """Where candidates may lie: here, one level down, and where Lightning puts them: that was told no directory, or one
    for each epoch."""
    names = root.names()
    places = ["", *(name for name in CONTAINERS if names.get(name) == "directory")]
    if names.get(LIGHTNING_LOGS) == "directory":
        try:
            with root.open(LIGHTNING_LOGS) as logs:
                for version in _newest(logs, LIGHTNING_VERSION):
                    with logs.open(version) as inner:
                        if inner.names().get("checkpoints") == "directory":
                            places.append(f"{LIGHTNING_LOGS}/{version}/checkpoints")
        except Unreadable as why:
            notes.append(f"{LIGHTNING_LOGS}: {why}")
    return [*places, *(epoch for place in places for epoch in _epochs(root, place))]


def _newest(place: Directory, pattern: "re.Pattern[str]") -> list[str]:
    """The directories of one pattern, those with the highest numbers first."""
    names = [name for name, kind in place.names().items() if kind == "directory" and pattern.match(name)]
    return sorted(names, key=lambda name: (len(name), name), reverse=True)[:_VERSIONS_MAX]


def _epochs(root: Directory, place: str) -> list[str]:
    try:
        with opened(root, place) as directory:
            below = f"{place}/" if place else ""
            return [below + name for name in _newest(directory, LIGHTNING_EPOCH)]
    except Unreadable:
        return []


def _probe(root: Directory, framework: str, world: int | None, result: Probe) -> None:
    notes: list[str] = []
    placed = _collect(root, framework, result, notes)
    for at, item in enumerate(placed[:JUDGED_MAX]):
        try:
            _judge(root, placed, at, world)
        except Incomplete as why:
            result.rejected.append((item.path, str(why)))
            continue
        result.pick, result.step = item.path, item.candidate.order.step
        notes += _written_later(root, item, placed[at + 1 : at + 1 + _LOOKED_BACK])
        break
    result.reason = _reason(result, len(placed), notes)


def _find(root: Directory, place: str, framework: str, placed: list[_Placed], result: Probe, notes: list[str]) -> None:
    known = {item.path for item in placed}
    for finder in FRAMEWORKS[framework]:
        try:
            found = _in_place(root, place, finder)
        except Unreadable as why:
            notes.append(f"{place or 'the directory'}: {why}")
            continue
        for candidate in found.candidates:
            if not is_single_name(candidate.name):
                found.rejected.append((candidate.name, _UNTOLD))
            elif (item := _Placed(place, candidate)).path not in known:
                known.add(item.path)
                placed.append(item)
        below = f"{place}/" if place else ""
        told = frozenset(result.rejected)
        said = ((below + name, why) for name, why in found.rejected)
        result.rejected += [item for item in said if item not in told]
        result.tracker = result.tracker or found.tracker
        notes += found.notes


def _in_place(root: Directory, place: str, finder: Finder) -> Found:
    with opened(root, place) as directory:
        found, cut = finder(directory), directory.cut
    if cut:
        found.notes.append(f"{place or 'the directory'} holds more names than are looked at: a newer one may be missed")
    return found


def _judge(root: Directory, placed: list[_Placed], at: int, world: int | None) -> None:
    """Raises Incomplete."""
    item = placed[at]
    with opened(root, item.place) as place:
        item.candidate.judge(place)
        if not item.candidate.in_directory:
            return
        with place.open(item.candidate.name) as directory:
            names = directory.names()
            count = writers(names)
            wanted = world if world is not None else world_of(root, directory)
    if count is not None and wanted is not None and count != wanted:
        raise Incomplete(f"holds the parts of {count} ranks, {wanted} wrote it")
    before = _before(root, placed, at)
    if before is None:
        return
    # What nobody wrote down is as it was in the checkpoint before.
    try:
        with opened(root, before.path) as directory:
            missing = item.candidate.lacks(names, directory.names())
    except Unreadable:
        return
    if wanted == (count or 1):
        missing -= rank_files(missing)
    if missing:
        raise Incomplete(
            f"{some(missing)} missing, which {shown(before.path)} before it has: a save did not finish (or the world "
            "became smaller, or the script saves less than it did)"
        )


def _before(root: Directory, placed: list[_Placed], at: int) -> _Placed | None:
    """The next older one of the same series that has its own evidence: what a kill left tells nothing of the others."""
    mine = placed[at]
    series = _NUMBERS.sub("#", mine.path)
    for item in placed[at + 1 : at + 1 + _LOOKED_BACK]:
        if _lower(item, mine) and _NUMBERS.sub("#", item.path) == series:
            try:
                with opened(root, item.place) as place:
                    item.candidate.judge(place)
            except Incomplete:
                continue
            return item
    return None


def _written_later(root: Directory, pick: _Placed, older: list[_Placed]) -> list[str]:
    """A reused directory: what is older by number was written after the pick."""
    if pick.place or not pick.candidate.in_directory:
        return []
    try:
        mine = root.stat(pick.candidate.name).mtime_ns
        for item in older:
            if not item.place and item.candidate.in_directory and _lower(item, pick):
                if root.stat(item.candidate.name).mtime_ns <= mine:
                    continue
                item.candidate.judge(root)
                return [f"{shown(item.path)} has a lower number but was written later: is the directory one run's?"]
    except Incomplete:
        pass
    return []


def _lower(item: _Placed, than: _Placed) -> bool:
    return item.candidate.order.number < than.candidate.order.number


def _reason(result: Probe, candidates: int, notes: list[str]) -> str:
    if result.pick is not None:
        newer = len(result.rejected)
        said = f"{shown(result.pick)} is the newest complete one of {candidates}"
        said += f"; {newer} rejected" if newer else ""
    elif candidates:
        said = f"none of {candidates} is complete; training starts from zero"
    elif result.rejected:
        said = "nothing here can be resumed from; training starts from zero"
    else:
        said = "there is no checkpoint here; training starts from zero"
    return "; ".join([said, *(shown(note) for note in notes)])
