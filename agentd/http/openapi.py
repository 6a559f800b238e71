"""The API's description (OpenAPI 3.1), out of the route table, what stands beside each route, and the shapes that the
answers are made in."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from aiohttp import web

from agentd.http.answer import MSGPACK
from agentd.http.description import Described, description_of
from agentd.http.needs import Need, need_of
from schemas.api import HEADER_AGE_MS, HEADER_INDEX, HEADER_NODE, HEADER_REQUEST_ID, ProblemShown
from schemas.json_schema import Schema, schema_of
from schemas.rules.permissions import Permission

JSON = "application/json"
_SEGMENT = "[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_SEGMENT_SCHEMA: Schema = {"type": "string", "pattern": f"^{_SEGMENT}$"}
_PLACE = re.compile(r"\{([a-z_]+)(?::([^{}]*))?\}")
_PATH_PARAMETERS: dict[str, tuple[str, Schema]] = {
    "group_id": ("of a task group", {"type": "string", "pattern": f"^{_SEGMENT}$"}),
    "attempt": ("how often the group has been placed, from 1", {"type": "integer", "minimum": 0, "maximum": 999_999}),
    "rank": ("of the node among the group's, from 0", {"type": "integer", "minimum": 0, "maximum": 999_999}),
    "task": ("GROUP.ATTEMPT.RANK", {"type": "string", "pattern": rf"^{_SEGMENT}\.[0-9]{{1,6}}\.[0-9]{{1,6}}$"}),
}
_MEANINGS = {
    200: "the answer",
    201: "made by this request",
    101: "the WebSocket is open",
    204: "taken",
    206: "the range that was asked for",
    400: "the request is wrong; sending it again cannot help",
    401: "the token is missing or wrong",
    403: "the token does not allow this",
    404: "the named thing is not there",
    405: "this route does not take that method",
    408: "the body did not arrive in time",
    409: "the state does not allow it now",
    410: "the key is too old",
    412: "the file is not the one that was meant",
    413: "the body is too large",
    415: "the body is of a type that is not taken",
    416: "no byte of the range is in the file",
    421: "the Host header does not name this agent",
    422: "known, but not in this version",
    426: "this route speaks WebSocket",
    429: "too many requests; Retry-After says when to come again",
    500: "this agent failed; the id in the message is in its log",
    503: "nothing is wrong with the request; try again, here or on another node",
    507: "no room: the log, or a file, cannot be written",
}
_EVERYWHERE = (400, 421, 500, 503)
_BEHIND_TOKEN = (401, 403, 429)
_OF_A_BODY = (408, 413, 415)
_OF_A_WRITE = (409, 507)
_READING_HEADERS = {
    HEADER_INDEX: ("log index that the answer shows", "^[0-9]+$"),
    HEADER_AGE_MS: ("how old it is, at most, in milliseconds", "^[0-9]+$"),
    HEADER_NODE: ("the node that answered", None),
}
_HEAD = """\
One agent's HTTP interface; every agent answers for the whole mesh. JSON, or msgpack where Accept says
application/msgpack. Refusals are problem objects. Times are ISO-8601 UTC."""


def openapi(route_tables: Iterable[web.RouteTableDef], version: str) -> dict[str, Any]:
    """Every route once, in the order of its path. A route without a declaration is there with what its docstring and
    its path say."""
    components: dict[str, Schema] = {}
    paths: dict[str, dict[str, Any]] = {}
    for method, path, handler in sorted(operations(route_tables), key=lambda found: (found[1], found[0])):
        for spelled, places in spellings(path):
            paths.setdefault(spelled, {})[method.lower()] = _operation(method, spelled, places, handler, components)
    refusals = _refusals((found for methods in paths.values() for found in methods.values()), components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "HeteroFlow", "version": version, "description": " ".join(_HEAD.split())},
        "paths": paths,
        "components": {
            "responses": refusals,
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def operations(route_tables: Iterable[web.RouteTableDef]) -> Iterator[tuple[str, str, Any]]:
    for table in route_tables:
        for route in table:
            assert isinstance(route, web.RouteDef), "only single routes are registered"
            yield route.method, route.path, route.handler


def spellings(path: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A place that takes one of a few words (`{way:scale|autoscale}`) is a path for each."""
    for found in _PLACE.finditer(path):
        words = found[2]
        if words is not None and re.fullmatch(r"[a-z-]+(\|[a-z-]+)+", words):
            for word in words.split("|"):
                yield from spellings(path.replace(found.group(), word))
            return
    yield _PLACE.sub(lambda found: f"{{{found[1]}}}", path), tuple(found[0] for found in _PLACE.findall(path))


def _operation(
    method: str, path: str, places: tuple[str, ...], handler: Any, components: dict[str, Schema]
) -> dict[str, Any]:
    words = " ".join((handler.__doc__ or "").split())
    said = description_of(handler) or Described(words.partition(". ")[0] or handler.__name__, answer={})
    operation: dict[str, Any] = {
        "operationId": f"{method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', path).rstrip('_')}",
        "summary": said.title,
        "tags": ["between agents" if path.startswith("/mesh/") else "api"],
    }
    if words:
        operation["description"] = words
    parameters = [*_path_parameters(places), *_query_parameters(said), *_header_parameters(said)]
    if parameters:
        operation["parameters"] = parameters
    if said.body is not None:
        kinds = (said.body_kind,) if said.body_kind else (JSON, MSGPACK)
        schema = schema_of(said.body, components)
        operation["requestBody"] = {
            "required": said.body_kind is None,
            "content": {kind: {"schema": schema} for kind in kinds},
        }
    need = need_of(handler)
    if need is None or need.permission is not Permission.OPEN:
        operation["security"] = [{"bearer": _scopes(need)}]
    operation["responses"] = _responses(method, places, said, components)
    if "security" in operation:
        operation["responses"] |= _references(_BEHIND_TOKEN)
    operation["responses"] = dict(sorted(operation["responses"].items()))
    return operation


def _scopes(need: Need | None) -> list[str]:
    if need is None or need.permission is Permission.SELF:
        return []
    return sorted({str(need.permission), *([str(Permission.PEER)] if need.peer else ())})


def _path_parameters(places: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for name in places:
        about, schema = _PATH_PARAMETERS.get(name, ("", {"type": "string", "maxLength": 128}))
        yield {"name": name, "in": "path", "required": True, "description": about, "schema": schema}


def _query_parameters(said: Described) -> Iterator[dict[str, Any]]:
    for parameter in said.parameters:
        schema = parameter.schema
        if parameter.repeats:
            schema = {"type": "array", "items": schema}
        shown = {"name": parameter.name, "in": "query", "description": parameter.about, "schema": schema}
        # A list in one parameter is separated by commas; one that repeats is given again.
        yield shown | ({"explode": parameter.repeats} if schema["type"] == "array" else {})


def _header_parameters(said: Described) -> Iterator[dict[str, Any]]:
    if said.once:
        about = "with the same key and request again, it happens once and answers the same; for 24 hours"
        yield {"name": HEADER_REQUEST_ID, "in": "header", "description": about, "schema": dict(_SEGMENT_SCHEMA)}
    for name, about in said.headers:
        yield {"name": name, "in": "header", "required": True, "description": about, "schema": {"type": "string"}}
    for name, about in said.asking:
        yield {"name": name, "in": "header", "description": about, "schema": {"type": "string"}}


def _responses(method: str, places: tuple[str, ...], said: Described, components: dict[str, Schema]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in said.statuses:
        response: dict[str, Any] = {"description": _MEANINGS[status]}
        if said.reading:
            response["headers"] = {
                name: {"description": about, "schema": {"type": "string"} | ({"pattern": pattern} if pattern else {})}
                for name, (about, pattern) in _READING_HEADERS.items()
            }
        if said.kind is not None:
            response["content"] = {said.kind: {"schema": {"type": "string"} if said.answer is None else said.answer}}
        elif said.answer is not None:
            schema = schema_of(said.answer, components)
            response["content"] = {kind: {"schema": schema} for kind in (JSON, MSGPACK)}
        responses[str(status)] = response
    refusals = {*_EVERYWHERE, *said.problems}
    refusals |= set(_OF_A_BODY if said.body is not None or method in ("POST", "PUT", "PATCH") else ())
    refusals |= set((*_OF_A_WRITE, 410) if said.once else ())
    refusals |= {404} if places else set()
    return responses | _references(refusals)


def _references(statuses: Iterable[int]) -> dict[str, Any]:
    return {str(status): {"$ref": f"#/components/responses/{status}"} for status in statuses}


def _refusals(operations: Iterable[dict[str, Any]], components: dict[str, Schema]) -> dict[str, Any]:
    """Each status that is referred to, once."""
    problem = {kind: {"schema": schema_of(ProblemShown, components)} for kind in (JSON, MSGPACK)}
    used = {status for found in operations for status, said in found["responses"].items() if "$ref" in said}
    return {status: {"description": _MEANINGS[int(status)], "content": problem} for status in sorted(used)}
