"""Three agents with certificates: they join with tokens, run a gang, lose their leader, renew and revoke."""

import asyncio
import contextlib
import os
import ssl
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from mesh.security.certificates import read_certificate
from tests.integration.mesh_fixture import RunningMesh, shell_group
from tests.waiting import eventually

pytestmark = pytest.mark.slow


def agentd(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "agentd.cli", *words], capture_output=True, text=True, timeout=60)


def heteroflow(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "console.cli.main", *words], capture_output=True, text=True, timeout=60
    )


async def test_a_gang_runs_and_the_leader_dies(tmp_path: Path) -> None:
    async with RunningMesh(tmp_path, 3, tls=True) as mesh:
        log = mesh.directory / "out"
        first = await mesh.submit(shell_group("ft-tls", log, "echo rank $NODE_RANK of $NNODES", 3), node=2)
        await mesh.status(first, "completed", node=3)
        said = {line["text"] for line in await mesh.lines(first, node=3)}
        assert {f"rank {rank} of 3" for rank in range(3)} <= said

        leader = await mesh.leader()
        other = next(node for node in mesh.nodes if node is not leader)
        leader.kill_host()
        again = shell_group("ft-after", log, "true", 1)

        async def submitted() -> str | None:
            answer = await other.call("POST", "/task-groups", again, headers={"Idempotency-Key": "after-the-leader"})
            return answer.value["group_id"] if answer.status in (200, 201) else None

        group = await eventually("another leader to take a group", submitted)
        await mesh.status(group, "completed", node=other.number)

        await _nothing_in_clear(mesh, other.number)
        listed = heteroflow("nodes", "--data-dir", str(other.data_dir))
        assert listed.returncode == 0 and leader.name in listed.stdout, listed.stderr


async def _nothing_in_clear(mesh: RunningMesh, number: int) -> None:
    """Neither port answers a word to whoever speaks without TLS."""
    host = mesh.nodes[number - 1].api.rpartition(":")[0]
    for port in (7460, 7461):
        reader, writer = await asyncio.open_connection(host, port)
        with contextlib.suppress(ConnectionError):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"HTTP" not in await asyncio.wait_for(reader.read(), 10)
        writer.close()


@pytest.mark.attack(32)
async def test_certificates_are_renewed_and_revoked_while_it_runs(tmp_path: Path) -> None:
    async with RunningMesh(tmp_path, 3, tls=True) as mesh:
        one, two, three = mesh.nodes
        before = read_certificate((two.data_dir / "tls/node.pem").read_bytes())
        renewed = agentd("cert", "renew", "--data-dir", str(two.data_dir))
        assert renewed.returncode == 0, renewed.stderr
        after = read_certificate((two.data_dir / "tls/node.pem").read_bytes())
        assert after.serial != before.serial and after.name == before.name and after.serial in renewed.stdout

        async def shows_it() -> bool:
            return await _serial_at(mesh, two.api) == after.serial

        await eventually("node-2 to show its new certificate", shows_it)
        assert (await three.call("GET", "/nodes")).status == 200

        # A voter's host may do it where the CA's key is not.
        revoked = agentd("cert", "revoke", "node-3", "--data-dir", str(two.data_dir))
        assert revoked.returncode == 0, revoked.stderr

        async def lost() -> bool:
            nodes = (await one.call("GET", "/nodes")).value["nodes"]
            return any(node["node_id"] == "node-3" and node["state"] == "lost" for node in nodes)

        await eventually("node-3 to be lost", lost)
        refused = agentd("cert", "renew", "--data-dir", str(three.data_dir))
        assert refused.returncode == 1 and "revoked" in refused.stderr

        # A new join token brings it back under its old name, through an agent that has not the CA.
        made = agentd("token", "create", "--data-dir", str(two.data_dir), "--out", str(tmp_path / "again"))
        assert made.returncode == 0, made.stderr
        three.kill_host()
        three.start("--join", two.api, "--token-file", str(tmp_path / "again"))

        async def back() -> bool:
            nodes = (await one.call("GET", "/nodes")).value["nodes"]
            return any(node["node_id"] == "node-3" and node["state"] == "ready" for node in nodes)

        await eventually(lambda: "node-3 to be back: " + mesh.said(3), back)
        listed = agentd("token", "list", "--data-dir", str(two.data_dir))
        assert "used up   1/1" in listed.stdout, listed
        # Who has joined needs the token no more.
        mesh.loopback.join_token_file.unlink()
        two.kill_host()
        two.start()

        async def answers() -> bool:
            return (await two.call("GET", "/nodes")).status == 200

        await eventually(lambda: "node-2 to be back: " + mesh.said(2), answers)


async def _serial_at(mesh: RunningMesh, address: str) -> str:
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=mesh.loopback.ca_file)
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    shown: str = writer.get_extra_info("peercert")["serialNumber"]
    writer.close()
    return shown.lower().lstrip("0")


async def test_ipv6_a_host_name_and_every_address(tmp_path: Path) -> None:
    """One agent on ::1, which joins one that listens on every address and is known by a name."""
    token = tmp_path / "join-token"
    common = ["--profile", "fast", "--gpus", "none"]
    port = 20_000 + os.getpid() % 20_000
    first = ["--data-dir", str(tmp_path / "a"), "--name", "Big_Host".replace("_", "-"), "--bootstrap", *common]
    first += ["--api", f"0.0.0.0:{port}", "--voter", f"0.0.0.0:{port + 1}", "--advertise", "LOCALHOST"]
    second = ["--data-dir", str(tmp_path / "b"), "--name", "six", "--join", f"127.0.0.1:{port}"]
    second += ["--token-file", str(token), "--api", f"[::1]:{port + 2}", "--voter", f"[::1]:{port + 3}", *common]
    with contextlib.ExitStack() as stack:
        _start(stack, tmp_path / "a.out", first)

        async def made() -> bool:
            return (tmp_path / "a/tls/node.pem").exists() and (tmp_path / "a/founding.json").exists()

        await eventually(lambda: f"the first agent: {(tmp_path / 'a.out').read_text()}", made)
        made_token = agentd("token", "create", "--data-dir", str(tmp_path / "a"), "--out", str(token))
        assert made_token.returncode == 0, made_token.stderr
        _start(stack, tmp_path / "b.out", second)

        async def both(address: str) -> bool:
            context = ssl.create_default_context(cafile=tmp_path / "b/tls/ca.pem")
            headers = {"Authorization": f"Bearer {(tmp_path / 'b/token').read_text().strip()}"}
            connector = aiohttp.TCPConnector(ssl=context)
            async with (
                aiohttp.ClientSession(connector=connector, headers=headers) as session,
                session.get(f"https://{address}/api/v1/nodes", timeout=aiohttp.ClientTimeout(total=5)) as response,
            ):
                nodes = (await response.json())["nodes"]
            return {(node["node_id"], node["api_addr"]) for node in nodes if node["state"] == "ready"} == {
                ("big-host", f"localhost:{port}"),
                ("six", f"[::1]:{port + 2}"),
            }

        for address in (f"[::1]:{port + 2}", f"localhost:{port}", f"127.0.0.1:{port}"):
            await eventually(
                lambda: f"both nodes: {(tmp_path / 'b.out').read_text()[-2000:]}", lambda address=address: both(address)
            )


def _start(stack: contextlib.ExitStack, output: Path, flags: list[str]) -> None:
    with output.open("ab") as file:
        child = subprocess.Popen([sys.executable, "-m", "agentd.cli", "run", *flags], stdout=file, stderr=file)
    stack.callback(child.wait, 20)
    stack.callback(child.terminate)
