"""Attacks on the frames between members: damaged, forged, repeated and oversized ones, and a holder of the mesh token
who lies. Gossip may be deceived for a while; voters, placement and the state of nodes may not.

HF_FUZZ_FRAMES (30,000) says how many damaged frames are tried; a million takes half a minute."""

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Iterator
from random import Random

import aiohttp
import msgpack
import pytest

from mesh.core.raft.entry import Entry, EntryKind
from mesh.core.raft.message import Message as RaftMessage
from mesh.core.raft.message import MsgType
from mesh.core.swim import (
    LAN,
    Ack,
    Config,
    Gossip,
    Message,
    Meta,
    Nack,
    Packet,
    Ping,
    PingReq,
    Reason,
    Refuse,
    State,
    Sync,
    SyncReply,
    Update,
    decode,
    encode,
)
from mesh.core.swim.limits import INCARNATION_MAX, MEMBERS_MAX
from mesh.gossip import BODY_MAX, PATH, GossipDriver, MemoryNetwork, pack, unpack
from mesh.transport.codec import FrameReader, WireFault, framed
from mesh.transport.peers import Envelope, read_frame
from schemas.commands import command
from tests.integration.mesh_fixture import RunningMesh, shell_group
from tests.integration.voters import Voters
from tests.security.mutation import mutated
from tests.waiting import eventually

FRAMES = int(os.environ.get("HF_FUZZ_FRAMES", "30000"))
WITHIN_S = 60.0
META = Meta(("127.0.0.1:7460", "[::1]:7460"), "1.0", (("uid", "u1"),))
UPDATES = tuple(Update(f"n{i}", i, state, META, f"n{i}") for i, state in enumerate(State, 1))
MESSAGES: list[Message] = [
    Gossip(), Ping(12), PingReq(12, "n3", 400), Ack(12), Nack(12), Sync(), SyncReply(), Refuse(Reason.STALE_BOOT, 9),
]  # fmt: skip
PACKETS = [
    encode(Packet("m1", f"n{at}", 7, at, "n0" if at % 2 else "", message, UPDATES[: at % 4]))
    for at, message in enumerate(MESSAGES, 1)
]


@pytest.mark.attack(42)
def test_a_damaged_gossip_body_is_dropped_and_counted_whatever_is_in_it(record_property) -> None:
    """Damage of the whole body, and of packets in a whole one."""
    rng = Random(1)
    driver = GossipDriver(Config("n0", "m1", META, 1, LAN), MemoryNetwork().carrier("here"))
    bodies = [pack(PACKETS[at : at + 3]) for at in range(len(PACKETS))]
    taken = 0

    async def send() -> None:
        nonlocal taken
        for number in range(FRAMES // 2):
            body = mutated(rng, bodies) if number % 2 else pack([mutated(rng, PACKETS)])
            assert len(unpack(driver.take(body))) <= 64
            taken += len(body)
            if number % 1000 == 0:
                await asyncio.sleep(0)  # what it sends goes nowhere: nobody listens

    asyncio.run(send())
    dropped = driver.facts()["dropped"]
    print(f"{FRAMES // 2} bodies of {taken} bytes: {dropped}")
    record_property("attempts", FRAMES // 2)
    assert min(dropped[reason] for reason in ("truncated", "malformed", "foreign", "replayed")) > 0
    assert len(driver.members()) <= MEMBERS_MAX
    assert driver.counts["faults"] == 0


RAFT = [
    msgpack.packb(["c1", 1, 2, 1, items])
    for items in (
        [RaftMessage(MsgType.APP, 1, 2, 5, 4, 9, [Entry(10, 5, EntryKind.NORMAL, b"x" * 40)], 8).to_wire()],
        [RaftMessage(MsgType.VOTE, 1, 2, 6).to_wire(), RaftMessage(MsgType.HEARTBEAT, 1, 2, 6).to_wire()],
        [["call", 7, "propose", msgpack.packb([command("Noop", payload=b""), 1])]],
        [["answer", 7, msgpack.packb([{"idx": 1}, None])]],
    )
]  # fmt: skip


@pytest.mark.attack(31, 42)
def test_a_damaged_frame_between_voters_is_refused_by_name_or_is_one(record_property) -> None:
    rng, seen = Random(2), Counter[str]()
    envelope, peers = Envelope("c1", 1, 1), frozenset((2, 3))
    assert all(read_frame(frame, envelope, peers) for frame in RAFT)
    for _ in range(FRAMES // 2):
        try:
            received = read_frame(mutated(rng, RAFT), envelope, peers)
        except WireFault:
            seen["refused"] += 1
        else:
            seen["foreign" if received is None else "taken"] += 1
    print(dict(seen))
    record_property("attempts", FRAMES // 2)
    assert min(seen.values()) > 0 and len(seen) == 3


@pytest.mark.attack(42)
@pytest.mark.parametrize("field", range(4))
@pytest.mark.parametrize("value", [None, [], {}, [1], "x", b"", 1.5, True, -1, 1 << 63])
def test_an_envelope_of_any_type_is_foreign(field, value) -> None:
    frame = msgpack.unpackb(RAFT[0])
    frame[field] = value
    assert read_frame(msgpack.packb(frame), Envelope("c1", 1, 1), frozenset((2, 3))) is None


REQUESTS = [
    msgpack.packb(request)
    for request in (
        [1, "hello", {"role": "agent", "node": "n1"}],
        [2, "propose", {"command": command("Noop", payload=b"x"), "term": 3}],
        [3, "query", {"level": "stale", "reads": [{"get": ["meta", "cluster"]}, {"scan": ["node", "", "", 3]}]}],
        [3, "query", {"level": "linearizable", "reads": [{"groups": {"status": ["pending"], "limit": 3}}]}],
        [4, "subscribe", {"filter": {"active": True}, "token": "c.1.0"}],
        [4, "cancel", {"id": 4}],
        [5, "renew", {"node": "n1", "uid": "u1", "sent_ns": 12}],
        [6, "beat", {}],
        [7, "status", {}],
    )
]


@pytest.mark.attack(31, 42)
@pytest.mark.slow
async def test_a_voter_outlives_damaged_sessions(tmp_path, record_property):
    """Over its real socket: sessions are closed or answered with a problem, and nothing is thrown about."""
    rng = Random(3)
    sessions, closed, frames = 0, 0, min(FRAMES // 10, 20_000)
    running = Voters(tmp_path, 1)
    running.start_all()
    try:
        client = running.client()
        assert await eventually("the voter answers", client.status)
        while frames > 0:
            sessions += 1
            reader, writer = await asyncio.open_unix_connection(str(running.directory(1) / "voter.sock"))
            with contextlib.suppress(ConnectionError):
                for _ in range(rng.randrange(1, 20)):
                    frames -= 1
                    request = mutated(rng, REQUESTS)
                    # Now and then the length before it lies too.
                    writer.write(framed(request) if rng.random() < 0.9 else mutated(rng, [framed(request)]))
                    await writer.drain()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.005):
                        while await reader.read(65_536):
                            pass
                        closed += 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        assert (await client.status())["role"] == "leader"
        print(f"{sessions} sessions, {closed} closed by the voter")
        record_property("attempts", sessions)
        assert closed > sessions // 10
        said = running.log(1)
        assert "Traceback" not in said, said[-3000:]
    finally:
        for open_client in running.clients:
            await open_client.close()
        running.kill(1)


@pytest.mark.attack(40)
def test_a_frame_that_says_it_is_huge_is_refused_before_it_comes() -> None:
    reader = FrameReader(1000)
    with pytest.raises(WireFault, match="beyond the limit"):
        list(reader.feed(b"\xff\xff\xff\xff"))


# -- a whole mesh under attack by whoever has its token


@pytest.fixture(scope="module")
def mesh(tmp_path_factory) -> Iterator[RunningMesh]:
    running = RunningMesh(tmp_path_factory.mktemp("frames"), n=3, guard_flags=("--restart", "never"))
    running.start()
    yield running
    running.stop()


class Liar:
    """Speaks under any name, with the mesh token."""

    def __init__(self, mesh: RunningMesh, node: int, mesh_id: str) -> None:
        self.url = f"http://{mesh.nodes[node - 1].api}{PATH}"
        self.headers = {"Authorization": f"Bearer {mesh.token}", "Content-Type": "application/msgpack"}
        self.mesh_id, self.seq = mesh_id, 0

    def packet(self, sender, message, *updates, boot=INCARNATION_MAX - 1, mesh=None) -> bytes:
        self.seq += 1
        return encode(Packet(mesh or self.mesh_id, sender, boot, self.seq, "", message, updates))

    async def post(self, *packets: bytes, body: bytes | None = None) -> tuple[int, list[bytes]]:
        async with (
            aiohttp.ClientSession(headers=self.headers) as session,
            session.post(self.url, data=pack(packets) if body is None else body) as response,
        ):
            answer = await response.read()
            return response.status, unpack(answer) if response.status == 200 else []


async def mesh_facts(node):
    return (await node.call("GET", "/mesh")).value


async def gossip_id(node) -> str:
    facts = await mesh_facts(node)
    return f"{facts['cluster_id']}.{facts['epoch']}"


async def whole(mesh: RunningMesh) -> bool:
    """Everyone sees everyone alive, at its own address."""
    wanted = {node.name: ("alive", node.api) for node in mesh.nodes}
    for node in mesh.nodes:
        answer = await node.call("GET", "/gossip?consistency=stale")
        assert answer.status == 200, answer
        seen = {m["node_id"]: (m["state"], m["addr"]) for m in answer.value["members"]}
        if {name: seen.get(name) for name in wanted} != wanted:
            return False
    return True


async def decided(mesh: RunningMesh):
    """What the log says: nodes, their states and places, and the voters."""
    nodes = (await mesh.nodes[0].call("GET", "/nodes")).value["nodes"]
    keys = ("node_id", "state", "api_addr", "voter", "gpus_total", "version", "losses")
    return [{key: node[key] for key in keys} for node in nodes], (await mesh_facts(mesh.nodes[0]))["voters"]


@pytest.mark.attack(44)
@pytest.mark.slow
async def test_a_liar_with_the_token_moves_no_voter_no_node_and_no_rank(mesh):
    await eventually("a whole mesh", lambda: whole(mesh), WITHIN_S)
    before = await decided(mesh)
    group = await mesh.submit(shell_group("steady", mesh.directory, "sleep 600", n_nodes=3))
    placed = (await mesh.status(group, "running"))["nodes"]
    victim, elsewhere = mesh.nodes[2], Meta(("127.0.0.77:7460",), "6.6.6", (("uid", "evil"),))
    for node in (1, 2, 3):
        liar = Liar(mesh, node, await gossip_id(mesh.nodes[0]))
        names = [each.name for each in mesh.nodes]
        mass = [Update(name, 900, state, META, name) for name in names for state in (State.SUSPECT, State.DEAD)]
        left = [Update(name, 950, State.LEFT, META, name) for name in names]
        takeover = Update(victim.name, 1000, State.ALIVE, elsewhere, victim.name)
        inflated = [Update(name, INCARNATION_MAX, State.DEAD, META, name) for name in names]
        ghosts = [Update(f"ghost-{at}", 1, State.ALIVE, elsewhere, f"ghost-{at}") for at in range(200)]
        assert (await liar.post(liar.packet("ghost-0", Sync(), *ghosts)))[0] == 200
        for lies in (mass, left, [takeover], inflated):
            await liar.post(liar.packet("ghost-0", Sync(), *lies), liar.packet("ghost-1", Gossip(), *lies))
    # The slandered say at once that they live; what was decided was never asked about it.
    await eventually("the slandered to be alive for all again", lambda: whole(mesh), WITHIN_S)
    assert await decided(mesh) == before
    now = await mesh.group(group)
    assert (now["status"], now["nodes"], now["restarts"]) == ("running", placed, 0)
    second = await mesh.submit(shell_group("next", mesh.directory, "true", n_nodes=3))
    await mesh.status(second, "completed")
    agent = (await mesh_facts(mesh.nodes[0]))["agent"]["gossip"]
    assert agent["dropped"]["implausible"] > 0
    assert (await mesh.nodes[0].call("POST", f"/task-groups/{group}/stop")).status == 200


@pytest.mark.attack(44)
@pytest.mark.slow
async def test_a_node_that_claims_the_name_of_another_is_told_to_people(mesh):
    await eventually("a whole mesh", lambda: whole(mesh), WITHIN_S)
    victim = mesh.nodes[1]
    twin = Update(victim.name, 5000, State.ALIVE, Meta(("127.0.0.78:7460",), "1.0", (("uid", "other"),)), victim.name)
    liar = Liar(mesh, 1, await gossip_id(mesh.nodes[0]))

    async def named():
        await liar.post(liar.packet("ghost-2", Gossip(), twin))
        conflict = (await mesh_facts(victim))["agent"]["gossip"]["conflict"]
        return conflict and victim.name in conflict and "127.0.0.78" in conflict

    await eventually("the conflict to be told", named, WITHIN_S)
    await eventually("the name to be its owner's again", lambda: whole(mesh), WITHIN_S)


@pytest.mark.attack(40, 42)
@pytest.mark.slow
async def test_other_meshes_oversized_damaged_and_unauthorised_posts_are_counted(mesh):
    await eventually("a whole mesh", lambda: whole(mesh), WITHIN_S)
    node = mesh.nodes[1]
    liar = Liar(mesh, 2, await gossip_id(node))
    before = Counter((await mesh_facts(node))["agent"]["gossip"]["dropped"])
    status, answer = await liar.post(liar.packet("ghost-3", Ping(1), mesh="another.1"))
    assert status == 200
    assert [type(decode(packet).message) for packet in answer] == [Refuse]
    assert (await liar.post(body=b"x" * (BODY_MAX + 1)))[0] == 413
    assert (await liar.post(body=pack(PACKETS)[:-2]))[0] == 200
    assert (await liar.post(body=b"\xc1"))[0] == 200
    one_too_large = encode(Packet(liar.mesh_id, "ghost-3", 1, 1, "", Gossip(), UPDATES * 40))
    await liar.post(one_too_large)
    rng = Random(4)
    for _ in range(200):
        status, _ = await liar.post(body=mutated(rng, [pack(PACKETS)]))
        assert status == 200
    for headers in ({}, {"Authorization": "Bearer x"}):
        async with aiohttp.ClientSession(headers=headers) as session, session.post(liar.url, data=b"") as response:
            assert response.status == 401
    dropped = Counter((await mesh_facts(node))["agent"]["gossip"]["dropped"]) - before
    assert dropped["foreign"] >= 1 and dropped["oversized"] >= 2
    assert dropped["truncated"] >= 1 and dropped["malformed"] >= 1
    assert "Traceback" not in (node.data_dir / "log" / "agent.log").read_text()


@pytest.mark.attack(43)
@pytest.mark.slow
async def test_what_was_recorded_before_a_restart_is_not_taken_after_it(mesh):
    """Of the recorded sender's earlier life and of this one; also when the receiver itself was started anew."""
    node = mesh.nodes[2]
    await eventually("a whole mesh", lambda: whole(mesh), WITHIN_S)
    liar = Liar(mesh, 3, await gossip_id(mesh.nodes[0]))
    ghost = Update("ghost-9", 3, State.ALIVE, META, "ghost-9")
    slander = Update(mesh.nodes[0].name, 7000, State.DEAD, META, "ghost-9")
    earlier = liar.packet("ghost-9", Gossip(), slander, boot=40)
    recorded = [earlier, liar.packet("ghost-9", Sync(), ghost, boot=41)]
    await liar.post(recorded[1])

    async def dropped() -> Counter[str]:
        return Counter((await mesh_facts(node))["agent"]["gossip"]["dropped"])

    before = await dropped()
    await liar.post(*recorded)
    assert await dropped() - before == Counter(stale_boot=1, replayed=1)
    node.signal_agent(signal.SIGTERM)
    await asyncio.to_thread(node.guard.wait, 30)
    node.start()
    await eventually("the node to be back", lambda: whole(mesh), WITHIN_S)
    before = await dropped()
    await liar.post(*recorded)
    assert await dropped() - before == Counter(stale_boot=1, replayed=1)
    assert await whole(mesh)
