"""What changed on a host is told once; an engine that comes and goes is an entry of the log each time, and no more."""

import asyncio
from typing import Any

from agentd import registration
from agentd.registration import keep_registered
from schemas.errors import NoLeader


class Mesh:
    def __init__(self) -> None:
        self.told: list[Any] = []
        self.fails = 0

    async def propose(self, command: dict[str, Any], timeout_s: float = 0.0) -> dict[str, Any]:
        if self.fails:
            self.fails -= 1
            raise NoLeader("no_leader", "none")
        self.told.append(command["engine_down"])
        return {"idx": 1, "ok": command["engine_down"] != "refused", "code": "x", "text": "no"}


async def test_each_change_is_told_once_also_when_the_mesh_has_no_leader_for_a_while(monkeypatch):
    monkeypatch.setattr(registration, "_LOOK_S", 0.0)
    mesh = Mesh()
    facts: dict[str, Any] = {"engine_down": None}
    keeping = asyncio.create_task(keep_registered(mesh, lambda: dict(facts), dict(facts)))

    async def settle() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    await settle()
    assert mesh.told == []
    mesh.fails = 3
    facts["engine_down"] = "it is silent"
    await settle()
    assert (mesh.fails, mesh.told) == (0, ["it is silent"])
    facts["engine_down"] = "refused"
    await settle()
    facts["engine_down"] = None
    await settle()
    assert mesh.told == ["it is silent", "refused", None]
    assert not keeping.done()
    keeping.cancel()
