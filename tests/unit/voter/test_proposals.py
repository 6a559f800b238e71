"""Commands between proposal and outcome: each is answered once, and never with another's outcome."""

from typing import Any

import msgpack
import pytest

from mesh.core.raft.errors import DropReason, ProposalDropped
from mesh.core.state.outcome import done
from mesh.voter import proposals as module
from mesh.voter.answers import outcome_unknown
from mesh.voter.proposals import Proposals
from schemas.errors import Problem
from schemas.limits import ENTRY_MAX


class Node:
    """The four members of RawNode that proposals use."""

    def __init__(self) -> None:
        self.is_leader, self.term, self.last, self.full = True, 3, 10, False
        self.batches: list[list[bytes]] = []

    def propose_batch(self, batch: list[bytes]) -> int:
        if self.full:
            raise ProposalDropped(DropReason.UNCOMMITTED_FULL)
        first = self.last + 1
        self.last += len(batch)
        self.batches.append(batch)
        return first


class Desk:
    """Proposals with a clock to set and answers to look at."""

    def __init__(self) -> None:
        self.node, self.wall_ms, self.applied_ms = Node(), 1000, 0
        self.proposals = Proposals(self.node, lambda: self.wall_ms, lambda: self.applied_ms, lambda: 1)  # type: ignore[arg-type]  # its twin
        self.answers: dict[str, Any] = {}

    def add(self, name: str, term: int | None = None) -> None:
        def reply(value: Any, problem: Problem | None) -> None:
            assert name not in self.answers
            self.answers[name] = problem.code if problem is not None else value["data"]["n"]

        self.proposals.add({"t": "Noop", "name": name}, term, reply)

    def flush(self, now: float = 0.0) -> None:
        self.proposals.flush(now)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_what_waits_is_proposed_as_one_batch_with_one_stamp(desk: Desk) -> None:
    for name in "abc":
        desk.add(name)
    desk.flush()
    (batch,) = desk.node.batches
    assert [msgpack.unpackb(raw) for raw in batch] == [{"t": "Noop", "name": n, "at_ms": 1000} for n in "abc"]
    desk.proposals.applied([(i, 3, done(n=i)) for i in (11, 12, 13)], 13)
    assert desk.answers == {"a": 11, "b": 12, "c": 13}
    assert len(desk.proposals) == 0


def test_stamps_never_go_back(desk: Desk) -> None:
    stamps = []
    for wall, applied in ((1000, 0), (400, 0), (1500, 0), (1200, 9000), (1300, 9000), (9500, 9000)):
        desk.wall_ms, desk.applied_ms = wall, applied
        desk.add(f"{wall}")
        desk.flush()
        stamps.append(msgpack.unpackb(desk.node.batches[-1][0])["at_ms"])
    assert stamps == [1000, 1000, 1500, 9000, 9000, 9500]


def test_a_command_of_another_term_is_refused_alone(desk: Desk) -> None:
    desk.add("old", term=2)
    desk.add("new", term=3)
    desk.flush()
    assert desk.answers == {"old": "planned_in_old_term"}
    assert len(desk.node.batches[0]) == 1


def test_without_the_lead_nothing_is_taken(desk: Desk) -> None:
    desk.add("a")
    desk.node.is_leader = False
    desk.flush()
    assert desk.answers == {"a": "no_leader"}


def test_another_leaders_entry_at_the_index_means_not_done(desk: Desk) -> None:
    for name in "abc":
        desk.add(name)
    desk.flush()
    # Index 11 was replaced by a command of term 4, 12 by an entry without one; 13 is not reached yet.
    desk.proposals.applied([(11, 4, done(n=0))], 12)
    assert desk.answers == {"a": "no_leader", "b": "no_leader"}


def test_a_lost_lead_leaves_the_outcome_open(desk: Desk) -> None:
    desk.add("a")
    desk.flush()
    desk.proposals.fail_all(outcome_unknown("the leader changed"))
    desk.proposals.applied([(11, 3, done(n=1))], 11)
    assert desk.answers == {"a": "timeout_unknown"}


def test_a_reused_index_never_gives_the_older_command_the_newer_ones_outcome(desk: Desk) -> None:
    desk.add("old")
    desk.flush()
    desk.node.last, desk.node.term = 10, 5
    desk.add("new")
    desk.flush()
    desk.proposals.applied([(11, 5, done(n=7))], 11)
    assert desk.answers == {"old": "timeout_unknown", "new": 7}


def test_what_no_majority_confirms_is_answered_as_open(desk: Desk) -> None:
    desk.add("a")
    desk.flush(now=100.0)
    desk.add("b")
    desk.flush(now=105.0)
    desk.proposals.expire(109.9)
    assert desk.answers == {}
    desk.proposals.expire(110.0)
    assert desk.answers == {"a": "timeout_unknown"}


def test_an_entry_beyond_the_limit_is_never_proposed(desk: Desk) -> None:
    """It would not fit a frame between voters, and the log would stand still behind it."""
    desk.add("x" * (ENTRY_MAX - 100))
    desk.add("y" * ENTRY_MAX)
    desk.flush()
    assert list(desk.answers.values()) == ["invalid_command"]
    (batch,) = desk.node.batches
    assert len(batch) == 1


def test_bytes_that_wait_are_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_BYTES_MAX", 100)
    for name in ("a" * 40, "b" * 40, "c" * 2):
        desk.add(name)
    assert list(desk.answers.values()) == ["overloaded"]
    desk.flush()
    desk.proposals.applied([(11, 3, done(n=1)), (12, 3, done(n=2))], 12)
    assert desk.proposals._bytes == 0


def test_full_queues_and_full_disks_take_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)
    for name in "abc":
        desk.add(name)
    assert desk.answers == {"c": "overloaded"}
    desk.flush()
    desk.proposals.applied([(11, 3, done(n=1)), (12, 3, done(n=2))], 12)
    desk.node.full = True
    desk.add("d")
    desk.flush()
    desk.proposals.disk_is_full = True
    desk.add("e")
    assert (desk.answers["d"], desk.answers["e"]) == ("overloaded", "disk_full")
    assert len(desk.proposals) == 0
    assert desk.proposals._bytes == 0
