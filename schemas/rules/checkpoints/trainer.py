"""HF Trainer, PEFT and PaddleNLP: `checkpoint-N/`, with `trainer_state.json` written last, in place, by rank 0."""

import re
from collections.abc import Mapping

from schemas.rules.checkpoints.candidate import require_contiguous
from schemas.rules.checkpoints.dcp import judge_dcp
from schemas.rules.checkpoints.deepspeed import judge_inside
from schemas.rules.checkpoints.names import is_silly_rename, step_of
from schemas.rules.checkpoints.view import Directory, Incomplete, Kind, Stat
from schemas.rules.checkpoints.whole_files import (
    SAME_SAVE_NS,
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
_MODELS = (
    "model.safetensors pytorch_model.bin adapter_model.safetensors adapter_model.bin pytorch_model_fsdp.bin "
    "model_state.pdparams tf_model.h5 flax_model.msgpack"
).split()
_OPTIMIZERS = "optimizer.pt optimizer.bin optimizer.pdopt".split()
_FSDP = re.compile(r"(?:pytorch_model_fsdp|optimizer)_[0-9]+\Z")
# What rank 0 writes before its state; the random states of other ranks may come after it.
_BEFORE_STATE = re.compile(r"(?!rng_state).*\.(?:safetensors|bin|pt|pth|pdparams|pdopt|h5|msgpack)\Z")


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
    state = read_json(directory, STATE)
    if order is not None and order.step is not None and state.get("global_step") != order.step:
        raise Incomplete(f"{STATE} is of step {str(state.get('global_step'))[:40]}, the name says {order.step}")
    deepspeed, fsdp = "latest" in names, sorted(name for name in names if _FSDP.match(name))
    if not (indexed or deepspeed or fsdp or any(model in names for model in _MODELS)):
        raise Incomplete("has no model file")
    if any(name.startswith("adapter_model.") for name in names) and "adapter_config.json" not in names:
        raise Incomplete("adapter_config.json is missing, without which the adapter cannot be loaded")
    optimizer_inside = deepspeed or any(part.startswith("optimizer") for part in fsdp)
    if not (optimizer_inside or any(optimizer in names for optimizer in _OPTIMIZERS) or _split_optimizer(names)):
        raise Incomplete("has no optimizer state: weights only (save_only_model), nothing to resume")
    require_whole(directory, names)
    require_contiguous((int(match[1]) for name in names if (match := _RNG.match(name))), "rng_state_{}.pth")
    _require_older(directory, names, marker)
    if deepspeed:
        judge_inside(directory)
    for part in fsdp:
        require_dcp_below(directory, part)


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


def _require_older(directory: Directory, names: Mapping[str, Kind], marker: Stat) -> None:
    """A save over an older one leaves the older state until it ends."""
    if PADDLE_DONE in names:
        return
    for name, kind in sorted(names.items()):
        if kind != "file" or is_silly_rename(name) or not _BEFORE_STATE.match(name):
            continue
        if directory.stat(name).mtime_ns > marker.mtime_ns + SAME_SAVE_NS:
            raise Incomplete(
                f"{name} is newer than {STATE}: a save over an older one did not finish (or a copy did not keep the "
                f"times; then run `touch {STATE}` in it)"
            )
