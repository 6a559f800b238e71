"""What a layout finds in one directory, and how one find is judged."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from schemas.rules.checkpoints.names import StepName, is_silly_rename, is_single_name, looks_unfinished, shown
from schemas.rules.checkpoints.view import Directory, Incomplete, Kind, Unreadable

TRACKER_MAX = 4096
_TRACKER_SHOWN = 200
# Written by each rank for itself. On a disk that lacks one, a rank was killed, or the disk is not shared.
_OF_A_RANK = re.compile(
    r"rng_state_[0-9]+\.pth|random_states_[0-9]+\.pkl|(?:.*_)?mp_rank_[0-9]+.*|layer_[0-9]+-model_.*|[0-9]+_[0-9]+\.distcp"
    r"|__[0-9]+\.metadata"
)
_WRITER = re.compile(
    r"(?:(?:bf16_)?zero_pp_rank_(?P<dp>[0-9]+_mp_rank_[0-9]+)_optim_states\.pt|rng_state_(?P<rng>[0-9]+)\.pth"
    r"|random_states_(?P<random>[0-9]+)\.pkl|(?P<paddle>[0-9]+)_[0-9]+\.distcp|__(?P<dcp>[0-9]+)\.metadata)\Z"
)
# In every save of one run, but not by rank: what comes last, or a further model, is what a kill leaves out.
_OF_EACH_SAVE = re.compile(
    r"(?:(?:scheduler|scaler|sampler|custom_checkpoint|dl_state_dict)(?:_[0-9]+)?|(?:optimizer|model)_[0-9]+)"
    r"\.(?:pt|bin|pkl|safetensors)\Z"
)


Lacks = Callable[[Iterable[str], Iterable[str]], frozenset[str]]


def rank_files(names: Iterable[str]) -> frozenset[str]:
    """Those that each rank writes for itself."""
    return frozenset(name for name in names if _OF_A_RANK.match(name))


def lacks_parts(names: Iterable[str], before: Iterable[str]) -> frozenset[str]:
    """Files of ranks, and others that each save has."""
    had = frozenset(name for name in before if _OF_A_RANK.match(name) or _OF_EACH_SAVE.match(name))
    return had.difference(names)


@dataclass(frozen=True, slots=True)
class Candidate:
    """name: of a directory, a file, or the stem that a framework names in its place. judge: of the directory that holds
    it; raises Incomplete. in_directory: whether `name` is a directory. lacks: what is missing among the names in
    it, seen beside those in the one before it."""

    name: str
    order: StepName
    judge: Callable[[Directory], None]
    in_directory: bool = True
    lacks: Lacks = lacks_parts


@dataclass(slots=True)
class Found:
    """tracker: what the framework's own record says. notes: what an operator should know, though it rejects nothing."""

    candidates: list[Candidate] = field(default_factory=list)
    rejected: list[tuple[str, str]] = field(default_factory=list)
    tracker: str | None = None
    notes: list[str] = field(default_factory=list)


def directories(
    names: Mapping[str, Kind],
    order_of: Callable[[str], StepName | None],
    judge: Callable[[str, Directory], None],
    lacks: Lacks = lacks_parts,
) -> Found:
    """Candidates among the directories; what only looks like one is rejected with its reason. `judge(name, opened)`."""
    found = Found()
    for name, kind in names.items():
        order = order_of(name)
        if order is None:
            if looks_unfinished(name) and not is_silly_rename(name):
                found.rejected.append((name, "a temporary name: the save did not finish"))
        elif kind == "directory":
            found.candidates.append(Candidate(name, order, _opened(name, judge), lacks=lacks))
        elif kind == "link":
            said = "is a symbolic link, which can lead outside the volume: links are not followed"
            found.rejected.append((name, said))
        else:
            said = "is a file" if kind == "file" else "is a pipe, socket or device"
            found.rejected.append((name, f"{said}, where a directory belongs"))
    return found


def _opened(name: str, judge: Callable[[str, Directory], None]) -> Callable[[Directory], None]:
    def judge_it(place: Directory) -> None:
        with place.open(name) as directory:
            names = directory.names()
            if directory.cut:
                raise Incomplete(f"holds more than {len(names)} names")
            if not names:
                raise Incomplete("is empty")
            judge(name, directory)

    return judge_it


def writers(names: Iterable[str]) -> int | None:
    """How many ranks wrote parts, where each kind of part has one for every rank; None where none is by rank."""
    kinds: dict[str, set[str]] = {}
    for name in names:
        if match := _WRITER.match(name):
            kind = str(match.lastgroup)
            kinds.setdefault(kind, set()).add(match[kind])
    return min((len(ranks) for ranks in kinds.values()), default=None)


def require_contiguous(numbers: Iterable[int], what: str) -> None:
    """0, 1, 2, ... without a gap. `what` is the name with `{}` for the number."""
    have = sorted({*numbers})
    for wanted, number in enumerate(have):
        if number != wanted:
            raise Incomplete(f"{what.format(wanted)} is missing")


def read_tracker(place: Directory, name: str, found: Found) -> str | None:
    """The one line of a tracker, also in `found.tracker`; None where there is none or it cannot be used, which then is
    in `found.rejected`. Anyone who can write the directory can write anything into it."""
    try:
        data = place.read(name, 0, TRACKER_MAX + 1)
    except Unreadable as why:
        if name in place.names():
            found.rejected.append((name, str(why)))
        return None
    text = data[:TRACKER_MAX].decode("utf-8", "backslashreplace").strip()
    found.tracker = shown(text[:_TRACKER_SHOWN])
    if len(data) > TRACKER_MAX or not text:
        found.rejected.append((name, "is empty" if not text else f"has more than {TRACKER_MAX} bytes"))
        return None
    if not is_single_name(text):
        said = f"names {found.tracker!r}, which is no single name in this directory: it is not followed"
        found.rejected.append((name, said))
        return None
    return text
