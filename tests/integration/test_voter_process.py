"""One voter process: what it refuses to start on, how it ends, and what bad input does to it."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import apsw
import msgpack
import pytest
from aiohttp import ClientSession, WSServerHandshakeError

from mesh.client import VoterClient
from schemas.commands import command
from schemas.errors import HeteroFlowError
from tests.integration.voters import ROOT, TOKEN, Voters, init, register, voters
from tests.waiting import eventually

pytestmark = pytest.mark.slow


def contents(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(directory.iterdir()) if p.is_file()}


async def stopped_mesh(mesh: Voters) -> None:
    """A directory with some state in it and no process on it."""
    mesh.start(1)
    await mesh.client().propose(init(mesh.roster), timeout_s=20)
    assert mesh.kill(1, signal.SIGTERM) == 0


async def refused(mesh: Voters, code: int, *words: str) -> None:
    """Starting ends with this code and says why, and leaves every file as it was."""
    before = contents(mesh.directory(1))
    process = mesh.start(1)
    assert process.wait(15) == code, mesh.log(1)
    said = mesh.log(1)
    for word in words:
        assert word in said
    assert "Traceback" not in said
    assert contents(mesh.directory(1)) == before


async def test_another_clusters_directory_is_refused(tmp_path: Path) -> None:
    async with voters(tmp_path, 1) as mesh:
        await stopped_mesh(mesh)
        roster = mesh.directory(1) / "roster.json"
        roster.write_text(roster.read_text().replace("cluster-t", "cluster-x"))
        await refused(mesh, 3, "belongs to cluster_id 'cluster-t', not to 'cluster-x'")


async def test_another_voters_directory_is_refused(tmp_path: Path) -> None:
    async with voters(tmp_path, 1) as mesh:
        await stopped_mesh(mesh)
        roster = mesh.directory(1) / "roster.json"
        roster.write_text(roster.read_text().replace('"raft_id": 1', '"raft_id": 5'))
        await refused(mesh, 3, "raft id 1 is not among its voters")


async def test_a_newer_versions_directory_is_refused(tmp_path: Path) -> None:
    async with voters(tmp_path, 1) as mesh:
        await stopped_mesh(mesh)
        database = apsw.Connection(str(mesh.directory(1) / "log.db"))
        database.execute("UPDATE meta SET value = '99' WHERE name = 'format'")
        database.close()
        await refused(mesh, 3, "newer version", "install that version again")


async def test_a_second_voter_on_one_directory_is_refused(tmp_path: Path) -> None:
    async with voters(tmp_path, 1) as mesh:
        mesh.start(1)
        client = mesh.client()
        await client.connect()
        first = mesh.processes[1]
        second = mesh.start(1)
        assert second.wait(15) == 7
        assert "in use by another voter process" in mesh.log(1)
        mesh.processes[1] = first
        assert (await client.propose(init(mesh.roster), timeout_s=20))["ok"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
async def test_another_users_directory_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    async with voters(tmp_path, 1) as mesh:
        await stopped_mesh(mesh)
        os.chown(mesh.directory(1) / "log.db", 65534, 65534)
        await refused(mesh, 3, f"{mesh.directory(1) / 'log.db'} belongs to nobody", "start it as nobody")
        os.chown(mesh.directory(1) / "log.db", 0, 0)
        mesh.start(1)
        read = await mesh.client().query([{"get": ["meta", "cluster"]}], timeout_s=20)
        assert read["results"][0]["cluster_id"] == "cluster-t"


async def test_a_missing_or_broken_roster_is_refused(tmp_path: Path) -> None:
    async with voters(tmp_path, 1) as mesh:
        roster = mesh.directory(1) / "roster.json"
        roster.write_text("{")
        await refused(mesh, 3, "not a roster")
        roster.unlink()
        await refused(mesh, 3, "the roster cannot be read")


async def test_a_taken_address_is_refused(tmp_path: Path) -> None:
    async with voters(tmp_path, 1) as mesh:
        with socket.create_server((mesh.host, 7462)):
            process = mesh.start(1)
            assert process.wait(15) == 4
        assert f"cannot listen on {mesh.address(1)}" in mesh.log(1)
        assert mesh.start(1, "--listen", "no.such.host.invalid:1").wait(15) == 4
        mesh.start(1)
        assert (await mesh.client().propose(init(mesh.roster), timeout_s=20))["ok"]


async def test_a_deep_directory_is_no_obstacle(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    async with voters(deep, 1) as mesh:
        mesh.start(1)
        assert (await mesh.client().propose(init(mesh.roster), timeout_s=20))["ok"]


@pytest.mark.parametrize(
    "more", [["--listen", "nowhere"], ["--raft-id", "0"], ["--profile", "slow"], ["--token-file", "/does/not/exist"]]
)
async def test_a_wrong_command_line_ends_with_2(tmp_path: Path, more: list[str]) -> None:
    async with voters(tmp_path, 1) as mesh:
        assert mesh.start(1, *more).wait(15) == 2
        assert more[0] in mesh.log(1)


async def test_the_voter_ends_when_its_control_descriptor_closes(tmp_path: Path) -> None:
    async with voters(tmp_path, 1) as mesh:
        ours, theirs = os.pipe()
        process = mesh.start(1, "--control-fd", str(ours), pass_fds=[ours])
        os.close(ours)
        await mesh.client().connect()
        os.close(theirs)
        assert await eventually("the voter to end", lambda: process.poll() is not None)
        assert process.returncode == 0


async def test_the_voter_dies_with_its_parent(tmp_path: Path) -> None:
    async with voters(tmp_path, 1) as mesh:
        arguments = json.dumps([sys.executable, "-m", "mesh.voter", *mesh.arguments(1)])
        code = f"import subprocess, time; p = subprocess.Popen({arguments}); print(p.pid, flush=True); time.sleep(60)"
        parent = subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.stdout.close()
        await mesh.client().connect()
        parent.kill()
        parent.wait()
        await eventually("the voter to end", lambda: not alive(pid))


def alive(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


@pytest.mark.attack(31, 32)
async def test_the_token_guards_the_port_and_the_mode_guards_the_socket(tmp_path: Path) -> None:
    async with voters(tmp_path, 1) as mesh:
        mesh.start(1)
        await mesh.client().connect()
        assert stat.S_IMODE((mesh.directory(1) / "voter.sock").stat().st_mode) == 0o600
        async with ClientSession() as http:
            for path in ("/v1/session", "/v1/raft"):
                for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
                    with pytest.raises(WSServerHandshakeError) as refusal:
                        await http.ws_connect(f"ws://{mesh.address(1)}{path}", headers=headers)
                    assert refusal.value.status == 401


GARBAGE = [
    b"\xff" * 64,  # a frame of 4 GiB
    b"\x00\x00\x00\x05hello",
    b"\x00\x00\x00\x01\xc1",
    b"\x00\x00\x00\x00",
    b"\x00\x00\x00\x03\x93\x01\x02",
    len(deep := b"\x91" * 5000).to_bytes(4, "big") + deep,
    len(unkeyed := msgpack.packb([1, "hello", {}])[:-1] + b"\x81\x01\x01").to_bytes(4, "big") + unkeyed,
]


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_closes_its_session_and_nothing_else(tmp_path: Path, data: bytes) -> None:
    async with voters(tmp_path, 1) as mesh:
        mesh.start(1)
        client = mesh.client()
        await client.propose(init(mesh.roster), timeout_s=20)
        reader, writer = await asyncio.open_unix_connection(str(mesh.directory(1) / "voter.sock"))
        writer.write(data)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        async with ClientSession() as http:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            for path in ("/v1/session", "/v1/raft"):
                async with http.ws_connect(f"ws://{mesh.address(1)}{path}", headers=headers) as ws:
                    await ws.send_bytes(data[4:])
                    assert (await asyncio.wait_for(ws.receive(), 5)).type.name in ("CLOSE", "CLOSED", "CLOSING")
        assert (await client.propose(command("Noop", payload=b"x")))["ok"]
        assert "Traceback" not in mesh.log(1)


async def test_unknown_operations_and_wrong_arguments_are_answered(tmp_path: Path) -> None:
    async with voters(tmp_path, 1) as mesh:
        mesh.start(1)
        client = mesh.client()
        await client.connect()
        session = await client._main.get()
        for op, args, code in (
            ("fly", {}, "unknown_op"),
            ("propose", {}, "invalid_command"),
            ("propose", {"command": 5}, "invalid_command"),
            ("renew", {"node": "n", "uid": "u", "sent_ns": "x"}, "invalid_renewal"),
            ("renew", {}, "invalid_renewal"),
            ("query", {}, "invalid_query"),
            ("query", {"level": 5}, "invalid_query"),
            ("subscribe", {}, "invalid_subscription"),
            ("subscribe", {"filter": {"all": True}, "token": 5}, "invalid_subscription"),
        ):
            with pytest.raises(HeteroFlowError) as refusal:
                if op == "subscribe":
                    await session.stream(op, args).next()
                else:
                    await session.call(op, args, 5)
            assert refusal.value.code == code
        assert await session.call("cancel", {"id": 99}, 5) == {}


async def test_frames_of_another_mesh_are_dropped_and_counted(tmp_path: Path) -> None:
    async with voters(tmp_path, 3) as mesh:
        mesh.start_all()
        leader = await mesh.leader()
        client = mesh.client(leader)
        before = await client.status()
        vote = [5, leader, leader % 3 + 1, 999, 1, 1, 0, False, 0, b"", []]
        async with (
            ClientSession() as http,
            http.ws_connect(f"ws://{mesh.address(leader)}/v1/raft", headers={"Authorization": f"Bearer {TOKEN}"}) as ws,
        ):
            for head in (["cluster-x", 1, leader % 3 + 1, leader], ["cluster-t", 2, leader % 3 + 1, leader],
                         ["cluster-t", 1, leader % 3 + 1, 77], ["cluster-t", 1, 77, leader]):  # fmt: skip
                await ws.send_bytes(msgpack.packb([*head, [vote]]))
            await eventually("four foreign messages to be counted", lambda: _foreign(client, 4))
        status = await client.status()
        assert (status["term"], status["role"]) == (before["term"], "leader")


async def _foreign(client: VoterClient, count: int) -> bool:
    return int((await client.status())["foreign_frames"]) == count


async def test_a_leader_whose_controllers_are_silent_gives_up_the_lead(tmp_path: Path) -> None:
    """Every agent beats except the first leader's: the lead moves to another voter and stays there."""
    async with voters(tmp_path, 3) as mesh:
        pipes = {n: os.pipe() for n in mesh.ids}
        for n, (read_end, _) in pipes.items():
            mesh.start(n, "--control-fd", str(read_end), pass_fds=[read_end])
        silent: set[int] = set()

        async def beat(n: int) -> None:
            client = mesh.client(n)
            while True:
                if n not in silent:
                    await client.beat()
                await asyncio.sleep(0.3)

        beats = [asyncio.create_task(beat(n)) for n in mesh.ids]
        try:
            first = await mesh.leader()
            silent.add(first)

            async def moved() -> bool:
                leaders = {(await mesh.client(n).status())["leader"] for n in mesh.ids if n != first}
                return len(leaders) == 1 and not leaders & {0, first}

            await eventually("the lead to move", moved)
            status = await mesh.client(first).status()
            assert "controllers" in status["step_down_reason"]
            assert "have not beaten" in mesh.log(first)
        finally:
            for task in beats:
                task.cancel()
            await asyncio.gather(*beats, return_exceptions=True)
            for ends in pipes.values():
                for fd in ends:
                    os.close(fd)


async def test_a_voter_that_is_stopped_hands_the_lead_over(tmp_path: Path) -> None:
    """Before its process ends another leads, so nobody has to time out; a very slow machine may miss that once."""
    async with voters(tmp_path, 3) as mesh:
        mesh.start_all()
        for _ in range(3):
            first = await mesh.leader()
            assert await asyncio.to_thread(mesh.kill, first, signal.SIGTERM) == 0
            assert await mesh.leader() != first
            mesh.start(first)
        assert any(" leads now" in mesh.log(n) for n in mesh.ids)


async def test_a_slow_subscriber_is_cut_and_resumes_without_a_gap(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "heteroflow.client")
    async with voters(tmp_path, 1) as mesh:
        mesh.start(1)
        client = mesh.client()
        await client.propose(init(mesh.roster), timeout_s=20)
        await client.propose(register("n0"))
        frames = client.subscribe({"all": True})
        first = await anext(frames)
        big = {"rack": "x" * 4000}
        indexes = []
        for batch in range(12):
            answers = await asyncio.gather(
                *[client.propose(register("n0", labels={**big, "n": f"{batch}-{n}"}), timeout_s=30) for n in range(400)]
            )
            indexes += [a["idx"] for a in answers]
        seen: list[int] = []
        async with asyncio.timeout(30):
            while len(seen) < len(indexes):
                frame = await anext(frames)
                assert "compacted" not in frame
                if frame["changes"]:
                    seen.append(frame["idx"])
        assert first["token"]
        assert "slow_consumer" in caplog.text
        assert seen == sorted(indexes)


async def test_a_large_snapshot_comes_in_parts_of_one_moment(tmp_path: Path) -> None:
    async with voters(tmp_path, 1) as mesh:
        mesh.start(1)
        client = mesh.client()
        await client.propose(init(mesh.roster), timeout_s=20)
        names = [f"node-{n:03d}" for n in range(200)]
        labels = {"pad": "x" * 4000}
        await asyncio.gather(*[client.propose(register(name, labels=labels), timeout_s=30) for name in names])
        parts = []
        async for frame in client.subscribe({"all": True}):
            parts.append(frame)
            if not frame["more"]:
                break
        assert len(parts) >= 3
        assert len({part["token"] for part in parts}) == 1
        rows = [key for part in parts for entity, key, _ in part["snapshot"] if entity == "node"]
        assert rows == names


def test_the_voter_says_how_it_is_used() -> None:
    out = subprocess.run(
        [sys.executable, "-m", "mesh.voter", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert textwrap.dedent(out.stdout).startswith("usage: python -m mesh.voter")


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
async def test_a_beat_that_its_voter_does_not_hear_is_a_plain_refusal(tmp_path: Path, number: signal.Signals) -> None:
    """The agent beats from a task of its own: any other error would end the agent, and its tasks' adoption with it."""
    async with voters(tmp_path, 1) as mesh:
        mesh.start_all()
        await mesh.leader()
        client = mesh.client(1)
        await client.beat()
        under_way = asyncio.create_task(client.beat())
        await asyncio.sleep(0)
        mesh.processes[1].send_signal(number)
        with contextlib.suppress(HeteroFlowError):
            await under_way
        with pytest.raises(HeteroFlowError):
            await client.beat()


async def test_a_newer_command_is_refused_before_it_is_proposed_and_an_older_release_at_its_start(
    tmp_path: Path,
) -> None:
    async with voters(tmp_path, 1) as mesh:
        mesh.start(1)
        client = mesh.client()
        await client.propose(init(mesh.roster), timeout_s=20)
        newer = command("Noop", needs=2)
        with pytest.raises(HeteroFlowError) as refused_early:
            await client.propose(newer)
        assert refused_early.value.code == "version_too_low" and "cluster version 2" in str(refused_early.value)
        before = (await client.propose(command("Noop")))["idx"]
        assert before == 3, "nothing was proposed"
        raised = command("RaiseVersion", to=2, by="ada")
        assert (await client.propose(raised))["code"] == "version_unsupported"
        assert (await client.propose({**register("n1"), "supports": 2}))["ok"]
        assert (await client.propose(raised))["data"] == {"cluster_version": 2}
        assert (await client.propose(newer))["ok"]
        assert mesh.kill(1, signal.SIGTERM) == 0
        # This release knows version 1 alone.
        assert mesh.start(1).wait(30) == 3, mesh.log(1)
        said = mesh.log(1)
        assert "at cluster version 2" in said and "knows versions up to 1" in said and "Traceback" not in said
