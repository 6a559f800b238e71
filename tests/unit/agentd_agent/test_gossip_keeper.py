"""Where gossip of an agent gets its seeds, and what it keeps."""

import asyncio
import contextlib
import json

from agentd import gossip_keeper
from agentd.config import Address, AgentConfig
from agentd.core.founding import Founding, Seat
from agentd.data_dir import Identity
from agentd.gossip_file import GossipFile
from agentd.gossip_keeper import GossipKeeper
from mesh.core.swim import LAN, LOCAL, WAN, Config, Meta
from mesh.gossip import GossipDriver, MemoryNetwork
from mesh.memory import MemoryMesh
from tests.integration.test_api_cluster import register
from tests.waiting import eventually

FOUNDER = "127.0.0.9:1"


def keeper(tmp_path, name, port, network, mesh, profile="fast"):
    address = Address("127.0.0.1", port)
    config = AgentConfig(data_dir=tmp_path, name=name, api=address, voter=Address("127.0.0.1", port + 1))
    identity = Identity(name, f"uid-{name}", cluster_id="c1", epoch=1, profile=profile, role="member")
    seats = tuple(
        Seat(f"f{at}", f"uid-f{at}", at + 1, f"127.0.0.{at}:2", api)
        for at, api in enumerate((FOUNDER, "0.0.0.0:7460"), 8)
    )
    file = GossipFile(tmp_path / f"{name}.json")
    made = GossipKeeper(config, identity, Founding("c1", 1, profile, seats), file, mesh, network.carrier(str(address)))
    network.listen(str(address), made.driver.take)
    return made


def alive(made):
    return {member.node_id for member in made.driver.members() if member.state == "alive"}


@contextlib.asynccontextmanager
async def running(*keepers):
    runs = [asyncio.create_task(made.run()) for made in keepers]
    try:
        yield
    finally:
        for run in runs:
            run.cancel()
        await asyncio.wait(runs)


async def test_who_knows_nobody_asks_the_log_and_remembers_whom_it_met(tmp_path, monkeypatch):
    """No founder answers; the log knows n2."""
    monkeypatch.setattr(gossip_keeper, "ASK_S", 0.01)
    network, mesh = MemoryNetwork(), MemoryMesh()
    one = keeper(tmp_path, "n1", 1001, network, mesh)
    two = keeper(tmp_path, "n2", 1002, network, MemoryMesh())
    assert one.driver.config.seeds == (FOUNDER,), "what is nobody's address is not asked"
    await mesh.propose(register("n2") | {"api_addr": "127.0.0.1:1002"})
    async with running(one, two):
        await eventually(
            lambda: f"both to see n1 and n2, not {alive(one)} and {alive(two)}",
            lambda: alive(one) == alive(two) == {"n1", "n2"},
        )
    kept = json.loads((tmp_path / "n1.json").read_text())
    assert kept["members"] == {"n2": "127.0.0.1:1002"} and [each[0] for each in kept["heard"]] == ["n2"]
    again = keeper(tmp_path, "n1", 1001, network, MemoryMesh())
    assert again.driver.config.seeds == (FOUNDER, "127.0.0.1:1002")
    assert again.driver.config.boot > one.driver.config.boot


async def test_what_is_kept_is_whole_when_the_agent_stops_in_the_midst_of_leaving(tmp_path):
    """A stop cancels the run that has just departed."""
    network = MemoryNetwork()
    one, two = (keeper(tmp_path, name, port, network, MemoryMesh()) for name, port in (("n1", 1001), ("n2", 1002)))
    two.driver.set_seeds(("127.0.0.1:1001",))
    async with running(one, two):
        await eventually(lambda: f"n1 to see n2, not {alive(one)}", lambda: alive(one) == {"n1", "n2"})
        await two.driver.leave()
    assert json.loads((tmp_path / "n2.json").read_text())["members"] == {"n1": "127.0.0.1:1001"}


def test_the_profile_follows_that_of_the_leases(tmp_path):
    made = [keeper(tmp_path, f"n-{name}", 1003, MemoryNetwork(), MemoryMesh(), name) for name in ("fast", "lan", "wan")]
    assert [each.driver.config.profile for each in made] == [LOCAL, LAN, WAN]
    assert made[0].driver.config.mesh == "c1.1"


async def test_a_leaving_that_fails_does_not_hold_up_the_stop():
    class Broken(GossipDriver):
        async def leave(self):
            raise RuntimeError("broken")

    config = Config("n1", "c1.1", Meta(("127.0.0.1:1",)), 1)
    await gossip_keeper.say_goodbye(Broken(config, MemoryNetwork().carrier("here")))
