"""Subscriptions on a real state database without a process: no gap, no step back, a clear end where it must end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from mesh.store import state_db
from mesh.store.feed import FeedFilter, Token
from mesh.store.state_db import AppliedBatch
from mesh.store.state_reader import open_reader
from mesh.store.worker import Worker
from mesh.transport.codec import unpack
from mesh.voter import feeds as module
from mesh.voter.feeds import FeedHub, Subscription, SubscriptionEnded
from tests.unit.voter.test_machine import Bench, entry
from tests.waiting import eventually


class SlowCarrier:
    """Keeps what it is sent; while `stuck`, nobody reads on the other side."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self.flows = asyncio.Event()
        self.flows.set()

    def send(self, payload: bytes) -> None:
        number, kind, frame = unpack(payload)
        assert (number, kind) == (4, "item")
        self.frames.append(frame)

    async def drained(self) -> None:
        await self.flows.wait()

    @property
    def changes(self) -> list[int]:
        return [f["idx"] for f in self.frames if f.get("changes")]


class FeedBench(Bench):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.readers = Worker("reader", asyncio.get_running_loop())
        self.reader = self.readers.ask(lambda: open_reader(path))
        self.hub = FeedHub("c", 1, self.machine, self.readers, path, self.reader)
        self.machine._on_batch = self.publish
        self.fed = 0

    def publish(self, batch: AppliedBatch) -> None:
        self.hub.publish(batch.frames)

    def feed(self, count: int, size: int = 10) -> None:
        self.machine.feed([entry(self.fed + 1 + i, size) for i in range(count)])
        self.fed += count

    def subscribe(self, carrier: SlowCarrier, token: Token | None = None) -> asyncio.Task[None]:
        subscription = Subscription(self.hub, carrier, 4, FeedFilter("all"))  # type: ignore[arg-type]  # a carrier that blocks
        return asyncio.create_task(subscription.run(token))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[FeedBench]:
    made = FeedBench(tmp_path / "state.db")
    yield made
    for worker, close in ((made.readers, made.reader.close), (made.worker, made.state.close)):
        worker.ask(close)
        worker.stop()


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("start", [None, 0, 7, 25])
async def test_nothing_is_missed_while_the_state_moves_on(bench: FeedBench, start: int | None) -> None:
    bench.feed(30)
    assert await bench.machine.reached(30, 5)
    carrier = SlowCarrier()
    task = bench.subscribe(carrier, Token("c", 1, start) if start is not None else None)
    for _ in range(100):
        bench.feed(1)
        await asyncio.sleep(0.001)
    await eventually(
        lambda: f"130 last among {carrier.changes}", lambda: carrier.changes and carrier.changes[-1] == 130
    )
    first = int(carrier.frames[0]["token"].rsplit(".")[-1]) + 1 if start is None else start + 1
    assert carrier.changes == list(range(first, 131))
    await ended(task)
    assert bench.hub.live == set()


async def test_a_token_beyond_the_state_is_not_served(bench: FeedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAG_WAIT_S", 0.05)
    bench.feed(3)
    with pytest.raises(SubscriptionEnded) as end:
        await bench.subscribe(SlowCarrier(), Token("c", 1, 99))
    assert end.value.problem.code == "lagging"


async def test_a_voter_that_catches_up_in_time_serves_the_token(bench: FeedBench) -> None:
    carrier = SlowCarrier()
    task = bench.subscribe(carrier, Token("c", 1, 5))
    await asyncio.sleep(0)
    bench.feed(8)
    await eventually(lambda: f"6 to 8, not {carrier.changes}", lambda: carrier.changes == [6, 7, 8])
    await ended(task)


async def test_a_dropped_part_of_the_feed_means_a_new_snapshot(
    bench: FeedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_db, "FEED_INDEXES_KEPT", 20)
    monkeypatch.setattr(state_db, "PRUNE_SLACK", 1)
    bench.feed(100)
    assert await bench.machine.reached(100, 5)
    bench.worker.ask(bench.state.tidy)
    carrier = SlowCarrier()
    task = bench.subscribe(carrier, Token("c", 1, 50))
    await eventually("a frame", lambda: carrier.frames)
    assert carrier.frames[0]["compacted"] is True
    assert {row["idx"] for _, _, row in carrier.frames[0]["snapshot"]} == set(range(96, 101))
    bench.feed(1)
    await eventually(lambda: f"101, not {carrier.changes}", lambda: carrier.changes == [101])
    await ended(task)
    kept = SlowCarrier()
    task = bench.subscribe(kept, Token("c", 1, 80))
    await eventually(lambda: f"81 to 101, not {kept.changes}", lambda: kept.changes == list(range(81, 102)))
    await ended(task)


async def test_who_does_not_read_is_cut_and_the_others_are_not(
    bench: FeedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIVE_FRAMES_MAX", 10)
    slow, quick = SlowCarrier(), SlowCarrier()
    tasks = [bench.subscribe(carrier, Token("c", 1, 0)) for carrier in (slow, quick)]
    await eventually(lambda: f"two live subscriptions, not {len(bench.hub.live)}", lambda: len(bench.hub.live) == 2)
    slow.flows.clear()
    for _ in range(30):
        bench.feed(1)
        await asyncio.sleep(0.001)
    await eventually(lambda: f"1 to 30, not {quick.changes}", lambda: quick.changes == list(range(1, 31)))
    slow.flows.set()
    with pytest.raises(SubscriptionEnded) as end:
        await tasks[0]
    assert end.value.problem.code == "slow_consumer"
    last = slow.changes[-1]
    assert slow.changes == list(range(1, last + 1))
    again = SlowCarrier()
    task = bench.subscribe(again, Token("c", 1, last))
    await eventually(
        lambda: f"{last + 1} to 30, not {again.changes}", lambda: again.changes == list(range(last + 1, 31))
    )
    await ended(task)
    await ended(tasks[1])


async def test_the_token_moves_on_while_nothing_is_for_the_subscriber(
    bench: FeedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROGRESS_S", 0.02)
    carrier = SlowCarrier()
    subscription = Subscription(bench.hub, carrier, 4, FeedFilter("node", "nobody"))  # type: ignore[arg-type]  # a carrier that blocks
    task = asyncio.create_task(subscription.run(Token("c", 1, 0)))
    bench.feed(40)
    await eventually(
        lambda: f"the token c.1.40 last in {carrier.frames}",
        lambda: carrier.frames and carrier.frames[-1]["token"] == "c.1.40",
    )
    assert all(frame["changes"] == [] for frame in carrier.frames)
    await ended(task)


async def test_a_frame_may_be_as_large_as_what_one_index_changes() -> None:
    big = msgpack.packb([4, "item", {"changes": [["e", "k", {"pad": b"x" * 3_000_000}]]}])
    assert len(unpack(big)[2]["changes"][0][2]["pad"]) == 3_000_000
