"""Names of the hyper-parameters that frameworks consume, and how they are looked up.

Keys are found in lower case with `-` and `.` as `_`. Any other key is the script's own.
"""

import re
from collections.abc import Mapping

WHOLE = re.compile(r"[1-9][0-9]{0,9}\Z")
SIZES = {
    "tp": ("tensor_model_parallel_size", "tp_size", "tp"),
    "pp": ("pipeline_model_parallel_size", "pp_size", "pp"),
    "cp": ("context_parallel_size", "cp_size", "cp"),
    "ep": ("expert_model_parallel_size", "ep_size", "ep"),
    "etp": ("expert_tensor_parallel_size", "etp"),
}
GLOBAL_BATCH = ("global_batch_size", "train_batch_size")
MICRO_BATCH = ("micro_batch_size", "train_micro_batch_size_per_gpu")
ACCUMULATION = ("gradient_accumulation_steps",)
SHARDING = ("sharding_strategy", "fsdp_sharding_strategy", "sharding")
SHARDING_GROUP = ("sharding_group_size", "fsdp_sharding_group_size")
PRECISION = ("precision", "mixed_precision")
DEEPSPEED_CONFIG = ("deepspeed_config", "ds_config")
STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", "HYBRID_SHARD_ZERO2")
PRECISIONS = {
    "fsdp": ("no", "fp16", "bf16"),
    "deepspeed": ("no", "fp16", "bf16"),
    "megatron": ("no", "fp16", "bf16", "fp8"),
}
TRUE = ("true", "True", "1", "yes", "on")
OFF = ("", "none", "None", "no", "false", "False", "0")

_BATCHES = (*GLOBAL_BATCH, *MICRO_BATCH, *ACCUMULATION)
_FLAGS = ("fp16", "bf16")
_PARALLEL = tuple(name for names in SIZES.values() for name in names)
# What a framework reads of the hyper-parameters; what is not listed is its script's own.
CONSUMED: dict[str, tuple[str, ...]] = {
    "fsdp": (
        *(*SHARDING, *SHARDING_GROUP, *PRECISION, *_FLAGS),
        *("fsdp_version", "fsdp_offload_params", "fsdp_auto_wrap_policy", "fsdp_transformer_cls_to_wrap"),
    ),
    "deepspeed": (
        *("zero_stage", "offload_param", "offload_optimizer", "gradient_clipping"),
        *(*DEEPSPEED_CONFIG, *PRECISION, *_FLAGS, *_BATCHES, *SIZES["tp"], *SIZES["pp"]),
    ),
    "megatron": (*_PARALLEL, *PRECISION, *_FLAGS, *_BATCHES, "sequence_parallel"),
}


def plain(key: str) -> str:
    return key.lower().replace("-", "_").replace(".", "_")


class Parameters:
    """values: by the document's keys; names: from a plain key to the document's. Total: no value raises."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values
        self.names = {plain(key): key for key in sorted(values)}

    def get(self, name: str) -> str | None:
        return self.values[self.names[name]] if name in self.names else None

    def first(self, names: tuple[str, ...]) -> str | None:
        """The value of the first given key of several that mean one."""
        return next((self.get(name) for name in names if name in self.names), None)

    def count(self, names: tuple[str, ...]) -> int | None:
        """A whole number from 1, None where there is none."""
        value = self.first(names)
        return int(value) if value is not None and WHOLE.match(value) else None

    def on(self, name: str) -> bool:
        return self.get(name) in TRUE

    def precision(self) -> str | None:
        """no, fp16, bf16 or fp8, None where nothing is said."""
        said = self.first(PRECISION)
        return said if said is not None else next((name for name in ("bf16", "fp16") if self.on(name)), None)
