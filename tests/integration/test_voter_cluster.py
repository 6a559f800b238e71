"""Three voters: nothing acknowledged is lost, nothing is done twice, nobody sees time go back."""

import asyncio
import itertools
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from schemas.commands import command
from schemas.errors import HeteroFlowError
from schemas.limits import ENTRY_MAX
from tests.integration.voters import Voters, grows, init, register, requests, voters
from tests.waiting import WITHIN_S, eventually

pytestmark = pytest.mark.slow


async def started(mesh: Voters) -> int:
    """The leader of a mesh that has taken its first command."""
    mesh.start_all()
    await mesh.client().propose({**init(mesh.roster), "request": next(requests("init"))}, timeout_s=30)
    return await mesh.leader()


def others(mesh: Voters, n: int) -> list[int]:
    return [m for m in mesh.ids if m != n]


async def same_state(mesh: Voters, timeout_s: float = 15.0) -> dict[str, Any]:
    """Wait until all voters have applied the same index, and compare their hashes there."""

    async def agreed() -> dict[str, Any] | None:
        statuses = [await mesh.client(n).status() for n in mesh.ids]
        if len({s["applied"] for s in statuses}) > 1:
            return None
        assert len({s["state_hash"] for s in statuses}) == 1
        assert not any(s["alarm"] for s in statuses)
        return dict(statuses[0])

    answer: dict[str, Any] = await eventually("equal states", agreed, timeout_s)
    return answer


async def test_any_voter_takes_commands_and_answers_reads(tmp_path: Path) -> None:
    async with voters(tmp_path, 3) as mesh:
        await started(mesh)
        clients = {n: mesh.client(n, sockets=n % 2 == 0) for n in mesh.ids}
        for n, client in clients.items():
            answer = await client.propose(register(f"node-{n}", f"u{n}"))
            assert answer["ok"]
            for reader in clients.values():
                read = await reader.query([{"get": ["node", f"node-{n}"]}])
                assert read["results"][0]["uid"] == f"u{n}"
        for client in clients.values():
            answer = await client.renew({"node": "node-1", "uid": "u1", "sent_ns": 7})
            assert (answer["granted"], answer["sent_ns"]) == (True, 7)
        await same_state(mesh)


async def test_a_killed_leader_loses_no_command_and_doubles_none(tmp_path: Path) -> None:
    """Writers with retries through all voters while leaders are killed; readers check that no read is stale."""
    async with voters(tmp_path, 3) as mesh:
        await started(mesh)
        acknowledged: dict[str, int] = {}
        newest = 0
        reads = 0
        done = asyncio.Event()

        async def writer(w: int) -> None:
            nonlocal newest
            client = mesh.client(w % 3 + 1, *others(mesh, w % 3 + 1))
            ids = requests(f"writer-{w}")
            for n in itertools.count():
                if done.is_set():
                    return
                name = f"w{w}-{n}"
                answer = await client.propose({**register(name, f"u-{name}"), "request": next(ids)}, timeout_s=40)
                assert answer["ok"], answer
                acknowledged[name] = answer["idx"]
                newest = max(newest, answer["idx"])

        async def reader(r: int) -> None:
            nonlocal reads
            client = mesh.client(r % 3 + 1, *others(mesh, r % 3 + 1))
            while not done.is_set():
                before, name = newest, max(acknowledged, key=acknowledged.__getitem__, default="")
                read = await client.query([{"get": ["node", name or "none"]}], timeout_s=40)
                assert read["idx"] >= before
                assert not name or read["results"][0] is not None
                reads += 1

        tasks = [asyncio.create_task(writer(w)) for w in range(6)] + [asyncio.create_task(reader(r)) for r in range(3)]
        for _ in range(3):
            await grows(lambda: len(acknowledged), 60, 30, "progress")
            leader = await mesh.leader()
            mesh.kill(leader)
            await grows(lambda: len(acknowledged), 20, 20, "progress without it")
            mesh.start(leader)
        done.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 45)
        assert reads > 50
        await same_state(mesh)
        for n in mesh.ids:
            found = (await mesh.client(n).query([{"scan": ["node"]}, {"scan": ["request", "writer-"]}]))["results"]
            assert {key for key, _ in found[0]} == set(acknowledged)
            assert len(found[1]) == len(acknowledged)
        # The index of an answer is the one it was first applied at, whoever answered.
        assert len(set(acknowledged.values())) == len(acknowledged)


async def test_the_first_write_after_a_killed_leader_waits_for_the_next_one_and_for_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the new leader's own first entry, or one of each where an election was won in vain. Every try is answered:
    one that was not would be waited out."""
    monkeypatch.setattr("mesh.client.ATTEMPT_S", 10 * WITHIN_S)
    async with voters(tmp_path, 3) as mesh:
        await started(mesh)
        ids = requests("c")
        for _ in range(3):
            # All three: two voters and one that has yet to start are no majority once the leader is gone.
            before = await same_state(mesh, WITHIN_S)
            leader = await mesh.leader(WITHIN_S)
            client = mesh.client(*others(mesh, leader))
            await client.connect()
            mesh.kill(leader)
            answer = await client.propose({**command("Noop", payload=b""), "request": next(ids)}, timeout_s=WITHIN_S)
            assert answer["ok"]
            terms = (await client.status())["term"] - before["term"]
            assert before["applied"] + 2 <= answer["idx"] <= before["applied"] + 1 + terms
            mesh.start(leader)


async def test_a_watch_goes_on_at_another_voter_without_gap_or_step_back(tmp_path: Path) -> None:
    async with voters(tmp_path, 3) as mesh:
        leader = await started(mesh)
        rest = others(mesh, leader)
        watcher = mesh.client(leader, *rest)
        writer = mesh.client(rest[0], rest[1])
        seen: list[tuple[int, list[str]]] = []
        watched = asyncio.Event()

        async def watch() -> None:
            async for frame in watcher.subscribe({"all": True}):
                assert "compacted" not in frame
                # What is written before its snapshot comes in that, and not as a change.
                watched.set()
                if frame.get("changes"):
                    seen.append((frame["idx"], [key for _, key, _ in frame["changes"]]))

        task = asyncio.create_task(watch())
        async with asyncio.timeout(20):
            await watched.wait()
        ids = requests()
        written = []
        for n in range(60):
            if n == 30:
                mesh.kill(leader)
            answer = await writer.propose({**register(f"n{n}", f"u{n}"), "request": next(ids)}, timeout_s=30)
            written.append((answer["idx"], [f"n{n}"]))
        await eventually("the watch to arrive", lambda: seen and seen[-1][0] >= written[-1][0])
        task.cancel()
        assert [item for item in seen if item[1][0].startswith("n")] == written


async def test_a_voter_behind_the_token_does_not_serve_the_past(tmp_path: Path) -> None:
    async with voters(tmp_path, 3) as mesh:
        leader = await started(mesh)
        behind = others(mesh, leader)[0]
        own = mesh.client(behind)
        await own.connect()
        index = (await own.status())["applied"]
        session = await own._main.get()
        stream = session.stream("subscribe", {"filter": {"all": True}, "token": f"cluster-t.1.{index + 1000}"})
        with pytest.raises(HeteroFlowError) as refusal:
            await asyncio.wait_for(stream.next(), 5)
        assert refusal.value.code == "lagging"


async def test_a_hung_follower_neither_blocks_nor_unseats_the_leader(tmp_path: Path) -> None:
    async with voters(tmp_path, 3) as mesh:
        leader = await started(mesh)
        term = (await mesh.client(leader).status())["term"]
        hung = others(mesh, leader)[0]
        mesh.processes[hung].send_signal(signal.SIGSTOP)
        client = mesh.client(leader)
        took = []
        until = time.monotonic() + 4
        while time.monotonic() < until:
            begun = time.monotonic()
            await client.propose(command("Noop", payload=b"x" * 20_000), timeout_s=10)
            took.append(time.monotonic() - begun)
        took.sort()
        assert took[int(len(took) * 0.98)] < 1.0, "commits must stay below the election timeout"
        mesh.processes[hung].send_signal(signal.SIGCONT)
        status = await client.status()
        assert (status["role"], status["term"]) == ("leader", term)
        await same_state(mesh)
        assert (await client.status())["term"] == term


@pytest.mark.attack(46)
async def test_a_stalled_leader_is_replaced_and_its_late_acknowledgements_are_true(tmp_path: Path) -> None:
    async with voters(tmp_path, 3) as mesh:
        leader = await started(mesh)
        rest = others(mesh, leader)
        old, new = mesh.client(leader), mesh.client(*rest)
        await old.connect()
        mesh.processes[leader].send_signal(signal.SIGSTOP)
        late = asyncio.create_task(
            old.propose(
                {**register("late", "u"), "request": {"client": "c", "id": "late", "digest": "d"}}, timeout_s=40
            )
        )
        ids = requests()
        answer = await new.propose({**register("while", "u2"), "request": next(ids)}, timeout_s=30)
        assert answer["ok"]
        mesh.processes[leader].send_signal(signal.SIGCONT)
        assert (await late)["ok"]
        read = await old.query([{"get": ["node", "while"]}, {"get": ["node", "late"]}], timeout_s=20)
        assert all(row is not None for row in read["results"])
        await same_state(mesh)


async def test_commands_of_any_size_pass_or_are_refused_at_every_voter(tmp_path: Path) -> None:
    async with voters(tmp_path, 3) as mesh:
        await started(mesh)
        for n in mesh.ids:
            client = mesh.client(n)
            sizes = (0, 1, 100_000, ENTRY_MAX - 200) * 12
            answers = await asyncio.gather(
                *[client.propose(command("Noop", payload=b"x" * size), timeout_s=30) for size in sizes]
            )
            assert all(a["ok"] for a in answers)
            for size in (ENTRY_MAX + 1, 1_500_000):
                with pytest.raises(HeteroFlowError) as refusal:
                    await client.propose(command("Noop", payload=b"x" * size), timeout_s=10)
                assert refusal.value.code == "invalid_command"
        status = await same_state(mesh)
        assert status["malformed_frames"] == 0


async def test_a_voter_that_was_away_catches_up_from_the_log_on_disk(tmp_path: Path) -> None:
    """More than the leader keeps in memory: the rest comes from log.db."""
    async with voters(tmp_path, 3) as mesh:
        leader = await started(mesh)
        away = others(mesh, leader)[0]
        mesh.kill(away)
        client = mesh.client(leader)
        for _ in range(6):
            await asyncio.gather(
                *[client.propose(command("Noop", payload=b"x" * 2_000), timeout_s=30) for _ in range(1000)]
            )
        mesh.start(away)
        status = await same_state(mesh, 30)
        assert status["applied"] > 6000


@pytest.mark.attack(46)
async def test_without_a_majority_writes_and_fresh_reads_fail_and_stale_reads_tell_their_age(tmp_path: Path) -> None:
    async with voters(tmp_path, 3) as mesh:
        leader = await started(mesh)
        for n in others(mesh, leader):
            mesh.kill(n)
        client = mesh.client(leader)
        with pytest.raises(HeteroFlowError) as write:
            await client.propose(command("Noop", payload=b"x"), timeout_s=4)
        assert write.value.code in ("no_leader", "timeout_unknown")
        with pytest.raises(HeteroFlowError) as read:
            await client.query([{"get": ["meta", "cluster"]}], timeout_s=3)
        assert read.value.code == "no_leader"
        stale = await client.query([{"get": ["meta", "cluster"]}], level="stale")
        assert stale["results"][0]["cluster_id"] == "cluster-t"
        assert stale["age_ms"] >= 1000
        for n in others(mesh, leader):
            mesh.start(n)
        assert (await client.propose(command("Noop", payload=b"x"), timeout_s=20))["ok"]


async def test_a_silent_node_is_declared_lost_and_others_are_not(tmp_path: Path) -> None:
    async with voters(tmp_path, 3) as mesh:
        await started(mesh)
        client = mesh.client()
        for node in ("alive", "silent"):
            await client.propose(register(node, f"u-{node}"))

        async def renew() -> None:
            other = mesh.client(2, 3, 1)
            while True:
                await other.renew({"node": "alive", "uid": "u-alive", "sent_ns": time.monotonic_ns()})
                await asyncio.sleep(0.5)

        task = asyncio.create_task(renew())
        begun = time.monotonic()

        async def lost() -> bool:
            rows = (await client.query([{"get": ["node", "silent"]}, {"get": ["node", "alive"]}]))["results"]
            assert rows[1]["state"] == "ready"
            return bool(rows[0]["state"] == "lost")

        await eventually("the silent node to be lost", lost)
        assert time.monotonic() - begun >= 14.5
        assert (await client.renew({"node": "silent", "uid": "u-silent", "sent_ns": 1}))["reason"] == "lost"
        task.cancel()
