"""The API's edges: refusals with their reasons, the Ready contract, and what a driver may rely on."""

import random
from typing import Any

import pytest

from mesh.core.raft import (
    CompactedError,
    Config,
    DropReason,
    Entry,
    HardState,
    InvariantViolation,
    MemoryStorage,
    Message,
    MessageRefused,
    MsgType,
    ProgressState,
    ProposalDropped,
    RawNode,
    Ready,
    Role,
)


def make(voters: int = 1, storage: MemoryStorage | None = None, **options: Any) -> tuple[RawNode, MemoryStorage]:
    storage = storage or MemoryStorage(range(1, voters + 1))
    return RawNode(Config(id=1, storage=storage, rng=random.Random(1), **options)), storage


def write(node: RawNode, storage: MemoryStorage) -> list[Ready]:
    done = []
    while node.has_ready():
        rd = node.ready()
        storage.append(rd.entries)
        if rd.hard_state is not None:
            storage.set_hard_state(rd.hard_state)
        node.advance()
        done.append(rd)
    return done


def leader_of_three(**options: Any) -> tuple[RawNode, MemoryStorage]:
    node, storage = make(3, pre_vote=False, **options)
    node.campaign()
    write(node, storage)
    node.step(Message(MsgType.VOTE_RESP, 1, 2, term=1))
    write(node, storage)
    node.step(Message(MsgType.APP_RESP, 1, 2, term=1, index=1))
    write(node, storage)
    assert node.is_settled_leader()
    return node, storage


@pytest.mark.parametrize("voters", [1, 3, 5, 7])
def test_quorum_sizes(voters: int) -> None:
    node, storage = make(voters, pre_vote=False)
    node.campaign()
    for peer in range(2, voters // 2 + 2):
        assert not node.is_leader
        node.step(Message(MsgType.VOTE_RESP, 1, peer, term=1))
    assert node.is_leader
    write(node, storage)
    for peer in range(2, voters // 2 + 2):
        assert node.commit_index == 0
        node.step(Message(MsgType.APP_RESP, 1, peer, term=1, index=1))
    assert node.commit_index == 1


def test_proposals_are_dropped_with_a_reason() -> None:
    node, _ = make(3)
    with pytest.raises(ProposalDropped, match="no leader is known") as caught:
        node.propose(b"x")
    assert caught.value.reason is DropReason.NO_LEADER
    node.step(Message(MsgType.HEARTBEAT, 1, 2, term=1))
    with pytest.raises(ProposalDropped, match="the leader is 2") as caught:
        node.propose(b"x")
    assert (caught.value.reason, caught.value.leader) == (DropReason.NOT_LEADER, 2)


def test_backpressure_ends_when_entries_are_applied() -> None:
    node, storage = leader_of_three(max_uncommitted_bytes=10)
    assert node.propose(b"x" * 50) == 2, "one proposal of any size fits"
    with pytest.raises(ProposalDropped) as caught:
        node.propose(b"y")
    assert caught.value.reason is DropReason.UNCOMMITTED_FULL
    write(node, storage)
    node.step(Message(MsgType.APP_RESP, 1, 2, term=1, index=2))
    write(node, storage)
    assert node.propose_batch([b"a", b"b"]) == 3


@pytest.mark.parametrize("batch", [[], [b""], [b"a", b""]])
def test_empty_commands_are_refused(batch: list[bytes]) -> None:
    node, _ = leader_of_three()
    with pytest.raises(ValueError, match="at least one"):
        node.propose_batch(batch)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message(MsgType.HUP, 1, 2, term=1), "may not come from another member"),
        (Message(MsgType.PROP, 1, 2, term=1), "may not come from another member"),
        (Message(MsgType.APP, 2, 3, term=1), "for 2 reached 1"),
        (Message(MsgType.VOTE, 1, 9, term=7), "not another voter"),
        (Message(MsgType.VOTE, 1, 1, term=7), "not another voter"),
    ],
)
def test_messages_that_are_refused(message: Message, reason: str) -> None:
    node, _ = make(3)
    with pytest.raises(MessageRefused, match=reason):
        node.step(message)
    assert node.term == 0
    assert not node.has_ready()


def test_one_ready_at_a_time() -> None:
    node, _ = make()
    with pytest.raises(InvariantViolation, match="without a Ready"):
        node.advance()
    node.campaign()
    node.ready()
    with pytest.raises(InvariantViolation, match="before the last"):
        node.ready()


def test_single_voter_commits_only_what_is_written() -> None:
    node, storage = make()
    node.campaign()
    index = node.propose(b"x")
    rd = node.ready()
    assert rd.must_sync
    assert rd.entries[-1].index == index
    assert not rd.committed_entries
    assert node.commit_index == 0
    storage.append(rd.entries)
    node.advance()
    assert [e.data for r in write(node, storage) for e in r.committed_entries] == [b"", b"x"]
    assert not node.has_ready()


def test_a_change_of_commit_alone_needs_no_sync() -> None:
    node, storage = leader_of_three()
    node.propose(b"x")
    write(node, storage)
    node.step(Message(MsgType.APP_RESP, 1, 2, term=1, index=2))
    rd = node.ready()
    assert rd.hard_state == HardState(1, 1, 2)
    assert not rd.must_sync


def test_feeding_while_a_write_is_under_way() -> None:
    node, storage = leader_of_three()
    node.propose(b"a")
    rd = node.ready()
    early, late = rd.split_messages()
    assert [(m.type, m.to) for m in early] == [(MsgType.APP, 2)], "3 never answered, so one probe is enough for it"
    assert not late
    node.propose(b"b")
    node.step(Message(MsgType.APP_RESP, 1, 2, term=1, index=2))
    assert node.commit_index == 1, "two copies, but the own one is not written"
    storage.append(rd.entries)
    node.advance()
    assert node.commit_index == 2
    assert [e.data for e in node.ready().entries] == [b"b"]


def test_heartbeats_flow_while_the_leaders_disk_is_slow() -> None:
    node, storage = leader_of_three()
    node.propose(b"a")
    rd = node.ready()
    node.propose(b"b")
    node.tick()
    assert {(m.type, m.to) for m in node.take_urgent()} == {(MsgType.HEARTBEAT, 2), (MsgType.HEARTBEAT, 3)}
    assert node.take_urgent() == []
    storage.append(rd.entries)
    node.advance()
    (rest,) = write(node, storage)
    assert {m.type for m in rest.messages} == {MsgType.APP}
    assert rest.beat_round == 0, "round 1 was taken, and its time noted, before"


def test_heartbeats_wait_where_the_own_copy_counts_unwritten() -> None:
    node, _ = leader_of_three(self_ack="on_append")
    node.tick()
    assert node.take_urgent() == []
    assert node.has_ready()


def test_a_followers_answer_waits_for_the_write() -> None:
    node, _ = make(3)
    node.step(Message(MsgType.APP, 1, 2, term=1, entries=[Entry(1, 1, data=b"x")], commit=1))
    rd = node.ready()
    early, late = rd.split_messages()
    assert not early
    assert [m.type for m in late] == [MsgType.APP_RESP]
    assert not rd.committed_entries, "committed, but not in the own stable log yet"


def test_restart_goes_on_where_it_was() -> None:
    node, storage = leader_of_three()
    node.propose(b"x")
    write(node, storage)
    again, _ = make(3, storage)
    status = again.status()
    assert (status.term, status.vote, status.last_index, status.role) == (1, 1, 2, Role.FOLLOWER)
    assert status.commit == 1
    again, _ = make(3, storage, applied=1)
    assert not again.has_ready(), "nothing at or below applied is released again"


def test_rounds_are_reported_for_stamping() -> None:
    node, storage = leader_of_three()
    node.tick()
    (rd,) = write(node, storage)
    assert rd.beat_round == node.beat_round() == 1
    assert node.quorum_acked_round() == 0
    beat = next(m for m in rd.messages if m.to == 3)
    node.step(Message(MsgType.HEARTBEAT_RESP, 1, 3, term=1, context=beat.context))
    assert node.quorum_acked_round() == 1
    for wrong in (b"", b"junk", (99).to_bytes(8, "big")):
        node.step(Message(MsgType.HEARTBEAT_RESP, 1, 2, term=1, context=wrong))
    assert node.quorum_acked_round() == 1
    node.step_down("test", 5)
    assert node.quorum_acked_round() == 0
    assert node.beat_round() == 1, "numbers go on rising over leaderships"


def test_status_is_for_people_too() -> None:
    node, _ = leader_of_three()
    status = node.status()
    assert status.quorum == "2 of 3 (1 at 1, 2 at 1, 3 at 0) reach 1"
    assert status.progress[2].state is ProgressState.REPLICATE
    assert status.progress[3].state is ProgressState.PROBE
    node.step_down("the controllers are dead", 7)
    status = node.status()
    assert (status.role, status.quiet_ticks, status.step_down_reason) == (
        Role.FOLLOWER,
        7,
        "the controllers are dead",
    )
    assert status.progress == {}


def test_a_member_behind_the_compacted_log_is_left_alone() -> None:
    """Until snapshots exist, the leader says so in its progress and goes on with the others."""
    node, storage = leader_of_three()
    node.propose_batch([b"a", b"b"])
    write(node, storage)
    node.step(Message(MsgType.APP_RESP, 1, 2, term=1, index=3))
    write(node, storage)
    storage.compact(2)
    node.step(Message(MsgType.APP_RESP, 1, 3, term=1, index=0, reject=True))
    write(node, storage)
    assert node.status().progress[3].state is ProgressState.SNAPSHOT
    with pytest.raises(CompactedError):
        storage.term(1)
    assert node.propose(b"c") == 4


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"id": 0}, "id must be positive"),
        ({"election_ticks": 3, "heartbeat_ticks": 3}, "heartbeat_ticks < election_ticks"),
        ({"heartbeat_ticks": 0}, "heartbeat_ticks < election_ticks"),
        ({"max_inflight": 0}, "max_inflight"),
        ({"max_uncommitted_bytes": 0}, "byte limits"),
    ],
)
def test_bad_config(options: dict[str, int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Config(**{"id": 1, "storage": MemoryStorage([1]), "rng": random.Random(1), **options})  # type: ignore[arg-type]  # wrong ones
