"""Agents of one mesh that keep the HTTP contract, and fail at will: freeze, answer 503, cut streams, lose answers.

What they serve is one shared state, as the agents of a mesh serve one log.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from console.endpoints import Target

TOKEN = "token-1"
GROUP = "tg-01kb7b9q3vj5zqq0w3mn"


@dataclass
class State:
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    writes: int = 0
    lines: list[dict[str, Any]] = field(default_factory=list)
    ended: bool = False
    frames: list[dict[str, Any]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add_lines(self, count: int, rank: int = 0, attempt: int = 1) -> None:
        before = sum(1 for line in self.lines if (line["rank"], line["attempt"]) == (rank, attempt))
        for number in range(before + 1, before + count + 1):
            offset = 10 * number
            line = {
                "rank": rank,
                "attempt": attempt,
                "offset": offset,
                "at": "2026-11-29T17:00:00.000Z",
                "stream": "out",
            }
            self.lines.append(line | {"text": f"line {offset}"})
        self.touch()

    def add_frame(self, status: str) -> None:
        index = len(self.frames) + 1
        row = {"group_id": GROUP, "name": "g", "status": status, "attempt": 1, "pending_reason": None, "failure": None}
        self.frames.append({"idx": index, "changes": [["group", GROUP, row]], "token": f"c.1.{index}"})
        self.touch()

    def touch(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class Node:
    """fault: None, "503", "hang", "lose_answer" (the write is made, its answer is not sent).
    cut_after: items of a stream. mute_after: items of a watch; then nothing more comes, not even a heartbeat.
    repeats: a log is sent from its beginning whatever place is asked for."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.fault: str | None = None
        self.cut_after: int | None = None
        self.mute_after: int | None = None
        self.repeats = False
        self.asked = 0
        self.queries: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.address = ""
        self.peers: list[Node] = []
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application(middlewares=[self._faults])
        app.router.add_get("/api/v1/task-groups", self._list)
        app.router.add_post("/api/v1/task-groups", self._submit)
        app.router.add_get("/api/v1/nodes", self._nodes)
        app.router.add_get("/api/v1/task-groups/{id}/logs", self._logs)
        app.router.add_get("/api/v1/watch", self._watch)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        # Where it was before, if it comes back.
        site = web.TCPSite(self._runner, "127.0.0.1", int(self.address.rpartition(":")[2] or 0))
        await site.start()
        self.address = f"127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    @web.middleware
    async def _faults(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked += 1
        self.queries.append(dict(request.query))
        self.paths.append(request.path)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _problem(401, "unauthorised", "the mesh token is missing or wrong")
        if self.fault == "hang":
            await asyncio.sleep(3600)
        if self.fault == "503":
            return _problem(503, "no_leader", "no leader is known")
        response: web.StreamResponse = await handler(request)
        if self.fault == "lose_answer" and request.method == "POST":
            assert request.transport is not None
            request.transport.abort()
        return response

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response({"groups": list(self.state.groups.values()), "cursor": None})

    async def _submit(self, request: web.Request) -> web.Response:
        key = request.headers["Idempotency-Key"]
        if key in self.state.answers:
            return web.json_response(self.state.answers[key])
        self.state.writes += 1
        made = {"group_id": GROUP[:-1] + str(self.state.writes), "status": "pending", "warnings": [], "created_at": "x"}
        self.state.groups[made["group_id"]] = {
            "group_id": made["group_id"],
            "name": (await request.json())["name"],
            "status": "pending",
        }
        self.state.answers[key] = made
        return web.json_response(made, status=201)

    async def _nodes(self, request: web.Request) -> web.Response:
        nodes = [
            {"node_id": f"n{at}", "state": "ready", "api_addr": peer.address} for at, peer in enumerate(self.peers)
        ]
        return web.json_response({"nodes": nodes})

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        places: dict[tuple[int, int], int] = {}
        for part in filter(None, request.query.get("resume", "").split(",")):
            name, _, offset = part.partition(":")
            attempt, _, rank = name.partition(".")
            places[int(attempt), int(rank)] = int(offset)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        sent = 0
        at = 0
        while True:
            changed = self.state.changed
            while at < len(self.state.lines):
                line = self.state.lines[at]
                at += 1
                if not self.repeats and line["offset"] <= places.get((line["attempt"], line["rank"]), 0):
                    continue
                if self.cut_after is not None and sent >= self.cut_after:
                    await response.write(json.dumps(line).encode()[:20])
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                await response.write(json.dumps(line).encode() + b"\n")
                sent += 1
            if self.state.ended or request.query.get("follow") != "true":
                await response.write(b'{"end": true, "status": "completed"}\n')
                return response
            await response.write(b"{}\n")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), 0.2)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        since = int(request.query.get("since", "c.1.0").rpartition(".")[2])
        if "since" not in request.query:
            # A snapshot is the state after every frame so far.
            rows = self.state.frames[-1]["changes"] if self.state.frames else []
            since = len(self.state.frames)
            await socket.send_json({"snapshot": rows, "token": f"c.1.{since}", "more": False})
        sent = 0
        while True:
            changed = self.state.changed
            for frame in self.state.frames[since:]:
                if self.cut_after is not None and sent >= self.cut_after:
                    assert request.transport is not None
                    request.transport.abort()
                    return socket
                if sent == self.mute_after:
                    break
                await socket.send_json(frame)
                since = frame["idx"]
                sent += 1
            if sent != self.mute_after:
                await socket.send_json({})
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), 0.2)


def _problem(status: int, code: str, message: str) -> web.Response:
    return web.json_response(
        {"code": code, "message": message, "hint": "", "field": "", "findings": [], "status": status}, status=status
    )


@contextlib.asynccontextmanager
async def nodes(count: int) -> AsyncIterator[list[Node]]:
    state = State()
    made = [Node(state) for _ in range(count)]
    try:
        for node in made:
            await node.start()
            node.peers = made
        yield made
    finally:
        for node in made:
            await node.stop()


def target(*some: Node) -> Target:
    return Target(tuple(node.address for node in some), TOKEN)
