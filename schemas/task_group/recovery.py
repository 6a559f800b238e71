"""training.recovery: how often, and after which failures of the infrastructure, a group is started again by itself."""

from typing import Any

from schemas.errors import Finding
from schemas.limits import RESTARTS_MAX
from schemas.rules.failure_classes import INFRASTRUCTURE
from schemas.task_group import readers
from schemas.task_group.container import spelled
from schemas.task_group.readers import ABSENT, schema_of_reader, shaped
from schemas.task_group.record import Record

_RECORD = Record(
    {
        "max_restarts": spelled(readers.WholeNumber(0, RESTARTS_MAX)),
        "on": readers.listed(readers.choice(*INFRASTRUCTURE), len(INFRASTRUCTURE), one_alone=True),
    },
    ("max_restarts",),
    f"Write max_restarts (0 to {RESTARTS_MAX}) and, where not all, on: the classes of failure it is restarted after.",
)


@shaped(schema_of_reader(_RECORD))
def recovery(value: object, path: str, found: list[Finding]) -> Any:
    read = _RECORD(value, path, found)
    if read is ABSENT:
        return ABSENT
    return {"max_restarts": read["max_restarts"], "on": sorted(read.get("on", INFRASTRUCTURE))}
