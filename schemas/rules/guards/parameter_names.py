"""Keys that are nearly one that the framework consumes: it would be left at its default without a word."""

from difflib import get_close_matches

from schemas.rules.frameworks.parameters import CONSUMED, Parameters
from schemas.rules.guards.judge import Judge

CODE, PREFIX = "framework_parameter", "training.hyper_params"
# One letter in a long name; names of a few letters are near to many words of a script.
_NEAR = 0.92
_LONG = 8
_COMPARED_MAX = 64
# What other programs call the same.
_ELSEWHERE = {
    "megatron": {
        **dict.fromkeys(("tensor_parallel_size", "tensor_parallel", "tp_degree"), "tensor_model_parallel_size"),
        **dict.fromkeys(("pipeline_parallel_size", "pipeline_parallel", "pp_degree"), "pipeline_model_parallel_size"),
        **dict.fromkeys(("context_parallel", "cp_degree"), "context_parallel_size"),
        **dict.fromkeys(("expert_parallel_size", "expert_parallel", "ep_degree"), "expert_model_parallel_size"),
    },
    "deepspeed": dict.fromkeys(("zero", "zero_optimization_stage", "ds_zero_stage", "stage"), "zero_stage"),
    "fsdp": dict.fromkeys(("shard_strategy", "fsdp_strategy"), "sharding_strategy"),
}


def judge_names(given: Parameters, judge: Judge) -> None:
    framework = judge.shape.framework
    consumed = CONSUMED.get(framework, ())
    for name, key in given.names.items():
        if name in consumed or len(name) > _COMPARED_MAX:
            continue
        meant = _ELSEWHERE.get(framework, {}).get(name) or _near(name, consumed)
        if meant and meant not in given.names:
            said = f"is not consumed by {framework} (did you mean {meant}?)"
            judge.refuse(
                CODE, said, f"Rename it to {meant}; for a setting of the script use another name.", f"{PREFIX}.{key}"
            )


def _near(name: str, consumed: tuple[str, ...]) -> str | None:
    close = get_close_matches(name, [known for known in consumed if len(known) >= _LONG], n=1, cutoff=_NEAR)
    return close[0] if close and len(name) >= _LONG else None
