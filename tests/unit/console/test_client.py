"""The client moves on when a node dies, does every write once, and says plainly when nobody answers."""

import asyncio
import time

import aiohttp
import pytest

from console import client as client_module
from console.client import MeshClient, NoNodeAnswers, Refused, server_now_ms
from console.endpoints import Target
from console.log_stream import LogStream
from console.watch_stream import WatchStream
from tests.free_port import free_port
from tests.unit.console.fault_mesh import GROUP, TOKEN, nodes, target
from tests.waiting import WITHIN_S, eventually

BODY = b'{"name":"g"}'


def closed_address() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def short_tries(monkeypatch):
    """Where a node is silent for ever. Elsewhere a busy machine's node would be taken for one."""
    monkeypatch.setattr(client_module, "TRY_S", 0.5)


class TestWrites:
    async def test_a_lost_answer_is_asked_for_again_elsewhere_and_made_once(self):
        async with nodes(3) as (first, second, third):
            first.fault = "lose_answer"
            async with MeshClient(target(first)) as client:
                answer = await client.write("/api/v1/task-groups", "rq-1", BODY)
            assert first.state.writes == 1
            assert answer.value["group_id"] in first.state.groups
            assert answer.node in (second.address, third.address)

    @pytest.mark.parametrize("fault", ["503", "hang"])
    async def test_a_node_that_cannot_serve_is_passed_over(self, fault, short_tries):
        async with nodes(2) as (first, second):
            first.fault = fault
            async with MeshClient(target(first, second)) as client:
                answer = await client.write("/api/v1/task-groups", "rq-1", BODY)
            assert answer.node == second.address
            assert first.state.writes == 1

    async def test_a_mesh_without_leader_is_waited_for(self):
        async with nodes(2) as (first, second):
            first.fault = second.fault = "503"

            async def elect() -> None:
                await eventually("six requests", lambda: first.asked + second.asked >= 6)
                second.fault = None

            async with MeshClient(target(first, second)) as client:
                electing = asyncio.create_task(elect())
                answer = await client.write("/api/v1/task-groups", "rq-1", BODY)
                await electing
            assert answer.node == second.address

    async def test_when_every_answer_is_lost_it_says_that_it_may_have_been_done(self):
        async with nodes(1) as (only,):
            only.fault = "lose_answer"
            async with MeshClient(target(only), deadline_s=1.0) as client:
                with pytest.raises(NoNodeAnswers) as given_up:
                    await client.write("/api/v1/task-groups", "rq-1", BODY)
            assert given_up.value.maybe_done
            assert only.state.writes == 1

    async def test_200_submits_over_failing_nodes_exist_once_each(self, monkeypatch):
        """All in one process, which may take longer for them than a node may for one: no try ends by its time."""
        monkeypatch.setattr(client_module, "TRY_S", 2 * WITHIN_S)
        async with nodes(3) as some:
            some[0].fault = "lose_answer"
            some[1].fault = "503"
            async with MeshClient(target(*some), deadline_s=2 * WITHIN_S) as client:
                answers = await asyncio.gather(
                    *(client.write("/api/v1/task-groups", f"rq-{at}", BODY) for at in range(200))
                )
            assert len({answer.value["group_id"] for answer in answers}) == 200 == some[0].state.writes

    async def test_a_node_that_failed_is_asked_last_from_then_on(self):
        async with nodes(2) as (first, second):
            first.fault = "503"
            async with MeshClient(target(first, second)) as client:
                for _ in range(3):
                    await client.read("/api/v1/task-groups")
            assert first.asked == 1


class TestClock:
    def test_now_is_what_the_server_says_whatever_this_host_believes(self, monkeypatch):
        monkeypatch.setenv("TZ", "Asia/Kolkata")
        assert server_now_ms({"Date": "Sun, 29 Nov 2026 17:00:00 GMT"}) == 1_795_971_600_000

    @pytest.mark.parametrize("headers", [{}, {"Date": "yesterday"}, {"Date": ""}])
    def test_without_a_date_this_host_is_asked(self, headers):
        assert abs(server_now_ms(headers) - time.time() * 1000) < 5_000


class TestNobody:
    async def test_nobody_listening_is_said_soon_with_every_address(self):
        """Long before the deadline, which is beyond that of this test."""
        addresses = (closed_address(), closed_address())
        async with MeshClient(Target(addresses, TOKEN), deadline_s=3600.0) as client:
            with pytest.raises(NoNodeAnswers) as given_up:
                await client.read("/api/v1/task-groups")
        assert given_up.value.tried == dict.fromkeys(addresses, "connection refused")
        assert not given_up.value.maybe_done

    async def test_a_name_that_does_not_resolve_is_said_as_such(self):
        async with MeshClient(Target(("no-such-host.invalid:7460",), TOKEN)) as client:
            with pytest.raises(NoNodeAnswers) as given_up:
                await client.read("/api/v1/task-groups")
        assert "resolve" in given_up.value.tried["no-such-host.invalid:7460"]

    async def test_a_frozen_mesh_is_given_up_at_the_deadline(self):
        async with nodes(1) as (only,):
            only.fault = "hang"  # for longer than this test may take
            async with MeshClient(target(only), deadline_s=1.0) as client:
                with pytest.raises(NoNodeAnswers, match="no node answers"):
                    await client.read("/api/v1/task-groups")

    async def test_a_last_try_that_the_deadline_cut_short_hides_nothing(self):
        async with nodes(1) as (only,):
            only.fault = "503"
            async with MeshClient(target(only), deadline_s=4.0) as client:
                asking = asyncio.create_task(client.read("/api/v1/task-groups"))
                await eventually("two answers", lambda: only.asked > 1)
                only.fault = "hang"
                with pytest.raises(NoNodeAnswers) as given_up:
                    await asking
            assert given_up.value.tried == {only.address: "no leader is known"}

    async def test_something_else_listening_there_is_not_taken_for_an_agent(self):
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with MeshClient(Target((address,), TOKEN), deadline_s=4.0) as client:
                with pytest.raises(NoNodeAnswers) as given_up:
                    await client.read("/api/v1/task-groups")
        assert "HTTP" in given_up.value.tried[address]

    async def test_a_bad_token_is_refused_and_not_retried(self):
        async with nodes(2) as (first, second):
            async with MeshClient(Target((first.address, second.address), "wrong")) as client:
                with pytest.raises(Refused) as refused:
                    await client.read("/api/v1/task-groups")
            assert refused.value.problem.status == 401
            assert (first.asked, second.asked) == (1, 0)


class TestLogs:
    async def read_all(self, stream):
        return [item async for item in stream.items()]

    async def test_a_follow_goes_on_at_other_nodes_without_gap_or_repeat(self):
        async with nodes(3) as some:
            first, second, third = some
            first.cut_after, second.cut_after = 7, 11
            first.state.add_lines(5, rank=0)
            first.state.add_lines(5, rank=1)
            async with MeshClient(target(first)) as client:
                reading = asyncio.create_task(self.read_all(LogStream(client, GROUP, None, None, None, True)))
                async with asyncio.timeout(20):
                    await eventually("the second node to be asked", lambda: second.asked)
                    first.state.add_lines(20, rank=1)
                    await eventually("the third node to be asked", lambda: third.asked)
                    await first.stop()
                    first.state.add_lines(5, rank=0)
                    first.state.ended = True
                    first.state.touch()
                    items = await reading
        lines = [item for item in items if "text" in item]
        for rank, count in ((0, 10), (1, 25)):
            assert [line["offset"] for line in lines if line["rank"] == rank] == [10 * at for at in range(1, count + 1)]
        assert [item["moved"] for item in items if "moved" in item]
        assert items[-1] == {"end": True, "status": "completed"}

    async def test_a_plain_read_survives_a_cut_too(self):
        async with nodes(2) as (first, second):
            first.state.add_lines(30)
            first.cut_after = 12
            async with MeshClient(target(first, second)) as client:
                items = await self.read_all(LogStream(client, GROUP, None, None, None, False))
        assert [item["offset"] for item in items if "text" in item] == [10 * at for at in range(1, 31)]

    async def test_a_node_that_repeats_is_not_believed(self):
        async with nodes(2) as (first, second):
            first.state.add_lines(10)
            first.cut_after, second.repeats = 4, True
            async with MeshClient(target(first, second)) as client:
                items = await self.read_all(LogStream(client, GROUP, None, None, None, False))
        assert [item["offset"] for item in items if "text" in item] == [10 * at for at in range(1, 11)]

    async def test_a_tail_is_asked_for_once(self):
        async with nodes(2) as (first, second):
            first.state.add_lines(10)
            first.cut_after = 4
            async with MeshClient(target(first, second)) as client:
                await self.read_all(LogStream(client, GROUP, 0, 1, 50, False))
        assert [query.get("tail") for query in (first.queries[-1], second.queries[-1])] == ["50", None]
        assert second.queries[-1]["resume"] == "1.0:40"
        assert second.queries[-1]["rank"] == "0"

    async def test_a_follow_outlives_a_moment_in_which_no_node_listens(self):
        async with nodes(1) as (only,):
            only.state.add_lines(3)
            only.cut_after = 2
            async with MeshClient(target(only)) as client:
                reading = asyncio.create_task(self.read_all(LogStream(client, GROUP, None, None, None, True)))
                await eventually(
                    lambda: f"the logs last among {only.paths}",
                    lambda: only.queries and only.paths[-1].endswith("/logs"),
                )
                await only.stop()
                # Longer than a first call would look for somebody who listens.
                await asyncio.sleep(1.0)
                only.cut_after, only.state.ended = None, True
                await only.start()
                async with asyncio.timeout(20):
                    items = await reading
        assert [item["offset"] for item in items if "text" in item] == [10, 20, 30]

    async def test_nobody_left_is_said(self):
        async with nodes(1) as (only,):
            only.state.add_lines(3)
            only.cut_after = 2
            async with MeshClient(target(only), deadline_s=2.0) as client:
                stream = LogStream(client, GROUP, None, None, None, True)
                seen = []
                with pytest.raises(NoNodeAnswers):
                    async for item in stream.items():
                        seen.append(item["offset"])
                        if len(seen) == 2:
                            await only.stop()
        assert seen == [10, 20]


class TestWatch:
    async def test_a_watch_goes_on_at_other_nodes_and_never_goes_back(self):
        async with nodes(3) as some:
            first, second, third = some
            first.cut_after, second.cut_after = 3, 4
            seen: list[int] = []
            snapshots = 0
            async with MeshClient(target(first)) as client:

                async def read() -> None:
                    nonlocal snapshots
                    async for frame in WatchStream(client, GROUP).frames():
                        if "snapshot" in frame:
                            snapshots += 1
                        else:
                            seen.append(frame["idx"])
                        if len(seen) == 20:
                            return

                reading = asyncio.create_task(read())
                async with asyncio.timeout(20):
                    await eventually("a snapshot", lambda: snapshots)
                    for _ in range(20):
                        first.state.add_frame("running")
                    await reading
            assert seen == list(range(1, 21))
            assert snapshots == 1
            assert third.asked

    async def test_a_token_of_an_earlier_watch_begins_after_it(self):
        async with nodes(1) as (only,):
            for _ in range(5):
                only.state.add_frame("running")
            async with MeshClient(target(only)) as client:
                async for frame in WatchStream(client, GROUP, token="c.1.3").frames():
                    assert frame["idx"] == 4
                    break

    async def test_a_ping_that_cannot_be_answered_any_more_is_no_defect(self, monkeypatch):
        receive, calls = aiohttp.ClientWebSocketResponse.receive, 0

        async def torn(connection, timeout=None):
            nonlocal calls
            calls += 1
            if calls == 3:
                connection._conn.transport.abort()
                raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
            return await receive(connection, timeout)

        monkeypatch.setattr(aiohttp.ClientWebSocketResponse, "receive", torn)
        async with nodes(1) as (only,):
            for _ in range(4):
                only.state.add_frame("running")
            seen: list[int] = []
            async with MeshClient(target(only)) as client, asyncio.timeout(20):
                async for frame in WatchStream(client, GROUP, token="c.1.0").frames():
                    seen.append(frame["idx"])
                    if len(seen) == 4:
                        break
            assert seen == [1, 2, 3, 4] and calls > 4

    async def test_a_node_that_falls_silent_is_left(self, monkeypatch):
        monkeypatch.setattr("console.watch_stream.SILENCE_S", 0.5)
        async with nodes(2) as (first, second):
            first.mute_after = 2
            seen: list[int] = []
            async with MeshClient(target(first)) as client, asyncio.timeout(20):
                async for frame in WatchStream(client, GROUP).frames():
                    if "snapshot" in frame:
                        for _ in range(5):
                            first.state.add_frame("running")
                    else:
                        seen.append(frame["idx"])
                    if len(seen) == 5:
                        break
            assert seen == [1, 2, 3, 4, 5] and second.asked
