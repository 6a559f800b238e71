"""FSDP: what Accelerate and scripts that follow it read (accelerate/utils/dataclasses.py, utils/launch.py).

A plain script gets the same choices as HETEROFLOW_HP_*. Under `accelerate launch` its own options win, since it writes
these variables anew for its children.
"""

from schemas.rules.frameworks.parameters import OFF, SHARDING, SHARDING_GROUP, TRUE, Parameters
from schemas.rules.frameworks.placement import Given, Placement

_RESHARDS = ("FULL_SHARD", "HYBRID_SHARD")


def given(parameters: Parameters, placement: Placement) -> Given:
    defaults: dict[str, str] = {}
    strategy = parameters.first(SHARDING)
    version = parameters.get("fsdp_version")
    if strategy is not None:
        defaults |= {"ACCELERATE_USE_FSDP": "true", "FSDP_SHARDING_STRATEGY": strategy}
        defaults["FSDP_STATE_DICT_TYPE"] = "SHARDED_STATE_DICT"
        # Of FSDP 2 it is a truth, of FSDP 1 the strategy's name.
        reshard = strategy if version != "2" else "true" if strategy in _RESHARDS else "false"
        defaults["FSDP_RESHARD_AFTER_FORWARD"] = reshard
    if version is not None:
        defaults["FSDP_VERSION"] = version
    if (size := parameters.count(SHARDING_GROUP)) is not None:
        defaults["FSDP_SHARDING_GROUP_SIZE"] = str(size)
    if (offload := parameters.get("fsdp_offload_params")) is not None and offload in (*TRUE, *OFF):
        defaults["FSDP_OFFLOAD_PARAMS"] = "true" if offload in TRUE else "false"
    for name in ("fsdp_auto_wrap_policy", "fsdp_transformer_cls_to_wrap"):
        if (value := parameters.get(name)) is not None:
            defaults[name.upper()] = value
    if (precision := parameters.precision()) is not None:
        defaults["ACCELERATE_MIXED_PRECISION"] = precision
    return Given(defaults=defaults)
