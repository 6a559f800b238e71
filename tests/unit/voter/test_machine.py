"""The state machine's shell: results are told in the order of the log, whichever thread applied them."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from mesh.core.raft.entry import Entry, EntryKind
from mesh.core.state.outcome import Outcome, done
from mesh.core.state.store import StateStore
from mesh.store.errors import DiskFull
from mesh.store.state_db import AppliedBatch, open_state
from mesh.store.worker import Worker
from mesh.voter import machine as module
from mesh.voter.machine import Machine
from tests.waiting import eventually


def count(store: StateStore, idx: int, command: dict[str, Any]) -> Outcome:
    store.put("e", command["key"], {"idx": idx})
    return done(idx=idx)


def entry(index: int, size: int = 10) -> Entry:
    return Entry(index, 1, EntryKind.NORMAL, msgpack.packb({"key": f"k{index % 5}", "pad": b"x" * size}))


class Bench:
    def __init__(self, path: Path) -> None:
        loop = asyncio.get_running_loop()
        self.worker = Worker("state", loop)
        self.state = self.worker.ask(lambda: open_state(path, "c", count, 1 << 40, lambda index: 1))
        self.batches: list[AppliedBatch] = []
        self.full: list[bool] = []
        self.fatal: list[BaseException] = []
        self.machine = Machine(loop, self.worker, self.state, self.batches.append, self.full.append, self.fatal.append)

    @property
    def told(self) -> list[int]:
        return [index for batch in self.batches for index, _, _ in batch.outcomes]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path / "state.db")
    yield made
    made.worker.ask(made.state.close)
    made.worker.stop()


@pytest.mark.parametrize("seed", range(5))
async def test_results_come_in_the_order_of_the_log(bench: Bench, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lone small commands, big ones, batches and upkeep in between: applied here and there, told in order."""
    monkeypatch.setattr(module, "CHORES_BYTES", 4096)
    rng = random.Random(seed)
    index = 0
    while index < 400:
        some = [entry(index + 1 + i, rng.choice((10, 10, 20_000))) for i in range(rng.choice((1, 1, 1, 2, 30)))]
        index += len(some)
        bench.machine.feed(some)
        assert bench.told == list(range(1, len(bench.told) + 1))
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
    assert await bench.machine.reached(index, 10)
    await eventually(lambda: f"{index} told, not {bench.told}", lambda: len(bench.told) == index)
    assert bench.told == list(range(1, index + 1))
    assert [f.index for b in bench.batches for f in b.frames] == bench.told
    assert bench.fatal == []


async def test_waiting_for_an_index_ends_when_it_is_applied_or_in_time(bench: Bench) -> None:
    assert await bench.machine.reached(0)
    assert await bench.machine.reached(3, 0.02) is False
    waits = [asyncio.create_task(bench.machine.reached(i, 5)) for i in (3, 1, 2)]
    await asyncio.sleep(0)
    bench.machine.feed([entry(1), entry(2), entry(3)])
    assert await asyncio.gather(*waits) == [True, True, True]


async def test_a_full_disk_stops_the_machine_until_there_is_space(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.02)
    real, broken = bench.state.apply, [True]

    def apply(entries: Any) -> AppliedBatch:
        if broken:
            raise DiskFull("no space")
        return real(entries)

    monkeypatch.setattr(bench.state, "apply", apply)
    bench.machine.feed([entry(1)])
    bench.machine.feed([entry(2)])
    await eventually(lambda: f"the full disk to be told once, not {bench.full}", lambda: bench.full == [True])
    assert bench.told == []
    broken.clear()
    assert await bench.machine.reached(2, 5)
    assert (bench.full, bench.told, bench.fatal) == ([True, False], [1, 2], [])


async def test_an_error_of_the_disk_is_fatal(bench: Bench) -> None:
    bench.machine.feed([entry(5)])
    assert len(bench.fatal) == 1
    assert bench.told == []
