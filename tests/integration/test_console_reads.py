"""Whatever the console reads is a request that an agent's API takes: its own canned mesh would take any."""

import asyncio
import contextlib
import time
from typing import Any

from console.client import MeshClient
from console.endpoints import Target
from console.store.session import Session
from tests.integration.served_api import AUTH, TOKEN, document, served

DEADLINE_S = 20.0
ROUTES = {"/mesh", "/gossip", "/telemetry", "/alerts", "/whoami", "/task-groups"}


async def test_no_read_of_the_console_is_refused_for_how_it_asks(tmp_path, monkeypatch):
    asked: dict[str, int] = {}
    answered = asyncio.Event()
    ask = MeshClient._ask

    async def noted(self: MeshClient, method: str, path: str, *rest: Any, **named: Any) -> Any:
        name = "/" + path.rsplit("/", 1)[-1]
        try:
            answer = await ask(self, method, path, *rest, **named)
        except Exception as error:
            problem = getattr(error, "problem", None)
            asked[name] = getattr(problem, "status", 0)
            raise
        else:
            asked[name] = 200
            return answer
        finally:
            if asked.keys() >= ROUTES:
                answered.set()

    monkeypatch.setattr(MeshClient, "_ask", noted)
    # Parts of a mesh that this lone agent has not are waited for in vain, and shortly.
    async with served(tmp_path) as client:
        made = await client.post("/api/v1/task-groups", json=document(), headers={**AUTH, "Idempotency-Key": "rq-1"})
        group_id = (await made.json())["group_id"]
        session = Session(
            Target((f"{client.host}:{client.port}",), TOKEN), lambda: time.time_ns() // 1_000_000, timeout_s=2.0
        )
        session.look_at_nodes(True)
        session.look_at_cards(True)
        running = asyncio.create_task(session.run())
        try:
            await session.connected.wait()
            session.focus_on(group_id)
            session.watch_curves(group_id)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DEADLINE_S):
                    await answered.wait()
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
    assert asked.keys() >= ROUTES
    # 404: this agent has no such part; 503: nobody answers for it. A request that is wrong is neither.
    assert {name: status for name, status in asked.items() if status in (400, 401, 403, 405, 422)} == {}
