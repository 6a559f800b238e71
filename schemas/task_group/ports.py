"""Ports that a task listens on: on its node's own network, so that two tasks of one node never have the same."""

import re
from typing import Any

from schemas.errors import Finding
from schemas.task_group.container import spelled
from schemas.task_group.readers import ABSENT, WholeNumber, mapped, refuse, schema_of_reader, shaped

PORTS_MAX = 16
# Below it a port needs a privilege that no task has.
PORT_LOW, PORT_HIGH = 1024, 65_535
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_NAME_MAX = 32
_RULE = f"names are small letters, digits and _, beginning with a letter, at most {_NAME_MAX} characters"
_named = mapped(_NAME, _RULE, spelled(WholeNumber(PORT_LOW, PORT_HIGH)), PORTS_MAX, _NAME_MAX)


@shaped({**schema_of_reader(_named), "minProperties": 1, "examples": [{"http": 8000}]})
def ports(value: object, path: str, found: list[Finding]) -> Any:
    """Number by name."""
    if isinstance(value, list | tuple):
        return refuse(found, path, "must be a mapping, not a list", "Name each port, such as {http: 8000}.")
    read = _named(value, path, found)
    if read is ABSENT:
        return ABSENT
    if not read and not value:
        return refuse(found, path, "names no port", "Write NAME: NUMBER, such as http: 8000, or remove it.")
    numbers: dict[int, str] = {}
    for name, number in read.items():
        if number in numbers:
            return refuse(found, path, f"gives {numbers[number]} and {name} one number, {number}", "Take another.")
        numbers[number] = name
    return read
