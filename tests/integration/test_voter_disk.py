"""Full, failing and damaged disks under a real voter process."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from mesh.client import VoterClient
from schemas.commands import command
from schemas.errors import DiskFull, HeteroFlowError
from tests.integration.voters import Voters, grows, init, register, requests, voters
from tests.waiting import eventually

pytestmark = pytest.mark.slow
FAULTY = (str(Path(__file__).with_name("faulty_voter.py")),)


async def ready(mesh: Voters, client: VoterClient) -> None:
    await client.propose(init(mesh.roster), timeout_s=20)


async def write(client: VoterClient, n: int, timeout_s: float = 1.5) -> dict[str, Any]:
    return await client.propose(register(f"node-{n}", f"u{n}"), timeout_s=timeout_s)


@pytest.mark.attack(41)
async def test_a_full_disk_acknowledges_nothing_serves_reads_and_recovers_by_itself(tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    async with voters(tmp_path, 1, entry=FAULTY) as mesh:
        mesh.start(1, env={"HF_FAULT": str(fault)})
        client = mesh.client()
        await ready(mesh, client)
        before = (await write(client, 1))["idx"]
        fault.write_text("full")
        with pytest.raises(HeteroFlowError):
            await write(client, 2)
        with pytest.raises(DiskFull) as refused:
            await write(client, 3)
        assert (refused.value.code, refused.value.problem.status) == ("disk_full", 507)
        status = await client.status()
        assert status["disk_full"] is True
        assert status["applied"] == before
        for level in ("stale", "linearizable"):
            read = await client.query([{"scan": ["node"]}], level=level)
            assert [key for key, _ in read["results"][0]] == ["node-1"]
        fault.unlink()
        answer = await client.propose(register("node-4", "u4"), timeout_s=20)
        assert answer["ok"]
        assert (await client.status())["disk_full"] is False
        assert mesh.kill(1, signal.SIGTERM) == 0
        mesh.start(1, env={"HF_FAULT": str(fault)})
        names = [key for key, _ in (await client.query([{"scan": ["node"]}], timeout_s=20))["results"][0]]
        assert {"node-1", "node-4"} <= set(names)
        assert "node-3" not in names


async def test_a_leader_with_a_full_disk_hands_the_lead_to_others(tmp_path: Path) -> None:
    async with voters(tmp_path, 3, entry=FAULTY) as mesh:
        for n in mesh.ids:
            mesh.start(n, env={"HF_FAULT": str(tmp_path / f"fault-{n}")})
        client = mesh.client()
        await ready(mesh, client)
        first = await mesh.leader()
        (tmp_path / f"fault-{first}").write_text("full")
        ids = requests()
        answers = [
            await client.propose({**register(f"node-{n}", f"u{n}"), "request": next(ids)}, timeout_s=25)
            for n in range(5)
        ]
        assert all(a["ok"] for a in answers)
        assert await mesh.leader() != first
        # The full voter still reads what it has and passes commands on to the new leader.
        own = mesh.client(first)
        read = await own.query([{"get": ["meta", "cluster"]}], level="stale")
        assert read["results"][0]["cluster_id"] == "cluster-t"
        assert (await own.propose(register("node-9", "u9"), timeout_s=10))["ok"]
        (tmp_path / f"fault-{first}").unlink()
        await eventually("the full voter to catch up", lambda: _applied(own, answers[-1]["idx"]))


async def _applied(client: VoterClient, index: int) -> bool:
    return int((await client.status())["applied"]) >= index


async def test_a_leader_with_a_slow_disk_keeps_the_lead(tmp_path: Path) -> None:
    """Nobody elects another, and the command under way is accepted in the end."""
    async with voters(tmp_path, 3, entry=FAULTY) as mesh:
        for n in mesh.ids:
            mesh.start(n, env={"HF_FAULT": str(tmp_path / f"fault-{n}")})
        client = mesh.client()
        await ready(mesh, client)
        leader = await mesh.leader()
        own = mesh.client(leader)
        before = await own.status()
        fault = tmp_path / f"fault-{leader}"
        fault.write_text("slow")
        under_way = asyncio.create_task(own.propose(register("node-1", "u1"), timeout_s=20))
        await asyncio.sleep(3.0)  # far beyond the election timeout of this profile
        terms = {(await mesh.client(n).status())["term"] for n in mesh.ids}
        fault.unlink()
        assert (await under_way)["ok"]
        after = await own.status()
        assert terms == {before["term"]}
        assert (after["role"], after["term"]) == ("leader", before["term"])


async def test_a_failed_fsync_ends_the_process_without_acknowledging(tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    async with voters(tmp_path, 1, entry=FAULTY) as mesh:
        process = mesh.start(1, env={"HF_FAULT": str(fault)})
        client = mesh.client()
        await ready(mesh, client)
        fault.write_text("ioerr")
        with pytest.raises(HeteroFlowError):
            await write(client, 1)
        assert await eventually("the voter to end", lambda: process.poll() is not None)
        assert process.returncode == 6
        assert "log.db" in mesh.log(1) and "check the disk" in mesh.log(1)
        fault.unlink()
        mesh.start(1, env={"HF_FAULT": str(fault)})
        assert (await client.query([{"get": ["meta", "cluster"]}], timeout_s=20))["results"][0] is not None


@pytest.mark.parametrize("what", ["torn", "flipped"])
async def test_a_damaged_log_is_not_served_and_the_message_says_how_to_go_on(tmp_path: Path, what: str) -> None:
    async with voters(tmp_path, 1) as mesh:
        mesh.start_all()
        client = mesh.client()
        await ready(mesh, client)
        for n in range(30):
            await write(client, n)
        assert mesh.kill(1, signal.SIGTERM) == 0
        log = mesh.directory(1) / "log.db"
        content = bytearray(log.read_bytes())
        if what == "torn":
            del content[len(content) // 2 :]
        else:
            # Pages keep stale copies of moved rows; only a flip in the live one is damage, so all are flipped.
            assert b"node-17" in content
            content = content.replace(b"node-17", b"nodE-17")
        log.write_bytes(bytes(content))
        kept = {p.name: p.read_bytes() for p in mesh.directory(1).iterdir() if p.is_file()}
        process = mesh.start(1)
        assert process.wait(15) == 5
        lines = [line for line in mesh.log(1).splitlines() if "CRITICAL" in line]
        assert len(lines) == 1
        assert str(log) in lines[0] and "must not vote" in lines[0] and "--join" in lines[0]
        if what == "flipped":
            assert "index 1" in lines[0] or "index 2" in lines[0]
        assert {p.name: p.read_bytes() for p in mesh.directory(1).iterdir() if p.name in ("log.db", "state.db")} == {
            name: kept[name] for name in ("log.db", "state.db")
        }


async def test_an_empty_state_beside_a_log_is_rebuilt(tmp_path: Path) -> None:
    async with voters(tmp_path, 1) as mesh:
        mesh.start_all()
        client = mesh.client()
        await ready(mesh, client)
        for n in range(30):
            await write(client, n)
        status = await client.status()
        assert mesh.kill(1, signal.SIGTERM) == 0
        for name in ("state.db-wal", "state.db-shm"):
            (mesh.directory(1) / name).unlink(missing_ok=True)
        (mesh.directory(1) / "state.db").write_bytes(b"")
        mesh.start(1)
        answer = await mesh.client().propose(command("Noop", payload=b"x"), timeout_s=20)
        assert answer["idx"] > status["applied"]
        assert (await client.status())["state_hash"] == status["state_hash"]


async def test_an_empty_log_beside_a_state_is_refused(tmp_path: Path) -> None:
    async with voters(tmp_path, 1) as mesh:
        mesh.start_all()
        await ready(mesh, mesh.client())
        assert mesh.kill(1, signal.SIGTERM) == 0
        (mesh.directory(1) / "log.db").write_bytes(b"")
        assert mesh.start(1).wait(15) == 5
        assert "it is empty, but hwm shows that this voter has had a log" in mesh.log(1)


async def test_a_killed_voter_goes_on_exactly_where_it_was(tmp_path: Path) -> None:
    async with voters(tmp_path, 1) as mesh:
        mesh.start_all()
        client = mesh.client()
        await ready(mesh, client)
        ids = requests()
        acknowledged: list[int] = []

        async def writer() -> None:
            n = 0
            while True:
                n += 1
                answer = await client.propose({**register(f"node-{n}", f"u{n}"), "request": next(ids)}, timeout_s=30)
                assert answer["ok"]
                acknowledged.append(n)

        task = asyncio.create_task(writer())
        for _ in range(3):
            await grows(lambda: len(acknowledged), 20, 20)
            mesh.kill(1)
            mesh.start(1)
        goal = len(acknowledged) + 5
        await eventually(
            lambda: f"{goal} commands to be acknowledged, not {len(acknowledged)}", lambda: len(acknowledged) >= goal
        )
        task.cancel()
        read = await client.query([{"scan": ["node"]}, {"scan": ["request"]}], timeout_s=20)
        nodes = {row["node_id"] for _, row in read["results"][0]}
        assert {f"node-{n}" for n in acknowledged} <= nodes
        assert len(read["results"][1]) == len(nodes)
