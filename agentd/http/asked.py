"""The few fields of an action, read from its body over their defaults."""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from agentd.http.body import read_document
from schemas.errors import InvalidInput
from schemas.lexemes import Number

_BODY_MAX = 16 << 10


async def asked_fields(request: web.Request, shape: Mapping[str, Any]) -> dict[str, Any]:
    """shape: a JSON schema of a map, whose defaults hold. Values are judged with the command. Raises InvalidInput for
    a field that is not known."""
    known = {name: field.get("default") for name, field in shape["properties"].items()}
    body = await read_document(request, _BODY_MAX) if request.can_read_body else {}
    for name in body:
        if name not in known:
            raise InvalidInput(
                "unknown_field", f"{name[:80]!r} is not a field of this action", f"use {', '.join(known)}", field=name
            )
    return {**known, **{name: _number(value) if isinstance(value, Number) else value for name, value in body.items()}}


def _number(text: Number) -> int | float:
    """Bodies keep numbers as they were written; here a number is meant."""
    whole = text.removeprefix("-").isdigit() and len(text) <= 18
    return int(text) if whole else float(text)
