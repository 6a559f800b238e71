"""The client trusts one mesh CA; what is wrong with another end is told in words."""

import contextlib
import ssl
from datetime import timedelta

import pytest
from aiohttp import web

from console.client import MeshClient, NoNodeAnswers
from console.endpoints import Target, find_target
from mesh.core.identity.node_name import NodeName
from mesh.security.certificates import issue, new_ca, new_key, signing_request, utc_now
from schemas.errors import InvalidInput

NOW = utc_now()
LONG = timedelta(days=40)


class Mesh:
    def __init__(self, directory, cluster="c1"):
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.key = new_key()
        self.ca = new_ca(self.key, cluster, NOW - LONG)
        self.ca_file = directory / "ca.pem"
        self.ca_file.write_bytes(self.ca)

    def context(self, made=NOW, hosts=("127.0.0.1",), life=timedelta(days=30)):
        key = new_key()
        pem = issue(self.key, self.ca, signing_request(key, "n1"), NodeName("c1", "n1"), hosts, made, life)
        path = self.directory / "node.pem"
        path.write_bytes(key + pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context


@contextlib.asynccontextmanager
async def served(context):
    async def nodes(request):
        return web.json_response({"nodes": []})

    app = web.Application()
    app.router.add_get("/api/v1/nodes", nodes)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def read(address, ca_file):
    async with MeshClient(Target((address,), "t", str(ca_file) if ca_file else ""), deadline_s=5.0) as client:
        return (await client.read("/api/v1/nodes")).value


async def why(address, ca_file):
    with pytest.raises(NoNodeAnswers) as caught:
        await read(address, ca_file)
    return caught.value.tried[address]


async def test_the_mesh_that_is_trusted(tmp_path):
    mesh = Mesh(tmp_path)
    async with served(mesh.context()) as address:
        assert await read(address, mesh.ca_file) == {"nodes": []}


@pytest.mark.parametrize(
    ("made", "life", "words"),
    [
        (NOW + timedelta(hours=1), timedelta(days=1), "not valid yet: a clock is wrong"),
        (NOW - timedelta(days=3), timedelta(days=1), "has expired"),
    ],
)
async def test_certificates_of_another_time(tmp_path, made, life, words):
    mesh = Mesh(tmp_path)
    async with served(mesh.context(made, life=life)) as address:
        said = await why(address, mesh.ca_file)
        assert words in said and "date -u" in said


async def test_another_mesh_even_of_the_same_name(tmp_path):
    mesh, other = Mesh(tmp_path / "a"), Mesh(tmp_path / "b")
    async with served(other.context()) as address:
        said = await why(address, mesh.ca_file)
        assert "not from the CA that is trusted here" in said and "--ca-file" in said


async def test_one_without_tls_and_one_with_it_unasked(tmp_path):
    mesh = Mesh(tmp_path)
    async with served(None) as address:
        assert "speaks no TLS" in await why(address, mesh.ca_file)
    async with served(mesh.context()) as address:
        assert "--ca-file" in await why(address, None)


@pytest.mark.parametrize("text", ["", "nonsense", None])
def test_ca_files_that_are_none(tmp_path, text):
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        MeshClient(Target(("127.0.0.1:1",), "t", str(path)))
    assert caught.value.code == "bad_ca_file" and str(path) in caught.value.problem.message


def test_where_the_ca_is_taken_from(tmp_path):
    env = {"HOME": str(tmp_path), "HETEROFLOW_TOKEN": "t"}
    assert find_target(["127.0.0.1:1"], environment=env).scheme == "http"
    for node in ("https://a:1", "a:1", "10.0.0.7:7460", "[fd00::7]:7460"):
        with pytest.raises(InvalidInput, match="--ca-file"):
            find_target([node], environment=env)
    env["HETEROFLOW_CA_FILE"] = "/etc/ca.pem"
    found = find_target(["https://a:1", "b:2"], environment=env)
    assert (found.nodes, found.ca_file, found.scheme) == (("a:1", "b:2"), "/etc/ca.pem", "https")
    assert find_target(["a:1"], environment=env, ca_file="/x.pem").ca_file == "/x.pem"
    data = tmp_path / "data"
    (data / "tls").mkdir(parents=True)
    (data / "tls/ca.pem").write_text("x")
    (data / "node.json").write_text('{"api_addr": "127.0.0.1:7460"}')
    (data / "token").write_text("t")
    (data / "token").chmod(0o600)
    assert find_target(data_dir=str(data), environment=env).ca_file == str(data / "tls/ca.pem")
