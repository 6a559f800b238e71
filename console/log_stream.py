"""A group's log lines through any node, in one unbroken stream: nothing twice, nothing left out."""

import time
from collections.abc import AsyncIterator
from typing import Any

from console.client import MeshClient, NoNodeAnswers, StreamBroken


class LogStream:
    """rank None: all ranks. attempt None: the current one, and with `follow` those after it."""

    def __init__(
        self, client: MeshClient, group_id: str, rank: int | None, attempt: int | None, tail: int | None, follow: bool
    ) -> None:
        self._client = client
        self._path = f"/api/v1/task-groups/{group_id}/logs"
        self._rank, self._attempt, self._tail, self._follow = rank, attempt, tail, follow
        self._places: dict[tuple[int, int], int] = {}

    async def items(self) -> AsyncIterator[dict[str, Any]]:
        """Lines `{rank, attempt, offset, at, stream, text}`, notes `{problem}` and `{dropped, why}`, `{moved}` when
        another node took over, and `{end: true, status}` at last. Raises Refused, NoNodeAnswers."""
        if self._follow:
            await self._client.learn()
        cut: StreamBroken | None = None
        cut_at = 0.0
        while True:
            try:
                async for item in self._client.ndjson(self._path, self._params(), again=cut is not None):
                    if cut is not None:
                        yield {"moved": cut.node, "why": cut.why}
                        cut = None
                    if self._is_new(item):
                        yield item
                    if item.get("end"):
                        return
                raise StreamBroken(self._client.nodes[0], "it ended the stream early")
            except StreamBroken as broken:
                if cut is not None and time.monotonic() - cut_at > self._client.deadline_s:
                    raise NoNodeAnswers({broken.node: broken.why}, time.monotonic() - cut_at) from broken
                if cut is None:
                    cut, cut_at = broken, time.monotonic()
                # Ranks not heard yet had nothing to show when the tail was asked for: they are read from the beginning.
                self._tail = None if self._places else self._tail

    def _params(self) -> dict[str, str]:
        params = {"follow": "true" if self._follow else "false"}
        if self._rank is not None:
            params["rank"] = str(self._rank)
        if self._attempt is not None:
            params["attempt"] = str(self._attempt)
        if self._tail is not None:
            params["tail"] = str(self._tail)
        if self._places:
            params["resume"] = ",".join(
                f"{attempt}.{rank}:{offset}" for (attempt, rank), offset in self._places.items()
            )
        return params

    def _is_new(self, item: dict[str, Any]) -> bool:
        if not item:
            return False
        rank, attempt, offset = item.get("rank"), item.get("attempt"), item.get("offset")
        if not isinstance(rank, int) or not isinstance(attempt, int) or not isinstance(offset, int):
            return True
        if "problem" in item:
            return True
        if offset <= self._places.get((attempt, rank), -1):
            return False
        self._places[attempt, rank] = offset
        return True
