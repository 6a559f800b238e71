"""The one judgement that guard, shim and simulator share, and the file it is read from."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentd.core.deadline import (
    FILE_BYTES,
    NEVER_NS,
    SLOT_BYTES,
    TERM_TO_KILL_NS,
    Lease,
    decode,
    encode,
    judge,
    slot_offset,
)
from agentd.lease_file import LeaseWriter, boottime_ns, read_boot_id, read_lease
from schemas.limits import KILL_BUDGET_MS

BOOT = "599c6877-3940-4b3a-9441-ad840cfb0554"
OTHER_BOOT = "00000000-3940-4b3a-9441-ad840cfb0554"
SECOND = 1_000_000_000


def test_before_the_deadline_nothing_is_due_but_its_time_is_known() -> None:
    verdict = judge(Lease(BOOT, 10 * SECOND, 1), BOOT, 9 * SECOND, "stop", 5 * SECOND)
    assert not verdict.kill
    assert verdict.term_at_ns == 10 * SECOND
    assert verdict.kill_at_ns == 10 * SECOND + TERM_TO_KILL_NS


def test_at_the_deadline_the_fence_is_due_and_its_kill_counts_from_the_deadline() -> None:
    late = judge(Lease(BOOT, 10 * SECOND, 1), BOOT, 100 * SECOND, "stop", 5 * SECOND)
    assert judge(Lease(BOOT, 10 * SECOND, 1), BOOT, 10 * SECOND, "stop", 5 * SECOND).kill
    assert late.kill
    assert late.kill_at_ns == 10 * SECOND + TERM_TO_KILL_NS


@pytest.mark.parametrize("record", [None, Lease(OTHER_BOOT, NEVER_NS, 9)])
def test_without_a_lease_of_this_boot_there_is_no_grace(record: Lease | None) -> None:
    verdict = judge(record, BOOT, 7 * SECOND, "stop", SECOND)
    assert verdict.kill
    assert verdict.kill_at_ns == 7 * SECOND
    assert verdict.why


def test_what_started_after_the_deadline_gets_no_grace() -> None:
    verdict = judge(Lease(BOOT, 10 * SECOND, 1), BOOT, 11 * SECOND, "stop", 11 * SECOND)
    assert verdict.kill
    assert verdict.kill_at_ns <= 11 * SECOND


@pytest.mark.parametrize("record", [None, Lease(OTHER_BOOT, 0, 1), Lease(BOOT, 0, 1)])
def test_keep_is_never_fenced(record: Lease | None) -> None:
    assert not judge(record, BOOT, NEVER_NS - 1, "keep", 0).kill


def test_an_unknown_policy_is_fenced_like_stop() -> None:
    assert judge(None, BOOT, SECOND, "Keep", 0).kill


@settings(deadline=None)
@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 2**62))
def test_a_later_look_never_finds_an_earlier_fence_gone(deadline: int, now: int, later: int) -> None:
    lease = Lease(BOOT, deadline, 1)
    if judge(lease, BOOT, now, "stop", 0).kill:
        assert judge(lease, BOOT, max(now, later), "stop", 0).kill


@settings(deadline=None)
@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63))
def test_a_record_survives_the_file(deadline: int, seq: int) -> None:
    data = bytearray(FILE_BYTES)
    start = slot_offset(seq)
    data[start : start + SLOT_BYTES] = encode(Lease(BOOT, deadline, seq))
    assert decode(bytes(data)) == Lease(BOOT, deadline, seq)


@settings(deadline=None)
@given(st.integers(0, SLOT_BYTES))
def test_a_write_cut_anywhere_leaves_the_old_record_or_the_new_one(cut: int) -> None:
    old, new = Lease(BOOT, SECOND, 6), Lease(BOOT, 2 * SECOND, 7)
    data = bytearray(FILE_BYTES)
    data[slot_offset(6) : slot_offset(6) + SLOT_BYTES] = encode(old)
    data[slot_offset(7) : slot_offset(7) + cut] = encode(new)[:cut]
    assert decode(bytes(data)) == (new if cut == SLOT_BYTES else old)


@settings(deadline=None)
@given(st.integers(0, SLOT_BYTES * 8 - 1))
def test_one_flipped_bit_is_no_record(bit: int) -> None:
    data = bytearray(encode(Lease(BOOT, SECOND, 2)) + bytes(SLOT_BYTES))
    data[bit // 8] ^= 1 << (bit % 8)
    assert decode(bytes(data)) is None


@pytest.mark.parametrize("size", [0, 1, 63, 64, 127])
def test_a_short_file_is_no_record(size: int) -> None:
    assert decode(bytes(size)) is None


def test_the_budget_of_the_leases_covers_grace_and_kill() -> None:
    assert KILL_BUDGET_MS * 1_000_000 >= TERM_TO_KILL_NS + SECOND // 2


def test_the_writer_only_moves_forward_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "lease")
    boot, now = read_boot_id(), boottime_ns()
    first = LeaseWriter(path, boot)
    assert first.extend(now + SECOND)
    assert not first.extend(now)
    first.close()
    second = LeaseWriter(path, boot)
    assert second.deadline_ns == now + SECOND
    assert not second.extend(now + SECOND)
    assert second.extend(now + 2 * SECOND)
    assert read_lease(path) == Lease(boot, now + 2 * SECOND, 2)
    second.close()


def test_the_file_s_room_is_taken_before_anything_depends_on_it(tmp_path: Path) -> None:
    writer = LeaseWriter(str(tmp_path / "lease"), BOOT)
    assert (tmp_path / "lease").stat().st_blocks > 0
    writer.close()


def test_a_lease_of_an_earlier_boot_is_not_gone_on_from(tmp_path: Path) -> None:
    path = str(tmp_path / "lease")
    before = LeaseWriter(path, OTHER_BOOT)
    before.extend(NEVER_NS)
    before.close()
    writer = LeaseWriter(path, BOOT)
    assert writer.deadline_ns == 0
    assert writer.extend(SECOND)
    assert read_lease(path) == Lease(BOOT, SECOND, 2)
    writer.close()


def test_a_missing_file_and_a_link_are_no_lease(tmp_path: Path) -> None:
    writer = LeaseWriter(str(tmp_path / "real"), BOOT)
    writer.extend(SECOND)
    writer.close()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert read_lease(str(tmp_path / "none")) is None
    assert read_lease(str(tmp_path / "link")) is None
