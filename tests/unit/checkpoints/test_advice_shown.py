"""The advice from the look at the disk to the command line: state, HTTP and words, in one process."""

import asyncio
import json
import os

from agentd.checkpoints.watch import CheckpointWatch
from agentd.node_feed import NodeFeed, task_id_of
from mesh.memory import MemoryMesh
from schemas.commands import command
from tests.integration.memory_hosts import State
from tests.integration.served_api import AUTH, served
from tests.integration.test_cli import Cli

NODE = {
    "node_id": "n1", "uid": "uid-n1", "api_addr": "127.9.7.6:7460", "voter_addr": None,
    "gpus": [{"uuid": "n1-gpu-0", "type": "H100", "memory_mb": 1, "index": 0}], "gpu_backend": "simulated",
    "runtime": "memory", "labels": {}, "version": "0", "cpus": 1, "memory_mb": 1,
}  # fmt: skip


def saves(place, step):
    work = place / f".tmp-{step}"
    work.mkdir(parents=True)
    (work / "weights.bin").write_bytes(b"w" * 1000)
    (work / "meta.json").write_text(json.dumps({"step": step}))
    # It took 2 ms.
    written_ns = (work / "meta.json").stat().st_mtime_ns
    os.utime(work / "weights.bin", ns=(written_ns - 2_000_000,) * 2)
    work.rename(place / f"step-{step}")


class Gang:
    """One rank that runs on n1, as its agent's mirror has it."""

    def __init__(self, directory):
        self.mesh, self.directory = MemoryMesh(), directory
        self.state = State(self.mesh, directory)
        self.feed = NodeFeed(self.mesh, "n1", lambda: None)
        self.watch = CheckpointWatch(self.mesh, self.feed, "n1", "uid-n1", (str(directory),), every_s=0.0)

    async def run(self, **training):
        outcome = await self.mesh.propose(command("RegisterNode", **NODE))
        assert outcome["ok"], outcome
        self.group_id = await self.state.submit(**training)
        await self.state.bind(self.group_id, ["n1"])
        (task,) = await self.state.tasks(self.group_id)
        ref = {"group_id": self.group_id, "attempt": 1, "rank": 0, "token": task["token"]}
        await self.report({**ref, "seq": 1, "kind": "claimed"})
        await self.state.start(self.group_id)
        await self.report({**ref, "seq": 3, "kind": "started"})
        return self.directory / "ckpt-1"

    async def report(self, told):
        outcome = await self.mesh.propose(command("TaskReports", node="n1", uid="uid-n1", reports=[told]))
        assert outcome["ok"] and outcome["data"]["ignored"] == 0, outcome

    async def looked(self, step):
        """Once the mesh was told of it."""
        async with asyncio.timeout(10):
            while True:
                (task,) = await self.state.tasks(self.group_id)
                group = await self.state.get("group", self.group_id)
                if (group.get("saved") or {}).get("step") == step:
                    return
                self.feed.tasks, self.feed.groups = {task_id_of(task): task}, {self.group_id: group}
                await self.watch.turn()
                await asyncio.sleep(0.01)


async def test_from_the_disk_to_the_command_line(tmp_path):
    gang = Gang(tmp_path)
    place = await gang.run()
    path = f"/api/v1/task-groups/{gang.group_id}/checkpoints"
    async with served(tmp_path / "api", gang.mesh) as client:
        cli = Cli(gang.mesh, f"127.0.0.1:{client.server.port}", tmp_path / "api")
        assert await cli("checkpoint", "ls", gang.group_id) == 0, cli.err
        assert "no disk forecast: no checkpoint of it was measured yet and the free space" in cli.out
        assert "no interval advice: how long a save takes was not measured" in cli.out
        for step in (1, 2, 3):
            saves(place, step)
            await gang.looked(step)
        free = os.statvfs(place)
        async with client.get(path, headers=AUTH) as response:
            advice = (await response.json())["advice"]
        told = advice["disk"]["free_bytes"]
        # Others write on this disk too.
        assert 0 < told <= free.f_blocks * free.f_frsize
        assert (advice["disk"]["bytes_each"], advice["disk"]["fits"]) == (1000 + len('{"step": 1}'), None)
        assert 0 < advice["disk"]["every_s"] < 60 and advice["disk"]["full_in_s"] > 0
        assert advice["interval"]["cost_s"] == 0.002 and advice["interval"]["at_least"] is True
        assert await cli("checkpoint", "ls", gang.group_id) == 0, cli.err
        assert "1,000 B each, " in cli.out and " free, nothing is removed without keep_last_n" in cli.out
        assert "its node fails at least " in cli.out


async def test_what_keep_last_n_keeps(tmp_path):
    gang = Gang(tmp_path)
    saves(await gang.run(keep_last_n=2), 1)
    await gang.looked(1)
    async with served(tmp_path / "api", gang.mesh) as client:
        cli = Cli(gang.mesh, f"127.0.0.1:{client.server.port}", tmp_path / "api")
        assert await cli("checkpoint", "ls", gang.group_id) == 0, cli.err
    assert "the last 2 fit on the disk: 1,000 B each, 2 KiB more at most, " in cli.out
