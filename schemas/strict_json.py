"""JSON as the standard has it: what Python's reader lets pass (NaN, doubled keys, any depth) is refused with its place.

Numbers keep their written text (`schemas.lexemes.Number`).
"""

import json
import re
from collections.abc import Iterable
from typing import Any, NoReturn

from schemas.errors import Finding, HeteroFlowError, InvalidInput
from schemas.lexemes import Number
from schemas.limits import DOCUMENT_MAX

# Deeper than any document may be, shallower than Python's own stack: the checks that name the field come later.
DEPTH_MAX = 64
# The closing quote is optional so that an unterminated text is one match: retried at each of its quotes, it would cost
# its length squared.
_STRUCTURE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]|NaN|-?Infinity', re.DOTALL)
_BOM = b"\xef\xbb\xbf"


class BodyTooLarge(HeteroFlowError):
    status = 413


def parse_strict_json(body: bytes, limit: int = DOCUMENT_MAX) -> Any:
    """Raises InvalidInput(invalid_json) with line and column, BodyTooLarge."""
    if len(body) > limit:
        raise BodyTooLarge(
            "body_too_large",
            f"the document has {len(body)} bytes; at most {limit} are taken",
            "Move data into files and name their path.",
        )
    if body.startswith(_BOM):
        _refuse("the document begins with a byte order mark", "Save it as UTF-8 without BOM.")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        _refuse(f"byte {error.start} is not UTF-8", "Save it as UTF-8.")
    if not text.strip(" \t\r\n"):
        _refuse("the document is empty", "Send one JSON object.")
    _check_structure(text)
    try:
        return json.loads(text, parse_int=Number, parse_float=Number, object_pairs_hook=_no_doubles)
    except json.JSONDecodeError as error:
        _refuse(f"line {error.lineno}, column {error.colno}: {error.msg}", _advice(text, error.pos))


def _check_structure(text: str) -> None:
    depth = 0
    for found in _STRUCTURE.finditer(text):
        mark = found.group()
        if mark in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                _refuse(
                    f"line {_line(text, found.start())}: nested deeper than {DEPTH_MAX} levels", "Flatten the document."
                )
        elif mark in "]}":
            depth -= 1
        elif not mark.startswith('"'):
            hint = f'Write "{mark}" in quotes if the text is meant.'
            _refuse(f"line {_line(text, found.start())}: {mark} is no JSON number", hint)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _no_doubles(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            _refuse(f"the key {key[:80]!r} stands twice in one object", "Keep one of them.")
        table[key] = value
    return table


def _advice(text: str, at: int) -> str:
    before = text[:at].rstrip()
    if text[at : at + 1] in ("]", "}") and before.endswith(","):
        return "JSON takes no comma before a closing bracket."
    if before.endswith(",") and text[at : at + 1] == '"':
        return "JSON takes no comma before a closing bracket."
    return "Correct it there; `python3 -m json.tool FILE` shows the same place."


def _refuse(message: str, hint: str) -> NoReturn:
    raise InvalidInput("invalid_json", message, hint, findings=[Finding("invalid_json", "", message, hint)])
