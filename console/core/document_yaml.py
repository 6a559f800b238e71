"""A task-group document as YAML that reads back as the same document, whatever is in its texts."""

import json
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_./+][A-Za-z0-9_./+@%=-]*\Z")
_BARE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
# Follows from n_nodes and per_node_gpu; an edited copy that kept it would contradict itself.
_DERIVED = frozenset((("training", "world_size"),))


def document_yaml(document: Mapping[str, Any]) -> str:
    return "\n".join(_mapping(document, (), 0)) + "\n"


def _mapping(value: Mapping[str, Any], path: tuple[str, ...], depth: int) -> list[str]:
    lines = []
    indent = "  " * depth
    for name, item in value.items():
        if (*path, name) in _DERIVED:
            continue
        key = _key(name)
        if isinstance(item, Mapping) and item:
            lines += [f"{indent}{key}:", *_mapping(item, (*path, name), depth + 1)]
        else:
            lines.append(f"{indent}{key}: {_flow(item)}")
    return lines


def _key(name: str) -> str:
    return name if _BARE_KEY.match(name) and name not in _NULLS else _quoted(name)


def _flow(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(name)}: {_flow(item)}' for name, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_flow(item) for item in value)}]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    return text if _BARE.match(text) and text not in _NULLS else _quoted(text)


def _quoted(text: str) -> str:
    """JSON's quoting is YAML's too; what is not plainly printable is spelled out, so that it can be seen."""
    return "".join(item if item.isprintable() else _spelled(ord(item)) for item in json.dumps(text, ensure_ascii=False))


def _spelled(code: int) -> str:
    """YAML has no pairs of surrogates: what lies beyond 16 bits has a spelling of its own."""
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
