"""HF Trainer, PEFT and PaddleNLP: `checkpoint-N/`, with `trainer_state.json` written last, in place, by rank 0."""

import re
from collections.abc import Mapping
from typing import Any

from schemas.rules.checkpoints.candidate import require_contiguous
from schemas.rules.checkpoints.dcp import judge_dcp
from schemas.rules.checkpoints.deepspeed import TRACKER, judge_inside
from schemas.rules.checkpoints.names import step_of
from schemas.rules.checkpoints.view import Directory, Incomplete, Kind
from schemas.rules.checkpoints.weights import has_weights, modules, require_loadable, require_older
from schemas.rules.checkpoints.whole_files import (
    JSON_MAX,
    read_json,
    refuse_leftovers,
    require_file,
    require_shards,
    require_whole,
)

STATE = "trainer_state.json"
PADDLE_DONE = ".checkpoint_done"
_NAME = re.compile(r"checkpoint-[0-9]{1,18}\Z")
_RNG = re.compile(r"rng_state_([0-9]+)\.pth\Z")
_OPTIMIZERS = "optimizer.pt optimizer.bin optimizer.pdopt".split()
_FSDP = re.compile(r"(?:pytorch_model_fsdp|optimizer)_[0-9]+\Z")
_HEAD = 64 << 10
_IN_HEAD = re.compile(rb'^  "(global_step|best_model_checkpoint)": ([^\n]{1,4096}?),?\r?$', re.MULTILINE)


def is_trainer(name: str, names: Mapping[str, Kind]) -> bool:
    return STATE in names or _NAME.match(name) is not None


def judge_trainer(name: str, directory: Directory) -> None:
    """Raises Incomplete. `name`: of the directory, whose number the state has to have."""
    names = directory.names()
    refuse_leftovers(names)
    indexed = require_shards(directory, names)
    if STATE not in names:
        raise Incomplete(f"{STATE}, which is written last, is missing")
    marker = require_file(directory, STATE)
    order = step_of(name)
    state = read_state(directory)
    if order is not None and order.step is not None and state.get("global_step") != order.step:
        raise Incomplete(f"{STATE} is of step {str(state.get('global_step'))[:40]}, the name says {order.step}")
    deepspeed, fsdp = TRACKER in names, sorted(name for name in names if _FSDP.match(name))
    inside = [*modules(directory, names, fsdp)]
    if not (indexed or deepspeed or fsdp or inside or has_weights(names)):
        raise Incomplete("has no model file")
    require_loadable(names)
    optimizer_inside = deepspeed or any(part.startswith("optimizer") for part in fsdp)
    if not (optimizer_inside or any(optimizer in names for optimizer in _OPTIMIZERS) or _split_optimizer(names)):
        raise Incomplete("has no optimizer state: weights only (save_only_model), nothing to resume")
    require_whole(directory, names)
    require_contiguous((int(match[1]) for name in names if (match := _RNG.match(name))), "rng_state_{}.pth")
    for part in fsdp:
        require_dcp_below(directory, part)
    parts = [*fsdp, judge_inside(directory)] if deepspeed else fsdp
    if PADDLE_DONE not in names:
        require_older(directory, STATE, parts, inside, marker)


def read_state(directory: Directory) -> dict[str, Any]:
    """Of one with a line for each of many steps, larger than is read, only what stands at its beginning. Raises
    Incomplete."""
    if require_file(directory, STATE).size > JSON_MAX and directory.read(STATE, -4, 4).rstrip().endswith(b"\n}"):
        found = {match[1].decode(): match[2] for match in _IN_HEAD.finditer(directory.read(STATE, 0, _HEAD))}
        if found.get("global_step", b"").isdigit():
            best = found.get("best_model_checkpoint", b"").decode("utf-8", "replace").strip('"')
            return {"global_step": int(found["global_step"][:18]), "best_model_checkpoint": best}
    return read_json(directory, STATE)


def require_dcp_below(directory: Directory, part: str) -> None:
    with directory.open(part) as inner:
        try:
            refuse_leftovers(inner.names())
            judge_dcp(inner)
        except Incomplete as why:
            raise Incomplete(f"{part}: {why}") from why


def _split_optimizer(names: Mapping[str, Kind]) -> bool:
    """PaddleNLP's unified checkpoint."""
    return any(name.startswith("optimizer-") for name in names)
