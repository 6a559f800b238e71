"""A JSON value as one YAML document that reads back as the same value, by readers of YAML 1.1 and of 1.2."""

import json
import re
from collections.abc import Mapping
from typing import Any

# No digit, sign or dot begins it, so it is no number, date or list; and none of the words that are no texts.
_BARE = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*\Z")
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "y", "n", "null"))


def value_yaml(value: Any) -> str:
    """With the mark of its beginning, so that several in a row are several. ASCII only."""
    return "\n".join(["---", *_block(value)]) + "\n"


def _block(value: Any) -> list[str]:
    lines: list[str] = []
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            lines += _entry(f"{_text(str(name))}:", item, "  ")
    elif isinstance(value, list | tuple) and value:
        for item in value:
            lines += _entry("-", item, "  ")
    else:
        lines.append(_scalar(value))
    return lines


def _entry(head: str, item: Any, indent: str) -> list[str]:
    below = _block(item)
    if not isinstance(item, Mapping | list | tuple) or not item:
        return [f"{head} {below[0]}"]
    if head == "-":
        return [f"- {below[0]}", *(indent + line for line in below[1:])]
    return [head, *(indent + line for line in below)]


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, list | tuple):
        return "[]"
    text = json.dumps(value, allow_nan=False)
    # A number whose exponent follows no point is a text to YAML 1.1.
    return text.replace("e", ".0e") if isinstance(value, float) and "e" in text and "." not in text else text


def _text(text: str) -> str:
    """JSON's quoting is YAML's too, but for pairs of surrogates, which YAML spells as one character."""
    if _BARE.match(text) and text.lower() not in _WORDS:
        return text
    return '"' + "".join(_spelled(character) for character in text) + '"'


def _spelled(character: str) -> str:
    code = ord(character)
    return f"\\U{code:08x}" if code > 0xFFFF else json.dumps(character)[1:-1]
