"""Lines of one rank, from the files of this host or through the agent of the host that has them."""

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from agentd.core.log_window import Line
from agentd.logs.reader import POLL_S, Dropped, LogReader
from agentd.runtime.base import Observed, TaskId
from schemas.errors import HeteroFlowError
from schemas.instants import iso_utc
from schemas.states import GONE

log = logging.getLogger(__name__)
Item = dict[str, Any]
HEARTBEAT_S = 5.0
_STREAMS = {0: "platform", 1: "out", 2: "err"}
_RETRY_MIN_S, _RETRY_MAX_S = 0.2, 2.0
_GIVE_UP_S = 10.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a rank's log to begin: its last `tail` lines, or what follows `offset`."""

    offset: int = 0
    tail: int | None = None


class LogService:
    """`log_dir`: where the runtime keeps a task's log. `row_status`: the task's status by the rows of this host, or
    None."""

    def __init__(
        self,
        node_id: str,
        log_dir: Callable[[TaskId], str],
        row_status: Callable[[TaskId], str | None],
        session: aiohttp.ClientSession,
    ) -> None:
        self._node_id, self._log_dir, self._row_status, self._session = node_id, log_dir, row_status, session
        self._seen: Mapping[TaskId, Observed] | None = None

    def look(self, seen: Sequence[Observed]) -> None:
        """After each reconcile pass: what runs here."""
        self._seen = {item.id: item for item in seen}

    def _over(self, key: TaskId) -> bool:
        """Whether the log has its last byte. A rank that is ordered but not yet started is not over."""
        if self._seen is None:
            return False
        if (item := self._seen.get(key)) is not None:
            return item.state == "exited"
        status = self._row_status(key)
        return status is None or status in GONE

    async def local(self, key: TaskId, place: Place, follow: bool) -> AsyncIterator[list[Item]]:
        """Batches; an empty one after HEARTBEAT_S of silence. The last item of the last batch is `{end: true}`."""
        reader = LogReader(self._log_dir(key))
        quiet_since = time.monotonic()
        try:
            if place.tail is not None:
                yield [_item(line) for line in await asyncio.to_thread(reader.tail, place.tail)]
            else:
                reader.seek(place.offset)
            while True:
                over = self._over(key)
                batch = await asyncio.to_thread(reader.read)
                if batch:
                    yield [_item(entry) for entry in batch]
                    quiet_since = time.monotonic()
                elif over or not follow:
                    break
                elif time.monotonic() - quiet_since >= HEARTBEAT_S:
                    yield []
                    quiet_since = time.monotonic()
                else:
                    await asyncio.sleep(POLL_S)
            rest = await asyncio.to_thread(reader.finish) if over else []
            missing = {} if os.path.isdir(self._log_dir(key)) or not over else {"missing": True}
            yield [*(_item(entry) for entry in rest), {"end": True} | missing]
        finally:
            reader.close()

    async def anywhere(
        self,
        key: TaskId,
        node: str,
        address: Callable[[str], "asyncio.Future[str | None] | Any"],
        place: Place,
        follow: bool,
        gone: Callable[[], bool],
        headers: Mapping[str, str],
    ) -> AsyncIterator[list[Item]]:
        """Like `local`, from whichever host has the files. An agent that is down is waited for, and reading goes on
        after the last line given; only a rank that is gone with its host is given up, aloud."""
        while node == self._node_id:
            async for batch in self.local(key, place, follow):
                if _too_early(batch, follow, gone):
                    break
                yield batch
            else:
                return
            await asyncio.sleep(_RETRY_MIN_S)
        pause_s, silent_since = _RETRY_MIN_S, time.monotonic()
        while True:
            failure = ""
            try:
                async for batch in self._remote(key, await address(node), place, follow, headers):
                    pause_s, silent_since = _RETRY_MIN_S, time.monotonic()
                    if _too_early(batch, follow, gone):
                        break
                    offsets = [item["offset"] for item in batch if "offset" in item]
                    if offsets:
                        place = Place(offset=offsets[-1])
                    yield batch
                    if batch and batch[-1].get("end"):
                        return
                failure = "its agent closed the connection"
            except (aiohttp.ClientError, OSError, TimeoutError, HeteroFlowError, ValueError) as error:
                failure = str(error) or type(error).__name__
            silent_s = time.monotonic() - silent_since
            if not follow or (gone() and silent_s > _GIVE_UP_S):
                text = f"node {node} does not answer ({failure}); lines after offset {place.offset} are not shown"
                yield [{"problem": text, "offset": place.offset}, {"end": True, "incomplete": True}]
                return
            yield []
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _RETRY_MAX_S)

    async def _remote(
        self, key: TaskId, address: str | None, place: Place, follow: bool, headers: Mapping[str, str]
    ) -> AsyncIterator[list[Item]]:
        if address is None:
            raise ValueError("it is not registered in the mesh")
        url = f"http://{address}/mesh/v1/logs/{key.group_id}/{key.attempt}/{key.rank}"
        params = {"offset": str(place.offset), "follow": "true" if follow else "false"}
        if place.tail is not None:
            params["tail"] = str(place.tail)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=3.0, sock_read=3 * HEARTBEAT_S)
        async with self._session.get(url, params=params, headers=headers, timeout=timeout) as response:
            if response.status != 200:
                raise ValueError(f"its agent answered {response.status}")
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                if lines:
                    yield [item for item in map(json.loads, lines) if item]


def _too_early(batch: list[Item], follow: bool, gone: Callable[[], bool]) -> bool:
    """Whether a host says that it has nothing of a rank only because it has not yet heard of it, as the reader has."""
    return follow and bool(batch) and bool(batch[-1].get("missing")) and not gone()


def _item(entry: Line | Dropped) -> Item:
    if isinstance(entry, Dropped):
        return {"offset": entry.offset, "dropped": entry.size, "why": entry.why}
    item: Item = {
        "offset": entry.offset,
        "at": iso_utc(entry.at_ns // 1_000_000),
        "stream": _STREAMS[entry.stream],
        "text": entry.text,
    }
    if entry.end != "\n":
        item["line_end"] = entry.end
    return item
