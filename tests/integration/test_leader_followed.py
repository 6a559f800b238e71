"""Who only waits for changes of the leader hears of them again after its voter was restarted."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from mesh.client import Leader, VoterClient
from mesh.transport.session_client import SessionClient
from tests.integration.voters import voters
from tests.waiting import eventually

READS = [{"get": ["meta", "cluster"]}]


async def test_a_silent_follower_of_the_leader_outlives_its_voter(tmp_path: Path) -> None:
    """Controllers call nothing while another host leads; without a session they would never learn that theirs does."""
    async with voters(tmp_path, 1) as mesh:
        mesh.start_all()
        client = mesh.client(1)
        await client.connect()
        await eventually("the first leader", lambda: client.leader is not None)
        first = client.leader
        mesh.kill(1)
        while await client.leader_change() is not None:
            pass
        mesh.start(1)
        heard = await client.leader_change()
        assert heard is not None and first is not None and heard.term > first.term


async def test_who_only_reads_the_leader_hears_of_the_next_one_too(tmp_path: Path) -> None:
    """Telemetry calls nothing either: where a session was lost, the leader's own agent judged nothing any more, and
    every alert was gone until somebody asked that agent for something."""
    async with voters(tmp_path, 1) as mesh:
        mesh.start_all()
        client = mesh.client(1)
        await eventually("the first leader", lambda: client.leader is not None)
        first = client.leader
        mesh.kill(1)
        await eventually("the loss of the voter", lambda: client.leader is None)
        mesh.start(1)
        await eventually("the next leader", lambda: client.leader is not None)
        heard = client.leader
        assert heard is not None and first is not None and heard.term > first.term


async def test_the_look_whether_a_frozen_voter_is_back_disturbs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen voter can be dialled and never answers: its host's agent went over to it every five seconds, was without
    a leader until the hello had timed out, and came back."""
    monkeypatch.setattr("mesh.client.PREFER_EVERY_S", 0.1)
    monkeypatch.setattr("mesh.client.HELLO_S", 0.3)
    looks = 0
    call = SessionClient.call

    async def counted(session: SessionClient, op: str, *more: Any) -> Any:
        nonlocal looks
        looks += op == "hello"
        return await call(session, op, *more)

    async with voters(tmp_path, 3) as mesh:
        mesh.start_all()
        leader = await mesh.leader()
        frozen = leader % 3 + 1
        client = mesh.client(frozen, leader)
        await client.connect()
        mesh.processes[frozen].send_signal(signal.SIGSTOP)
        # The first answer that the frozen voter owes sends the client to the next one.
        await client.query(READS, timeout_s=30.0)
        await eventually("the leader", lambda: client.leader is not None)
        first = client.leader
        heard: list[Leader | None] = []
        listener = asyncio.create_task(changes(client, heard))
        monkeypatch.setattr(SessionClient, "call", counted)
        while looks < 5:
            await client.query(READS)
        # Another election may be; the same leader must not be lost and heard of again.
        assert first is not None and first.term not in [told.term for told in heard if told is not None]
        mesh.processes[frozen].send_signal(signal.SIGCONT)

        async def returned() -> bool:
            await client.query(READS)  # a client looks only while it is used
            return bool(client.hello.get("raft_id") == frozen)

        await eventually("the client back at the voter that it prefers", returned)
        listener.cancel()


async def changes(client: VoterClient, heard: list[Leader | None]) -> None:
    while True:
        heard.append(await client.leader_change())
