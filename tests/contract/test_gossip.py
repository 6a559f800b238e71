"""What holds for gossip drivers on any network: in memory, and over HTTP through real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from mesh.core.swim import LOCAL, Config, Gossip, Meta, Packet, Ping, State, Sync, Update, encode
from mesh.gossip import BODY_MAX, PATH, Answer, Carrier, GossipDriver, HttpCarrier, MemoryNetwork, pack, unpack
from mesh.gossip.http import CONTENT_TYPE
from tests.free_port import free_port
from tests.waiting import eventually

# Ten times as fast as `local`, and not faster: a loaded machine makes a loop late by tens of milliseconds.
BRISK = replace(
    LOCAL,
    probe_interval_ms=200,
    probe_timeout_min_ms=50,
    probe_timeout_max_ms=100,
    gossip_interval_ms=20,
    sync_interval_ms=1000,
    join_retry_ms=100,
    reconnect_ms=200,
    leave_ms=1000,
)
WITHIN_S = 30.0


class Net:
    """Hosts by name; each driver of a host is one life of it."""

    async def start(self, name: str, *seeds: str, boot: int = 1, mesh: str = "m1", **options: Any) -> GossipDriver:
        raise NotImplementedError

    async def kill(self, name: str) -> None:
        raise NotImplementedError

    async def freeze(self, name: str, frozen: bool = True) -> None:
        raise NotImplementedError

    async def post(self, name: str, body: bytes) -> bytes | None:
        """As anybody who may speak to the host; None where the body is not taken."""
        raise NotImplementedError

    def address(self, name: str) -> str:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    def _config(self, name: str, seeds: tuple[str, ...], boot: int, mesh: str) -> Config:
        found = tuple(self.address(seed) for seed in seeds)
        return Config(name, mesh, Meta((self.address(name),), "1.0"), boot, BRISK, found)


class InMemory(Net):
    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.runs: dict[str, asyncio.Task[None]] = {}
        self.drivers: dict[str, GossipDriver] = {}

    def address(self, name: str) -> str:
        return f"{name}:7460"

    async def start(self, name, *seeds, boot=1, mesh="m1", **options):
        carrier: Carrier = self.network.carrier(self.address(name))
        driver = GossipDriver(self._config(name, seeds, boot, mesh), carrier, **options)
        self.network.listen(self.address(name), driver.take)
        self.runs[name], self.drivers[name] = asyncio.create_task(driver.run()), driver
        return driver

    async def kill(self, name):
        self.network.end(self.address(name))
        await ended(self.runs.pop(name))

    async def freeze(self, name, frozen=True):
        self.network.silence(self.address(name), frozen)

    async def post(self, name, body):
        return self.drivers[name].take(body)

    async def close(self):
        for name in list(self.runs):
            await self.kill(name)


class Pausing:
    """Nothing passes in either direction while its host is frozen."""

    def __init__(self, carrier: Carrier, thawed: asyncio.Event) -> None:
        self._carrier, self._thawed = carrier, thawed

    async def exchange(self, address: str, body: bytes, timeout_s: float) -> Answer:
        await self._thawed.wait()
        answer = await self._carrier.exchange(address, body, timeout_s)
        await self._thawed.wait()
        return answer


class OverHttp(Net):
    """A frozen host still accepts connections, as its kernel does, and answers nothing."""

    def __init__(self) -> None:
        self.hosts: dict[str, tuple[web.AppRunner, asyncio.Task[None], aiohttp.ClientSession]] = {}
        self.thawed: dict[str, asyncio.Event] = {}
        self.ports: dict[str, int] = {}

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self._port(name)}"

    def _port(self, name: str) -> int:
        if name not in self.ports:
            self.ports[name] = free_port()
        return self.ports[name]

    async def start(self, name, *seeds, boot=1, mesh="m1", **options):
        session = aiohttp.ClientSession()
        thawed = self.thawed[name] = asyncio.Event()
        thawed.set()
        carrier = Pausing(HttpCarrier(session, lambda address: f"http://{address}"), thawed)
        driver = GossipDriver(self._config(name, seeds, boot, mesh), carrier, **options)

        async def take(request: web.Request) -> web.Response:
            body = await request.read()
            await thawed.wait()
            return web.Response(body=driver.take(body), content_type=CONTENT_TYPE)

        app = web.Application(client_max_size=BODY_MAX)
        app.router.add_post(PATH, take)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._port(name), reuse_address=True).start()
        self.hosts[name] = (runner, asyncio.create_task(driver.run()), session)
        return driver

    async def kill(self, name):
        runner, run, session = self.hosts.pop(name)
        self.thawed[name].set()
        await ended(run)
        await session.close()
        await runner.cleanup()

    async def freeze(self, name, frozen=True):
        (self.thawed[name].clear if frozen else self.thawed[name].set)()

    async def post(self, name, body):
        url = f"http://{self.address(name)}{PATH}"
        async with aiohttp.ClientSession() as session, session.post(url, data=body) as response:
            return await response.read() if response.status == 200 else None

    async def close(self):
        for name in list(self.hosts):
            await self.kill(name)


async def ended(run: "asyncio.Task[None]") -> None:
    run.cancel()
    with suppress(asyncio.CancelledError):
        await run


@asynccontextmanager
async def opened(kind: type[InMemory] | type[OverHttp]) -> AsyncIterator[Net]:
    net = kind()
    try:
        yield net
    finally:
        await net.close()


@pytest.fixture(params=[InMemory, OverHttp])
async def net(request):
    async with opened(request.param) as found:
        yield found


def states(driver: GossipDriver) -> dict[str, str]:
    return {member.node_id: member.state for member in driver.members()}


def all_alive(*drivers: GossipDriver) -> bool:
    wanted = {driver.config.name: "alive" for driver in drivers}
    return all(states(driver) == wanted for driver in drivers)


async def three(net: Net) -> tuple[GossipDriver, GossipDriver, GossipDriver]:
    a = await net.start("a")
    b, c = await net.start("b", "a"), await net.start("c", "a")
    await eventually("all know all", lambda: all_alive(a, b, c))
    return a, b, c


async def test_members_find_each_other_by_one_seed(net):
    a, b, c = await three(net)
    seen = {member.node_id: member for member in c.members()}
    assert seen["b"].addr == net.address("b") and seen["b"].version == "1.0" and seen["b"].since_s >= 0
    assert a.facts()["members"] == {"alive": 3, "suspect": 0, "dead": 0, "left": 0}
    assert not b.alone


async def test_who_is_gone_without_a_word_is_called_dead_and_back_in_a_later_life(net):
    a, b, _ = await three(net)
    await net.kill("c")
    await eventually("a and b call c dead", lambda: states(a)["c"] == states(b)["c"] == "dead")
    c = await net.start("c", "a", boot=2)
    await eventually("c is back", lambda: all_alive(a, b, c))


async def test_who_leaves_is_seen_as_left_and_never_as_dead(net):
    a, b, c = await three(net)
    await c.leave()
    await eventually("a and b know", lambda: states(a)["c"] == states(b)["c"] == "left")
    await net.kill("c")
    later = await net.start("c", "b", boot=2)
    await eventually("c is back", lambda: all_alive(a, b, later))
    assert later.facts()["incarnation"] > 0


async def test_leaving_alone_takes_no_time(net):
    a = await net.start("a")
    async with asyncio.timeout(WITHIN_S):
        await a.leave()
    await a.leave()


async def test_who_stands_still_for_a_moment_refutes(net):
    a, b, c = await three(net)
    await net.freeze("c")
    await eventually("c is accused", lambda: "c" in states(a) and states(a)["c"] != "alive")
    await net.freeze("c", False)
    await eventually("c has refuted", lambda: all_alive(a, b, c))
    assert c.facts()["incarnation"] > 0


async def test_a_member_that_all_hold_for_dead_comes_back_by_itself(net):
    a, b, c = await three(net)
    await net.freeze("c")
    await eventually("a and b call c dead", lambda: states(a)["c"] == states(b)["c"] == "dead")
    await net.freeze("c", False)
    await eventually("c is alive again for all", lambda: all_alive(a, b, c))


async def test_two_meshes_do_not_mix(net):
    """Members of one name in two meshes, each with a seed in the other."""
    a, b = await net.start("a"), await net.start("b", "a")
    other = await net.start("c", "a", "b", mesh="m2")
    await eventually("a and b know each other", lambda: all_alive(a, b))
    await eventually("they were asked by the stranger", lambda: a.counts["foreign"] and b.counts["foreign"])
    assert states(other) == {"c": "alive"} and all_alive(a, b)
    assert a.facts()["dropped"]["foreign"] >= 1


async def test_packets_of_an_earlier_life_and_repeated_ones_are_dropped(net):
    a = await net.start("a")
    liar = Update("x", 0, State.ALIVE, Meta(("127.0.0.1:1",)), "x")
    old = encode(Packet("m1", "x", 4, 9, "a", Sync(), (liar,)))
    new = encode(Packet("m1", "x", 5, 1, "a", Ping(1)))
    assert await net.post("a", pack([old, old, new, old]))
    assert a.facts()["dropped"] == {"replayed": 1, "stale_boot": 1}
    # And after a restart of the one that heard them.
    remembered = a.remembered()
    assert remembered.members == {"x": "127.0.0.1:1"}
    await net.kill("a")
    a = await net.start("a", boot=remembered.boot + 1, heard=remembered.heard)
    await net.post("a", pack([old, new]))
    assert a.facts()["dropped"] == {"replayed": 1, "stale_boot": 1} and states(a) == {"a": "alive"}


async def test_what_is_no_packet_is_counted_and_harms_nobody(net):
    a, b, c = await three(net)
    whole = encode(Packet("m1", "x", 1, 1, "a", Ping(1)))
    large = encode(Packet("m1", "x", 1, 2, "a", Gossip(), (b_update(),) * 200))
    answer = await net.post("a", pack([whole[:-3], b"\xc1" + whole, large]))
    assert answer is not None and unpack(answer) == []
    assert await net.post("a", pack([whole])[:-1]) is not None and await net.post("a", b"") is not None
    assert a.counts["truncated"] == 3 and a.counts["malformed"] == 1 and a.counts["oversized"] == 1
    assert all_alive(a, b, c)


def b_update() -> Update:
    return Update("b", 0, State.ALIVE, Meta(("127.0.0.1:1",)), "b")


async def test_a_member_speaks_for_itself_only_where_it_is_known_who_speaks(net):
    a = await net.start("a")
    claim = encode(Packet("m1", "b", 1, 1, "a", Ping(1)))
    assert unpack(a.take(pack([claim]), node="evil")) == []
    assert a.facts()["dropped"] == {"forged": 1}
    assert unpack(a.take(pack([claim]), node="b"))


async def test_two_processes_of_one_name_are_told_to_people(net):
    a, b = await net.start("a"), await net.start("b", "a")
    await eventually("both are there", lambda: all_alive(a, b))
    # A twin of b elsewhere, which says it is b.
    twin = Update("b", 7, State.ALIVE, Meta(("127.0.0.9:7460",), "1.0"), "b")
    await net.post("a", pack([encode(Packet("m1", "b", 99, 1, "a", Sync(), (twin,)))]))
    await eventually("b hears of it", lambda: "127.0.0.9:7460" in b.conflict or "uses the name b" in b.conflict)
    assert b.facts()["conflict"]
    await eventually("b has its name back", lambda: {m.node_id: m.addr for m in a.members()}["b"] == net.address("b"))


async def test_seeds_may_come_later(net):
    a, b = await net.start("a"), await net.start("b")
    b.set_seeds((net.address("a"),))
    await eventually("they have met", lambda: all_alive(a, b))


async def test_two_halves_that_buried_each_other_are_one_mesh_again():
    """Only the network in memory can be cut between some and not others."""
    async with opened(InMemory) as net:
        assert isinstance(net, InMemory)
        drivers = [await net.start("a")]
        drivers += [await net.start(name, "a") for name in ("b", "c", "d")]
        await eventually("all know all", lambda: all_alive(*drivers))

        def cut(apart: bool) -> None:
            for one in ("a", "b"):
                for other in ("c", "d"):
                    net.network.part(net.address(one), net.address(other), apart)

        cut(True)
        both = {"alive": 2, "suspect": 0, "dead": 2, "left": 0}
        await eventually("each half buries the other", lambda: all(d.facts()["members"] == both for d in drivers))
        cut(False)
        await eventually("all are alive for all", lambda: all_alive(*drivers))
