"""Files of a group on real agents: what a rank wrote is fetched through the other node, also while the agent that has
it is killed, after the group has ended, and not from a host that is gone."""

import asyncio
import hashlib
import os
from pathlib import Path

import aiohttp
import pytest

from tests.integration.mesh_fixture import RunningMesh, shell_group
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
MIB = 1 << 20


async def test_through_the_other_node(tmp_path: Path) -> None:
    async with RunningMesh(tmp_path / "mesh", n=2, voters=1, tls=True) as mesh:
        # The voter's host stays: the files are the other's.
        near, home = mesh.nodes
        group_id = await mesh.submit(shell_group("files", mesh.directory, "sleep 300", n_nodes=2))
        tasks = (await mesh.status(group_id, "running", within_s=60))["tasks"]
        rank = next(task["rank"] for task in tasks if task["node_id"] == home.name)
        data = os.urandom(96 * MIB)
        (mesh.directory / "checkpoints" / "files" / "w").write_bytes(data)
        url = mesh.url(near, f"/api/v1/task-groups/{group_id}/files/content")
        asked = {"target_path": "/checkpoint/w", "rank": str(rank)}
        timeout = aiohttp.ClientTimeout(total=120)
        async with mesh.session(timeout) as session:
            session.headers["Authorization"] = f"Bearer {mesh.token}"
            async with session.get(url, params=asked) as response:
                assert response.status == 200
                begun = await response.content.readexactly(MIB)
                home.kill_agent()
                assert hashlib.sha256(begun + await response.content.read()).digest() == hashlib.sha256(data).digest()

            async def put() -> dict[str, object] | None:
                kind = {"Content-Type": "application/octet-stream"}
                there = asked | {"target_path": "/checkpoint/in/up", "parents": "true"}
                async with session.put(url, params=there, data=b"up", headers=kind) as response:
                    return dict(await response.json()) if response.status == 200 else None

            done = await eventually("the agent that was killed", put)
            assert done["node_id"] == home.name and done["sha256"] == hashlib.sha256(b"up").hexdigest()
        await near.call("POST", f"/task-groups/{group_id}/stop")
        await mesh.status(group_id, "stopped", within_s=60)
        listed = await near.call("GET", f"/tasks/{group_id}.1.{rank}/files?target_path=/checkpoint/in")
        assert [(e["name"], e["size"]) for e in listed.value["entries"]] == [("up", 2)]
        await asyncio.to_thread(home.kill_host)
        gone = await near.call("GET", f"/task-groups/{group_id}/files?target_path=/checkpoint&rank={rank}")
        assert gone.status == 503 and gone.value["code"] in ("node_unreachable", "node_lost"), gone
        assert home.name in gone.value["message"]
