"""Keys and tenants on three real agents with certificates: made at one, good at all, ended at all."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.integration.mesh_fixture import RunningMesh, shell_group
from tests.waiting import eventually

pytestmark = pytest.mark.slow
NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_read=30.0)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def make_key(mesh: RunningMesh, name: str, role: str, tenant: str) -> tuple[str, str]:
    answer = await mesh.nodes[0].call("POST", "/keys", {"name": name, "role": role, "tenant": tenant})
    assert answer.status == 201, answer
    return answer.value["key_id"], answer.value["key"]


@pytest.mark.attack(25, 28, 34)
async def test_a_key_made_at_one_agent_opens_all_and_ends_at_all(tmp_path: Path) -> None:
    async with RunningMesh(tmp_path, 3, tls=True) as mesh:
        one, two, three = mesh.nodes
        key_id, key = await make_key(mesh, "ada", "member", "red")
        _, other = await make_key(mesh, "bo", "member", "blue")
        # At once, at agents whose voter may not have heard of it.
        for node in (three, two, one):
            answer = await node.call("GET", "/whoami", headers=bearer(key))
            assert (answer.status, answer.value["name"], answer.value["tenant"]) == (200, "ada", "red"), answer
        token = (await two.call("POST", "/login", headers=bearer(key))).value["token"]
        assert (await three.call("GET", "/whoami", headers=bearer(token))).value["expires_at"] is not None

        # A rank on every host, read through one of them for its own tenant, and for no other.
        body = shell_group("red-job", tmp_path, "echo word of $NODE_RANK; sleep 60", 3)
        group_id = (await two.call("POST", "/task-groups", body, headers=bearer(token))).value["group_id"]
        await mesh.status(group_id, "running", node=3)

        async def all_ranks() -> bool:
            url = mesh.url(three, f"/api/v1/task-groups/{group_id}/logs")
            async with mesh.session(NO_TIMEOUT) as session, session.get(url, headers=bearer(key)) as response:
                lines = [json.loads(line) for line in (await response.text()).splitlines()]
            return {line.get("text") for line in lines} >= {f"word of {rank}" for rank in range(3)}

        await eventually("lines of every rank through node-3", all_ranks)
        for node in mesh.nodes:
            for method, path in (("GET", ""), ("GET", "/logs"), ("GET", "/curves"), ("POST", "/stop")):
                answer = await node.call(method, f"/task-groups/{group_id}{path}", headers=bearer(other))
                assert answer.status == 404 and answer.value["code"] == "no_such_group", (node.name, path, answer)

        await _streams_end(mesh, key_id, key, group_id)

        for node in mesh.nodes:

            async def shut(node: Any = node) -> bool:
                answers = [await node.call("GET", "/whoami", headers=bearer(secret)) for secret in (key, token)]
                return all(answer.status == 401 for answer in answers)

            await eventually("the revoked key and its token to open nothing", shut)

        leader = await mesh.leader()
        left = next(node for node in mesh.nodes if node is not leader)
        leader.kill_host()

        async def still_good() -> bool:
            answer = await left.call("GET", "/task-groups", headers=bearer(other))
            return answer.status == 200 and answer.value["groups"] == []

        await eventually("the other key to be good under another leader", still_good)
        assert (await left.call("GET", "/whoami", headers=bearer(key))).status == 401
        _no_secret_on_disk(mesh, key, other, token)
        entries = (await left.call("GET", "/audit")).value["entries"]
        told = {(entry["what"], entry["who"], entry["node_id"], entry["ok"]) for entry in entries}
        assert ("SubmitGroup", "ada", two.name, True) in told and ("RevokeKey", "mesh", one.name, True) in told
        assert {entry for entry in told if entry[0] == "StopGroup"} == {
            ("StopGroup", "bo", node.name, False) for node in mesh.nodes
        }


def _no_secret_on_disk(mesh: RunningMesh, *secrets: str) -> None:
    """Neither in a log nor in what the voters keep; and what signs tokens is their owner's alone."""
    wanted = [secret.split("_", 2)[2].encode() for secret in secrets[:2]] + [secret.encode() for secret in secrets[2:]]
    files = [path for node in mesh.nodes for path in node.data_dir.rglob("*") if path.is_file()]
    assert len([path for path in files if path.suffix in (".log", ".db")]) >= 9
    for path in files:
        held = path.read_bytes()
        assert not [secret for secret in wanted if secret in held], path
        if b"signer" in held:
            assert path.stat().st_mode & 0o077 == 0, path


async def _streams_end(mesh: RunningMesh, key_id: str, key: str, group_id: str) -> None:
    """A watch and a followed log at another agent than the one at which the key is revoked."""
    three = mesh.nodes[2]
    watch_url = mesh.url(three, "/api/v1/watch")
    log_url = mesh.url(three, f"/api/v1/task-groups/{group_id}/logs?follow=true")
    async with (
        mesh.session(NO_TIMEOUT) as session,
        session.ws_connect(watch_url, headers=bearer(key)) as socket,
        session.get(log_url, headers=bearer(key)) as log,
    ):
        assert group_id in json.dumps(await socket.receive_json(timeout=20))
        assert await log.content.readline()
        assert (await mesh.nodes[0].call("DELETE", f"/keys/{key_id}")).status == 200
        revoked_s = time.monotonic()
        async with asyncio.timeout(30):
            frame: dict[str, Any] = {}
            while "problem" not in frame:
                frame = await socket.receive_json()
            assert "revoked" in frame["problem"]["message"]
            with pytest.raises(aiohttp.ClientError):
                while await log.content.readline():
                    pass
        print(f"streams ended {time.monotonic() - revoked_s:.1f} s after the revocation")


async def test_login_and_contexts_of_a_mesh_with_certificates(tmp_path: Path) -> None:
    async with RunningMesh(tmp_path / "mesh", 1, tls=True) as mesh:
        environment = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": ""}
        for name in ("HETEROFLOW_TOKEN", "HETEROFLOW_NODES", "HETEROFLOW_TOKEN_FILE"):
            environment.pop(name, None)

        async def heteroflow(*words: str, typed: str = "") -> "subprocess.CompletedProcess[str]":
            command = [sys.executable, "-m", "console.cli.main", *words]
            return await asyncio.to_thread(
                subprocess.run, command, input=typed, env=environment, capture_output=True, text=True, timeout=60
            )

        data = str(mesh.nodes[0].data_dir)
        made = await heteroflow("key", "create", "ada", "--role", "member", "--tenant", "red", "--data-dir", data)
        assert made.returncode == 0, made.stderr
        key = made.stdout.strip()
        ca_file = str(mesh.loopback.ca_file)
        done = await heteroflow("login", "lab", "--node", mesh.nodes[0].api, "--ca-file", ca_file, typed=key + "\n")
        assert done.returncode == 0, done.stderr
        listed = await heteroflow("context", "ls", "-o", "json")
        assert json.loads(listed.stdout)["contexts"]["lab"]["ca_file"] == ca_file
        who = await heteroflow("whoami")
        assert who.returncode == 0 and "ada, member of tenant red" in who.stdout, who.stderr
        assert (await heteroflow("ls", "--context", "lab")).returncode == 0
        assert (await heteroflow("audit")).returncode == 5
