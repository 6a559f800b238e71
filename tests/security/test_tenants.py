"""What one tenant may learn of another through running tasks: logs, curves, cards, telemetry, alerts and reasons, asked
at the node that has them and at another one."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from agentd.core.tenant_rows import TenantRows, reason_for
from agentd.http import callers, stream_end
from agentd.runtime.memory import Behaviour
from schemas.commands import command
from tests.integration.served_api import AUTH
from tests.integration.telemetry_hosts import TelemetryMesh, telemetry_mesh
from tests.security.people import bearer, people

PATHS = (
    "/api/v1/task-groups/{}/logs",
    "/api/v1/task-groups/{}/curves",
    "/api/v1/task-groups/{}/fault-events",
    "/api/v1/task-groups/{}",
    "/api/v1/tasks/{}.1.0/gpu-metrics",
)


class Running:
    """A group of tenant `t` that runs on both agents; clients by name with keys of `t`, of `x`, and of an operator."""

    def __init__(self, mesh: TelemetryMesh, group_id: str, keys: dict[str, str]) -> None:
        self.mesh, self.group_id, self.keys = mesh, group_id, keys

    async def ask(self, agent: int, path: str, who: str) -> tuple[int, str]:
        url = f"http://{self.mesh.agents[agent].address}{path}"
        async with aiohttp.ClientSession(headers=bearer(self.keys[who])) as session, session.get(url) as response:
            return response.status, await response.text()


@contextlib.asynccontextmanager
async def running(tmp_path: Any) -> AsyncIterator[Running]:
    def talks(_: Any) -> Behaviour:
        return Behaviour(output="a word of tenant t\n")

    async with telemetry_mesh(tmp_path, talks, stall_after_s=0.2) as mesh:
        keys = {}
        async with aiohttp.ClientSession(headers=AUTH) as session:
            for name, role, tenant in (("in", "viewer", "t"), ("out", "member", "x"), ("op", "operator", "x")):
                body = {"name": name, "role": role, "tenant": tenant}
                async with session.post(f"http://{mesh.agents[0].address}/api/v1/keys", json=body) as response:
                    keys[name] = (await response.json())["key"]
        group_id = await mesh.run_group()
        mesh.events(1, (7, time.time(), 0.25))
        await mesh.rounds(2)
        yield Running(mesh, group_id, keys)


async def test_files_of_a_group_through_any_node(tmp_path):
    async with running(tmp_path) as found:
        nowhere = "tg-00000000000000000009"
        for agent in (0, 1):
            for path in PATHS:
                for who in ("in", "op"):
                    status, text = await found.ask(agent, path.format(found.group_id), who)
                    assert status == 200 and "probe_failed" not in text and '"problem"' not in text, (agent, path, text)
                hidden = await found.ask(agent, path.format(found.group_id), "out")
                absent = await found.ask(agent, path.format(nowhere), "out")
                assert hidden[0] == 404 and "a word" not in hidden[1]
                assert hidden[1].replace(found.group_id, "G") == absent[1].replace(nowhere, "G")
        # Both ranks, one of them from the other host, for whom it is and not for the mesh.
        _, text = await found.ask(1, PATHS[0].format(found.group_id), "in")
        lines = [json.loads(line) for line in text.splitlines()]
        assert {line["rank"] for line in lines if line.get("text") == "a word of tenant t"} == {0, 1}


@pytest.mark.attack(25)
async def test_an_agent_that_asks_for_the_wrong_person_is_refused_by_the_other(tmp_path, monkeypatch):
    """As if the first had let him in."""
    async with running(tmp_path) as found:
        outsider = found.keys["out"].split("_")[1]
        for module in ("agentd.http.logs", "agentd.http.curves", "agentd.http.gpu_metrics"):
            monkeypatch.setattr(f"{module}.on_behalf", lambda _: {callers.HEADER_FOR: outsider})
        _, text = await found.ask(1, PATHS[0].format(found.group_id), "in")
        assert "its agent answered 404" in text
        lines = [json.loads(line) for line in text.splitlines()]
        assert [line["rank"] for line in lines if line.get("text")] == [1]
        assert "its agent answered 404" in (await found.ask(1, PATHS[1].format(found.group_id), "in"))[1]
        assert "its agent answered 404" in (await found.ask(1, PATHS[4].format(found.group_id), "in"))[1]


@pytest.mark.attack(26)
async def test_telemetry_and_alerts_of_the_own_groups_only(tmp_path):
    async with running(tmp_path) as found:
        async with asyncio.timeout(20):
            while found.group_id not in (await found.ask(0, "/api/v1/alerts", "in"))[1]:
                await found.mesh.rounds()
                for each in found.mesh.agents:
                    each.telemetry.leader._cached = None
                await asyncio.sleep(0.05)
        for agent in (0, 1):
            for path in ("/api/v1/telemetry", "/api/v1/alerts", "/api/v1/alerts?state=all"):
                assert found.group_id in (await found.ask(agent, path, "in"))[1]
                assert found.group_id not in (await found.ask(agent, path, "out"))[1]
            _, text = await found.ask(agent, f"/api/v1/telemetry?group={found.group_id}", "out")
            assert json.loads(text)["groups"] == []


@pytest.mark.attack(28)
@pytest.mark.parametrize("agent", [0, 1])
async def test_a_followed_log_ends_when_its_readers_key_is_revoked(tmp_path, monkeypatch, agent):
    monkeypatch.setattr(stream_end, "RECHECK_S", 0.2)
    async with running(tmp_path) as found, aiohttp.ClientSession(headers=bearer(found.keys["in"])) as session:
        base = f"http://{found.mesh.agents[agent].address}"
        async with session.get(f"{base}/api/v1/task-groups/{found.group_id}/logs?follow=true") as response:
            assert b"a word" in await response.content.readline()
            key_id = found.keys["in"].split("_")[1]
            async with (
                aiohttp.ClientSession(headers=AUTH) as admin,
                admin.delete(f"{base}/api/v1/keys/{key_id}") as done,
            ):
                assert done.status == 200
            async with asyncio.timeout(10):
                with pytest.raises(aiohttp.ClientError):
                    while await response.content.readline():
                        pass
        async with session.get(f"{base}/api/v1/task-groups/{found.group_id}/logs") as response:
            assert response.status == 401 and "revoked" in await response.text()


BEHIND = {
    "behind": "tg-00000000000000000001",
    "behind_name": "secret-plan",
    "behind_tenant": "blue",
    "behind_needs": 16,
    "behind_free": 3,
    "pass": 1,
}


@pytest.mark.attack(26)
async def test_whom_a_group_waits_behind_is_told_within_the_tenant_only(tmp_path):
    async with people(tmp_path) as found:
        reason = {"code": "behind", "text": "waits behind secret-plan (needs 16, free 3)", "details": BEHIND}
        groups = dict.fromkeys(found.groups.values(), reason)
        assert (await found.mesh.propose(command("SetReasons", reasons=groups)))["ok"]
        mine = found.groups["red"]
        for path in (f"/api/v1/task-groups/{mine}", "/api/v1/task-groups", "/api/v1/queue"):
            for who in ("member.red", "viewer.red"):
                text = json.dumps(await found.get(path, who))
                assert "waits behind a group of another tenant (needs 16, free 3)" in text
                assert "secret-plan" not in text and "tg-00000000000000000001" not in text and "blue" not in text
            assert "secret-plan" in json.dumps(await found.get(path, "operator.red"))
        assert "secret-plan" in json.dumps(await found.get("/api/v1/task-groups", "viewer.blue"))
        async with found.client.ws_connect("/api/v1/watch", headers=found.auth("member.red")) as socket:
            text = json.dumps(await socket.receive_json(timeout=10))
            assert "another tenant" in text and "secret-plan" not in text


def test_a_reason_of_an_older_scheduler_names_nobody():
    details = {name: value for name, value in BEHIND.items() if name != "behind_tenant"}
    shown = reason_for("red", {"code": "behind", "text": "waits behind secret-plan", "details": details})
    assert shown is not None and "secret-plan" not in json.dumps(shown) and "behind" not in shown["details"]
    other = {"code": "insufficient_gpus", "text": "needs 1", "details": {"pass": 0}}
    assert reason_for("red", other) is other and reason_for("red", None) is None


def test_cards_of_others_are_taken_without_saying_by_whom():
    rows = TenantRows("red")
    held = {"gpus": ["GPU-1"], "port": 20_001, "state": "held"}
    parts = [
        [["hold", "n1/mine/0001/00000", held], ["hold", "n1/theirs/0001/00000", held], ["ckpt", "/data/x", {}]],
        [
            ["group", "mine", {"tenant": "red"}],
            ["group", "theirs", {"tenant": "blue"}],
            ["task", "mine/1", {}],
        ],
        [
            ["event", "theirs/1", {}],
            ["event", "mine/1", {}],
            ["later", "mine", {}],
            ["active", "theirs", {}],
        ],
    ]
    first, second, third = rows.snapshot(parts)
    assert first[0] == parts[0][0] and len(first) == 2
    entity, masked, row = first[1]
    assert (entity, masked.split("/")[0], masked.split("/")[2:]) == ("hold", "n1", ["0001", "00000"])
    assert "theirs" not in masked and row == {**held, "port": 0}
    assert second == [parts[1][0], parts[1][2]] and third == [parts[2][1]]
    # Its end has the same name, here and at any other node.
    assert rows.changes([["hold", "n1/theirs/0001/00000", None]]) == [["hold", masked, None]]
    assert TenantRows("red").changes([["hold", "n1/theirs/0001/00000", None]]) == [["hold", masked, None]]


def test_a_group_that_ends_or_is_deleted_is_told_to_its_own():
    rows = TenantRows("red")
    mine, theirs = {"tenant": "red"}, {"tenant": "blue"}
    # Its event stands before it in the frame.
    born = [["active", "a", {}], ["event", "a/1", {}], ["group", "a", mine]]
    assert rows.changes(born) == born
    assert rows.changes([["active", "b", {}], ["event", "b/1", {}], ["group", "b", theirs]]) == []
    gone = [["task", "a/1", None], ["event", "a/1", None], ["group", "a", None]]
    assert rows.changes(gone) == gone
    assert rows.changes([["group", "b", None]]) == rows.changes([["group", "a", None]]) == []
