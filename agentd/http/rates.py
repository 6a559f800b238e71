"""How often one API key, or one address whose requests are refused, is answered. Agents and the holder of the mesh
token are not counted: they are the mesh."""

import math
import time
from dataclasses import dataclass, field

from aiohttp import web

from agentd.core.token_bucket import TokenBuckets
from schemas.errors import HeteroFlowError
from schemas.rules.permissions import PERSON, Caller

# A console asks a few times a second, and a script that pages through ten thousand groups has a burst; more than that
# is a loop without a pause, which costs everybody else.
KEY_PER_S, KEY_BURST = 50.0, 500.0
# Guesses: a token has far too many values for this to matter, the processor of a host that trains has not.
STRANGER_PER_S, STRANGER_BURST = 20.0, 500.0


class TooManyRequests(HeteroFlowError):
    status = 429

    def __init__(self, who: str, wait_s: float) -> None:
        super().__init__(
            "too_many_requests",
            f"{who} asks too often",
            f"come again in {max(math.ceil(wait_s), 1)} s; `/watch` tells of changes without being asked",
        )
        self.wait_s = wait_s


@dataclass(slots=True)
class Rates:
    keys: TokenBuckets = field(default_factory=lambda: TokenBuckets(KEY_PER_S, KEY_BURST))
    strangers: TokenBuckets = field(default_factory=lambda: TokenBuckets(STRANGER_PER_S, STRANGER_BURST))

    def came(self, caller: Caller) -> None:
        """Raises TooManyRequests."""
        if caller.kind == PERSON and (wait_s := self.keys.take(caller.key, time.monotonic())):
            raise TooManyRequests(f"the key {caller.key}", wait_s)

    def refused(self, request: web.Request) -> None:
        """Of a stranger, before he is told so. Raises TooManyRequests."""
        if wait_s := self.strangers.take(request.remote or "", time.monotonic()):
            raise TooManyRequests("this address", wait_s)


RATES = web.AppKey("rates", Rates)
