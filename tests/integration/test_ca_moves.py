"""The mesh CA is replaced under running agents, then goes to another host because its own is gone."""

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest

from mesh.core.identity.node_name import NodeName
from mesh.security.certificates import issue, new_key, read_certificate, signed_by, signing_request, split, utc_now
from tests.integration.mesh_fixture import MeshNode, RunningMesh, shell_group
from tests.security.tls_host import agentd
from tests.waiting import eventually

pytestmark = pytest.mark.slow


def believed(node: MeshNode) -> set[str]:
    return set(split((node.data_dir / "tls/ca.pem").read_bytes()))


async def answer_to(pem: Path, ca_file: Path, address: str) -> str:
    """What a node with this certificate hears where only nodes are listened to."""
    context = ssl.create_default_context(cafile=ca_file)
    context.load_cert_chain(pem)
    url = f"https://{address}/mesh/v1/authorities?have=0"
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.get(url) as answer,
    ):
        return "refused" if (await answer.json()).get("code") == "certificate_refused" else "heard"


@pytest.mark.attack(31)
async def test_the_ca_is_replaced_then_moved_when_its_host_is_gone(tmp_path: Path) -> None:
    async with RunningMesh(tmp_path, 3, tls=True) as mesh:
        one, two, three = mesh.nodes
        group = await mesh.submit(
            shell_group("ft-rotation", mesh.directory / "out", "while [ ! -e done ]; do sleep 0.2; done", 2)
        )
        await mesh.status(group, "running")
        old_ca = (one.data_dir / "tls/ca.pem").read_bytes()
        old_key = (one.data_dir / "ca/ca.key").read_bytes()
        (old,) = believed(one)
        # What whoever has stolen the old key could make himself.
        key = new_key()
        name = NodeName(read_certificate((two.data_dir / "tls/node.pem").read_bytes()).name.cluster_id, "node-3", True)
        stolen = tmp_path / "stolen.pem"
        stolen.write_bytes(key + issue(old_key, old_ca, signing_request(key, "node-3"), name, (), utc_now()))
        assert await answer_to(stolen, one.data_dir / "tls/ca.pem", two.api) == "heard"

        elsewhere = agentd("ca", "rotate", "--data-dir", str(two.data_dir))
        assert elsewhere.returncode == 1 and "node-1" in elsewhere.stderr
        begun = agentd("ca", "rotate", "--data-dir", str(one.data_dir))
        assert begun.returncode == 0, begun.stderr

        async def replaced() -> bool:
            return all(len(believed(node)) == 1 and old not in believed(node) for node in mesh.nodes)

        await eventually(
            lambda: f"the CA to be replaced: {agentd('ca', 'show', '--data-dir', str(one.data_dir)).stdout}",
            replaced,
            90.0,
        )
        (new,) = believed(one)
        for node in mesh.nodes:
            assert signed_by((node.data_dir / "tls/node.pem").read_bytes(), (one.data_dir / "tls/ca.pem").read_bytes())
        assert [p.name for p in (one.data_dir / "ca").glob("*.key")] == [f"ca-{new[:16]}.key"]

        async def shut_out() -> bool:
            return await answer_to(stolen, one.data_dir / "tls/ca.pem", two.api) == "refused"

        await eventually("the old CA to open nothing", shut_out)
        assert (await mesh.group(group))["attempt"] == 1
        ready = (await three.call("GET", "/nodes")).value["nodes"]
        assert {node["state"] for node in ready} == {"ready"}

        # Its host is gone; there is a copy.
        copy = tmp_path / "ca-copy"
        exported = agentd("ca", "export", "--data-dir", str(one.data_dir), "--out", str(copy))
        assert exported.returncode == 0 and copy.stat().st_mode & 0o777 == 0o600
        one.kill_host()
        assert agentd("cert", "renew", "--data-dir", str(three.data_dir)).returncode == 1
        taken = agentd("ca", "import", str(copy), "--data-dir", str(two.data_dir))
        assert taken.returncode == 0, taken.stderr

        async def renews() -> bool:
            done = await asyncio.to_thread(agentd, "cert", "renew", "--data-dir", str(three.data_dir))
            return done.returncode == 0

        await eventually(lambda: f"node-3 to renew: {mesh.said(3)}", renews)
        made = agentd("token", "create", "--data-dir", str(three.data_dir), "--out", str(tmp_path / "token"))
        assert made.returncode == 0, made.stderr

        # The host comes back, and finds that it has the CA no more.
        one.start()

        async def stepped_back() -> bool:
            return not (one.data_dir / "ca").exists() and bool(list(one.data_dir.glob("ca.moved-*")))

        await eventually(lambda: f"node-1 to put its CA away: {mesh.said(1)}", stepped_back)
        shown = agentd("ca", "show", "--data-dir", str(one.data_dir))
        assert "on node-2" in shown.stdout, shown
