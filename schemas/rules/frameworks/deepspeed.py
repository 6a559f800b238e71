"""DeepSpeed: a hostfile for its launcher, and one ds_config.json of the hyper-parameters and the user's own part.

The user's part is the text of one JSON object in hyper_params.deepspeed_config. "auto" is filled in by a trainer.
Rules: deepspeed/launcher/runner.py, runtime/config.py, runtime/zero/config.py.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.rules.frameworks.parameters import (
    ACCUMULATION,
    DEEPSPEED_CONFIG,
    GLOBAL_BATCH,
    MICRO_BATCH,
    OFF,
    SIZES,
    WHOLE,
    Parameters,
)
from schemas.rules.frameworks.placement import Given, Placement

HOSTFILE, CONFIG = "hostfile", "ds_config.json"
NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,9})(?:\.[0-9]{1,12})?(?:[eE][+-]?[0-9]{1,3})?\Z")
AUTO = "auto"
_DEPTH_MAX = 20
_BATCH_KEYS = {
    "train_batch_size": GLOBAL_BATCH,
    "train_micro_batch_size_per_gpu": MICRO_BATCH,
    "gradient_accumulation_steps": ACCUMULATION,
}


class NotAnObject(Exception):
    """Is raised for a user's part that is no JSON object; its text says why."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """where: dotted place in ds_config.json."""

    where: str
    ours: Any
    theirs: Any


def users_part(parameters: Parameters) -> dict[str, Any]:
    """Empty where there is none, or where it names a file of the script's own. Raises NotAnObject."""
    text = parameters.first(DEEPSPEED_CONFIG)
    if text is None or not text.lstrip().startswith("{"):
        return {}
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise NotAnObject(str(error) or "it is nested too deep") from error
    if _deeper_than(value, _DEPTH_MAX):
        raise NotAnObject(f"it is nested deeper than {_DEPTH_MAX} levels")
    return dict(value)


def replicas(parameters: Parameters, world: int) -> int:
    parts = (parameters.count(SIZES["tp"]) or 1) * (parameters.count(SIZES["pp"]) or 1)
    return max(1, world // parts)


def batch_inputs(parameters: Parameters, theirs: Mapping[str, Any]) -> dict[str, int | str | None]:
    """By DeepSpeed's names: whole number, "auto" or None. Hyper-parameters first, then the user's part."""
    found: dict[str, int | str | None] = {}
    for key, names in _BATCH_KEYS.items():
        said = parameters.first(names)
        value: Any = theirs.get(key) if said is None else int(said) if WHOLE.match(said) else said
        found[key] = value if value == AUTO or (type(value) is int and value > 0) else None
    return found


def config(parameters: Parameters, world: int) -> tuple[dict[str, Any], list[Conflict]]:
    """What stands in ds_config.json, and where the two sources contradict. Raises NotAnObject."""
    theirs = users_part(parameters)
    ours = _batches(batch_inputs(parameters, theirs), replicas(parameters, world)) | _chosen(parameters)
    conflicts: list[Conflict] = []
    merged = _merged(ours, theirs, "", conflicts)
    if "zero_stage" in parameters.names and isinstance(zero := merged.get("zero_optimization"), dict):
        for key, value in _zero_defaults(zero.get("stage")).items():
            zero.setdefault(key, value)
    return merged, conflicts


def given(parameters: Parameters, placement: Placement) -> Given:
    files = {HOSTFILE: "".join(f"node-{rank} slots={placement.cards}\n" for rank in range(placement.nodes))}
    # A document of another version's checks may hold a part that is none: the script gets what the platform knows.
    try:
        merged, _ = config(parameters, placement.world)
    except NotAnObject:
        merged = {}
    if merged:
        files[CONFIG] = json.dumps(merged, indent=2, sort_keys=True) + "\n"
    env = {"HETEROFLOW_HOSTFILE": f"{placement.files_dir}/{HOSTFILE}"}
    if merged:
        env["HETEROFLOW_DEEPSPEED_CONFIG"] = f"{placement.files_dir}/{CONFIG}"
    return Given(env=env, files=files)


def _batches(said: Mapping[str, int | str | None], dp: int) -> dict[str, Any]:
    """train_batch_size = micro x accumulation x replicas, all three spelled out where they follow from what is said."""
    whole, micro, accum = (said[key] for key in _BATCH_KEYS)
    if AUTO in (whole, micro, accum) or (whole is None and micro is None):
        return {key: value for key, value in said.items() if value is not None}
    if isinstance(whole, int) and isinstance(micro, int):
        accum = accum or max(1, whole // (micro * dp))
    accum = int(accum or 1)
    micro = int(micro or max(1, int(whole or 1) // (accum * dp)))
    whole = int(whole or micro * accum * dp)
    return dict(zip(_BATCH_KEYS, (whole, micro, accum), strict=True))


def _chosen(parameters: Parameters) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    zero: dict[str, Any] = {}
    if (stage := parameters.get("zero_stage")) in ("0", "1", "2", "3"):
        zero["stage"] = int(str(stage))
    for key in ("offload_optimizer", "offload_param"):
        if (parameters.get(key) or "") not in OFF:
            zero[key] = {"device": "cpu"}
    if zero:
        chosen["zero_optimization"] = zero
    if (precision := parameters.precision()) in ("bf16", "fp16"):
        chosen[str(precision)] = {"enabled": True}
    if (clipping := parameters.get("gradient_clipping")) is not None:
        if clipping == AUTO:
            chosen["gradient_clipping"] = AUTO
        elif NUMBER.match(clipping) and math.isfinite(float(clipping)):
            chosen["gradient_clipping"] = float(clipping)
    return chosen


def _zero_defaults(stage: object) -> dict[str, Any]:
    if stage not in (1, 2, 3):
        return {}
    usual: dict[str, Any] = {"overlap_comm": True, "contiguous_gradients": True}
    # Without it a stage 3 checkpoint holds no weights that anything else could read.
    return usual | ({"stage3_gather_16bit_weights_on_model_save": True} if stage == 3 else {})


def _merged(ours: Mapping[str, Any], theirs: Mapping[str, Any], at: str, found: list[Conflict]) -> dict[str, Any]:
    merged = dict(theirs)
    for key, value in ours.items():
        other, where = theirs.get(key, AUTO), f"{at}{key}"
        if isinstance(value, dict) and (isinstance(other, dict) or other == AUTO):
            merged[key] = _merged(value, other if isinstance(other, dict) else {}, f"{where}.", found)
        elif (other in (value, AUTO) and type(other) is not bool) or other is value:
            merged[key] = value
        else:
            found.append(Conflict(where, value, other))
    return merged


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is there twice")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _deeper_than(value: Any, levels: int) -> bool:
    """Level by level: what a parser got through may be too deep for a function that calls itself."""
    here = [value]
    for _ in range(levels):
        here = [item for each in here if isinstance(each, dict) for item in each.values()] + [
            item for each in here if isinstance(each, list) for item in each
        ]
    return bool(here)
