"""What the API answers has the fields that `schemas.api` promises to whoever reads it, no more and no fewer."""

from typing import Any, get_type_hints

from mesh.memory import MemoryMesh
from schemas import api
from tests.integration.served_api import AUTH, document, served
from tests.integration.test_cli import Cli


def same_fields(value: dict[str, Any], shape: type) -> bool:
    wanted = set(get_type_hints(shape))
    assert set(value) == wanted, f"{shape.__name__}: {set(value) ^ wanted}"
    return True


async def test_every_answer_has_the_promised_fields(tmp_path):
    mesh = MemoryMesh()
    async with served(tmp_path, mesh) as client:

        async def get(path: str) -> Any:
            async with client.get(f"/api/v1/{path}", headers=AUTH) as response:
                assert response.status == 200
                return await response.json()

        drive = Cli(mesh, f"127.0.0.1:{client.server.port}", tmp_path)
        await drive.join()
        async with client.post("/api/v1/task-groups", json=document(n_nodes=1), headers=AUTH) as response:
            submitted = await response.json()
        assert same_fields(submitted, api.Submitted)
        group_id = submitted["group_id"]
        assert same_fields((await get("queue"))["queue"][0], api.QueueEntry)
        await drive.run_group(group_id, exit_code=7)
        listed = await get("task-groups")
        assert same_fields(listed, api.GroupList)
        assert same_fields(listed["groups"][0], api.GroupSummary)
        shown = await get(f"task-groups/{group_id}")
        assert same_fields(shown, api.GroupDetail)
        assert same_fields(shown["failure"], api.Failure)
        assert same_fields(shown["tasks"][0], api.Task)
        assert same_fields((await get(f"task-groups/{group_id}/fault-events"))["events"][0], api.FaultEvent)
        nodes = await get("nodes")
        assert same_fields(nodes, api.NodeList)
        (node,) = nodes["nodes"]
        assert same_fields(await get("gossip"), api.GossipList)
        assert same_fields(node, api.Node)
        assert same_fields(node["gpus"][0], api.Card)
        body = document("other") | {"max_retries": 3}
        async with client.post("/api/v1/task-groups", json=body, headers=AUTH) as response:
            assert same_fields((await response.json())["warnings"][0], api.Warned)
