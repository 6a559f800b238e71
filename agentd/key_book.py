"""What this agent knows of API keys and signers: read from the nearest voter, and at most FRESH_S old.

Where no voter can say that its state is new, nobody is let in by a key: a revocation might be among what it missed. The
mesh token still opens every agent."""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from mesh.client import MeshClient
from schemas.errors import Unavailable

FRESH_S = 1.0
STALE_MS = 15_000
"""A voter that heard the leader no longer ago speaks for the mesh; beyond it the mesh itself is asked."""
LOOKS_PER_S = 20
"""How often the mesh is asked for a key that the nearest voter does not know: strangers can make up any number."""
_KEPT = 1_024
_SIGNERS = "signers"

Row = Mapping[str, Any]


class KeyBook:
    def __init__(self, mesh: Callable[[], MeshClient | None], now_s: Callable[[], float] = time.monotonic) -> None:
        self._mesh, self._now_s = mesh, now_s
        self._known: OrderedDict[str, tuple[float, Any]] = OrderedDict()
        self._looks, self._looks_since = 0, now_s()

    async def key(self, key_id: str) -> Row | None:
        """Raises Unavailable."""
        row: Row | None = await self._look(key_id, {"get": ["api_key", key_id]}, bool)
        return row

    async def signers(self, wanted: str = "") -> dict[str, Row]:
        """By id; read anew where `wanted` is not among those known. Raises Unavailable."""

        def enough(rows: list[tuple[str, Row]]) -> bool:
            return not wanted or wanted in dict(rows)

        if (known := self._known.get(_SIGNERS)) is not None and not enough(known[1]):
            del self._known[_SIGNERS]
        return dict(await self._look(_SIGNERS, {"scan": ["signer", ""]}, enough))

    def forget(self) -> None:
        """After a change made here, which shall hold here at once."""
        self._known.clear()

    async def _look(self, name: str, read: dict[str, Any], enough: Callable[[Any], bool]) -> Any:
        known = self._known.get(name)
        if known is not None and self._now_s() < known[0]:
            return known[1]
        mesh = self._mesh()
        if mesh is None:
            raise Unavailable("not_joined", "this agent has not joined a mesh yet", "ask another agent meanwhile")
        try:
            found = await mesh.query([read], level="stale")
            # What another agent wrote a moment ago may not have come here yet.
            if not 0 <= found["age_ms"] <= STALE_MS or (not enough(found["results"][0]) and self._may_look()):
                found = await mesh.query([read])
        except (ConnectionError, TimeoutError) as error:
            raise Unavailable(
                "no_voter", "no voter answers, so nobody can say whether the key is good", "try again, or another agent"
            ) from error
        (value,) = found["results"]
        self._known[name] = (self._now_s() + FRESH_S, value)
        self._known.move_to_end(name)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return value

    def _may_look(self) -> bool:
        now = self._now_s()
        if now - self._looks_since >= 1:
            self._looks, self._looks_since = 0, now
        self._looks += 1
        return self._looks <= LOOKS_PER_S
