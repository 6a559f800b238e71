"""The document as JSON schema: every field that this version takes, as its reader declares it."""

from schemas.task_group.fields import SECTIONS, Later, Refused
from schemas.task_group.readers import Schema, schema_of_reader
from schemas.task_types import CONTAINER, INFERENCE, TRAINING


def _section(name: str) -> Schema:
    section = SECTIONS[name]
    fields = {
        key: schema_of_reader(reader)
        for key, reader in section.fields.items()
        if not isinstance(reader, Later | Refused)
    }
    if not name:
        fields |= {below: _section(below) for below in SECTIONS if below}
    required = [key for key in section.required if name or key not in SECTIONS]
    return {
        "type": "object",
        "properties": fields,
        # What a parent_checkpoint may stand for is required below, where there is none.
        **({} if name in _FROM_PARENT else {"required": required}),
        "additionalProperties": False,
    }


_FROM_PARENT = (TRAINING, "task")
REQUIRED_OF_TASK: Schema = {"required": list(SECTIONS["task"].required)}


DOCUMENT: Schema = {
    **_section(""),
    "anyOf": [
        {
            "properties": {
                "task_type": {"enum": [TRAINING]},
                TRAINING: {"required": list(SECTIONS[TRAINING].required)},
                "task": REQUIRED_OF_TASK,
            },
            "required": [TRAINING, "task"],
        },
        {
            "properties": {
                "task_type": {"enum": [TRAINING]},
                TRAINING: {"required": ["parent_checkpoint", "checkpoint_path"]},
            },
            "required": [TRAINING],
        },
        {
            "properties": {"task_type": {"enum": [INFERENCE, CONTAINER]}, "task": REQUIRED_OF_TASK},
            "required": ["task"],
        },
    ],
    "description": "A task group. Fields that contradict one another are refused with every finding at once.",
    "examples": [
        {
            "name": "train",
            "task_type": "training",
            "training": {
                "framework": "ddp",
                "n_nodes": 1,
                "per_node_gpu": 2,
                "checkpoint_path": "/data/ckpt/train",
            },
            "task": {"command": "torchrun train.py", "gpu_required": 2},
        },
        {
            "name": "llama chat",
            "task_type": "inference",
            "inference": {"gpu_type": "H100"},
            "task": {"command": "vllm serve /data/llama --port $PORT", "gpu_required": 1, "ports": {"http": 8000}},
        },
    ],
}
