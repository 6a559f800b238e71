"""Rank 0's door and those who come to it, over real sockets."""

import asyncio
import errno
import json
import os
import socket
from dataclasses import replace

import pytest

from agentd.claims import reach as reach_module
from agentd.claims.reach import Door, MeetingPoint, reach
from agentd.core.claim import ClaimRefused
from tests.free_port import free_port

# Of this process alone, so that workers do not meet.
HERE, THERE, NOWHERE = (f"127.{20 + os.getpid() % 200}.{os.getpid() // 200 % 250}.{n}" for n in (1, 2, 3))
# Of a network for documentation: nobody has it.
AWAY = "192.0.2.77"


@pytest.fixture
def point():
    return MeetingPoint("c-1", "tg-1", 2, "gpu-00", (HERE,), free_port(HERE), 0, 3)


@pytest.fixture
async def doors():
    opened = []

    def open_door(point: MeetingPoint, host: str = HERE) -> Door:
        door = Door.open(point, host)
        assert isinstance(door, Door), door
        opened.append(door)
        return door

    yield open_door
    for door in opened:
        door.close()


def binds(address: str, port: int) -> bool:
    with socket.socket() as trainer:
        try:
            trainer.bind((address, port))
        except OSError as error:
            assert error.errno == errno.EADDRINUSE
            return False
        return True


async def test_who_comes_finds_rank_0_and_the_last_one_closes_the_door(point, doors):
    door = doors(point)
    assert (await reach(point)).reached == (HERE,), "rank 0 itself"
    assert (await reach(replace(point, rank=1))).reached == (HERE,)
    assert (await reach(replace(point, rank=1))).reached == (HERE,), "once more, after a restart of its agent"
    assert (await reach(replace(point, rank=2))).reached == (HERE,)
    # The port is held still, and a trainer that comes early is refused, which it tries again.
    assert not binds(HERE, point.port)
    late = await reach(replace(point, rank=2))
    assert late.reached == () and late.unreached == ({"addr": HERE, "why": "refuses the connection"},)
    door.close()
    assert binds(HERE, point.port), "no connection keeps the trainer from the port"


async def test_the_port_is_free_long_before_a_trainer_can_start_also_where_somebody_did_not_come(point, doors):
    for _ in range(20):
        door = doors(point)
        others = [reach(replace(point, rank=rank)) for rank in (0, 1)]
        assert all(found.reached for found in await asyncio.gather(*others))
        door.close()
        for _ in range(5):
            await asyncio.sleep(0)
        assert binds(HERE, point.port)


async def test_many_at_once(point, doors, monkeypatch):
    monkeypatch.setattr(reach_module, "REACH_S", 60.0)
    doors(replace(point, world=200))
    found = await asyncio.gather(*(reach(replace(point, rank=rank, world=200)) for rank in range(1, 200)))
    assert all(one.reached == (HERE,) for one in found)
    assert not (await reach(replace(point, rank=1))).reached


async def test_another_machine_at_the_same_address(point, doors, monkeypatch):
    """Something that talks, something that is silent, and the door of another group: none is taken for rank 0."""
    monkeypatch.setattr(reach_module, "REACH_S", 3.0)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 smtp.example ESMTP\n")
        await writer.drain()
        writer.close()

    async def parrot(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()

    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    stranger = "is another machine, which does not know this group"
    for behave, why in ((talk, stranger), (parrot, stranger), (silence, "does not answer within 3 s")):
        async with await asyncio.start_server(behave, THERE, point.port):
            found = await reach(replace(point, rank=1, addresses=(THERE,)))
            assert (found.reached, found.unreached) == ((), ({"addr": THERE, "why": why},))
    for other in ({"group_id": "tg-2"}, {"attempt": 3}, {"cluster_id": "c-2"}, {"node": "gpu-09"}):
        door = doors(point)
        found = await reach(replace(point, rank=1, **other))
        assert found.unreached == ({"addr": HERE, "why": stranger},)
        door.close()


async def test_of_several_addresses_each_is_tried(point, doors):
    doors(replace(point, addresses=(HERE,)), THERE)
    offered = (NOWHERE, THERE, "no-such-host.invalid", HERE)
    found = await reach(replace(point, rank=1, addresses=offered))
    assert found.reached == (THERE, HERE)
    assert [fault["addr"] for fault in found.unreached] == [NOWHERE, "no-such-host.invalid"]
    assert found.unreached[0]["why"] == "refuses the connection"


async def test_the_door_is_at_the_addresses_that_are_here(point, doors):
    """Of a translated address only the other end exists elsewhere."""
    door = doors(replace(point, addresses=(AWAY, HERE, "gpu-00.example")))
    assert not binds(HERE, point.port)
    door.close()
    with socket.create_server((HERE, point.port)):
        taken = Door.open(replace(point, addresses=(THERE, HERE)), HERE)
        assert isinstance(taken, ClaimRefused) and taken.code == "port_taken"
        assert binds(THERE, point.port), "nothing is held of what could not be had whole"
    nowhere = Door.open(replace(point, addresses=(AWAY,)), AWAY)
    assert isinstance(nowhere, ClaimRefused) and nowhere.code == "port_refused"


async def test_a_stranger_is_told_nothing(point, doors):
    doors(point)
    right = json.dumps({**point.mark, "rank": [1], "nonce": "x"}).encode() + b"\n"
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b"{}\n", b"\xff" * 5000 + b"\n", b"\n", right + b"[1]\n"):
        reader, writer = await asyncio.open_connection(HERE, point.port)
        writer.write(said)
        try:
            told = await reader.read(1000)
        except ConnectionError:
            told = b""
        writer.close()
        assert b"gpu-00" not in told or said.startswith(right)
    assert (await reach(replace(point, rank=1))).reached == (HERE,)
