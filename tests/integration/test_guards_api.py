"""The guards at the agent: a wrong command creates nothing, and every finding comes in one answer."""

import pytest

from mesh.memory import MemoryMesh
from schemas.task_group import check_task_group
from tests.integration.served_api import AUTH, document, served
from tests.integration.test_api_cluster import register
from tests.unit.guards.rows import document_of, every_row

SCALINGS = [
    ("scale", {"n_nodes": 4}),
    ("autoscale", {"direction": "up"}),
    ("autoscale", {"direction": "down"}),
    ("autoscale", {"scale_down": True}),
]


async def test_a_command_that_would_split_the_world_creates_nothing(tmp_path):
    wrong = document("split", n_nodes=2)
    wrong["training"].pop("launcher")
    wrong["task"]["command"] = "torchrun --standalone --nproc_per_node=8 t.py | tee log"
    async with served(tmp_path) as client:
        answer = await client.post("/api/v1/task-groups", json=wrong, headers=AUTH)
        problem = await answer.json()
        assert answer.status == 400
        findings = check_task_group(wrong).errors
        assert problem["findings"] == [finding.to_dict() for finding in findings]
        assert [finding["code"] for finding in problem["findings"]] == [
            "hidden_exit_code",
            "launch_contradiction",
            "launch_contradiction",
        ]
        listed = await (await client.get("/api/v1/task-groups", headers=AUTH)).json()
        assert listed["groups"] == []


async def test_no_refused_row_of_the_table_creates_anything(tmp_path):
    refused = [row for _, row in every_row() if row.get("errors")]
    assert len(refused) > 200
    async with served(tmp_path) as client:
        for row in refused:
            wrong = document_of(row)
            answer = await client.post("/api/v1/task-groups", json=wrong, headers=AUTH)
            codes = [finding["code"] for finding in (await answer.json())["findings"]]
            assert (answer.status, codes) == (400, [finding.code for finding in check_task_group(wrong).errors]), row
        listed = await (await client.get("/api/v1/task-groups", headers=AUTH)).json()
        assert listed["groups"] == []


async def test_a_warning_refuses_nothing_and_is_kept_with_the_group(tmp_path):
    doubtful = document("doubtful", n_nodes=2)
    doubtful["training"].pop("launcher")
    doubtful["task"]["command"] = "torchrun --nnodes=$SLURM_NNODES t.py"
    async with served(tmp_path) as client:
        answer = await client.post("/api/v1/task-groups", json=doubtful, headers=AUTH)
        created = await answer.json()
        assert answer.status == 201
        shown = await (await client.get(f"/api/v1/task-groups/{created['group_id']}", headers=AUTH)).json()
    for warnings in (created["warnings"], shown["warnings"]):
        assert "unknown_value" in [warning["code"] for warning in warnings]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
@pytest.mark.parametrize(("way", "body"), SCALINGS)
async def test_a_training_group_is_never_scaled(tmp_path, method, way, body):
    async with served(tmp_path) as client:
        created = await (await client.post("/api/v1/task-groups", json=document("fixed"), headers=AUTH)).json()
        where = f"/api/v1/task-groups/{created['group_id']}"
        answer = await client.request(method, f"{where}/{way}", json=body, headers=AUTH)
        assert answer.status == 400
        assert (await answer.json())["code"] == "static_world"
        missing = await client.request(method, f"{where[:-3]}zzz/{way}", json=body, headers=AUTH)
        assert missing.status == 404


@pytest.mark.parametrize(
    ("training", "warned"),
    [
        ({"n_nodes": 1}, False),
        ({"n_nodes": 2}, True),
        ({"per_node_gpu": 3}, True),
        ({"gpu_type": ["A100"]}, True),
        ({"gpu_type": ["A100", "H100"]}, False),
    ],
)
async def test_what_the_mesh_could_never_hold_is_accepted_with_a_warning(tmp_path, training, warned):
    mesh = MemoryMesh()
    wanted = document("large", **training)
    wanted["task"]["gpu_required"] = wanted["training"]["per_node_gpu"]
    async with served(tmp_path, mesh) as client:
        alone = await (await client.post("/api/v1/task-groups", json=wanted, headers=AUTH)).json()
        assert "cluster_too_small" not in [warning["code"] for warning in alone["warnings"]], "no node is known yet"
        await mesh.propose(register("n1"))
        wanted["training"]["checkpoint_path"] += "-2"
        answer = await client.post("/api/v1/task-groups", json=wanted, headers=AUTH)
        created = await answer.json()
    assert answer.status == 201
    assert ("cluster_too_small" in [warning["code"] for warning in created["warnings"]]) == warned
