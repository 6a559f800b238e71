"""The way back of a host that the mesh gave up: end what was given up, say what is left, be ready again."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from agentd.node_feed import NodeFeed
from agentd.reporter import Proposer
from agentd.runtime.base import Observed
from schemas.commands import command
from schemas.errors import HeteroFlowError
from schemas.states import GONE, NODE_LOST

log = logging.getLogger(__name__)
_RETRY_S = 1.0


class Rejoin:
    """`look` after each reconcile pass. Reconcile itself ends what is lost; this only waits for it and tells the
    mesh."""

    def __init__(self, mesh: Proposer, feed: NodeFeed, node_id: str, uid: str) -> None:
        self._mesh, self._feed, self._node_id, self._uid = mesh, feed, node_id, uid
        self._inventory: list[dict[str, Any]] | None = None
        self._losses = 0  # a request that comes late must not speak for a later loss
        self._wake = asyncio.Event()

    @property
    def lost(self) -> bool:
        return self._feed.node is not None and self._feed.node["state"] == NODE_LOST

    def look(self, seen: Sequence[Observed]) -> None:
        """Only the row decides that this node is lost: it comes in one frame with what became of its tasks."""
        self._inventory = self._clean_inventory(seen) if self.lost else None
        self._losses = self._feed.node["losses"] if self._feed.node is not None else 0
        if self._inventory is not None:
            self._wake.set()

    def _clean_inventory(self, seen: Sequence[Observed]) -> list[dict[str, Any]] | None:
        """What the mesh still counts as alive here; None while anything else has not ended."""
        inventory: list[dict[str, Any]] = []
        for item in seen:
            row = self._feed.tasks.get(item.id)
            if row is not None and row["token"] == item.token and row["status"] not in GONE:
                key = item.id
                ref = {"group_id": key.group_id, "attempt": key.attempt, "rank": key.rank, "token": item.token}
                inventory.append(ref)
            elif item.state != "exited":
                return None
        return inventory

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if (inventory := self._inventory) is None:
                continue
            rejoin = command("RejoinNode", node_id=self._node_id, uid=self._uid, losses=self._losses, tasks=inventory)
            try:
                outcome = await self._mesh.propose(rejoin)
            except (HeteroFlowError, OSError, TimeoutError) as error:
                log.warning("cannot rejoin yet: %s", error)
            else:
                if outcome["ok"]:
                    log.info("rejoined the mesh", extra={"tasks": len(inventory)})
                    await self._feed.reached(int(outcome["idx"]))
                    continue
                log.warning("rejoining refused: %s", outcome["text"], extra={"code": outcome["code"]})
            await asyncio.sleep(_RETRY_S)
            self._wake.set()
