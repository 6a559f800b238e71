"""The lease as the host sees it: counted from the asking, written where the guard reads, noticed when it lapses."""

import asyncio

import pytest

from agentd.core.deadline import judge
from agentd.lease_file import LeaseWriter, read_boot_id, read_lease
from agentd.lease_keeper import LeaseKeeper
from schemas.errors import NoLeader
from schemas.limits import Profile
from tests.virtual_time import in_virtual_time, now_ns

PROFILE = Profile("test", t_stop_ms=400, t_lease_ms=800, renew_ms=50)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr("agentd.lease_keeper.boottime_ns", now_ns)


class Mesh:
    """`answer` is called with each renewal; `delay_s` is how long the answer travels."""

    def __init__(self, answer, delay_s=0.0):
        self.answer, self.delay_s, self.asked = answer, delay_s, []

    async def renew(self, renewal, timeout_s=0.0):
        self.asked.append(renewal["sent_ns"])
        await asyncio.sleep(self.delay_s)
        answer = self.answer(renewal)
        if isinstance(answer, Exception):
            raise answer
        return answer


def grant(renewal):
    return {"granted": True, "sent_ns": renewal["sent_ns"], "ttl_ms": 400, "reason": ""}


def refuse(reason):
    return lambda renewal: {"granted": False, "sent_ns": renewal["sent_ns"], "ttl_ms": 0, "reason": reason}


def dead(renewal):
    return NoLeader("no_leader", "nobody answers")


class Host:
    def __init__(self, tmp_path, *meshes):
        self.path = str(tmp_path / "lease")
        self.writer = LeaseWriter(self.path, read_boot_id())
        self.changes = []
        self.keeper = LeaseKeeper("n1", "u1", PROFILE, self.writer, meshes, self._changed)

    def _changed(self):
        self.changes.append(self.keeper.granted)

    async def run_for(self, seconds):
        task = asyncio.create_task(self.keeper.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def fenced(self):
        return judge(read_lease(self.path), read_boot_id(), now_ns(), "stop", now_ns() - 10**9).kill


@in_virtual_time
async def test_the_deadline_counts_from_the_asking(tmp_path):
    mesh = Mesh(grant, delay_s=0.1)
    host = Host(tmp_path, mesh)
    await host.run_for(0.35)
    found = read_lease(host.path)
    assert found is not None and found.deadline_ns - 400_000_000 in mesh.asked
    assert not host.fenced() and host.changes == [True]


@pytest.mark.parametrize("bad", [dead, refuse("no_quorum"), refuse("lost")])
@in_virtual_time
async def test_one_good_connection_is_enough(tmp_path, bad):
    host = Host(tmp_path, Mesh(bad), Mesh(grant))
    await host.run_for(0.3)
    assert host.keeper.granted and not host.fenced()


@in_virtual_time
async def test_a_slow_answer_delays_no_renewal(tmp_path):
    slow = Mesh(grant, delay_s=5)
    host = Host(tmp_path, slow)
    await host.run_for(0.5)
    assert len(slow.asked) >= 6


@in_virtual_time
async def test_without_grants_it_lapses_and_says_so(tmp_path):
    answers = {"now": grant}
    host = Host(tmp_path, Mesh(lambda renewal: answers["now"](renewal)))
    task = asyncio.create_task(host.keeper.run())
    await asyncio.sleep(0.2)
    assert host.keeper.granted
    answers["now"] = refuse("no_quorum")
    await asyncio.sleep(0.6)
    task.cancel()
    assert host.changes == [True, False] and host.fenced() and host.keeper.refusal == "no_quorum"


@in_virtual_time
async def test_a_restarted_agent_neither_shortens_nor_forgets(tmp_path):
    first = Host(tmp_path, Mesh(grant))
    await first.run_for(0.1)
    before = read_lease(first.path)
    first.writer.close()
    second = Host(tmp_path, Mesh(dead))
    assert second.keeper.granted
    await second.run_for(0.1)
    assert read_lease(second.path) == before


@in_virtual_time
async def test_a_grant_from_before_a_reboot_is_nothing(tmp_path):
    """CLOCK_BOOTTIME began again: an answer that names a later asking than now was meant for another life."""
    host = Host(tmp_path, Mesh(lambda renewal: grant({"sent_ns": renewal["sent_ns"] + 10**12})))
    await host.run_for(0.2)
    assert not host.keeper.granted and host.fenced()
