"""Tells the mesh what happened to this host's tasks, until the rows show it."""

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any, Protocol

from agentd.runtime.base import TaskId
from schemas.commands import command, encode_command
from schemas.errors import HeteroFlowError, InvalidInput

log = logging.getLogger(__name__)
ReportName = tuple[TaskId, int]
# A report that was committed and changed nothing was refused by the state; saying it again at once cannot help.
_REPEAT_AFTER_S = 1.0
_RETRY_MIN_S, _RETRY_MAX_S = 0.1, 2.0
_BATCH = 500
_HELD_BACK_S = 60.0


class Proposer(Protocol):
    async def propose(self, command: dict[str, Any], timeout_s: float = ...) -> dict[str, Any]: ...


class Reporter:
    """`offer` is level-triggered: callers say what the rows do not show yet, as often as they like."""

    def __init__(self, mesh: Proposer, node_id: str, uid: str) -> None:
        self._mesh, self._node_id, self._uid = mesh, node_id, uid
        self._waiting: dict[ReportName, dict[str, Any]] = {}
        self._sent: dict[ReportName, tuple[int, float]] = {}
        self._in_flight: frozenset[ReportName] = frozenset()
        self._wake = asyncio.Event()

    def offer(self, reports: Iterable[tuple[TaskId, dict[str, Any]]], feed_index: int) -> None:
        offered: dict[ReportName, dict[str, Any]] = {(key, report["seq"]): report for key, report in reports}
        now = time.monotonic()
        for name in [name for name in self._sent if name not in offered]:
            del self._sent[name]
        for name, report in offered.items():
            index, at = self._sent.get(name, (0, 0.0))
            if name in self._in_flight or (name in self._sent and (feed_index < index or now - at < _REPEAT_AFTER_S)):
                continue
            self._waiting[name] = report
        for name in [name for name in self._waiting if name not in offered]:
            del self._waiting[name]
        if self._waiting:
            self._wake.set()

    async def run(self) -> None:
        retry_s, most = _RETRY_MIN_S, _BATCH
        while True:
            await self._wake.wait()
            batch = dict(sorted(self._waiting.items())[:most])
            if not batch:
                self._wake.clear()
                continue
            self._in_flight = frozenset(batch)
            try:
                index, held_s = await self._send(list(batch.values())), 0.0
            except InvalidInput as error:
                # Together they may be too much for one command; and one that no command can hold must not keep back
                # what all other tasks of this host have to tell.
                if len(batch) > 1:
                    most = len(batch) // 2
                    continue
                log.error("a report cannot be told, so its group does not hear of it: %s", error)
                index, held_s = 0, _HELD_BACK_S
            except (HeteroFlowError, OSError, TimeoutError) as error:
                log.warning("reports not delivered, trying again: %s", error, extra={"reports": len(batch)})
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, _RETRY_MAX_S)
                continue
            finally:
                self._in_flight = frozenset()
            retry_s, most = _RETRY_MIN_S, min(most * 2, _BATCH)
            sent = (index, time.monotonic() + held_s)
            for name in batch:
                self._waiting.pop(name, None)
                self._sent[name] = sent

    async def _send(self, reports: list[dict[str, Any]]) -> int:
        sent_ms = time.time_ns() // 1_000_000
        told = command("TaskReports", node=self._node_id, uid=self._uid, reports=reports, sent_ms=sent_ms)
        # Here, since a frame that is too large would cost this agent's connection to its voter.
        encode_command(told)
        outcome = await self._mesh.propose(told)
        if not outcome["ok"]:
            log.warning("reports refused: %s", outcome["text"], extra={"code": outcome["code"]})
        return int(outcome["idx"])
