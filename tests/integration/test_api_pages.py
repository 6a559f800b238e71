"""Every list of the API can be read a page at a time, and the pages are the whole."""

import pytest

from mesh.memory import MemoryMesh
from schemas.commands import command
from tests.integration.served_api import AUTH, document, served


async def in_pages(client, path, part, limit):
    read, cursor = [], None
    for _ in range(100):
        params = {"limit": str(limit)} | ({} if cursor is None else {"cursor": str(cursor)})
        async with client.get(f"/api/v1/{path}", params=params, headers=AUTH) as response:
            assert response.status == 200, await response.text()
            answer = await response.json()
        assert len(answer[part]) <= limit
        read += answer[part]
        if (cursor := answer["cursor"]) is None:
            return read
    raise AssertionError(f"{path} has no end")


async def add_nodes(mesh, number):
    for at in range(number):
        outcome = await mesh.propose(
            command(
                "RegisterNode", node_id=f"n{at}", uid=f"u{at}", api_addr=f"127.0.0.{at + 1}:7460", voter_addr=None,
                gpus=[{"uuid": f"SIM-{at}", "type": "H100", "memory_mb": 1, "index": 0}],
                gpu_backend="simulated", runtime="memory", labels={}, version="0", cpus=1, memory_mb=1,
            )
        )  # fmt: skip
        assert outcome["ok"], outcome


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_pages_are_the_whole(tmp_path, limit):
    mesh = MemoryMesh()
    await add_nodes(mesh, 7)
    async with served(tmp_path, mesh) as client:
        for at, priority in enumerate(("normal", "highest", "high", "highest", "high")):
            body = document(f"g{at}") | {"priority": priority}
            async with client.post("/api/v1/task-groups", json=body, headers=AUTH) as response:
                assert response.status == 201, await response.text()
        nodes = [node["node_id"] for node in await in_pages(client, "nodes", "nodes", limit)]
        assert nodes == sorted(nodes) and len(nodes) == 7
        queue = await in_pages(client, "queue", "queue", limit)
        assert [entry["position"] for entry in queue] == [1, 2, 3, 4, 5]
        assert [entry["name"] for entry in queue] == ["g1", "g3", "g2", "g4", "g0"]
        groups = await in_pages(client, "task-groups", "groups", limit)
        assert [group["name"] for group in groups] == ["g4", "g3", "g2", "g1", "g0"]
        events = await in_pages(client, f"task-groups/{groups[0]['group_id']}/fault-events", "events", limit)
        assert [event["kind"] for event in events] == ["submitted"]


async def test_events_go_on_where_large_ones_filled_a_page(tmp_path):
    class Short(MemoryMesh):
        """Answers one row a scan, as where rows are large."""

        async def query(self, reads, *args, **options):
            cut = [{"scan": [*read["scan"][:3], 1]} if "scan" in read else read for read in reads]
            return await super().query(cut, *args, **options)

    mesh = Short()
    async with served(tmp_path, mesh) as client:
        async with client.post("/api/v1/task-groups", json=document(), headers=AUTH) as response:
            group_id = (await response.json())["group_id"]
        async with client.post(f"/api/v1/task-groups/{group_id}/stop", headers=AUTH) as response:
            assert response.status == 200
        events = await in_pages(client, f"task-groups/{group_id}/fault-events", "events", 100)
        kinds = [event["kind"] for event in events]
        assert kinds[0] == "submitted" and len(kinds) >= 2
