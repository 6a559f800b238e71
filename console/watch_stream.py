"""The change feed through any node: a snapshot, then every change once and in order, whichever node serves it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from console.client import SILENCE_S, MeshClient, NoNodeAnswers, Refused
from schemas.errors import Problem

_RETRY_PROBLEMS = frozenset(("no_leader", "overloaded", "not_joined", "lagging", "timeout_unknown"))


class WatchStream:
    """group_id None: every active group, or with `everything` all rows. token: where an earlier watch ended.
    brief: of groups only what a list shows. pace_s: a busy feed is told no more often, of each row its last state; one
    that is quiet is heard at once."""

    def __init__(
        self,
        client: MeshClient,
        group_id: str | None,
        everything: bool = False,
        token: str | None = None,
        pace_s: float = 0.0,
        brief: bool = False,
    ) -> None:
        self._client, self._token = client, token
        self._params = {"group": group_id} if group_id else {"all": "true"} if everything else {}
        if brief:
            self._params["rows"] = "brief"
        if pace_s:
            # Each of hundreds of frames a second costs more to receive and to read than the rows in it.
            self._params["every_ms"] = str(round(pace_s * 1000))

    async def frames(self) -> AsyncIterator[dict[str, Any]]:
        """`{snapshot, token, more, compacted?}` and `{idx, changes, token}`. Raises Refused, NoNodeAnswers."""
        silent_since = time.monotonic()
        while True:
            params = self._params | ({"since": self._token} if self._token else {})
            connection, node = await self._client.websocket("/api/v1/watch", params)
            try:
                async for frame in self._read(connection, node):
                    silent_since = time.monotonic()
                    if frame and self._is_new(frame):
                        yield frame
                        await self._learn(frame)
            finally:
                await connection.close()
            self._client.put_last(node)
            if time.monotonic() - silent_since > self._client.deadline_s:
                raise NoNodeAnswers({node: "it accepts a watch but sends nothing"}, time.monotonic() - silent_since)
            await asyncio.sleep(0.1)

    async def _learn(self, frame: dict[str, Any]) -> None:
        """Where else to go when this node dies. The first rows are shown before it is asked for."""
        if "snapshot" not in frame:
            return
        self._client.know(
            [
                str(row["api_addr"])
                for entity, _, row in frame["snapshot"]
                if entity == "node" and row.get("state") == "ready" and row.get("api_addr")
            ]
        )
        if not frame.get("more"):
            await self._client.learn()

    async def _read(self, connection: aiohttp.ClientWebSocketResponse, node: str) -> AsyncIterator[dict[str, Any]]:
        """Until this node is of no more use."""
        # One watch over the whole connection: a deadline for each frame costs as much as the frame.
        silence = _Silence(connection)
        try:
            while True:
                try:
                    message = await connection.receive()
                except (aiohttp.ClientError, OSError):
                    return  # a ping came with the end of the connection, and could not be answered any more
                if message.type is not aiohttp.WSMsgType.TEXT:
                    return
                silence.broken()
                frame = json.loads(message.data)
                if problem := frame.get("problem"):
                    if problem.get("code") in _RETRY_PROBLEMS:
                        return
                    raise Refused(Problem.from_dict(problem), node)
                yield frame
        finally:
            silence.end()

    def _is_new(self, frame: dict[str, Any]) -> bool:
        token = frame.get("token")
        if "snapshot" in frame:
            # Half a snapshot is no place to go on from.
            self._token = self._token if frame.get("more") else token
            return True
        if token is not None and not _later(token, self._token):
            return False
        self._token = token
        return True


class _Silence:
    """Ends a connection that says nothing for SILENCE_S."""

    def __init__(self, connection: aiohttp.ClientWebSocketResponse) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._closing: asyncio.Task[bool] | None = None
        self.broken()
        self._look()

    def broken(self) -> None:
        self._until = self._loop.time() + SILENCE_S

    def _look(self) -> None:
        if self._loop.time() >= self._until:
            self._closing = self._loop.create_task(self._connection.close())
        else:
            self._timer = self._loop.call_at(self._until, self._look)

    def end(self) -> None:
        self._timer.cancel()


def _later(token: str, than: str | None) -> bool:
    """Tokens are CLUSTER.EPOCH.INDEX; of another cluster or epoch anything is news."""
    if than is None:
        return True
    home, _, index = token.rpartition(".")
    than_home, _, than_index = than.rpartition(".")
    if home != than_home or not (index.isdigit() and than_index.isdigit()):
        return True
    return int(index) > int(than_index)
