"""The user's own part of ds_config.json: it must be an object, and say nothing else than the hyper-parameters do."""

import json
from typing import Any

from schemas.rules.frameworks.deepspeed import AUTO, NUMBER, NotAnObject, config, replicas, users_part
from schemas.rules.frameworks.parameters import DEEPSPEED_CONFIG, OFF, TRUE, Parameters
from schemas.rules.guards.judge import Judge

CODE, PREFIX = "framework_parameter", "training.hyper_params"
_BATCHES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
_SHOWN = 60


def judge_config(given: Parameters, world: int, judge: Judge) -> None:
    """world: of a shape that tp x pp divides."""
    _values(given, judge)
    key = next((given.names[name] for name in DEEPSPEED_CONFIG if name in given.names), None)
    if key is None:
        return
    path = f"{PREFIX}.{key}"
    try:
        theirs = users_part(given)
        merged, conflicts = config(given, world)
    except NotAnObject as error:
        judge.refuse(CODE, f"is no JSON object: {error}", "Write one object, or the path of a file.", path)
        return
    for conflict in conflicts:
        said = (
            f"says {conflict.where} {_shown(conflict.theirs)}, but the hyper-parameters make it {_shown(conflict.ours)}"
        )
        judge.refuse(CODE, said, "Keep one of them.", path)
    if theirs.keys() & set(_BATCHES) and not any(conflict.where in _BATCHES for conflict in conflicts):
        _product(merged, given, world, path, judge)
    zero = merged.get("zero_optimization")
    stage = zero.get("stage") if isinstance(zero, dict) else None
    if stage is not None and (type(stage) is not int or not 0 <= stage <= 3):
        said = f"says zero_optimization.stage {_shown(stage)}; it must be 0, 1, 2 or 3"
        judge.refuse(CODE, said, "Write 0, 1, 2 or 3.", path)
    on = [
        name for name in ("fp16", "bf16") if isinstance(part := merged.get(name), dict) and part.get("enabled") is True
    ]
    if len(on) == 2:
        judge.refuse(CODE, "turns fp16 on where bf16 is on too", "Keep one of them.", path)


def _product(merged: dict[str, Any], given: Parameters, world: int, path: str, judge: Judge) -> None:
    whole, micro, accum = (merged.get(key) for key in _BATCHES)
    dp = replicas(given, world)
    if type(whole) is int and type(micro) is int and type(accum) is int and whole != micro * accum * dp:
        said = f"makes train_batch_size {whole}, but micro {micro} x accumulation {accum} x {dp} replicas is "
        judge.refuse(CODE, f"{said}{micro * accum * dp}", "Leave one of the three out.", path)


def _values(given: Parameters, judge: Judge) -> None:
    """What could not be written into the file."""
    clipping = given.get("gradient_clipping")
    if clipping is not None and clipping != AUTO and not NUMBER.match(clipping):
        path = f"{PREFIX}.{given.names['gradient_clipping']}"
        judge.refuse(CODE, f"is {judge.shown(clipping)}, which is no number", "Write a number such as 1.0.", path)
    for name in ("offload_optimizer", "offload_param"):
        value = given.get(name)
        if value is not None and value not in (*OFF, *TRUE, "cpu"):
            said = f"is {judge.shown(value)}; it must be cpu or none"
            hint = "Write cpu; offloading to a disk needs its path: say it in deepspeed_config."
            judge.refuse(CODE, said, hint, f"{PREFIX}.{given.names[name]}")


def _shown(value: Any) -> str:
    return json.dumps(value)[:_SHOWN]
