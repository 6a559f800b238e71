"""Secrets that are planted wherever a user or an operator has some are found in nothing that is shown or written for
people; and a bundle of a mesh of which one node is down."""

import asyncio
import io
import json
import os
import re
import secrets
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.integration.mesh_fixture import RunningMesh, shell_group
from tests.terminal.pty_console import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
READS = (
    "/task-groups",
    "/queue",
    "/nodes",
    "/mesh",
    "/alerts",
    "/telemetry",
    "/audit",
    "/keys",
)


class Mesh(RunningMesh):
    def cli(self, *words: str) -> str:
        """What a person sees, errors too."""
        target = ("--node", self.nodes[0].api, "--token-file", str(self.loopback.token_file))
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/", "LANG": "C.UTF-8"}
        done = subprocess.run(
            [sys.executable, "-m", "console.cli.main", *target, *words],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=ROOT,
            env=environment,
        )
        return f"{done.stdout}\n{done.stderr}"

    async def text(self, path: str, token: str = "", method: str = "GET", **options: Any) -> str:
        headers = {"Authorization": f"Bearer {token or self.token}", "Accept": "application/json"}
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"http://{self.nodes[0].api}{path}", headers=headers, **options) as response,
        ):
            return f"{response.status} {await response.text()} {dict(response.headers)}"

    async def watched(self, path: str, token: str) -> str:
        url = f"http://{self.nodes[0].api}/api/v1/watch{path}"
        said = ""
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(url, headers={"Authorization": f"Bearer {token}"}) as socket,
        ):
            while True:
                frame = await socket.receive_json(timeout=10)
                said += json.dumps(frame)
                if "snapshot" in frame and not frame.get("more"):
                    return said


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Mesh]:
    running = Mesh(tmp_path / "mesh", n=2, voters=1)
    async with running:
        yield running


def canary(where: str) -> str:
    return f"canary-{where}-{secrets.token_hex(12)}"


@pytest.mark.attack(34)
async def test_no_secret_is_shown_or_written_for_people(mesh: Mesh, attempts: Counter[str]) -> None:
    planted = {where: canary(where) for where in ("env", "parameter", "words", "bearer", "credential", "body", "key")}
    planted["mesh token"] = mesh.token
    document = shell_group("canary", mesh.directory, "echo up; sleep 600")
    document["task"]["env"] = {"HF_TOKEN": planted["env"]}
    document["training"]["hyper_params"] = {"api_key": planted["parameter"]}
    group_id = await mesh.submit(document)
    failing = shell_group("canary-fails", mesh.directory, f"no-such-program --password {planted['env']}")
    failing["task"]["env"] = {"DB_PASSWORD": planted["env"]}
    fails = await mesh.submit(failing)
    await mesh.status(group_id, "running")
    await mesh.status(fails, "failed")
    asked = {"name": "eve", "role": "viewer", "tenant": "default"}
    answer = await mesh.nodes[0].call("POST", "/keys", asked)
    viewer = planted["api key"] = str(answer.value["key"])

    said: dict[str, str] = {}
    for path in READS:
        said[path] = await mesh.text(f"/api/v1{path}")
    for one in (group_id, fails):
        said[f"events of {one}"] = await mesh.text(f"/api/v1/task-groups/{one}/fault-events")
        said[f"{one} to a viewer"] = await mesh.text(f"/api/v1/task-groups/{one}", viewer)
    said["metrics"] = await mesh.text("/metrics")
    said["watch of a viewer"] = await mesh.watched(f"?group={group_id}", viewer)
    said["watch brief"] = await mesh.watched("?rows=brief", mesh.token)
    said["a stranger"] = await mesh.text("/api/v1/task-groups", planted["bearer"])
    said["a stranger with a query"] = await mesh.text(f"/api/v1/nodes?token={planted['bearer']}")
    credential = {"registry": "r", "username": "u", "password": planted["credential"]}
    refused = document | {"task": document["task"] | {"image_pull_credential": credential}}
    said["a credential"] = await mesh.text("/api/v1/task-groups", method="POST", json=refused)
    said["a broken body"] = await mesh.text(
        "/api/v1/task-groups", method="POST", data=f'{{"token": "{planted["body"]}", '
    )
    said["exec"] = mesh.cli("exec", group_id, "0", "--", "sh", "-c", "exit 3", "--token", planted["words"])
    said["why"], said["ls"], said["events"] = (
        mesh.cli(*words) for words in (("why", fails), ("ls",), ("events", group_id))
    )
    bundle = mesh.directory / "bundle.tar.gz"
    said["bundle, said"] = mesh.cli("debug", "bundle", str(bundle), "--group", group_id, "--group", fails)
    with tarfile.open(bundle) as archive:
        names = archive.getnames()
        for name in names:
            packed = archive.extractfile(name)
            assert packed is not None
            said[f"bundle {name}"] = packed.read().decode()
    wanted = ("manifest.json", "nodes.json", f"groups/{group_id}.json", "nodes/node-1/agent.log")
    assert {f"bundle/{name}" for name in (*wanted, "nodes/node-2/report.json")} <= set(names), names
    assert '"HF_TOKEN": "[redacted]"' in said[f"bundle bundle/groups/{group_id}.json"]
    written = [file for node in mesh.nodes for file in (node.data_dir / "log").glob("*")]
    written += [node.data_dir / "telemetry.db" for node in mesh.nodes]
    for file in (*written, *mesh.directory.glob("*.out")):
        if file.is_file():
            said[str(file)] = file.read_bytes().decode("utf-8", "replace")
    found = [
        f"{secret} in {place}" for place, text in said.items() for secret, value in planted.items() if value in text
    ]
    attempts["searched"] += len(said) * len(planted)
    assert not found, found
    assert not [place for place, text in said.items() if "Traceback" in text and "bundle" not in place]
    # The owner has what he gave, or he could not submit it again.
    assert planted["env"] in await mesh.text(f"/api/v1/task-groups/{group_id}")


async def test_a_bundle_names_the_node_that_does_not_answer(mesh: Mesh) -> None:
    mesh.nodes[1].kill_host()
    out = mesh.directory / "down.tar.gz"
    said = await asyncio.to_thread(mesh.cli, "debug", "bundle", str(out), "-o", "json")
    shown = json.loads(said.splitlines()[0])
    assert shown["nodes"] == ["node-1"]
    assert list(shown["unreachable"]) == ["node-2"]
    assert out.stat().st_mode & 0o777 == 0o600
    with tarfile.open(fileobj=io.BytesIO(out.read_bytes())) as archive:
        file = archive.extractfile("down/manifest.json")
        assert file is not None
        manifest = json.load(file)
        sizes = {one.name: one.size for one in archive.getmembers()}
    assert list(manifest["unreachable"]) == ["node-2"]
    assert max(sizes.values()) < 1 << 20
    assert re.search(r"does not answer", manifest["unreachable"]["node-2"])
    again = mesh.cli("debug", "bundle", str(out))
    assert "exists" in again
    assert not [path for path in mesh.directory.iterdir() if path.name.endswith(".part")]
