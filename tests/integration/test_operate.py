"""Operators' verbs and routes on an in-process mesh: what they order, what everyone then reads, what is refused."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from mesh.memory import MemoryMesh
from schemas.commands import command
from tests.integration.served_api import AUTH, document, served
from tests.integration.test_cli import HOSTILE, Cli
from tests.waiting import eventually


@pytest.fixture
async def cli(tmp_path):
    mesh = MemoryMesh()
    async with served(tmp_path, mesh) as client:
        yield Cli(mesh, f"127.0.0.1:{client.server.port}", tmp_path)


async def node(cli: Cli, name: str = "n1") -> dict[str, Any]:
    assert await cli("nodes", "-o", "json") == 0, cli.err
    return next(row for row in json.loads(cli.out)["nodes"] if row["node_id"] == name)


async def end_rank(cli: Cli, group_id: str) -> None:
    """What its agent says once the rank was told to stop."""
    found = await cli.mesh.query([{"scan": ["task", f"{group_id}/", "", 10]}])
    ((_, task),) = found["results"][0]
    report = {key: task[key] for key in ("group_id", "attempt", "rank", "token")}
    ended = report | {"seq": 3, "kind": "exited", "exit_code": None, "signal": 15, "at_ms": 1, "why": "stopped"}
    await cli.do("TaskReports", node="n1", uid="uid1", reports=[ended, report | {"seq": 4, "kind": "released"}])


async def mesh_shown(cli: Cli) -> dict[str, Any]:
    async with aiohttp.ClientSession(headers=AUTH) as session, session.get(f"http://{cli.address}/api/v1/mesh") as said:
        shown: dict[str, Any] = await said.json()
        return shown


class TestCordon:
    async def test_it_is_shown_with_who_and_why_and_taken_back(self, cli):
        await cli.join()
        assert await cli("cordon", "n1", "--reason", f"fan {HOSTILE}") == 0, cli.err
        assert "n1 is cordoned" in cli.out
        row = await node(cli)
        assert row["cordon"]["by"] == "mesh" and row["cordon"]["at"].endswith("Z")
        assert await cli("nodes") == 0
        assert "cordoned by mesh (fan x" in cli.out and " cordoned " in cli.out and "\x1b" not in cli.out
        assert await cli("uncordon", "n1", "-o", "json") == 0
        assert json.loads(cli.out) == {"node_id": "n1", "cordoned": False}
        assert (await node(cli))["cordon"] is None

    @pytest.mark.parametrize(
        "words", [("cordon", "n9"), ("uncordon", "n9"), ("drain", "n9"), ("give-up", "n9"), ("cordon", "../mesh")]
    )
    async def test_a_node_that_is_not_there(self, cli, words):
        assert await cli(*words) in (2, 3)
        assert cli.err and "Traceback" not in cli.err


class TestGiveUp:
    async def test_only_a_lost_node_and_it_says_who_waited_for_it(self, cli):
        await cli.join()
        kept = document() | {"on_isolation": "keep"}
        assert await cli("submit", cli.file(kept)) == 0, cli.err
        group_id = cli.out.strip()
        await cli.run_group(group_id)
        assert await cli("give-up", "n1") != 0 and "it is heard" in cli.err
        await cli.do("ExpireNode", node_id="n1", uid="uid1", text="silent")
        assert await cli("events", group_id) == 0 and "heteroflow give-up n1" in cli.out
        assert await cli("give-up", "n1", "--reason", "burnt") == 0, cli.err
        assert "1 group had a rank there" in cli.out
        assert await cli("events", group_id) == 0 and "gone for good (burnt)" in cli.out


class TestDrain:
    async def test_progress_and_outcome_are_told(self, cli):
        await cli.join()
        group_id = await cli.submit(n_nodes=1, per_node_gpu=2)
        await cli.run_group(group_id)
        assert await cli("drain", "n1", "--deadline", "10m", "--reason", "fans") == 0, cli.err
        assert "1 group there, moved at" in cli.out
        assert await cli("nodes") == 0
        assert "1 of 1 group left, by mesh (fans)" in cli.out
        assert await cli("events", group_id) == 0
        assert "Node n1 is drained by mesh (fans)" in cli.out
        await cli.do("MoveGroup", group_id=group_id, attempt=1, node_id="n1")
        await end_rank(cli, group_id)
        await cli.do("EndDrain", node_id="n1")
        drain = (await node(cli))["drain"]
        assert (drain["groups"], drain["left"], drain["moved"]) == (1, 0, 1) and drain["done_at"]
        assert await cli("nodes") == 0
        assert "drained by mesh (fans): 1 group left it, 1 moved" in cli.out

    @pytest.mark.parametrize(("end", "code"), [("EndDrain", 0), ("UncordonNode", 1)])
    async def test_wait_returns_when_the_node_is_empty_or_the_drain_called_off(self, cli, end, code):
        await cli.join()
        waiting = asyncio.create_task(cli("drain", "n1", "--wait"))

        async def ordered() -> bool:
            (row,) = (await cli.mesh.query([{"get": ["node", "n1"]}]))["results"]
            return row.get("drain") is not None

        await eventually("the drain is ordered", ordered)
        await cli.do(end, node_id="n1", **({"by": "ada"} if end == "UncordonNode" else {}))
        assert await asyncio.wait_for(waiting, 10) == code

    @pytest.mark.parametrize("deadline", ["-1", "soon", "30", "8d", "999999999d"])
    async def test_a_deadline_that_is_none(self, cli, deadline):
        await cli.join()
        assert await cli("drain", "n1", "--deadline", deadline) == 2
        assert (await node(cli))["drain"] is None


class TestMaintenance:
    async def test_planned_shown_and_cancelled(self, cli):
        await cli.join()
        assert await cli("maintenance", "n1", "--from", "2101-02-03T04:05Z", "--for", "2h", "--reason", "bios") == 0
        assert "from 2101-02-03 04:05:00 UTC until 2101-02-03 06:05:00 UTC" in cli.out
        assert await cli("nodes") == 0
        assert "maintenance 2101-02-03 04:05 UTC to 2101-02-03 06:05 UTC" in cli.out
        assert await cli("maintenance", "n1", "--cancel") == 0
        assert (await node(cli))["maintenance"] is None

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            ((), 2, "--for"),
            (("--for", "2h", "--from", "tomorrow"), 2, "is no time"),
            (("--for", "60d"), 2, "for_s"),
            (("--for", "1h", "--from", "2001-01-01"), 5, "over before it is planned"),
        ],
    )
    async def test_a_window_that_cannot_be(self, cli, capsys, words, code, said):
        await cli.join()
        assert await cli("maintenance", "n1", *words) == code
        assert said in cli.err + capsys.readouterr().err


class TestPause:
    async def test_mesh_and_queue_say_so(self, cli):
        await cli.join()
        assert await cli("mesh", "pause-scheduling", "--reason", "switch down") == 0, cli.err
        assert (await mesh_shown(cli))["scheduling_paused"]["reason"] == "switch down"
        group_id = await cli.submit(n_nodes=1, per_node_gpu=2)
        placement = {"rank": 0, "node": "n1", "gpus": ["GPU-n1-0", "GPU-n1-1"], "port": 20_001}
        bind = await cli.mesh.propose(command("BindGroup", group_id=group_id, attempt=1, placements=[placement]))
        assert bind["code"] == "scheduling_paused"
        assert await cli("mesh", "resume-scheduling") == 0
        assert (await mesh_shown(cli))["scheduling_paused"] is None


class TestHold:
    async def test_held_shown_and_released(self, cli):
        await cli.join()
        assert await cli("mesh", "hold", "--for", "30m", "--reason", "new switch") == 0, cli.err
        assert "the mesh is held until" in cli.out
        hold = (await mesh_shown(cli))["hold"]
        assert hold["reason"] == "new switch" and 1800 < hold["left_s"] <= 1854 and not hold["released"]
        grant = await cli.mesh.renew({"node": "n1", "uid": "uid1", "sent_ns": 1})
        assert 1_790_000 < grant["ttl_ms"] <= 1_809_000
        assert await cli("mesh", "release") == 0
        assert "at the latest" in cli.out
        assert (await mesh_shown(cli))["hold"]["released"]
        assert (await cli.mesh.renew({"node": "n1", "uid": "uid1", "sent_ns": 2}))["ttl_ms"] == 9_000

    @pytest.mark.parametrize(
        "words", [("hold",), ("hold", "--for", "0"), ("hold", "--for", "2d"), ("release", "--for", "1h"), ("freeze",)]
    )
    async def test_what_is_no_hold(self, cli, words):
        assert await cli("mesh", *words) == 2
        assert (await mesh_shown(cli))["hold"] is None


class TestVersion:
    async def test_it_says_where_the_mesh_is_and_who_is_behind(self, cli):
        await cli.join()
        assert await cli("mesh", "raise-version") == 5 and "no mesh yet" in cli.err
        voters = [{"raft_id": 1, "node": "n1", "voter_addr": "127.0.0.1:1"}]
        await cli.mesh.propose(command("InitCluster", cluster_id="c", epoch=1, profile="fast", voters=voters))
        assert await cli("mesh", "raise-version") == 0, cli.err
        assert "the mesh is at cluster version 1" in cli.out
        assert (await mesh_shown(cli))["cluster_version"] == 1


class TestBodies:
    @pytest.mark.parametrize(
        ("path", "body", "field"),
        [
            ("nodes/n1/cordon", {"why": "x"}, "why"),
            ("nodes/n1/cordon", {"reason": 7}, "reason"),
            ("nodes/n1/cordon", {"reason": "x" * 301}, "reason"),
            ("nodes/n1/drain", {"mode": "now"}, "mode"),
            ("nodes/n1/drain", {"deadline_s": True}, "deadline_s"),
            ("nodes/n1/drain", {"deadline_s": 1e3}, "deadline_s"),
            ("nodes/n1/maintenance", {}, "for_s"),
            ("nodes/n1/maintenance", {"for_s": 60, "from": 5}, "from"),
            ("mesh/pause-scheduling", {"by": "someone else"}, "by"),
            ("mesh/raise-version", {"version": 2}, "version"),
            ("mesh/raise-version", {"to": 0}, "to"),
        ],
    )
    async def test_what_is_wrong_is_named_and_nothing_is_done(self, tmp_path, path, body, field):
        mesh = MemoryMesh()
        async with served(tmp_path, mesh) as client:
            await Cli(mesh, f"127.0.0.1:{client.server.port}", tmp_path).join()
            before = (await mesh.status())["applied"]
            async with client.post(f"/api/v1/{path}", json=body, headers=AUTH) as response:
                problem = await response.json()
            assert (response.status, problem["field"]) == (400, field), problem
            assert (await mesh.status())["applied"] == before
