"""What this host has of groups that the state knows no more: their logs go too."""

import asyncio
import logging
import os
import re
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from agentd.shim.record import PID, SPEC
from mesh.client import MeshClient
from schemas.errors import HeteroFlowError
from schemas.ids import group_id_refusal

log = logging.getLogger(__name__)
EVERY_S = 300.0
_ASKED_AT_ONCE = 64
_GONE = re.compile(r"\.gone-.+")


class LogSweep:
    """tasks_dir: D/tasks. known: groups that the runtime or an order of this host speaks of; they are never touched."""

    def __init__(
        self, mesh: MeshClient, tasks_dir: Path, known: Callable[[], Collection[str]], every_s: float = EVERY_S
    ) -> None:
        self._mesh, self._root, self._known, self._every_s = mesh, tasks_dir, known, every_s
        self._absent: frozenset[str] = frozenset()

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except (HeteroFlowError, OSError) as error:
                log.info("logs of removed groups are looked for again later: %s", error)
            except Exception:
                log.exception("a look for logs of removed groups failed; the next one is in %.0f s", self._every_s)
            await asyncio.sleep(self._every_s)

    async def look(self) -> list[str]:
        """What was removed. A group must be absent in two looks: once could be a directory that was made just before
        its group was heard of."""
        await asyncio.to_thread(self._finish)
        here = await asyncio.to_thread(self._groups)
        absent = frozenset(await self._not_in_the_state(sorted(here - set(self._known()))))
        removed = sorted((absent & self._absent) - set(self._known()))
        self._absent = absent
        for group_id in removed:
            await asyncio.to_thread(self._remove, group_id)
        if removed:
            log.info("logs of %d groups that are in the records no more were removed", len(removed))
        return removed

    async def _not_in_the_state(self, group_ids: list[str]) -> list[str]:
        found: list[str] = []
        for at in range(0, len(group_ids), _ASKED_AT_ONCE):
            asked = group_ids[at : at + _ASKED_AT_ONCE]
            # Linearizable: a voter that is behind would call a new group one that is gone.
            answer = await self._mesh.query([{"get": ["active", one]} for one in asked])
            still = [one for one, row in zip(asked, answer["results"], strict=True) if row is None]
            for one in still:
                (row,) = (await self._mesh.query([{"get": ["group", one]}]))["results"]
                if row is None:
                    found.append(one)
        return found

    def _groups(self) -> set[str]:
        try:
            with os.scandir(self._root) as entries:
                named = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return set()
        return {name for name in named if group_id_refusal(name) is None}

    def _remove(self, group_id: str) -> None:
        path = self._root / group_id
        if any(next(path.glob(f"*/*/{name}"), None) for name in (SPEC, PID)):
            return  # of a task that has not been cleared: something of it may live
        gone = self._root / f".gone-{group_id}"
        try:
            path.rename(gone)
        except OSError as error:
            log.warning("%s cannot be removed: %s", path, error.strerror)
            return
        shutil.rmtree(gone, ignore_errors=True)

    def _finish(self) -> None:
        """What an earlier agent did not come to the end of."""
        if self._root.is_dir():
            for path in self._root.iterdir():
                if _GONE.fullmatch(path.name):
                    shutil.rmtree(path, ignore_errors=True)
