"""Requests as they are counted: by route, never by path, so that no stranger makes the list longer."""

import time
from dataclasses import dataclass, field

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from agentd.core.exposition import COUNTER, HISTOGRAM, Family, Spread

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
UNMATCHED, OTHER, ABORTED = "unmatched", "other", "aborted"


@dataclass(slots=True)
class Traffic:
    requests: dict[tuple[str, str, str], int] = field(default_factory=dict)
    latencies: dict[str, Spread] = field(default_factory=dict)

    def count(self, method: str, route: str, code: str) -> None:
        key = (method, route, code)
        self.requests[key] = self.requests.get(key, 0) + 1

    def families(self) -> list[Family]:
        return [
            Family(
                "heteroflow_http_requests_total",
                COUNTER,
                "Requests by method, route and status; aborted: the caller left first.",
                [
                    ("", (("method", method), ("route", route), ("code", code)), number)
                    for (method, route, code), number in sorted(self.requests.items())
                ],
            ),
            Family(
                "heteroflow_http_request_duration_seconds",
                HISTOGRAM,
                "Time from the request's head to the whole answer; streams are not in it.",
                [
                    sample
                    for route, spread in sorted(self.latencies.items())
                    for sample in spread.samples((("route", route),))
                ],
            ),
        ]


TRAFFIC = web.AppKey("traffic", Traffic)


def counted(traffic: Traffic) -> Middleware:
    @web.middleware
    async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.perf_counter()
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else UNMATCHED
        method = request.method if request.method in hdrs.METH_ALL else OTHER
        code = ABORTED
        try:
            response = await handler(request)
            code = str(response.status)
            if isinstance(response, web.Response):
                if route not in traffic.latencies:
                    traffic.latencies[route] = Spread(BOUNDS_S)
                traffic.latencies[route].add(time.perf_counter() - began)
            return response
        finally:
            traffic.count(method, route, code)

    return count
