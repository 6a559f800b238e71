"""On the leader's host: ended groups that were kept long enough are taken out of the state, a few at a time."""

from __future__ import annotations

import asyncio
import logging
import time

from mesh.client import MeshClient
from mesh.core.control.retention import Retention, overdue
from schemas.commands import command
from schemas.errors import HeteroFlowError

EVERY_S = 60.0
_PAGE = 1000
_logger = logging.getLogger("heteroflow.retention")


class Pruner:
    """client: of this host's own voter, as the controllers have. At most PRUNED_AT_ONCE groups every `every_s`: a
    leader whose clock is wrong is noticed long before much is gone."""

    def __init__(self, client: MeshClient, retention: Retention, every_s: float = EVERY_S) -> None:
        self._client, self._retention, self._every_s = client, retention, every_s

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self.look()
            except HeteroFlowError as error:
                _logger.info("ended groups are looked at again later: %s", error)
            except Exception:
                _logger.exception("a look at ended groups failed; the next one is in %.0f s", self._every_s)

    async def look(self) -> list[str]:
        """What was pruned; nothing while another host leads."""
        leader = self._client.leader
        if leader is None or not leader.me:
            return []
        oldest, total = await self._ended()
        ids = overdue(oldest, total, time.time_ns() // 1_000_000, self._retention)
        if not ids:
            return []
        answer = await self._client.propose(command("PruneGroups", group_ids=ids), term=leader.term)
        pruned: list[str] = answer["data"].get("pruned", []) if answer["ok"] else []
        if pruned:
            _logger.info("%d groups that ended long ago were removed", len(pruned), extra={"groups": pruned})
        return pruned

    async def _ended(self) -> tuple[list[str], int]:
        """The oldest keys, and how many there are; without a bound of their number the first page is enough."""
        oldest: list[str] = []
        total, after = 0, ""
        while True:
            found = await self._client.query([{"scan": ["ended", "", after, _PAGE]}], level="stale")
            (page,) = found["results"]
            if not page:
                return oldest, total
            keys = [key for key, _ in page]
            oldest = oldest or keys
            total, after = total + len(keys), keys[-1]
            if self._retention.keep_groups is None:
                return oldest, total
