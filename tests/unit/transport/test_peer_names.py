"""Between voters with certificates: who may send as whom, and to whom anything is sent."""

import asyncio
from datetime import UTC, datetime

from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from mesh.core.identity.node_name import NodeName
from mesh.core.raft.message import Message, MsgType
from mesh.security.node_certificate import NodeCertificate
from mesh.security.wire import PlainWire
from mesh.transport.codec import pack
from mesh.transport.peers import RAFT_PATH, Counters, Envelope, PeerLink, PeerServer
from schemas.errors import NotAuthorised

ME = Envelope("c1", 1, 1)
PEERS = {2: "n2", 3: "n3"}
LATER = datetime(2100, 1, 1, tzinfo=UTC)


class NamedWire(PlainWire):
    secure = True

    def __init__(self, name: NodeName | None) -> None:
        self._name = name

    def caller(self, request: web.BaseRequest) -> NodeCertificate | None:
        return None if self._name is None else NodeCertificate(self._name, "1", LATER, LATER, ())


def served(name: NodeName | None) -> tuple[TestServer, list, Counters, asyncio.Event]:
    received: list = []
    counters = Counters()
    arrived = asyncio.Event()

    def take(one):
        received.append(one)
        arrived.set()

    server = PeerServer(ME, PEERS, counters, take, NamedWire(name))

    async def handle(request):
        try:
            return await server.handle(request)
        except NotAuthorised as error:
            return web.Response(status=error.problem.status)

    app = web.Application()
    app.router.add_get(RAFT_PATH, handle)
    return TestServer(app), received, counters, arrived


def frame(sender: int) -> bytes:
    return pack(["c1", 1, sender, 1, [Message(MsgType.HEARTBEAT, to=1, from_=sender, term=2).to_wire()]])


async def test_a_voter_sends_under_its_own_id_alone():
    server, received, counters, arrived = served(NodeName("c1", "n2", voter=True))
    async with server, ClientSession() as session, session.ws_connect(server.make_url(RAFT_PATH)) as socket:
        await socket.send_bytes(frame(3))
        await socket.send_bytes(frame(2))
        async with asyncio.timeout(10):
            await arrived.wait()
    assert [one.sender for one in received] == [2] and counters.foreign_frames == 1


async def test_who_may_send_nothing():
    for name in (None, NodeName("c1", "n2"), NodeName("c1", "n4", voter=True), NodeName("c1", "n1", voter=True)):
        server, received, _, _ = served(name)
        async with server, ClientSession() as session, session.get(server.make_url(RAFT_PATH)) as response:
            assert response.status == 403, name
        assert not received


async def test_nothing_is_sent_to_another_than_the_peer():
    server, received, _, _ = served(NodeName("c1", "n2", voter=True))
    tried = 0

    def check(socket):
        nonlocal tried
        tried += 1
        raise ConnectionError("it shows the certificate of n9")

    async with server, ClientSession() as session:
        url = str(server.make_url(RAFT_PATH)).replace("http", "ws", 1)
        link = PeerLink(Envelope("c1", 1, 2), 1, url, "", session, Counters(), lambda peer: None, check)
        running = asyncio.create_task(link.run())
        async with asyncio.timeout(10):
            while tried < 2:
                link.send([Message(MsgType.HEARTBEAT, to=1, from_=2, term=2)])
                assert not link.connected
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert not received
