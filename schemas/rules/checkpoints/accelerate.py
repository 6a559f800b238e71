"""Accelerate's `save_state`, in whatever directory: model, optimizer and scheduler by rank 0, then each rank's random
states, then the objects of the user's own."""

import re
from collections.abc import Iterable, Mapping

from schemas.rules.checkpoints.candidate import require_contiguous
from schemas.rules.checkpoints.deepspeed import judge_inside
from schemas.rules.checkpoints.trainer import require_dcp_below
from schemas.rules.checkpoints.view import Directory, Incomplete, Kind
from schemas.rules.checkpoints.weights import has_weights, modules, require_loadable, require_older
from schemas.rules.checkpoints.whole_files import require_file, require_shards, require_whole

_PREFIX, _MARKER = "random_states_", "random_states_0.pkl"
_RANDOM = re.compile(r"random_states_([0-9]+)\.pkl\Z")
_NAME = re.compile(r"checkpoint_[0-9]+\Z")
_FSDP = re.compile(r"(?:pytorch_model_fsdp|optimizer)_[0-9]+\Z")


def has_random_states(names: Iterable[str]) -> bool:
    return any(name.startswith(_PREFIX) for name in names)


def is_accelerate(name: str, names: Mapping[str, Kind]) -> bool:
    return has_random_states(names) or _NAME.match(name) is not None


def judge_accelerate(directory: Directory, names: Mapping[str, Kind]) -> None:
    """Raises Incomplete."""
    ranks = [int(match[1]) for name in names if (match := _RANDOM.match(name))]
    if not ranks:
        raise Incomplete(f"{_MARKER}, which is written last, is missing")
    require_contiguous(ranks, "random_states_{}.pkl")
    require_shards(directory, names)
    require_loadable(names)
    require_whole(directory, names)
    parts = sorted(name for name in names if _FSDP.match(name) and names[name] == "directory")
    for part in parts:
        require_dcp_below(directory, part)
    inside = [*modules(directory, names, parts)]
    if "latest" in names:
        parts.append(judge_inside(directory))
    else:
        if not (has_weights(names) or inside or any(part.startswith("pytorch_model") for part in parts)):
            raise Incomplete("has no model file")
        if not any(name.startswith("optimizer") for name in names):
            raise Incomplete("has no optimizer state")
    # Ranks end in any order, but what is theirs together is written before the random states of the first.
    require_older(directory, _MARKER, parts, inside, require_file(directory, _MARKER))
