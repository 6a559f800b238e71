"""A document on its way to an agent, as JSON: numbers leave in the spelling they came in."""

import json
from collections.abc import Mapping
from typing import Any

from schemas.lexemes import Number, Plain, is_json_number
from schemas.strict_json import DEPTH_MAX
from schemas.task_group import readers
from schemas.task_group.fields import SECTIONS

_TYPED = frozenset(("true", "false"))


def encode_document(document: object) -> bytes:
    """Strict JSON of a document as read. An unquoted YAML scalar becomes what its field holds: text stays text."""
    return _json(settled(document)).encode("ascii")


def settled(document: object) -> object:
    """The same document as an agent gets it: what YAML left unquoted is typed by its field, or text."""
    if not isinstance(document, Mapping):
        return document
    settled: dict[Any, Any] = {}
    for key, value in document.items():
        inner = isinstance(value, Mapping) and key in SECTIONS and key != ""
        settled[key] = (
            {name: _settle(key, name, item) for name, item in value.items()} if inner else _settle("", key, value)
        )
    return settled


def _settle(section: str, name: object, value: object) -> object:
    """Whole numbers and truth values are typed by their field; everywhere else the text is what was meant."""
    if not isinstance(value, Plain):
        return _as_text(value)
    reader = SECTIONS[section].fields.get(name) if isinstance(name, str) else None
    if reader is readers.truth and value in _TYPED:
        return value == "true"
    if isinstance(reader, readers.WholeNumber) and is_json_number(value):
        return Number(value)
    return str(value)


def _as_text(value: object, levels: int = DEPTH_MAX) -> object:
    """levels: more than any reader of documents gives; what is deeper is left as it is."""
    if isinstance(value, Plain):
        return str(value)
    if isinstance(value, Mapping) and levels:
        return {key: _as_text(item, levels - 1) for key, item in value.items()}
    return [_as_text(item, levels - 1) for item in value] if isinstance(value, list) and levels else value


def _json(value: object) -> str:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(str(key))}:{_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_json(item) for item in value) + "]"
    return json.dumps(str(value) if isinstance(value, str) else value, allow_nan=False)
