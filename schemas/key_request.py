"""What is said to make an API key: one table of fields, for the reader and for the API's description."""

from collections.abc import Mapping
from typing import Any

from schemas.errors import Finding, InvalidInput
from schemas.rules.permissions import ROLES, SCOPES
from schemas.task_group.readers import Reader, WholeNumber, choice, listed, schema_of_reader, text

YEARS_S = 10 * 366 * 86_400
FIELDS: dict[str, Reader] = {
    "name": text(64),
    "role": choice(*ROLES),
    "tenant": text(64),
    "scopes": listed(choice(*SCOPES), len(SCOPES)),
    "expires_in_s": WholeNumber(1, YEARS_S),
}
REQUIRED = ("name", "role")
KEY_REQUEST: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": list(REQUIRED),
    "properties": {name: schema_of_reader(reader) for name, reader in FIELDS.items()},
}


def read_key_request(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that were given. Raises InvalidInput with every finding."""
    found: list[Finding] = []
    for name in body:
        if name not in FIELDS:
            known = f"Known: {', '.join(FIELDS)}."
            found.append(Finding("invalid_key", str(name)[:80], f"{name!s:.80} is no field of an API key", known))
    for name in REQUIRED:
        if name not in body:
            found.append(Finding("invalid_key", name, f"{name} is missing", "Give it."))
    fields = {name: read(body[name], name, found) for name, read in FIELDS.items() if name in body}
    if found:
        raise InvalidInput("invalid_key", found[0].message, found[0].hint, found[0].path, found)
    return fields
