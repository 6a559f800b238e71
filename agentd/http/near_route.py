"""What to call instead of a route that there is not."""

from collections.abc import Iterable
from difflib import get_close_matches

from aiohttp import web

_SERVED = "/api/v1/"


def route_hint(request: web.Request) -> str:
    lists = "GET /api/v1/openapi.json lists all"
    near = nearest_path(request.path, request.app.router.resources())
    return f"did you mean {near}? {lists}" if near else lists


def nearest_path(asked: str, resources: Iterable[web.AbstractResource]) -> str:
    """The template whose fixed parts are most like these; "" where none is."""
    words = asked.rstrip("/").split("/")
    spelled: dict[str, str] = {}
    for resource in resources:
        parts = resource.canonical.split("/")
        if not resource.canonical.startswith(_SERVED) or len(parts) != len(words):
            continue
        # Whatever stands where a template takes a name is no difference, unless it takes some names only.
        path = "/".join(word if part.startswith("{") else part for part, word in zip(parts, words, strict=True))
        pattern = resource.get_info().get("pattern")
        if pattern is None or pattern.fullmatch(path):
            spelled[path] = resource.canonical
    close = get_close_matches("/".join(words), list(spelled), n=1, cutoff=0.8)
    return spelled[close[0]] if close else ""
