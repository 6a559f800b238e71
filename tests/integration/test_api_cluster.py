"""Nodes, queue and mesh over HTTP: what there is, what waits, and how fresh that is."""

from typing import Any

import pytest

from mesh.memory import MemoryMesh
from schemas.commands import command
from tests.integration.served_api import AUTH, document, served


def register(node: str, cards: int = 2) -> dict[str, Any]:
    return command(
        "RegisterNode",
        node_id=node,
        uid=f"uid-{node}",
        api_addr="127.0.0.1:7460",
        voter_addr=None,
        gpus=[
            {"uuid": f"{node}-{index}", "type": "H100", "memory_mb": 81920, "index": index} for index in range(cards)
        ],
        gpu_backend="simulated",
        runtime="memory",
        labels={"rack": "r1"},
        version="0",
        cpus=8,
        memory_mb=1024,
    )


async def get(client, path):
    async with client.get(f"/api/v1{path}", headers=AUTH) as response:
        return response.status, await response.json(), response.headers


async def test_cards_are_free_held_or_releasing(tmp_path):
    mesh = MemoryMesh()
    await mesh.propose(register("n1"))
    async with served(tmp_path, mesh) as client:
        async with client.post("/api/v1/task-groups", json=document(per_node_gpu=2), headers=AUTH) as response:
            group_id = (await response.json())["group_id"]
        placement = {"rank": 0, "node": "n1", "gpus": ["n1-0", "n1-1"], "port": 20_000}
        bound = await mesh.propose(command("BindGroup", group_id=group_id, attempt=1, placements=[placement]))
        assert bound["ok"], bound
        _, shown, _ = await get(client, "/nodes")
        (node,) = shown["nodes"]
        assert (node["gpus_total"], node["gpus_free"], node["gpus_held"], node["gpus_releasing"]) == (2, 0, 2, 0)
        assert node["labels"] == {"rack": "r1"} and node["joined_at"].endswith("Z") and node["lost_at"] is None
        await mesh.propose(command("StopGroup", group_id=group_id, by="t"))
        _, shown, _ = await get(client, "/nodes")
        assert [card["state"] for card in shown["nodes"][0]["gpus"]] == ["releasing", "releasing"]
        await mesh.propose(command("ExpireNode", node_id="n1", uid="uid-n1", text="silent for 15 s"))
        _, shown, _ = await get(client, "/nodes")
        assert shown["nodes"][0]["state"] == "lost" and "silent" in shown["nodes"][0]["reason"]


async def test_more_rows_than_one_read_holds(tmp_path):
    mesh = MemoryMesh()
    for number in range(1203):
        await mesh.propose(register(f"n{number}", cards=0))
    async with served(tmp_path, mesh) as client:
        _, shown, _ = await get(client, "/nodes")
    assert len({node["node_id"] for node in shown["nodes"]}) == 1203


async def test_the_queue_is_in_the_order_of_the_scheduler(tmp_path):
    async with served(tmp_path) as client:
        for name, priority in (("a", "normal"), ("b", "highest"), ("c", "high"), ("d", "highest")):
            body = document(name) | {"priority": priority}
            async with client.post("/api/v1/task-groups", json=body, headers=AUTH) as response:
                assert response.status == 201
        _, shown, _ = await get(client, "/queue?limit=3")
    assert [(entry["position"], entry["name"]) for entry in shown["queue"]] == [(1, "b"), (2, "d"), (3, "c")]
    assert shown["total"] == 4


async def test_mesh_is_answered_by_what_is_at_hand(tmp_path):
    mesh = MemoryMesh()
    voters = [{"raft_id": 1, "node": "n1", "voter_addr": "127.0.0.1:7461"}]
    await mesh.propose(command("InitCluster", cluster_id="c1", epoch=1, profile="fast", voters=voters))
    async with served(tmp_path, mesh) as client:
        status, shown, headers = await get(client, "/mesh")
        assert status == 200 and shown["cluster_id"] == "c1" and shown["consensus"]["leader"] == 1
        assert shown["agent"] == {"status": "ok"} and headers["X-HeteroFlow-Node"] == "n1"


async def test_mesh_without_any_voter(tmp_path, monkeypatch):
    monkeypatch.setattr("agentd.http.cluster._STATUS_S", 0.1)

    class Nobody(MemoryMesh):
        async def status(self):
            raise ConnectionResetError("gone")

    async with served(tmp_path, Nobody()) as client:
        status, shown, headers = await get(client, "/mesh")
    assert status == 503 and shown["code"] == "no_voter" and headers["Retry-After"]


@pytest.mark.parametrize(("query", "level"), [("", "linearizable"), ("?consistency=stale", "stale")])
async def test_reads_say_how_fresh_they_are(tmp_path, query, level):
    asked = []

    class Asked(MemoryMesh):
        async def query(self, reads, level="linearizable", min_idx=None, timeout_s=10.0):
            asked.append(level)
            return await super().query(reads, level, min_idx, timeout_s) | {"age_ms": 1234}

    async with served(tmp_path, Asked()) as client:
        _, _, headers = await get(client, f"/task-groups{query}")
    assert set(asked) == {level}
    assert headers["X-HeteroFlow-Age-Ms"] == "1234" and headers["X-HeteroFlow-Index"].isdigit()
