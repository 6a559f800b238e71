"""Logs through any node: what a broken connection or a dead agent leaves out is read again, and nothing twice."""

import asyncio
import contextlib
import random

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from agentd.core.frames import ERR, OUT
from agentd.group_logs import GroupLogs
from agentd.http.answer import json_bytes
from agentd.log_service import LogService, Place
from agentd.logs.writer import LogWriter
from agentd.runtime.base import Observed, TaskId
from tests.waiting import eventually

KEY = TaskId("tg-a", 1, 0)
FROM_START = Place()


class Host:
    """The agent that has the files: `cut_after` bytes of an answer break its connection."""

    def __init__(self, directory, session):
        self.directory, self.writer = directory, LogWriter(str(directory), 1 << 20, 8)
        self.service = LogService("far", lambda _: str(directory), lambda _: None, session)
        self.ended(False)
        self.cuts: list[int] = []
        self.requests = 0

    def ended(self, over):
        self.service.look([] if over else [Observed(KEY, 1, "running")])

    def write(self, text, stream=OUT):
        self.writer.append(stream, text.encode(), 1_700_000_000_000_000_000)

    async def serve(self, request):
        self.requests += 1
        response = web.StreamResponse()
        await response.prepare(request)
        tail = request.query.get("tail")
        place = Place(int(request.query["offset"]), int(tail) if tail else None)
        left = self.cuts.pop(0) if self.cuts else None
        async for batch in self.service.local(KEY, place, request.query["follow"] == "true"):
            data = b"".join(json_bytes(item) + b"\n" for item in batch or ({},))
            if left is not None and len(data) >= left:
                await response.write(data[:left])
                request.transport.abort()
                return response
            left = None if left is None else left - len(data)
            await response.write(data)
        return response


@contextlib.asynccontextmanager
async def far_host(directory):
    async with aiohttp.ClientSession() as session:
        host = Host(directory, session)
        app = web.Application()
        app.router.add_get("/mesh/v1/logs/{group}/{attempt}/{rank}", host.serve)
        async with TestServer(app) as server:
            yield host, Reader(f"127.0.0.1:{server.port}", session)


class Reader:
    def __init__(self, address, session):
        self.address = address
        self.service = LogService("near", lambda _: "/nonexistent", lambda _: None, session)

    async def read(self, place=FROM_START, follow=True, gone=lambda: False, address=None):
        async def known(_):
            return self.address

        texts, items = [], []
        self.so_far = texts
        async for batch in self.service.anywhere(KEY, "far", address or known, place, follow, gone, {}):
            texts += [item["text"] for item in batch if "text" in item]
            items += batch
        return texts, items


async def test_no_gap_and_no_repeat_over_broken_connections(tmp_path):
    async with far_host(tmp_path / "log") as (host, reader):
        expected = [f"line {number} {'x' * random.Random(number).randrange(200)}" for number in range(500)]
        host.write("".join(line + "\n" for line in expected[:300]))
        host.cuts = [0, 10, 500, 7000, 300, 4096, 1]
        following = asyncio.create_task(reader.read())
        await eventually(lambda: f"8 requests, not {host.requests}", lambda: host.requests == 8)
        for line in expected[300:]:
            host.write(line + "\n")
        host.ended(True)
        texts, items = await asyncio.wait_for(following, 20)
    assert texts == expected and items[-1]["end"] is True
    offsets = [item["offset"] for item in items if "offset" in item]
    assert offsets == sorted(set(offsets))


async def test_a_tail_is_asked_for_once(tmp_path):
    async with far_host(tmp_path / "log") as (host, reader):
        host.write("".join(f"{number}\n" for number in range(100)))
        host.cuts = [5]
        reader.so_far = []
        following = asyncio.create_task(reader.read(Place(tail=3)))
        await eventually(lambda: f"3 lines, not {reader.so_far}", lambda: len(reader.so_far) == 3)
        assert host.requests == 2
        host.write("new\n")
        host.ended(True)
        texts, _ = await asyncio.wait_for(following, 10)
    assert texts == ["97", "98", "99", "new"]


async def test_long_lines_lines_in_pieces_and_both_streams(tmp_path):
    async with far_host(tmp_path / "log") as (host, reader):
        long = "START" + "x" * 400_000 + "END"
        host.write(long[:1000])
        host.write("to err\n", ERR)
        host.write(long[1000:] + "\n你")
        host.write("好\n")
        host.ended(True)
        texts, items = await reader.read()
    assert sorted(texts) == sorted([long, "to err", "你好"])
    assert {item["stream"] for item in items if item.get("text") == "to err"} == {"err"}


async def test_an_agent_that_is_down_is_waited_for(tmp_path):
    async with far_host(tmp_path / "log") as (host, reader):
        host.write("one\n")
        host.ended(True)
        tries = []

        async def comes_back(_):
            tries.append(1)
            return reader.address if len(tries) > 3 else "127.0.0.1:9"

        texts, _ = await asyncio.wait_for(reader.read(address=comes_back), 15)
    assert texts == ["one"] and len(tries) == 4


async def test_a_host_that_died_with_its_rank_is_given_up_aloud(tmp_path, monkeypatch):
    monkeypatch.setattr("agentd.log_service._GIVE_UP_S", 0.3)
    async with far_host(tmp_path / "log") as (_, reader):

        async def nowhere(_):
            return "127.0.0.1:9"

        texts, items = await asyncio.wait_for(reader.read(gone=lambda: True, address=nowhere), 10)
        assert texts == [] and "far does not answer" in items[-2]["problem"] and items[-1]["incomplete"]
        _, items = await reader.read(follow=False, address=nowhere)
        assert "far does not answer" in items[-2]["problem"]


async def test_not_yet_started_is_not_over(tmp_path):
    """Between the start order and the first process, an empty log must not look like the end of it."""
    statuses = {KEY: "starting"}
    async with aiohttp.ClientSession() as session:
        service = LogService("here", lambda _: str(tmp_path / "log"), statuses.get, session)

        async def collect():
            return [item async for batch in service.local(KEY, Place(), True) for item in batch]

        following = asyncio.create_task(collect())
        for seen in ([], [Observed(KEY, 1, "running")]):
            await asyncio.sleep(0.1)
            service.look(seen)
        writer = LogWriter(str(tmp_path / "log"), 1 << 20, 8)
        writer.append(OUT, b"hello\n", 1)
        assert not following.done()
        service.look([Observed(KEY, 1, "exited")])
        items = await asyncio.wait_for(following, 5)
    assert [item.get("text") for item in items] == ["hello", None] and items[-1] == {"end": True}


@pytest.mark.parametrize("where", ["here", "far"])
async def test_a_host_that_has_not_heard_of_the_rank_yet_is_asked_again(tmp_path, where):
    """The reader learns of an attempt from the group's rows, its host from its own: either may be first. `far` is asked
    through its agent. A log of its own is missing only once the rank is gone."""
    directory = tmp_path / "log"
    statuses = {}
    async with aiohttp.ClientSession() as session:
        service = LogService(where, lambda _: str(directory), statuses.get, session)
        service.look([])

        async def serve(request):
            response = web.StreamResponse()
            await response.prepare(request)
            async for batch in service.local(KEY, Place(int(request.query["offset"])), True):
                await response.write(b"".join(json_bytes(item) + b"\n" for item in batch or ({},)))
            return response

        app = web.Application()
        app.router.add_get("/mesh/v1/logs/{group}/{attempt}/{rank}", serve)
        async with TestServer(app) as server:

            async def address(_):
                return f"127.0.0.1:{server.port}"

            reader = (
                service if where == "here" else LogService("here", lambda _: "/nonexistent", lambda _: None, session)
            )

            async def collect(gone):
                batches = reader.anywhere(KEY, where, address, FROM_START, True, gone, {})
                return [item async for batch in batches for item in batch]

            following = asyncio.create_task(collect(lambda: False))
            await asyncio.sleep(0.5)
            assert not following.done()
            statuses[KEY] = "running"
            LogWriter(str(directory), 1 << 20, 8).append(OUT, b"hello\n", 1)
            service.look([Observed(KEY, 1, "exited")])
            items = await asyncio.wait_for(following, 10)
            assert [item.get("text") for item in items] == ["hello", None]

            directory.rename(tmp_path / "removed")
            service.look([])
            del statuses[KEY]
            assert await asyncio.wait_for(collect(lambda: True), 10) == [{"end": True, "missing": True}]


class Feed:
    """Just enough of a mesh for a group's rows."""

    def __init__(self):
        self.frames = asyncio.Queue()

    def put(self, entity, key, row):
        self.frames.put_nowait({"idx": 1, "changes": [[entity, key, row]], "token": "c.1.1"})

    async def subscribe(self, _, token=None):
        while True:
            yield await self.frames.get()


class Ranks:
    """A log service whose ranks say one line and end when told."""

    def __init__(self):
        self.ends = {}

    async def anywhere(self, key, node, address, place, follow, gone, headers):
        yield [{"offset": 1, "text": f"{key.attempt}.{key.rank} from {place.offset}"}]
        if follow:
            await self.ends.setdefault(key, asyncio.Event()).wait()
        yield [{"end": True}]


def row(attempt, rank, status="running"):
    return {"group_id": "tg-a", "attempt": attempt, "rank": rank, "node": f"n{rank}", "status": status}


def group(status, attempt):
    return {"group_id": "tg-a", "status": status, "attempt": attempt}


def group_logs(feed, ranks, status, tasks, **changed):
    options = {"only_rank": None, "only_attempt": None, "place": Place(), "places": {}, "follow": True, "on_behalf": {}}
    attempt = max((key.attempt for key in tasks), default=0)
    return GroupLogs(feed, ranks, group(status, attempt), tasks, **(options | changed))


async def test_following_a_group_over_its_attempts(tmp_path):
    feed, ranks = Feed(), Ranks()
    tasks = {TaskId("tg-a", 1, rank): row(1, rank) for rank in (0, 1)}
    seen = []

    async def follow():
        async for batch in group_logs(feed, ranks, "running", tasks).batches():
            seen.extend(batch)

    following = asyncio.create_task(follow())
    await eventually(lambda: f"2 lines, not {seen}", lambda: len(seen) == 2)
    # Rank 1's host dies with all it had; the next attempt is shown while the old rank is waited for.
    ranks.ends.setdefault(TaskId("tg-a", 1, 0), asyncio.Event()).set()
    feed.put("group", "tg-a", group("scheduling", 2))
    for rank in (0, 1):
        feed.put("task", f"tg-a/0002/{rank:05d}", row(2, rank, "bound"))
    await eventually(lambda: f"4 lines, not {seen}", lambda: len(seen) == 4)
    for key in list(ranks.ends):
        ranks.ends[key].set()
    feed.put("group", "tg-a", group("completed", 2))
    await asyncio.wait_for(following, 5)
    assert sorted(line["text"] for line in seen[:-1]) == ["1.0 from 0", "1.1 from 0", "2.0 from 0", "2.1 from 0"]
    assert seen[-1] == {"end": True, "status": "completed"}


async def test_a_reader_that_moved_to_another_node_goes_on_where_it_was():
    tasks = {TaskId("tg-a", attempt, rank): row(attempt, rank) for attempt in (1, 2, 3) for rank in (0, 1)}
    places = {(2, 0): 77, (3, 1): 88}
    lines = group_logs(Feed(), Ranks(), "completed", tasks, places=places, follow=False)
    seen = [item async for batch in lines.batches() for item in batch]
    assert sorted(line["text"] for line in seen if "text" in line) == [
        "2.0 from 77", "2.1 from 0", "3.0 from 0", "3.1 from 88"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"only_rank": 1}, ["3.1 from 0"]),
        ({"only_attempt": 1}, ["1.0 from 0", "1.1 from 0"]),
        ({"only_attempt": 2, "only_rank": 0, "place": Place(offset=9)}, ["2.0 from 9"]),
        ({}, ["3.0 from 0", "3.1 from 0"]),
    ],
)
async def test_which_ranks_are_read(options, expected):
    tasks = {TaskId("tg-a", attempt, rank): row(attempt, rank) for attempt in (1, 2, 3) for rank in (0, 1)}
    lines = group_logs(Feed(), Ranks(), "running", tasks, follow=False, **options)
    seen = [item async for batch in lines.batches() for item in batch]
    assert sorted(line["text"] for line in seen if "text" in line) == expected


async def test_a_waiting_group_is_followed_in_silence(monkeypatch):
    monkeypatch.setattr("agentd.group_logs.HEARTBEAT_S", 0.05)
    feed = Feed()
    batches = group_logs(feed, Ranks(), "pending", {}).batches()
    assert [await anext(batches) for _ in range(3)] == [[], [], []]
    feed.put("group", "tg-a", group("stopped", 0))
    async for batch in batches:
        if batch:
            assert batch == [{"end": True, "status": "stopped"}]
