"""Megatron-LM: `iter_0000020/`, and the tracker `latest_checkpointed_iteration.txt`, written last of all.

torch_dist holds a distributed checkpoint and `metadata.json`, written after it. The older format has a directory for
each model-parallel rank and no evidence of its own but the tracker, which is written after a barrier. NeMo has names
with `step=N`, no tracker, and beside each a file `NAME-unfinished` until it is written.
"""

import re
from collections.abc import Callable, Mapping
from itertools import product

from schemas.rules.checkpoints.candidate import Candidate, Found, directories, read_tracker
from schemas.rules.checkpoints.dcp import is_dcp, judge_dcp
from schemas.rules.checkpoints.names import StepName, shown
from schemas.rules.checkpoints.view import Directory, Incomplete, Kind
from schemas.rules.checkpoints.whole_files import SAME_SAVE_NS, read_json, refuse_leftovers, require_file, require_whole

TRACKER = "latest_checkpointed_iteration.txt"
_ITERATION = re.compile(r"iter_(?P<number>[0-9]{1,18})\Z")
_NEMO = re.compile(r"[^\W_][^/]*[-_]step=(?P<number>[0-9]{1,18})(?:-[^/]*)?\Z")
_NEMO_UNFINISHED, _NEMO_WEIGHTS = "-unfinished", "weights"
_RANK = re.compile(r"mp_rank_([0-9]+)(?:_([0-9]+))?(?:_([0-9]+))?\Z")
_WEIGHTS_ONLY = "release"


def find_megatron(place: Directory) -> Found:
    names = place.names()
    found = directories(names, _order, lambda _, directory: _judge(directory))
    gone = False
    text = read_tracker(place, TRACKER, found) if TRACKER in names else None
    if text == _WEIGHTS_ONLY:
        said = "holds weights only, without optimizer and iteration: there is nothing to resume"
        found.rejected.append((_WEIGHTS_ONLY, said))
        tracked = 0
    elif text is not None and text.isascii() and text.isdigit() and len(text) <= 18:
        tracked = int(text)
        if not any(candidate.order.number == tracked for candidate in found.candidates):
            found.rejected.append((f"iter_{tracked:07}", f"{TRACKER} names it, but it is not here"))
            gone = True
            if found.candidates:
                found.notes.append(f"Megatron itself ends with an error until {TRACKER} says one that is here")
    else:
        tracked = None
        if text is not None:
            found.rejected.append((TRACKER, f"says {text[:80]!r}, which is no iteration"))
        if found.candidates:
            found.notes.append(
                f"{TRACKER} cannot be used: Megatron itself then starts from zero or ends with exit code 0; write the "
                "iteration into it"
            )
    found.candidates = [_tracked(candidate, tracked, gone) for candidate in found.candidates]
    _find_nemo(names, found)
    return found


def _order(name: str) -> StepName | None:
    match = _ITERATION.match(name)
    return StepName(int(match["number"]), int(match["number"])) if match else None


def _find_nemo(names: Mapping[str, Kind], found: Found) -> None:
    beside = directories({name: kind for name, kind in names.items() if kind != "file"}, nemo_step, _judge_nemo)
    for item in beside.candidates:
        found.candidates.append(Candidate(item.name, item.order, _finished(item, names), lacks=item.lacks))
    found.rejected += [item for item in beside.rejected if item not in found.rejected]


def nemo_step(name: str) -> StepName | None:
    match = _NEMO.match(name.removesuffix(".ckpt"))
    return StepName(int(match["number"]), int(match["number"])) if match else None


def _finished(candidate: Candidate, names: Mapping[str, Kind]) -> Callable[[Directory], None]:
    marker = candidate.name.removesuffix(".ckpt") + _NEMO_UNFINISHED

    def judge(place: Directory) -> None:
        if marker in names:
            raise Incomplete(f"{shown(marker)} is beside it, which NeMo removes when all is written")
        candidate.judge(place)

    return judge


def _judge_nemo(_: str, directory: Directory) -> None:
    if directory.names().get(_NEMO_WEIGHTS) != "directory":
        _judge(directory)
        return
    refuse_leftovers(directory.names())
    with directory.open(_NEMO_WEIGHTS) as weights:
        try:
            _judge(weights)
        except Incomplete as why:
            raise Incomplete(f"{_NEMO_WEIGHTS}: {why}") from why


def _tracked(candidate: Candidate, tracked: int | None, gone: bool) -> Candidate:
    """gone: the tracker speaks of one that is not here. Then what has evidence of its own goes by that."""

    def judge(place: Directory) -> None:
        ahead = tracked is not None and candidate.order.number > tracked
        if ahead and not gone:
            says = f"{TRACKER}, which is written last, says {tracked or _WEIGHTS_ONLY}"
            raise Incomplete(f"{says}: the save of this one did not finish")
        candidate.judge(place)
        if ahead or tracked is None:
            with place.open(candidate.name) as directory:
                if not is_dcp(directory.names()):
                    raise Incomplete(f"in this format only {TRACKER} tells that all ranks have saved, and it does not")

    return Candidate(candidate.name, candidate.order, judge)


def _judge(directory: Directory) -> None:
    names = directory.names()
    refuse_leftovers(names)
    if not is_dcp(names) and "metadata.json" not in names:
        _judge_ranks(directory)
        return
    judge_dcp(directory)
    backend = read_json(directory, "metadata.json")
    if not isinstance(backend.get("sharded_backend"), str):
        raise Incomplete("metadata.json does not name the sharded_backend: it was not written by Megatron to the end")
    written_ns = require_file(directory, "metadata.json").mtime_ns
    if require_file(directory, ".metadata").mtime_ns > written_ns + SAME_SAVE_NS:
        raise Incomplete(".metadata is newer than metadata.json: a save over an older one did not finish")
    require_whole(directory, (name for name in names if not name.endswith(".distcp")))


def _judge_ranks(directory: Directory) -> None:
    ranks = {
        tuple(int(part) for part in match.groups() if part is not None): name
        for name in directory.names()
        if (match := _RANK.match(name))
    }
    if not ranks:
        raise Incomplete("has neither metadata.json nor a directory mp_rank_00")
    axes = len(max(ranks, key=len))
    if any(len(rank) != axes for rank in ranks):
        raise Incomplete("the names mp_rank_* do not have the same axes")
    # A number out of the blue is a gap, not a huge grid.
    sizes = [min(1 + max(rank[axis] for rank in ranks), len(ranks) + 1) for axis in range(axes)]
    for rank in product(*(range(size) for size in sizes)):
        if rank not in ranks:
            raise Incomplete(
                "mp_rank_" + "_".join(f"{part:0{3 if at else 2}}" for at, part in enumerate(rank)) + " is missing"
            )
    optimizer_apart = 0
    for _, name in sorted(ranks.items()):
        with directory.open(name) as inner:
            try:
                refuse_leftovers(inner.names())
                require_file(inner, "model_optim_rng.pt")
                require_whole(inner, inner.names())
            except Incomplete as why:
                raise Incomplete(f"{name}: {why}") from why
            optimizer_apart += "distrib_optim.pt" in inner.names()
    if optimizer_apart not in (0, len(ranks)):
        raise Incomplete(f"distrib_optim.pt is in {optimizer_apart} of {len(ranks)} directories of ranks")
