"""What is seen of tasks, and that what hangs or is missing is never taken for rest."""

import os
import threading
import time
from pathlib import Path
from typing import Any

from agentd.core.telemetry_blob import CardNow
from agentd.runtime.base import Observed, TaskId
from agentd.telemetry import task_probe
from agentd.telemetry.task_probe import TaskProbe
from tests.waiting import eventually

KEY = TaskId("tg-1", 1, 0)


class Cards:
    def __init__(self) -> None:
        self.util: float | None = 0.0
        self.gate: threading.Event | None = None
        self.told: dict[str, float | None] = {}

    def sample(self, cpu_percent):
        if self.gate is not None:
            self.gate.wait(30.0)
        self.told = dict(cpu_percent)
        return [CardNow("GPU-1", self.util)]


def task(pid: int | None = None, started_s_ago: float = 50.0) -> Observed:
    started_ms = int((time.time() - started_s_ago) * 1000)
    return Observed(KEY, 1, "running", pid=pid, started_ms=started_ms, gpus=("GPU-1",))


def probe(tmp_path: Path, cards: Any, processes: bool = True) -> TaskProbe:
    return TaskProbe(cards, lambda key: str(tmp_path), processes, 2.0)


async def test_the_log_is_as_old_as_its_newest_file(tmp_path):
    for name, age_s in (("00000000000000000000.log", 500.0), ("00000000000000001000.log", 40.0)):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (time.time() - age_s, time.time() - age_s))
    seen = (await probe(tmp_path, Cards()).look([task()]))[KEY]
    assert 39.0 < seen.log.seconds < 45.0 and seen.log.exact


async def test_a_log_that_was_never_written_is_as_old_as_its_task(tmp_path):
    seen = (await probe(tmp_path, Cards()).look([task(started_s_ago=70.0)]))[KEY]
    assert 69.0 < seen.log.seconds < 75.0


async def test_processes_of_a_runtime_without_real_ones_are_not_looked_for(tmp_path):
    looks = probe(tmp_path, Cards(), processes=False)
    await looks.look([task(os.getpid())])
    seen = (await looks.look([task(os.getpid())]))[KEY]
    assert (seen.cpu_percent, seen.files, seen.processor) == (None, None, None)


async def test_the_use_of_a_task_reaches_the_cards_that_it_holds(tmp_path):
    cards = Cards()
    looks = probe(tmp_path, cards)
    await looks.look([task(os.getpid())])
    assert cards.told == {"GPU-1": None}, "a first look has nothing to compare with"
    seen = (await looks.look([task(os.getpid())]))[KEY]
    assert cards.told["GPU-1"] == seen.cpu_percent is not None


async def test_a_driver_that_hangs_is_unknown_and_holds_nothing_up(tmp_path, monkeypatch):
    monkeypatch.setattr(task_probe, "_DEADLINE_S", 0.1)
    cards = Cards()
    looks = probe(tmp_path, cards)
    assert (await looks.look([task()]))[KEY].cards["GPU-1"] is not None
    cards.gate = threading.Event()
    for _ in range(2):
        seen = (await looks.look([task()]))[KEY]
        assert seen.cards == {"GPU-1": None} and looks.cards == (CardNow("GPU-1"),) and seen.log is not None
    cards.gate.set()

    async def answers() -> bool:
        return (await looks.look([task()]))[KEY].cards["GPU-1"] is not None

    await eventually("the driver to answer again", answers)


async def test_processes_that_cannot_be_looked_at_make_no_silent_log(tmp_path, monkeypatch):
    monkeypatch.setattr(task_probe, "_DEADLINE_S", 0.05)
    gate = threading.Event()
    monkeypatch.setattr(task_probe, "_log_age_s", lambda path: gate.wait(30.0))
    seen = (await probe(tmp_path, Cards()).look([task()]))[KEY]
    gate.set()
    assert (seen.log, seen.files, seen.cpu_percent) == (None, None, None)
