"""The schedules of the lock-step oracle over the core with the product's own options, which etcd does not have.

Nothing to compare with here; the invariants must hold (one leader a term, equal entries applied everywhere, no stale
read, nothing applied before it is in the own stable log), and every run must end able to commit and read.
"""

import pytest

from mesh.core.raft import InvariantViolation, Ready, etcd_options
from mesh.core.raft.config import EtcdOptions
from tests.oracle.mirror import Mirror
from tests.oracle.schedule import Schedule


def run_to_a_good_end(schedule: Schedule, seed: int) -> None:
    schedule.run()
    assert not schedule.stopped, f"seed {seed}: {schedule.stopped}"
    schedule.calm()
    schedule.propose(schedule.leader())
    schedule.calm()
    nodes = schedule.mirror.nodes.values()
    assert sum(n.is_leader for n in nodes) == 1, f"seed {seed}: no leader after a long calm"
    assert len({n.term for n in nodes}) == 1, f"seed {seed}"
    ends = {(n.applied_index, n.raft.log.last_index()) for n in nodes}
    assert len(ends) == 1 and len(set(ends.pop())) == 1, f"seed {seed}: {ends} not all applied everywhere"


def test_invariants_hold_over_seeded_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = Mirror._check

    def check(self: Mirror, node: int, rd: Ready) -> None:
        checked(self, node, rd)
        stable = self.disks[node].last_index() if not rd.entries else rd.entries[0].index - 1
        if rd.committed_entries and rd.committed_entries[-1].index > stable:
            raise InvariantViolation(f"{node} applies {rd.committed_entries[-1].index}, stable is {stable}")

    monkeypatch.setattr(Mirror, "_check", check)
    totals = {"read states": 0, "overwritten suffixes": 0, "restarts after a torn or lost write": 0}
    for seed in range(1, 251):
        schedule = Schedule(seed, None)
        run_to_a_good_end(schedule, seed)
        for name in totals:
            totals[name] += schedule.counts[name]
    assert all(n >= 20 for n in totals.values()), totals


OPTIONS = tuple(etcd_options())


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_alone_is_safe(name: str) -> None:
    """Differences from etcd must not lean on one another."""
    for seed in range(1000, 1040):
        options: EtcdOptions = etcd_options()
        del options[name]  # type: ignore[misc]  # any of its keys
        schedule = Schedule(seed, options)
        run_to_a_good_end(schedule, seed)
