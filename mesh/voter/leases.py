"""The leases' shell: clock, quorum lease and proposals around the pure Grantor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from mesh.core.lease.grantor import Expire, Grantor
from mesh.core.state.lease_hold import KEY as HOLD
from mesh.store.feed import FeedFrame
from mesh.store.row_codec import decode_row
from mesh.voter.raft_loop import boottime_ns
from schemas.commands import command
from schemas.limits import Profile

TICK_S = 0.25

_logger = logging.getLogger("heteroflow.leases")


def take(grantor: Grantor, entity: str, key: str, row: dict[str, Any] | None, now_ns: int) -> None:
    """A row of the applied state, where it concerns leases."""
    if entity == "node":
        grantor.observe(key, row, now_ns)
    elif (entity, key) == ("meta", HOLD):
        grantor.observe_hold(row, now_ns)


class LeaseKeeper:
    """Alive while this voter leads: `lead` after its own term's first entry was applied, `drop` at the step-down."""

    def __init__(
        self,
        profile: Profile,
        quorum_held: Callable[[int], bool],
        load: Callable[[], Awaitable[tuple[int, list[tuple[str, str, dict[str, Any]]]]]],
        propose: Callable[[dict[str, Any]], Awaitable[bool]],
    ) -> None:
        """load: the index and `(entity, key, row)` of nodes and hold. propose: after a read-index round; True when the
        command surely was not and will not be applied."""
        self._profile, self._quorum_held, self._load_rows, self._propose = profile, quorum_held, load, propose
        self._grantor: Grantor | None = None
        self._loaded_at = 0
        self._early: list[FeedFrame] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def lead(self) -> None:
        self._grantor = Grantor(self._profile, boottime_ns())
        self._loaded_at, self._early = 0, []
        self._spawn(self._load(self._grantor))

    def drop(self) -> None:
        self._grantor = None
        for task in self._tasks:
            task.cancel()

    async def _load(self, grantor: Grantor) -> None:
        index, rows = await self._load_rows()
        if grantor is not self._grantor:
            return
        now = boottime_ns()
        for entity, key, row in rows:
            take(grantor, entity, key, row, now)
        self._loaded_at = max(index, 1)
        early, self._early = self._early, []
        for frame in early:
            self.observe(frame)

    def observe(self, frame: FeedFrame) -> None:
        """Every applied frame, in order."""
        if self._grantor is None:
            return
        if not self._loaded_at:
            self._early.append(frame)
            return
        if frame.index <= self._loaded_at:
            return
        for change in frame.changes:
            if change.entity in ("node", "meta"):
                row = decode_row(change.row) if change.row is not None else None
                take(self._grantor, change.entity, change.key, row, boottime_ns())

    def renew(self, renewal: dict[str, Any]) -> dict[str, Any]:
        now = boottime_ns()
        if self._grantor is None or not self._loaded_at:
            return {"granted": False, "sent_ns": renewal["sent_ns"], "ttl_ms": 0, "reason": "not_leading"}
        return self._grantor.renew(renewal, now, self._quorum_held(now))

    def tick(self) -> None:
        if self._grantor is None or not self._loaded_at:
            return
        now = boottime_ns()
        for effect in self._grantor.tick(now, self._quorum_held(now)):
            self._spawn(self._expire_node(self._grantor, effect))
        left = self._grantor.hold_left(now, self._quorum_held(now))
        if left is not None:
            self._spawn(self._propose(command("HoldLeft", **left)))

    async def _expire_node(self, grantor: Grantor, effect: Expire) -> None:
        _logger.warning("node %s is to be declared lost: %s", effect.node, effect.text)
        # While the command may still be applied, a grant could keep alive what the state has given up: only a sure
        # failure lets the node renew again.
        if await self._propose(command("ExpireNode", node_id=effect.node, uid=effect.uid, text=effect.text)):
            grantor.expiry_failed(effect.node, boottime_ns())

    def silence_ms(self) -> dict[str, int]:
        return self._grantor.silence_ms(boottime_ns()) if self._grantor is not None else {}

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("a lease task failed", exc_info=error)
