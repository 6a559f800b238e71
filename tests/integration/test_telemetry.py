"""From samples on every node to alerts at any: on an in-process mesh, with cards that do as the test says."""

import asyncio
import time

import aiohttp
import pytest

from agentd.runtime.memory import Behaviour
from schemas import api
from tests.integration.served_api import AUTH
from tests.integration.telemetry_hosts import telemetry_mesh
from tests.integration.test_api_shapes import same_fields

STALL_S = 0.4


def runs(_):
    return Behaviour(output="hello\n")


@pytest.fixture
async def mesh(tmp_path):
    async with telemetry_mesh(tmp_path, runs, stall_after_s=STALL_S) as found:
        yield found


async def rounds_until(mesh, wanted, within_s: float = 10.0):
    """Rounds on every node until `wanted(telemetry, alerts)` of the last agent holds."""
    deadline = time.monotonic() + within_s
    while True:
        await mesh.rounds()
        agent = mesh.agents[-1]
        agent.telemetry.leader._cached = None
        said, alerts = await agent.value("/api/v1/telemetry"), await agent.value("/api/v1/alerts?state=all")
        if wanted(said, alerts["alerts"]):
            return said, alerts["alerts"]
        assert time.monotonic() < deadline, (said["groups"], alerts)
        await asyncio.sleep(0.02)


def raised(alerts):
    return [alert for alert in alerts if alert["state"] == "raised"]


async def test_every_node_is_heard_and_any_tells(mesh):
    group_id = await mesh.run_group()
    mesh.events(1, (7, time.time(), 0.25))
    mesh.agents[0].cards.util, mesh.agents[1].cards.util = 90.0, 70.0
    said, _ = await rounds_until(mesh, lambda said, _: said["groups"] and len(said["groups"][0]["ranks"]) == 2)
    assert same_fields(said, api.Telemetry)
    (group,) = said["groups"]
    assert same_fields(group, api.GroupNow) and same_fields(group["ranks"][0], api.RankNow)
    assert same_fields(said["nodes"][0], api.NodeNow) and same_fields(said["nodes"][0]["cards"][0], api.CardSample)
    assert (group["group_id"], group["step"], group["loss"], group["loss_tag"]) == (group_id, 7, 0.25, "loss")
    assert (group["gpu_util"], group["gpus"], group["gpus_unknown"]) == (80.0, 2, 0)
    assert [(rank["rank"], rank["node_id"]) for rank in group["ranks"]] == [(0, "n1"), (1, "n2")]
    only = await mesh.agents[1].value("/api/v1/telemetry?group=tg-other")
    assert only["groups"] == []
    # What the console asks for, list by list.
    for parts, ranks, nodes in (("none", 0, 0), ("nodes", 0, 2), ("ranks", 2, 0), ("ranks,nodes", 2, 2)):
        some = await mesh.agents[1].value(f"/api/v1/telemetry?parts={parts}")
        assert (len(some["groups"][0]["ranks"]), len(some["nodes"])) == (ranks, nodes), parts


async def test_a_stall_rises_and_clears(mesh):
    group_id = await mesh.run_group()
    mesh.events(1, (7, time.time(), 0.25))
    _, alerts = await rounds_until(mesh, lambda _, alerts: raised(alerts))
    (alert,) = alerts
    assert same_fields(alert, api.Alert)
    assert (alert["rule"], alert["group_id"], alert["attempt"]) == ("stalled", group_id, 1)
    assert alert["level"] == "critical" and "no step for" in alert["text"] and alert["advice"]
    assert abs(time.time() * 1000 - alert["since_ms"]) < 20_000
    mesh.events(1, (8, time.time(), 0.24))
    _, alerts = await rounds_until(mesh, lambda _, alerts: not raised(alerts))
    assert [(alert["state"], alert["cleared"] is not None) for alert in alerts] == [("cleared", True)]
    assert (await mesh.agents[0].value("/api/v1/alerts"))["alerts"] == []


async def test_a_group_that_stands_still_for_long_is_failed_once_with_what_was_seen(tmp_path, monkeypatch):
    async with telemetry_mesh(tmp_path, runs, stall_after_s=STALL_S, stall_fails_after_s=3 * STALL_S) as mesh:
        group_id = await mesh.run_group()
        mesh.events(1, (7, time.time(), 0.25))
        proposed: list[str] = []
        propose = mesh.mesh.propose

        async def counted(proposal, **how):
            proposed.append(proposal["t"])
            return await propose(proposal, **how)

        monkeypatch.setattr(mesh.mesh, "propose", counted)
        await rounds_until(mesh, lambda _, alerts: raised(alerts))
        assert (await mesh.state.get("group", group_id))["status"] == "running", "the alert comes first"
        await rounds_until(mesh, lambda _, __: "FailGroup" in proposed)
        mesh.mesh.elect("n2")  # his own count of it is refused: it ends already
        await mesh.rounds(5)
        await mesh.state.until(group_id, lambda group, _: group["status"] == "failed")
        group = await mesh.state.get("group", group_id)
        assert (group["failure"]["class"], group["failure"]["rank"]) == ("stalled", None)
        text = group["failure"]["text"]
        assert text.startswith("It stood still: no step for") and "rank 0 on n1 last" in text and "rank 1 on n2" in text
        assert proposed.count("FailGroup") <= 2, proposed


async def test_a_busy_card_anywhere_keeps_it_quiet(mesh):
    await mesh.run_group()
    mesh.events(1, (7, time.time(), 0.25))
    mesh.agents[1].cards.util = 60.0
    for _ in range(12):
        await rounds_until(mesh, lambda _, alerts: not alerts)
        await asyncio.sleep(STALL_S / 8)
    mesh.agents[1].cards.util = 3.0
    await rounds_until(mesh, lambda _, alerts: raised(alerts))


async def test_unknown_utilisation_is_said_and_raises_nothing(mesh):
    await mesh.run_group()
    mesh.events(1, (7, time.time(), 0.25))
    mesh.agents[0].cards.util = mesh.agents[1].cards.util = None
    said, alerts = await rounds_until(
        mesh, lambda said, _: said["groups"] and "not available" in said["groups"][0]["stall_text"]
    )
    (group,) = said["groups"]
    assert group["stall"] == "unjudged" and "cannot judge: GPU utilisation" in group["stall_text"]
    assert (group["gpu_util"], group["gpus_unknown"]) == (None, 2)
    assert alerts == []


async def test_a_new_leader_raises_the_same_within_a_round(mesh):
    await mesh.run_group()
    mesh.events(1, (7, time.time(), 0.25))
    _, (before,) = await rounds_until(mesh, lambda _, alerts: raised(alerts))
    mesh.mesh.elect("n2")
    await mesh.rounds()
    for agent in mesh.agents:
        agent.telemetry.leader._cached = None
        found = await agent.value("/api/v1/alerts")
        assert found["leader"] == "n2"
        (after,) = found["alerts"]
        assert after["id"] == before["id"] and abs(after["since_ms"] - before["since_ms"]) < 2_000
    assert mesh.agents[0].telemetry.desk.blobs() == {}


async def test_a_group_that_ends_is_not_stalled(mesh):
    group_id = await mesh.run_group()
    mesh.events(1, (7, time.time(), 0.25))
    await rounds_until(mesh, lambda _, alerts: raised(alerts))
    for agent in mesh.agents:
        for task in agent.host.runtime.host.values():
            agent.host.runtime._end(task, "exited", 0, None)
    await mesh.state.until(group_id, lambda group, _: group["status"] == "completed")
    _, alerts = await rounds_until(mesh, lambda said, alerts: not said["groups"] and not raised(alerts))
    assert [alert["state"] for alert in alerts] == ["cleared"]


async def test_a_loss_that_is_no_number(mesh):
    await mesh.run_group()
    mesh.agents[0].cards.util = 80.0
    mesh.events(1, (7, time.time(), float("nan")))
    _, alerts = await rounds_until(mesh, lambda _, alerts: raised(alerts))
    assert [(alert["rule"], alert["text"]) for alert in alerts] == [("loss_not_finite", "loss is nan at step 7")]
    mesh.events(1, (8, time.time(), 0.5))
    await rounds_until(mesh, lambda _, alerts: not raised(alerts))


async def test_points_of_an_earlier_attempt_are_no_step_of_this_one(mesh):
    mesh.events(1, (900, time.time() - 3600, 0.25))
    await mesh.run_group()
    said, alerts = await rounds_until(
        mesh, lambda said, _: said["groups"] and said["groups"][0]["stall_text"] == "no step yet"
    )
    assert said["groups"][0]["step"] == 900 and alerts == []


async def test_a_leader_that_cannot_be_reached(mesh):
    await mesh.rounds()
    await mesh.agents[0].server.close()
    status, problem = await mesh.agents[1].get("/api/v1/alerts")
    assert status == 503 and problem["code"] == "leader_unreachable" and "n1" in problem["message"]


async def test_foreign_blobs_are_refused(mesh):
    url = f"http://{mesh.agents[0].address}/mesh/v1/telemetry"
    async with aiohttp.ClientSession() as session:
        for headers, body, status in [
            ({}, b"x", 401),
            (AUTH, b"x", 400),
            (AUTH | {"X-HeteroFlow-Node": "../etc"}, b"x", 400),
            (AUTH | {"X-HeteroFlow-Node": "n9"}, b"x" * 100_000, 413),
            (AUTH | {"X-HeteroFlow-Node": "n9"}, b"no blob", 204),
        ]:
            async with session.post(url, data=body, headers=headers) as response:
                assert response.status == status, (headers, response.status)
    await mesh.rounds()
    assert mesh.agents[0].telemetry.desk.refused >= 1
    assert [node["node_id"] for node in (await mesh.agents[0].value("/api/v1/telemetry"))["nodes"]] == ["n1", "n2"]


class TestGpuMetrics:
    async def test_now_and_over_time_from_any_node(self, mesh):
        group_id = await mesh.run_group()
        mesh.agents[1].cards.util = 77.0
        await mesh.rounds()
        for agent in mesh.agents:
            found = await agent.value(f"/api/v1/tasks/{group_id}.1.1/gpu-metrics")
            assert same_fields(found, api.GpuMetrics)
            assert (found["state"], found["node_id"], found["simulated"]) == ("live", "n2", False)
            (card,) = found["now"]
            assert card == {
                "uuid": "n2-gpu-0",
                "util": 77.0,
                "memory_used_mb": 1000,
                "temperature_c": 50,
                "power_w": 300.0,
            }
            (sample,) = found["samples"]
            assert same_fields(sample, api.TaskSample) and sample["cards"] == [card]

    async def test_after_the_end_the_samples_stay(self, mesh):
        group_id = await mesh.run_group(1)
        await mesh.rounds()
        for task in mesh.agents[0].host.runtime.host.values():
            mesh.agents[0].host.runtime._end(task, "exited", 0, None)
        await mesh.state.until(group_id, lambda group, _: group["status"] == "completed")
        await mesh.rounds()
        found = await mesh.agents[1].value(f"/api/v1/tasks/{group_id}.1.0/gpu-metrics")
        assert (found["state"], found["now"], len(found["samples"])) == ("ended", None, 1)

    @pytest.mark.parametrize("task", ["tg-none.1.0", "nonsense", "tg-1.x.0", "tg-1.1"])
    async def test_no_such_task(self, mesh, task):
        status, problem = await mesh.agents[1].get(f"/api/v1/tasks/{task}/gpu-metrics")
        assert (status, problem["code"]) == (404, "no_such_task")

    async def test_a_host_that_is_down(self, mesh):
        group_id = await mesh.run_group()
        await mesh.agents[0].server.close()
        found = await mesh.agents[1].value(f"/api/v1/tasks/{group_id}.1.0/gpu-metrics")
        assert same_fields(found, api.GpuMetrics)
        assert found["state"] == "probe_failed" and "n1" in found["text"]
