"""A stream ends with the right to read it: who opened it is judged again while it lasts."""

import asyncio
import time

from aiohttp import web

from agentd.http.callers import CALLERS, caller_of
from agentd.http.needs import need_of
from schemas.errors import Forbidden, NotAuthorised, Problem, Unavailable

RECHECK_S = 2.0
"""With what a `KeyBook` may be old, the longest that a stream outlives a key which its voter knows to be revoked."""
UNSURE_S = 30.0
"""A voter that restarts, or an election, ends no stream."""


async def lapse(request: web.Request) -> Problem:
    """Returns when whoever opened this stream may not have it any more."""
    callers, need = request.app[CALLERS], need_of(request.match_info.handler)
    sure_s = time.monotonic()
    while True:
        expires_ms = caller_of(request).expires_ms
        left_s = RECHECK_S if expires_ms is None else expires_ms / 1000 - time.time()
        await asyncio.sleep(min(RECHECK_S, max(left_s, 0.05)))
        try:
            await callers.admit(request, need)
            sure_s = time.monotonic()
        except (NotAuthorised, Forbidden) as error:
            return error.problem
        except Unavailable as error:
            if time.monotonic() - sure_s > UNSURE_S:
                return error.problem
