"""How many interruptions ended without a person, over HTTP and on the command line."""

import json

from mesh.memory import MemoryMesh
from schemas.commands import command
from tests.integration.memory_hosts import State
from tests.integration.served_api import AUTH, served
from tests.integration.test_cli import Cli


class Gang:
    """One rank on n1, whose agent is played by hand."""

    def __init__(self, mesh, directory):
        self.mesh, self.state, self.group_id = mesh, State(mesh, directory), ""

    async def do(self, name, **fields):
        outcome = await self.mesh.propose(command(name, **fields))
        assert outcome["ok"], outcome

    async def report(self, attempt, *kinds):
        (task,) = [task for task in await self.state.tasks(self.group_id) if task["attempt"] == attempt]
        ref = {"group_id": self.group_id, "attempt": attempt, "rank": 0, "token": task["token"]}
        reports = [{**ref, "seq": seq, "kind": kind} for seq, kind in kinds]
        await self.do("TaskReports", node="n1", uid="uid1", reports=reports)

    async def run(self, attempt):
        await self.state.bind(self.group_id, ["n1"], attempt)
        await self.report(attempt, (1, "claimed"))
        await self.state.start(self.group_id, attempt)
        await self.report(attempt, (3, "started"))

    async def lose(self, losses):
        await self.do("ExpireNode", node_id="n1", uid="uid1", text="silent")
        await self.do("RejoinNode", node_id="n1", uid="uid1", losses=losses, tasks=[])


async def test_the_share_that_went_on_without_a_person(tmp_path):
    mesh = MemoryMesh()
    gang = Gang(mesh, tmp_path)
    async with served(tmp_path / "api", mesh) as client:
        cli = Cli(mesh, f"127.0.0.1:{client.server.port}", tmp_path / "api")
        assert await cli("queue") == 0
        assert "recovered without a person: no data, no interruption of 0 known groups is over" in cli.err
        gpus = [{"uuid": "n1-gpu-0", "type": "H100", "memory_mb": 1, "index": 0}]
        await gang.do(
            "RegisterNode", node_id="n1", uid="uid1", api_addr="127.9.7.6:7460", voter_addr=None, gpus=gpus,
            gpu_backend="simulated", runtime="memory", labels={}, version="0", cpus=1, memory_mb=1,
        )  # fmt: skip
        gang.group_id = await gang.state.submit(recovery={"max_restarts": 1, "on": ["nccl_init"]})
        await gang.run(1)
        await gang.lose(1)
        await gang.run(2)
        async with client.get("/api/v1/queue", headers=AUTH) as response:
            shown = (await response.json())["recovery"]
        assert shown == {
            "groups": 1, "interruptions": 1, "recovered": 1, "rate": 1.0,
            "text": "recovered without a person: 1 of 1 interruptions, 100 %",
        }  # fmt: skip
        await gang.lose(2)
        assert (await gang.state.get("group", gang.group_id))["status"] == "failed"
        assert await cli("queue") == 0
        assert cli.out == "" and "recovered without a person: 1 of 2 interruptions, 50 %" in cli.err
        assert await cli("queue", "-o", "json") == 0
        assert json.loads(cli.out)["recovery"]["rate"] == 0.5
        async with client.get("/api/v1/queue?cursor=1", headers=AUTH) as response:
            assert (await response.json())["recovery"] is None, "on the first page alone"
