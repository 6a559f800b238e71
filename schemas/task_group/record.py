"""A mapping below a field, with keys of its own: everything wrong with it is told at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from schemas.errors import Finding
from schemas.task_group.readers import ABSENT, Reader, Schema, is_null, refuse, schema_of_reader, shown

_UNKNOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class Record:
    """hint: what to write as a whole."""

    fields: Mapping[str, Reader]
    required: tuple[str, ...]
    hint: str

    @property
    def schema(self) -> Schema:
        return {
            "type": "object",
            "properties": {name: schema_of_reader(reader) for name, reader in self.fields.items()},
            "required": list(self.required),
            "additionalProperties": False,
        }

    def __call__(self, value: object, path: str, found: list[Finding]) -> Any:
        if is_null(value, path, found):
            return ABSENT
        if not isinstance(value, Mapping):
            return refuse(found, path, f"must be a mapping, not {shown(value)}", self.hint)
        before = len(found)
        meant = [self._unknown(name, path, found) for name in self._unknown_of(value)]
        for name in self.required:
            if name not in value and name not in meant:
                refuse(found, path, f"has no {name}", self.hint)
        # In the order of the fields, whatever the order of the document.
        read = {
            name: reader(value[name], f"{path}.{name}", found) for name, reader in self.fields.items() if name in value
        }
        return ABSENT if len(found) > before else read

    def _unknown_of(self, value: Mapping[Any, Any]) -> list[Any]:
        return sorted((name for name in value if name not in self.fields), key=shown)[:_UNKNOWN_MAX]

    def _unknown(self, name: object, path: str, found: list[Finding]) -> str | None:
        close = get_close_matches(name[:60].lower(), self.fields, n=1, cutoff=0.72) if isinstance(name, str) else []
        hint = f"Did you mean {close[0]}? {self.hint}" if close else self.hint
        refuse(found, path, f"has the unknown key {shown(name)}", hint)
        return close[0] if close else None
