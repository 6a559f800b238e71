"""Facts reach the mesh: in life order, again until the rows show them, and not in a storm."""

import asyncio

import pytest

from agentd.reporter import Reporter
from agentd.runtime.base import TaskId
from schemas.errors import NoLeader
from tests.waiting import eventually

KEY = TaskId("tg-a", 1, 0)


class Mesh:
    def __init__(self):
        self.sent, self.fails, self.index = [], 0, 10
        self.sent_ms, self.taken = [], asyncio.Event()

    async def propose(self, command, timeout_s=0.0):
        await asyncio.sleep(0)
        self.sent_ms.append(command["sent_ms"])
        if self.fails:
            self.fails -= 1
            raise NoLeader("no_leader", "none")
        self.index += 1
        self.taken.set()
        self.sent.append([report["seq"] for report in command["reports"]])
        return {"idx": self.index, "ok": True, "code": "", "text": "", "data": {}}


@pytest.fixture
async def reporter():
    mesh = Mesh()
    made = Reporter(mesh, "n1", "u1")
    task = asyncio.create_task(made.run())
    yield made, mesh
    task.cancel()


def report(seq, **more):
    ref = {"group_id": "tg-" + "0" * 20, "attempt": 1, "rank": 0, "token": 1}
    return (KEY, {**ref, "seq": seq, "kind": "claim_failed", "code": "c", "text": "t", "permanent": False, **more})


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


async def test_in_life_order(reporter):
    made, mesh = reporter
    made.offer([report(4), report(3)], 5)
    await settle()
    assert mesh.sent == [[3, 4]]


async def test_nothing_again_before_the_rows_could_show_it(reporter, monkeypatch):
    made, mesh = reporter
    made.offer([report(1)], 5)
    await settle()
    for _ in range(3):
        made.offer([report(1)], 10)  # the feed is still before the index of the answer
        await settle()
    made.offer([report(1)], 11)  # it has passed, yet a report the state refused is not worth a storm
    await settle()
    assert mesh.sent == [[1]]
    monkeypatch.setattr("agentd.reporter._REPEAT_AFTER_S", 0.0)
    made.offer([report(1)], 11)
    await settle()
    assert mesh.sent == [[1], [1]]


async def test_trouble_is_waited_out(reporter, monkeypatch):
    made, mesh = reporter
    monkeypatch.setattr("agentd.reporter._RETRY_MIN_S", 0.01)
    mesh.fails = 3
    made.offer([report(1)], 5)
    await eventually(lambda: f"the first, not {mesh.sent}", lambda: mesh.sent)
    made.offer([report(1), report(3)], 5)
    await eventually(lambda: f"the third, not {mesh.sent}", lambda: len(mesh.sent) > 1)
    await settle()
    assert mesh.sent == [[1], [3]]


async def test_each_try_says_when_it_was_sent_so_that_a_late_report_shows_its_age(reporter, monkeypatch):
    made, mesh = reporter
    clock = iter(range(7_000_000_000, 9_000_000_000, 1_000_000_000))
    monkeypatch.setattr("agentd.reporter.time.time_ns", lambda: next(clock))
    mesh.fails = 1
    made.offer([report(4)], 5)
    await asyncio.wait_for(mesh.taken.wait(), 10)
    assert mesh.sent_ms == [7_000, 8_000]


async def test_what_is_not_wanted_any_more_is_not_sent(reporter):
    made, mesh = reporter
    mesh.fails = 1
    made.offer([report(1)], 5)
    await settle()
    made.offer([], 6)
    await asyncio.sleep(0.3)
    assert mesh.sent == []


@pytest.mark.parametrize("wrong", [{"text": "caf\udce9"}, {"text": "x" * 5000}, {"kind": "of a later agent"}])
async def test_a_report_that_no_command_can_hold_keeps_back_no_other(reporter, wrong):
    made, mesh = reporter
    offered = [report(seq, **(wrong if seq == 5 else {})) for seq in range(1, 10)]
    made.offer(offered, 5)
    await eventually(lambda: f"all but the fifth, not {mesh.sent}", lambda: sum(map(len, mesh.sent)) == 8)
    made.offer([*offered, report(10)], 5)
    await eventually(lambda: f"the tenth last, not {mesh.sent}", lambda: mesh.sent[-1] == [10])
    assert sorted(seq for batch in mesh.sent for seq in batch) == [1, 2, 3, 4, 6, 7, 8, 9, 10]


async def test_reports_that_are_too_much_for_one_command_are_told_in_several(reporter):
    made, mesh = reporter
    made.offer([report(seq, text="x" * 4000) for seq in range(1, 201)], 5)
    await eventually(lambda: f"200 reports, not {mesh.sent}", lambda: sum(map(len, mesh.sent)) == 200)
    assert [seq for batch in mesh.sent for seq in batch] == list(range(1, 201))
