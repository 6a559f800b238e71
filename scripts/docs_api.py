"""docs/api.md out of the API's own description. `--check` only says whether it is up to date (exit 1: it is not)."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentd.http.app import api_description
from agentd.http.openapi import JSON

PATH = Path(__file__).resolve().parents[1] / "docs" / "api.md"
HEAD = """# The API

Made from the routes in `agentd/http/` by `scripts/docs_api.py`; do not edit it by hand.

Every agent answers for the whole mesh, at port 7460. The machine-readable form (OpenAPI 3.1) is
`GET /api/v1/openapi.json`, and `heteroflow-agentd openapi` prints it without an agent.

```
curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:7460/api/v1/task-groups?status=running
```

* **Who may**: each route names the permission that its caller needs. Without a known token the answer is 401, without
  the permission 403. Routes under `/mesh/` are for agents.
* **Formats**: JSON, or msgpack with `Accept: application/msgpack`; bodies likewise by `Content-Type`. Times are
  ISO-8601 UTC, null is what is not known.
* **Refusals** are problem objects, whatever the status: `code` (stable, for programs), `message` (what happened),
  `hint` (what to do), `field`, `findings` (everything wrong with the input), `status`. 503 carries `Retry-After`.
* **Parameters** that a route does not know, or that are given twice where one counts, are refused by name.
* **Pages**: a list takes `limit` and answers a `cursor`, null at the end. With `cursor=` the next page follows,
  whatever came or went meanwhile.
* **Moment**: reads are linearizable unless `consistency=stale`. `X-HeteroFlow-Index`, `X-HeteroFlow-Age-Ms` and
  `X-HeteroFlow-Node` say which log index is shown, how old it is at most, and by whom.
* **Once**: with `Idempotency-Key` a repeated request happens once and is answered as the first time, for 24 hours.
"""


def api_page() -> str:
    description = api_description()
    parts = [HEAD, "\n## Routes\n"]
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            parts += _route(method.upper(), path, operation)
    parts.append("\n## Shapes\n\nWhat has no type here may be anything.\n")
    for name, schema in description["components"]["schemas"].items():
        parts += _shape(name, schema)
    return "".join(parts)


def _route(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"\n### `{method} {path}`\n\n{operation['summary']}."
    if (words := operation.get("description", "")) and words.rstrip(".") != operation["summary"]:
        yield f" {words}"
    scopes = [scope for need in operation.get("security", ()) for scope in need["bearer"]]
    if scopes:
        yield f" Needs {' and '.join(f'`{scope}`' for scope in scopes)}."
    yield "\n"
    if parameters := operation.get("parameters"):
        yield "\n| parameter | in | takes | |\n|---|---|---|---|\n"
        for said in parameters:
            about = said.get("description", "").replace("|", "\\|")
            yield f"| `{said['name']}` | {said['in']} | {_range(said['schema'])} | {about} |\n"
    if body := operation.get("requestBody"):
        schema = next(iter(body["content"].values()))["schema"]
        kinds = " or ".join(f"`{kind}`" for kind in body["content"])
        fields = ", ".join(f"`{name}`" for name in schema.get("properties", ()))
        yield f"\nBody ({kinds})" + (f": {fields}.\n" if fields else ".\n")
    good = {status: said for status, said in operation["responses"].items() if "$ref" not in said}
    refused = ", ".join(status for status, said in operation["responses"].items() if "$ref" in said)
    for status, said in good.items():
        yield f"\n{status}: {_answer(said)}\n"
    yield f"\nRefusals: {refused}\n"


def _answer(said: dict[str, Any]) -> str:
    content = said.get("content")
    if not content:
        return str(said["description"])
    if JSON in content:
        return _kind(content[JSON]["schema"])
    return f"`{next(iter(content))}`"


def _range(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        words = ", ".join(f"`{value}`" for value in schema["enum"])
    elif schema["type"] == "array":
        words = f"any of {_range(schema['items'])}" if "enum" in schema["items"] else "text, given again for more"
    elif schema["type"] == "integer":
        words = f"{schema['minimum']} to {schema['maximum']}"
    elif schema["type"] == "boolean":
        words = "`true`, `false`"
    else:
        words = "text"
    default = schema.get("default")
    return words if default is None or default is False else f"{words}; {default} if not given"


def _shape(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"\n### {name}\n\n"
    if about := schema.get("description"):
        yield f"{about}\n\n"
    yield "| field | type |\n|---|---|\n"
    for field, kind in schema.get("properties", {}).items():
        optional = "" if field in schema.get("required", ()) else " (may be absent)"
        yield f"| `{field}` | {_kind(kind)}{optional} |\n"


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_kind(part) for part in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {_kind(schema['items'])}" if _kind(schema["items"]) else "list"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        inner = _kind(schema["additionalProperties"])
        return f"map to {inner}" if inner else "map"
    return str(kind)


def main() -> int:
    page = api_page()
    if "--check" in sys.argv[1:]:
        if not PATH.exists() or PATH.read_text() != page:
            print("docs/api.md is not what the routes say: run `python -m scripts.docs_api`")
            return 1
        return 0
    PATH.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
