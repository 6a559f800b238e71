"""The checkpoints of groups whose rank 0 runs here: looked for again and again, and a new one is told to the mesh.

Rank 0's host alone looks, since all nodes see the same directory. A share that hangs costs its own groups their looks
and nobody anything else.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentd.checkpoints.removal import remove_checkpoints
from agentd.claims.checkpoint_probe import open_allowed, rules_of
from agentd.node_feed import NodeFeed, Row
from agentd.reporter import Proposer
from agentd.runtime.base import TaskId
from agentd.telemetry.blocking_look import BlockingLook, StillLooking
from schemas.commands import command
from schemas.errors import HeteroFlowError
from schemas.limits import REMOVED_AT_ONCE
from schemas.rules.checkpoints.fence import FencedDirectory
from schemas.rules.checkpoints.names import shown
from schemas.rules.checkpoints.probe import probe
from schemas.rules.checkpoints.retention import plan_retention
from schemas.rules.checkpoints.saved import Saved, saved_of
from schemas.rules.checkpoints.view import Unreadable
from schemas.states import EXITED, RUNNING
from schemas.task_types import part_of

log = logging.getLogger(__name__)
EVERY_S = 10.0
# While somebody waits for the next one to stop.
_ASKED_EVERY_S = 1.0
_LOOK_DEADLINE_S = 20.0
_TIDY_DEADLINE_S = 300.0
# A look is at most this part of the time: a directory of thousands of broken checkpoints takes seconds to judge.
_SHARE = 1 / 20


@dataclass(slots=True)
class _Watched:
    """last: its rank has ended, one more look and it is forgotten. told: the mark of what the mesh was told;
    tidied: of what was there when older ones were last removed."""

    row: Row
    group: Row
    look: BlockingLook = field(default_factory=BlockingLook)
    due: float = 0.0
    last: bool = False
    told: str | None = None
    tidied: str | None = None

    @property
    def directory(self) -> str:
        return str(self.group["checkpoint_path"])

    @property
    def body(self) -> Mapping[str, Any]:
        return part_of(self.group["document"])

    @property
    def protected(self) -> list[str]:
        """What this group was told to resume from, as far as it lies in the directory."""
        paths = [(self.group["resume"] or {}).get("path"), self.body.get("resume_from_checkpoint")]
        below = f"{self.directory.rstrip('/')}/"
        return [path.removeprefix(below).rstrip("/") for path in paths if path and path.startswith(below)]


@dataclass(frozen=True, slots=True)
class _Newest:
    pick: str
    step: int | None
    saved: Saved
    free_bytes: int


class CheckpointWatch:
    """roots: what is allowed on this host. every_s: between two looks at one directory. may_remove: whether
    this host has its lease: without it another one may be at work in the directory."""

    def __init__(
        self,
        mesh: Proposer,
        feed: NodeFeed,
        node_id: str,
        uid: str,
        roots: Sequence[str],
        every_s: float = EVERY_S,
        may_remove: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mesh, self._feed, self._node_id, self._uid = mesh, feed, node_id, uid
        self._roots, self._every_s, self._clock = tuple(roots), every_s, clock
        self._may_remove = may_remove
        self._watched: dict[TaskId, _Watched] = {}

    async def run(self) -> None:
        while True:
            try:
                await self.turn()
            except Exception:
                log.exception("a look for new checkpoints failed; the next one begins anew")
            await asyncio.sleep(min(_ASKED_EVERY_S, self._every_s))

    async def turn(self) -> None:
        """One look at each directory that is due."""
        self._follow()
        now = self._clock()
        due = [(key, item) for key, item in self._watched.items() if item.last or now >= item.due]
        await asyncio.gather(*(self._visit(key, item) for key, item in due))

    def _follow(self) -> None:
        for key, row in self._feed.tasks.items():
            group = self._feed.groups.get(key.group_id)
            if key.rank != 0 or group is None or group["checkpoint_path"] is None:
                continue
            if row["status"] == RUNNING or (row["status"] == EXITED and key in self._watched):
                item = self._watched.setdefault(key, _Watched(row, group))
                item.row, item.group = row, group
                if group.get("stop_after") and item.due - self._clock() > _ASKED_EVERY_S:
                    item.due = 0.0
        for key, item in self._watched.items():
            item.last = key not in self._feed.tasks or self._feed.tasks[key]["status"] != RUNNING

    async def _visit(self, key: TaskId, item: _Watched) -> None:
        last, began = item.last, self._clock()
        looked = began
        try:
            try:
                newest = await item.look.take(_LOOK_DEADLINE_S, lambda: self._newest(item))
            finally:
                looked = self._clock()
            if newest is not None and newest.saved.mark not in (item.told, item.row.get("saved")):
                await self._tell(key, item, newest)
            if newest is not None and not last and item.tidied != newest.saved.mark:
                await self._tidy(key, item, newest.saved.mark)
        except (OSError, Unreadable, StillLooking, TimeoutError) as error:
            log.info("checkpoints of %s were not looked at: %s", key.group_id, error or "its share does not answer")
        except HeteroFlowError as error:
            log.info("a checkpoint of %s is told later: %s", key.group_id, error)
        every_s = _ASKED_EVERY_S if item.group.get("stop_after") else self._every_s
        # What the mesh took to answer is no load on the disk, and what was saved meanwhile is not to wait for it.
        item.due = self._clock() + max(every_s, (looked - began) / _SHARE)
        if last:
            self._watched.pop(key, None)

    def _newest(self, item: _Watched) -> _Newest | None:
        with open_allowed(item.directory, self._roots) as root:
            found = probe(root, rules_of(item.body.get("framework")))
            if found.pick is None:
                return None
            return _Newest(found.pick, found.step, saved_of(root, found.pick), _free_bytes(root))

    async def _tell(self, key: TaskId, item: _Watched, newest: _Newest) -> None:
        age_ms = max(0, time.time_ns() - newest.saved.written_ns) // 1_000_000
        await self._report(
            key,
            item,
            kind="checkpoint",
            pick=shown(newest.pick),
            step=newest.step,
            mark=newest.saved.mark,
            bytes=newest.saved.bytes,
            files=newest.saved.files,
            age_ms=age_ms,
            took_ms=newest.saved.took_ms,
            free_bytes=newest.free_bytes,
        )
        item.told = newest.saved.mark

    async def _tidy(self, key: TaskId, item: _Watched, mark: str) -> None:
        """keep_last_n, each time another one is the newest."""
        keep = item.body.get("keep_last_n")
        if not isinstance(keep, int) or keep < 1 or not self._may_remove():
            return
        removed, more = await item.look.take(_TIDY_DEADLINE_S, lambda: self._remove_superseded(item, keep))
        if removed:
            log.info("checkpoints of %s removed, %d are kept: %s", key.group_id, keep, ", ".join(removed[:20]))
            names = [shown(name) for name in removed[:REMOVED_AT_ONCE]]
            await self._report(key, item, kind="checkpoints_removed", removed=names)
        item.tidied = None if more else mark

    def _remove_superseded(self, item: _Watched, keep: int) -> tuple[list[str], bool]:
        with open_allowed(item.directory, self._roots) as root:
            plan = plan_retention(root, rules_of(item.body.get("framework")), keep, item.protected)
        with open_allowed(item.directory, self._roots) as root:
            # Also without anything to remove: an agent before this one may have been ended half way.
            return remove_checkpoints(root, plan.remove, self._may_remove), plan.more

    async def _report(self, key: TaskId, item: _Watched, **fields: Any) -> None:
        ref = {"group_id": key.group_id, "attempt": key.attempt, "rank": key.rank, "token": int(item.row["token"])}
        reports = [{**ref, "seq": 0, **fields}]
        outcome = await self._mesh.propose(command("TaskReports", node=self._node_id, uid=self._uid, reports=reports))
        if not outcome["ok"]:
            log.warning("a checkpoint was not recorded: %s", outcome["text"], extra={"code": outcome["code"]})


def _free_bytes(root: FencedDirectory) -> int:
    """For who is not root; quotas of users and projects are not in it."""
    found = os.fstatvfs(root.descriptor)
    return found.f_bavail * found.f_frsize
