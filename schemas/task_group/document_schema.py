"""The document as JSON schema: every field that this version takes, as its reader declares it."""

from schemas.task_group.fields import SECTIONS, Later, Refused
from schemas.task_group.readers import Schema, schema_of_reader


def _section(name: str) -> Schema:
    section = SECTIONS[name]
    fields = {
        key: schema_of_reader(reader)
        for key, reader in section.fields.items()
        if not isinstance(reader, Later | Refused)
    }
    if not name:
        fields |= {below: _section(below) for below in SECTIONS if below}
    return {
        "type": "object",
        "properties": fields,
        "required": list(section.required),
        "additionalProperties": False,
    }


DOCUMENT: Schema = {
    **_section(""),
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
        }
    ],
}
