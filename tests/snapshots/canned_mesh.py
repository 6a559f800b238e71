"""A mesh that stands still, served over real HTTP: what a console shows of it is the same each time.

Rows have the shapes of the state; times are relative to NOW_MS, at which the console's clock is pinned.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer

NOW_MS = 1_795_979_045_000  # 2026-11-29 19:04:05 UTC
S, M, H = 1000, 60_000, 3_600_000
TOKEN = "canned"
PIECE_ROWS = 500


def gid(number: int) -> str:
    return f"tg-{number:020d}"


def node_row(name: str, cards: int = 8, kind: str = "H100", **changed: Any) -> dict[str, Any]:
    row = {
        "node_id": name,
        "uid": name,
        "api_addr": "",
        "voter_addr": None,
        "state": "ready",
        "gpus": [{"uuid": f"{name}-{at}", "type": kind, "memory_mb": 81920, "index": at} for at in range(cards)],
        "gpu_backend": "nvml",
        "runtime": "process",
        "labels": {},
        "version": "0.1.0",
        "cpus": 128,
        "memory_mb": 1_031_000,
        "joined_ms": NOW_MS - 53 * H,
        "lost_ms": None,
        "reason": None,
        "losses": 0,
    }
    return row | changed


def group_row(number: int, name: str, status: str, n_nodes: int, cards: int, **changed: Any) -> dict[str, Any]:
    row = {
        "group_id": gid(number),
        "name": name,
        "task_type": "training",
        "document": {
            "name": name,
            "task_type": "training",
            "priority": "normal",
            "training": {
                "framework": "fsdp",
                "n_nodes": n_nodes,
                "per_node_gpu": cards,
                "gpu_type": ["H100"],
                "checkpoint_path": f"/data/ckpt/{number}",
                "hyper_params": {"lr": "3e-4", "seq_len": "8192"},
            },
            "task": {"command": ["torchrun", "train.py"], "gpu_required": cards, "stop_grace_s": 60},
        },
        "tenant": "nlp",
        "user": "lin",
        "priority": 0,
        "status": status,
        "attempt": 0 if status == "pending" else 1,
        "submit_idx": number,
        "created_ms": NOW_MS - 7 * H,
        "started_ms": None,
        "ended_ms": None,
        "on_isolation": "stop",
        "checkpoint_path": f"/data/ckpt/{number}",
        "nodes": [],
        "master": None,
        "resume": None,
        "pending_reason": None,
        "ending": None,
        "failure": None,
        "warnings": [],
        "rollbacks": 0,
        "restarts": 0,
        "resubmit_of": None,
    }
    return row | changed


def task_rows(number: int, attempt: int, nodes: list[str], cards: int, **changed: Any) -> list[tuple[str, str, Any]]:
    rows: list[tuple[str, str, Any]] = []
    for rank, node in enumerate(nodes):
        row = {
            "group_id": gid(number),
            "attempt": attempt,
            "rank": rank,
            "node": node,
            "gpus": [f"{node}-{at}" for at in range(cards)],
            "port": 20001,
            "status": "running",
            "released": False,
            "exit_code": None,
            "signal": None,
            "reason": None,
            "bound_ms": NOW_MS - 6 * H - 3 * M,
            "started_ms": NOW_MS - 6 * H,
            "ended_ms": None,
        } | changed
        rows.append(("task", f"{gid(number)}/{attempt:04d}/{rank:05d}", row))
    return rows


def event_row(number: int, seq: int, at_ms: int, kind: str, text: str, **changed: Any) -> tuple[str, str, Any]:
    row = {"at_ms": at_ms, "kind": kind, "rank": None, "attempt": 1, "node": None, "text": text, "data": {}} | changed
    return ("event", f"{gid(number)}/{seq:08d}", row)


@dataclass
class CannedMesh:
    """rows: of the state. logs: NDJSON objects of a group. curves: an answer of `/curves`, absent = no such route."""

    rows: list[tuple[str, str, Any]] = field(default_factory=list)
    ended: list[dict[str, Any]] = field(default_factory=list)
    logs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    curves: dict[str, dict[str, Any]] = field(default_factory=dict)
    writes: list[tuple[str, str, str, bytes]] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)
    telemetry: dict[str, Any] | None = None
    alerts: list[dict[str, Any]] | None = None
    gossip: dict[str, Any] | None = None
    who: dict[str, Any] | None = None
    answer_headers: dict[str, str] = field(default_factory=lambda: {"Date": formatdate(NOW_MS / 1000, usegmt=True)})
    _sockets: set[web.WebSocketResponse] = field(default_factory=set)
    _index: int = 100

    async def change(self, *changes: tuple[str, str, Any]) -> None:
        """As a command would: told to everyone who watches."""
        self._index += 1
        known = {(entity, key): row for entity, key, row in self.rows}
        for entity, key, row in changes:
            known[entity, key] = row
        self.rows = [(entity, key, row) for (entity, key), row in known.items() if row is not None]
        for socket in list(self._sockets):
            await socket.send_str(json.dumps({"idx": self._index, "changes": changes, "token": f"c.1.{self._index}"}))

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/api/v1/watch", self._watch)
        app.router.add_get("/api/v1/nodes", self._nodes)
        app.router.add_get("/api/v1/mesh", self._mesh)
        app.router.add_get("/api/v1/telemetry", self._telemetry)
        app.router.add_get("/api/v1/alerts", self._alerts)
        app.router.add_get("/api/v1/gossip", self._gossip)
        app.router.add_get("/api/v1/whoami", self._who)
        app.router.add_get("/api/v1/task-groups", self._list)
        app.router.add_get("/api/v1/task-groups/{group_id}/logs", self._logs)
        app.router.add_get("/api/v1/task-groups/{group_id}/curves", self._curves)
        app.router.add_post("/api/v1/task-groups", self._write)
        app.router.add_post("/api/v1/task-groups/{group_id}/{what}", self._write)
        app.router.add_post("/api/v1/nodes/{group_id}/{what}", self._write)
        return app

    def _json(self, value: Any, status: int = 200) -> web.Response:
        return web.json_response(value, status=status, headers=self.answer_headers)

    async def _watch(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        group = request.query.get("group")
        rows = [
            row
            for row in self.rows
            if (group and row[1].split("/")[0] == group)
            or ((not group and row[0] in ("meta", "node", "hold")) or (not group and row[0] == "group"))
        ]
        for start in range(0, max(len(rows), 1), PIECE_ROWS):
            more = start + PIECE_ROWS < len(rows)
            piece = {"snapshot": rows[start : start + PIECE_ROWS], "token": f"c.1.{self._index}", "more": more}
            await socket.send_str(json.dumps(piece))
        self._sockets.add(socket)
        beating = asyncio.create_task(self._beat(socket))
        try:
            async for message in socket:
                if message.type is WSMsgType.ERROR:
                    break
        finally:
            beating.cancel()
            self._sockets.discard(socket)
        return socket

    async def _beat(self, socket: web.WebSocketResponse) -> None:
        while True:
            await asyncio.sleep(5.0)
            await socket.send_str("{}")

    async def _nodes(self, request: web.Request) -> web.Response:
        return self._json({"nodes": [row for entity, _, row in self.rows if entity == "node"]})

    async def _mesh(self, request: web.Request) -> web.Response:
        return self._json(self.status)

    async def _telemetry(self, request: web.Request) -> web.Response:
        return self._json(self.telemetry) if self.telemetry is not None else self._no_route()

    async def _alerts(self, request: web.Request) -> web.Response:
        return self._json({"alerts": self.alerts}) if self.alerts is not None else self._no_route()

    async def _gossip(self, request: web.Request) -> web.Response:
        return self._json(self.gossip) if self.gossip is not None else self._no_route()

    async def _who(self, request: web.Request) -> web.Response:
        return self._json(self.who) if self.who is not None else self._no_route()

    def _no_route(self) -> web.Response:
        return self._json({"code": "not_found", "message": "no such route"}, 404)

    async def _list(self, request: web.Request) -> web.Response:
        return self._json({"groups": self.ended, "cursor": None})

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        for item in self.logs.get(request.match_info["group_id"], []):
            if request.query.get("rank") in (None, str(item.get("rank"))):
                await response.write(json.dumps(item).encode() + b"\n")
        await response.write(b'{"end": true, "status": "running"}\n')
        return response

    async def _curves(self, request: web.Request) -> web.Response:
        found = self.curves.get(request.match_info["group_id"])
        if found is None:
            return self._no_route()
        return self._json(found)

    async def _write(self, request: web.Request) -> web.Response:
        what = request.match_info.get("what", "submit")
        key = request.headers.get("Idempotency-Key", "")
        self.writes.append((what, request.match_info.get("group_id", ""), key, await request.read()))
        group_id = request.match_info.get("group_id") or gid(999)
        return self._json({"group_id": group_id, "status": "stopping", "warnings": [], "created_at": None})


@asynccontextmanager
async def served(mesh: CannedMesh) -> AsyncIterator[str]:
    """HOST:PORT"""
    async with TestServer(mesh.app()) as server:
        yield f"{server.host}:{server.port}"


def group_now(number: int, attempt: int, step: int, loss: float | str, age_s: float, **changed: Any) -> dict[str, Any]:
    """A group's part of `/telemetry`. ranks: of (node, cards, percent)."""
    ranks = changed.pop("ranks", [])
    now = {
        "group_id": gid(number),
        "attempt": attempt,
        "step": step,
        "loss": loss,
        "wall": NOW_MS / 1000 - age_s,
        "age_s": age_s,
        "gpu_util": ranks[0][2] if ranks else None,
        "stall": "moving",
        "stall_text": "",
        "ranks": [
            {"rank": rank, "node_id": node, "running": True, "log_silent_s": 1.0, "cards": cards_now(node, cards, util)}
            for rank, (node, cards, util) in enumerate(ranks)
        ],
    }
    return now | changed


def cards_now(node: str, cards: int, util: float) -> list[dict[str, Any]]:
    return [{"uuid": f"{node}-{at}", "util": util, "memory_used_mb": 72_000} for at in range(cards)]


def loss_curve(steps: int, every: int, age_s: int) -> list[list[float]]:
    """A falling curve with a ripple that is the same each time."""
    points = []
    for at in range(0, steps + 1, every):
        value = 1.1 + 1.3 * math.exp(-at / (steps / 4)) + 0.03 * math.sin(at / 7) * math.cos(at / 31)
        points.append([at, NOW_MS / 1000 - age_s - (steps - at) * 1.9, round(value, 4)])
    return points
