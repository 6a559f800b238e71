"""training.recovery: how often, and after which failures of the infrastructure, a group is started again by itself."""

from typing import Any

from schemas.errors import Finding
from schemas.limits import RESTARTS_MAX
from schemas.rules.failure_classes import INFRASTRUCTURE
from schemas.task_group import readers
from schemas.task_group.container import spelled
from schemas.task_group.readers import ABSENT, Reader, refuse, schema_of_reader, shaped, shown

_FIELDS: dict[str, Reader] = {
    "max_restarts": spelled(readers.WholeNumber(0, RESTARTS_MAX)),
    "on": readers.listed(readers.choice(*INFRASTRUCTURE), len(INFRASTRUCTURE), one_alone=True),
}


@shaped(
    {
        "type": "object",
        "properties": {name: schema_of_reader(reader) for name, reader in _FIELDS.items()},
        "required": ["max_restarts"],
        "additionalProperties": False,
    }
)
def recovery(value: object, path: str, found: list[Finding]) -> Any:
    hint = "Write max_restarts (0 to 100) and, where not all, on: the classes of failure it is restarted after."
    if readers.is_null(value, path, found):
        return ABSENT
    if not isinstance(value, dict):
        return refuse(found, path, f"must be a mapping, not {shown(value)}", hint)
    unknown = sorted((name for name in value if name not in _FIELDS), key=shown)
    if unknown or "max_restarts" not in value:
        said = f"has the unknown key {shown(unknown[0])}" if unknown else "has no max_restarts"
        return refuse(found, path, said, hint)
    read = {name: reader(value[name], f"{path}.{name}", found) for name, reader in _FIELDS.items() if name in value}
    if ABSENT in read.values():
        return ABSENT
    return {"max_restarts": read["max_restarts"], "on": sorted(read.get("on", INFRASTRUCTURE))}
