"""In a mesh with certificates a member speaks for itself alone: in what it sends, and in what it answers."""

import ssl

import aiohttp
import pytest
from aiohttp import web

from agentd.gossip_keeper import proven_node
from mesh.core.identity.node_name import NodeName
from mesh.core.swim import LAN, Ack, Config, Meta, Packet, Ping, encode
from mesh.gossip import PATH, GossipDriver, HttpCarrier, NoAnswer, ProvenResponse, pack, unpack
from mesh.gossip.carrier import Answer
from mesh.security.certificates import issue, new_ca, new_key, signing_request, utc_now
from tests.integration.mesh_fixture import RunningMesh
from tests.waiting import eventually


def claim(mesh: str, name: str, seq: int) -> bytes:
    return encode(Packet(mesh, name, 1 << 60, seq, "", Ping(seq)))


@pytest.mark.attack(31, 44)
@pytest.mark.slow
async def test_a_node_with_a_certificate_cannot_speak_under_the_name_of_another(tmp_path):
    async with RunningMesh(tmp_path, 3, tls=True) as mesh:
        one, two, three = mesh.nodes

        async def facts():
            return (await one.call("GET", "/mesh")).value

        async def whole():
            seen = (await one.call("GET", "/gossip")).value["members"]
            return {member["node_id"]: member["state"] for member in seen} == {
                node.name: "alive" for node in mesh.nodes
            }

        await eventually("all to see all", whole)
        agent = (await facts())["agent"]["gossip"]
        assert "forged" not in agent["dropped"], "honest answers come under the right certificate"
        context = ssl.create_default_context(cafile=three.data_dir / "tls/ca.pem")
        stranger = ssl.create_default_context(cafile=three.data_dir / "tls/ca.pem")
        context.load_cert_chain(three.data_dir / "tls/node.pem")
        url, mesh_id = f"https://{one.api}{PATH}", f"{(await facts())['cluster_id']}.1"

        async def post(body: bytes, use: ssl.SSLContext, **headers: str) -> tuple[int, bytes]:
            connector = aiohttp.TCPConnector(ssl=use)
            async with (
                aiohttp.ClientSession(connector=connector, headers=headers) as session,
                session.post(url, data=body) as response,
            ):
                return response.status, await response.read()

        status, answer = await post(pack([claim(mesh_id, two.name, 1)]), context)
        assert (status, unpack(answer)) == (200, [])
        assert (await facts())["agent"]["gossip"]["dropped"]["forged"] == 1
        status, answer = await post(pack([claim(mesh_id, three.name, 1)]), context)
        assert status == 200 and unpack(answer)
        # The mesh token is for people: between nodes it opens nothing.
        status, _ = await post(pack([claim(mesh_id, two.name, 2)]), stranger, Authorization=f"Bearer {mesh.token}")
        assert status == 401


class Served:
    """A member's host with a certificate of this name, which answers with that packet."""

    def __init__(self, directory, name: str) -> None:
        key, now = new_key(), utc_now()
        ca = new_ca(key, "c1", now)
        own = new_key()
        pem = issue(key, ca, signing_request(own, name), NodeName("c1", name), ("127.0.0.1",), now)
        (directory / "node.pem").write_bytes(own + pem)
        (directory / "ca.pem").write_bytes(ca)
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(directory / "node.pem")
        self.client = ssl.create_default_context(cafile=directory / "ca.pem")

    async def exchange(self, packet: bytes, **session_options) -> Answer:
        async def answer(request: web.Request) -> web.Response:
            return web.Response(body=pack([packet]))

        app = web.Application()
        app.router.add_post(PATH, answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self.server)
        await site.start()
        address = f"127.0.0.1:{runner.addresses[0][1]}"
        try:
            connector = aiohttp.TCPConnector(ssl=self.client)
            async with aiohttp.ClientSession(connector=connector, **session_options) as session:
                carrier = HttpCarrier(session, lambda at: f"https://{at}", proven_node)
                return await carrier.exchange(address, pack([]), 10.0)
        finally:
            await runner.cleanup()


@pytest.mark.attack(31, 44)
async def test_an_answer_speaks_for_whom_its_certificate_names(tmp_path):
    class Never:
        async def exchange(self, address: str, body: bytes, timeout_s: float) -> Answer:
            raise NoAnswer("not asked")

    driver = GossipDriver(Config("n0", "m1", Meta(("127.0.0.1:1",)), 1, LAN), Never())
    host = Served(tmp_path, "n1")
    forged = await host.exchange(encode(Packet("m1", "n2", 1, 1, "n0", Ack(1))), response_class=ProvenResponse)
    assert forged.node == "n1"
    driver._heard(forged)
    assert driver.facts()["dropped"] == {"forged": 1}
    driver._heard(await host.exchange(encode(Packet("m1", "n1", 1, 1, "n0", Ack(1))), response_class=ProvenResponse))
    assert driver.facts()["dropped"] == {"forged": 1}
    with pytest.raises(NoAnswer, match="without a certificate"):
        await host.exchange(b"")


@pytest.mark.attack(31)
def test_a_certificate_that_names_no_node_is_nobody():
    assert proven_node(b"nonsense") == ""
