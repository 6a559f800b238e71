"""Curves of a group at any node: the host of rank 0 reads, the others ask it."""

import json
import math
import time

import aiohttp
import pytest

from agentd.runtime.memory import Behaviour
from schemas import api
from tests.integration.served_api import AUTH, document
from tests.integration.telemetry_hosts import telemetry_mesh
from tests.integration.test_api_shapes import same_fields


def runs(_):
    return Behaviour(output="hello\n")


@pytest.fixture
async def mesh(tmp_path):
    async with telemetry_mesh(tmp_path, runs, stall_after_s=180.0) as found:
        yield found


async def test_the_same_at_both_nodes(mesh):
    group_id = await mesh.run_group()
    now = time.time()
    mesh.events(1, (1, now - 2, 2.0), (2, now - 1, 1.5))
    here, there = [await agent.value(f"/api/v1/task-groups/{group_id}/curves") for agent in mesh.agents]
    assert same_fields(here, api.Curves) and same_fields(here["last"], api.LastPoint)
    assert here["state"] == "live" and here["node_id"] == "n1" and here["loss_tag"] == "loss"
    assert (here["last"]["step"], here["last"]["loss"]) == (2, 1.5) and 0 < here["last"]["age_s"] < 60
    assert here["tags"] == {"loss": [[1, now - 2, 2.0], [2, now - 1, 1.5]]}
    assert here["summary"]["loss"] == {"n": 2, "first": [1, 2.0], "last": [2, 1.5], "nan": 0, "superseded": 0}
    same = set(here) - {"last"}
    assert {name: here[name] for name in same} == {name: there[name] for name in same}


async def test_points_tags_and_since_reach_the_host_that_reads(mesh):
    group_id = await mesh.run_group()
    mesh.events(1, *((step, 1000.0 + step, 1.0 / (step + 1)) for step in range(5_000)))
    mesh.events(1, (1, 1001.0, 3.0), tag="lr")
    for agent in mesh.agents:
        path = f"/api/v1/task-groups/{group_id}/curves"
        few = (await agent.value(f"{path}?tag=loss&points=50"))["tags"]
        assert set(few) == {"loss"} and len(few["loss"]) <= 50 and few["loss"][-1][:2] == [4999, 5999.0]
        later = (await agent.value(f"{path}?since=5997&points=50"))["tags"]
        assert [step for step, _, _ in later["loss"]] == [4998, 4999] and later["lr"] == []


async def test_nan_is_strict_json_and_said(mesh):
    group_id = await mesh.run_group()
    now = time.time()
    mesh.events(1, (6, now, 0.5), (7, now, math.nan), (8, now, 0.4), (9, now, math.inf))
    url = f"http://{mesh.agents[1].address}/api/v1/task-groups/{group_id}/curves"

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    async with aiohttp.ClientSession(headers=AUTH) as session, session.get(url) as response:
        found = json.loads(await response.text(), parse_constant=refuse)
    assert found["state"] == "nan" and "step 9" in found["text"]
    assert [value for _, _, value in found["tags"]["loss"]] == [0.5, "NaN", pytest.approx(0.4), "Infinity"]


async def test_a_restart_is_one_rising_curve(mesh):
    group_id = await mesh.run_group()
    mesh.events(1, *((step, 1000.0 + step, 1.0) for step in range(10, 151, 10)))
    mesh.events(1, *((step, 5000.0 + step, 0.5) for step in range(110, 201, 10)), file=2)
    found = await mesh.agents[0].value(f"/api/v1/task-groups/{group_id}/curves")
    steps = [step for step, _, _ in found["tags"]["loss"]]
    assert steps == list(range(10, 201, 10))
    assert found["state"] == "restarted" and found["summary"]["loss"]["superseded"] == 5
    assert found["last"]["step"] == 200 and found["last"]["wall"] == 5200.0


async def test_the_empty_states_are_kept_apart(mesh):
    path = "/api/v1/task-groups/{}/curves"
    waiting = await mesh.state.submit(2)
    for agent in mesh.agents:
        found = await agent.value(path.format(waiting))
        assert (found["state"], found["node_id"]) == ("no_log", None) and "not been placed" in found["text"]
    running = await mesh.run_group()
    assert (await mesh.agents[1].value(path.format(running)))["state"] == "no_log"
    mesh.events(2)
    assert (await mesh.agents[1].value(path.format(running)))["state"] == "no_points"
    status, problem = await mesh.agents[0].get(path.format("tg-none"))
    assert (status, problem["code"]) == (404, "no_such_group")


async def test_a_group_without_a_checkpoint_path(mesh):
    body = document(n_nodes=1, per_node_gpu=1)
    del body["training"]["checkpoint_path"]
    body["task"]["gpu_required"] = 1
    group_id = await mesh.start(await mesh.agents[1].submit(body), 1)
    found = await mesh.agents[1].value(f"/api/v1/task-groups/{group_id}/curves")
    assert found["state"] == "no_log" and "checkpoint_path" in found["text"]


async def test_a_host_that_is_down_is_no_empty_log(mesh):
    group_id = await mesh.run_group()
    mesh.events(1, (1, time.time(), 2.0))
    await mesh.agents[0].server.close()
    found = await mesh.agents[1].value(f"/api/v1/task-groups/{group_id}/curves")
    assert found["state"] == "probe_failed" and "node n1" in found["text"] and found["tags"] == {}


@pytest.mark.parametrize("query", ["points=1", "points=x", "since=yesterday", "consistency=maybe"])
async def test_parameters_out_of_range(mesh, query):
    group_id = await mesh.run_group()
    status, problem = await mesh.agents[1].get(f"/api/v1/task-groups/{group_id}/curves?{query}")
    assert status == 400 and problem["field"] == query.partition("=")[0]


async def test_tags_as_they_are(mesh):
    group_id = await mesh.run_group()
    tags = ["loss/[train]", "loss[step=5", "acc[/]", "a/b/c", "损失", "loss\nnl", "Loss", "loss"]
    for tag in tags:
        mesh.events(1, (1, time.time(), 2.0), (2, time.time(), 1.0), tag=tag)
    found = await mesh.agents[1].value(f"/api/v1/task-groups/{group_id}/curves")
    assert set(found["tags"]) == set(tags) and found["loss_tag"] == "loss"
