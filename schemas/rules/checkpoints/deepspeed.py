"""DeepSpeed: `global_stepN/` (or any tag), and the tracker `latest`, which rank 0 writes when *its* part is written.

So `latest` is no evidence: the parts of the other ranks may be missing or cut short. How many ranks there were is not
on the disk: parts have to be contiguous, as many as in the checkpoint before, and as many as the world where that is
known.
"""

import re
from collections.abc import Mapping

from schemas.rules.checkpoints.candidate import (
    Candidate,
    Found,
    directories,
    rank_files,
    read_tracker,
    require_contiguous,
)
from schemas.rules.checkpoints.names import StepName, shown, step_of
from schemas.rules.checkpoints.view import Directory, Incomplete, Kind
from schemas.rules.checkpoints.whole_files import refuse_leftovers, require_whole

TRACKER = "latest"
_STEPPED = re.compile(r"global_step(?P<number>[0-9]{1,18})\Z")
_OPTIM = re.compile(r"(?:bf16_)?zero_pp_rank_(?P<dp>[0-9]+)_mp_rank_(?P<mp>[0-9]+)_optim_states\.pt\Z")
_ZERO3_MODEL = re.compile(r"zero_pp_rank_(?P<dp>[0-9]+)_mp_rank_(?P<mp>[0-9]+)_model_states\.pt\Z")
# With a mixture of experts: those of each rank, and their optimizer where ZeRO does not split it.
_EXPERT = re.compile(r"layer_(?P<layer>[0-9]+)_expert_(?P<expert>[0-9]+)_mp_rank_[0-9]+_model_states\.pt\Z")
_EXPERT_OPTIM = re.compile(r"expp_rank_(?P<ep>[0-9]+)_mp_rank_[0-9]+_optim_states\.pt\Z")
_MODEL = re.compile(r"mp_rank_(?P<mp>[0-9]+)_model_states\.pt\Z")
# A tag without a number, which only `latest` can put in order.
_NAMED_BY_TRACKER = StepName(10**18, None)


def is_deepspeed(names: Mapping[str, Kind]) -> bool:
    return any(_MODEL.match(name) or _ZERO3_MODEL.match(name) for name in names)


def find_deepspeed(place: Directory) -> Found:
    names = place.names()
    found = directories(names, _order, lambda _, directory: judge_deepspeed(directory))
    tag = read_tracker(place, TRACKER, found) if TRACKER in names else None
    if tag is None:
        return found
    if names.get(tag) is None:
        found.rejected.append((tag, f"`{TRACKER}` names it, but it is not here"))
        return found
    if not any(candidate.name == tag for candidate in found.candidates):
        named = directories(
            {tag: names[tag]},
            lambda name: step_of(name) or _NAMED_BY_TRACKER,
            lambda _, directory: judge_deepspeed(directory),
        )
        found.candidates += named.candidates
        found.rejected += [item for item in named.rejected if item not in found.rejected]
    elif (order := _order(tag)) is not None:
        found.candidates = [_not_ahead(candidate, order, tag) for candidate in found.candidates]
    return found


def judge_deepspeed(directory: Directory) -> None:
    """Raises Incomplete."""
    names = directory.names()
    refuse_leftovers(names)
    optim = [_ranks(match) for name in names if (match := _OPTIM.match(name))]
    sharded = [_ranks(match) for name in names if (match := _ZERO3_MODEL.match(name))]
    whole = [int(match["mp"]) for name in names if (match := _MODEL.match(name))]
    if not sharded and not whole:
        raise Incomplete("has no model states (mp_rank_00_model_states.pt)")
    models = {*whole, *(mp for _, mp in (*optim, *sharded))}
    require_contiguous(models, "the part mp_rank_{:02}")
    if whole and (lost := models - set(whole)):
        raise Incomplete(f"mp_rank_{min(lost):02}_model_states.pt is missing")
    world = 1 + max((dp for dp, _ in (*optim, *sharded)), default=-1)
    for grid, what in ((set(optim), "optim"), (set(sharded), "model")):
        # Each data-parallel rank has a part of each model-parallel rank.
        for mp in sorted(models) if grid else ():
            if (dp := next((dp for dp in range(world) if (dp, mp) not in grid), None)) is not None:
                raise Incomplete(f"zero_pp_rank_{dp}_mp_rank_{mp:02}_{what}_states.pt is missing")
    if sharded and not optim:
        raise Incomplete(
            "has the sharded model states of ZeRO-3, but no optimizer states: weights only, or not finished"
        )
    _require_experts(names, bool(optim))
    require_whole(directory, names)


def _require_experts(names: Mapping[str, Kind], split: bool) -> None:
    """split: whether ZeRO has the optimizer of all. How many experts a layer has is not on the disk, nor the same for
    all layers. Raises Incomplete."""
    layers: dict[int, set[int]] = {}
    for name in names:
        if match := _EXPERT.match(name):
            layers.setdefault(int(match["layer"]), set()).add(int(match["expert"]))
    require_contiguous(layers, "the part layer_{}_expert_0")
    for layer, experts in sorted(layers.items()):
        require_contiguous(experts, f"the part layer_{layer}_expert_{{}}")
    ranks = {int(match["ep"]) for name in names if (match := _EXPERT_OPTIM.match(name))}
    require_contiguous(ranks, "the part expp_rank_{}")
    if layers and not split and not ranks:
        raise Incomplete("expp_rank_0_mp_rank_00_optim_states.pt, with the optimizer of the experts, is missing")


def judge_inside(directory: Directory) -> str:
    """The tag of the DeepSpeed checkpoint below one of HF Trainer, Lightning or Accelerate. Raises Incomplete."""
    found = Found()
    tag = read_tracker(directory, TRACKER, found)
    if tag is None:
        why = found.rejected[0][1] if found.rejected else "is missing"
        raise Incomplete(f"`{TRACKER}` in it {why}")
    if directory.names().get(tag) != "directory":
        raise Incomplete(f"{shown(tag)}, which `{TRACKER}` in it names, is missing")
    with directory.open(tag) as inner:
        try:
            judge_deepspeed(inner)
        except Incomplete as why:
            raise Incomplete(f"{shown(tag)} in it: {why}") from why
    return tag


def _not_ahead(candidate: Candidate, tracked: StepName, tag: str) -> Candidate:
    """Rank 0 moves `latest` after its own part: what is ahead of it is taken only if no rank's part is missing compared
    with the one that was finished before."""
    if candidate.order.newer <= tracked.newer:
        return candidate

    def judge(place: Directory) -> None:
        candidate.judge(place)
        with place.open(candidate.name) as mine, place.open(tag) as theirs:
            if rank_files(theirs.names()) != rank_files(mine.names()):
                raise Incomplete(f"`{TRACKER}` still says {shown(tag)}, and the parts are not those of that one")

    return Candidate(candidate.name, candidate.order, judge)


def _order(name: str) -> StepName | None:
    match = _STEPPED.match(name)
    return StepName(int(match["number"]), int(match["number"])) if match else None


def _ranks(match: "re.Match[str]") -> tuple[int, int]:
    return int(match["dp"]), int(match["mp"])
