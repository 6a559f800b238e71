"""The deadline until which this host may keep its tasks running, and what follows when it passes.

The agent writes it, guard and shims read it, each on its own, and the simulator runs this same file. Standard library
only and no dataclasses: guard and shim start in milliseconds and stay small.

The file is two slots of 64 bytes; record number `seq` goes to slot `seq % 2`, so that a writer killed in the middle of
a write leaves the record before it readable. All times are CLOCK_BOOTTIME nanoseconds: the clock goes on while the
machine is suspended, as the leader's does.
"""

import struct
from binascii import crc32
from typing import NamedTuple

SLOT_BYTES = 64
FILE_BYTES = 2 * SLOT_BYTES
TERM_TO_KILL_NS = 4_000_000_000
# `schemas.limits.KILL_BUDGET_MS` allows half a second more, until the kernel is done with the last process.
NEVER_NS = 2**63 - 1

_MAGIC = b"HFLD"
_VERSION = 1
_SLOT = struct.Struct("<4sHH36sQQI")


class Lease(NamedTuple):
    boot_id: str
    deadline_ns: int
    seq: int


class Verdict(NamedTuple):
    """kill: the fence is due now. term_at_ns, kill_at_ns: when SIGTERM and SIGKILL are due, also while still ahead."""

    kill: bool
    term_at_ns: int
    kill_at_ns: int
    why: str


def encode(lease: Lease) -> bytes:
    """One slot; it belongs at `slot_offset(lease.seq)`."""
    boot = lease.boot_id.encode("ascii")
    body = _SLOT.pack(_MAGIC, _VERSION, 0, boot, lease.deadline_ns, lease.seq, 0)[:-4]
    return body + struct.pack("<I", crc32(body))


def slot_offset(seq: int) -> int:
    return (seq % 2) * SLOT_BYTES


def decode(data: bytes) -> Lease | None:
    """The newest whole record of the file's bytes; None where there is none."""
    newest: Lease | None = None
    for start in (0, SLOT_BYTES):
        lease = _decode_slot(data[start : start + SLOT_BYTES])
        if lease is not None and (newest is None or lease.seq > newest.seq):
            newest = lease
    return newest


def _decode_slot(slot: bytes) -> Lease | None:
    if len(slot) != SLOT_BYTES:
        return None
    magic, version, _, boot, deadline_ns, seq, crc = _SLOT.unpack(slot)
    if magic != _MAGIC or version != _VERSION or crc != crc32(slot[:-4]):
        return None
    return Lease(boot.rstrip(b"\0").decode("ascii", "replace"), deadline_ns, seq)


def judge(record: Lease | None, boot_id: str, now_ns: int, policy: str, task_started_ns: int) -> Verdict:
    """Whether a task must be fenced now, and when.

    A fence that has begun is not taken back by a later grant: guard and shim remember that they sent SIGTERM, since a
    task half stopped is no longer the task that was started.
    """
    if policy == "keep":
        return Verdict(False, NEVER_NS, NEVER_NS, "")
    if record is None:
        # How long ago the last deadline passed is unknown, so there is no grace to give.
        return Verdict(True, now_ns, now_ns, "no readable lease on this host")
    if record.boot_id != boot_id:
        return Verdict(True, now_ns, now_ns, "the lease was granted before this host was restarted")
    term_at_ns = record.deadline_ns
    kill_at_ns = term_at_ns + TERM_TO_KILL_NS
    if task_started_ns > term_at_ns:
        return Verdict(True, task_started_ns, task_started_ns, "started after the lease had run out")
    if now_ns >= term_at_ns:
        late_s = (now_ns - term_at_ns) / 1e9
        return Verdict(True, term_at_ns, kill_at_ns, f"the lease ran out {late_s:.1f} s ago")
    return Verdict(False, term_at_ns, kill_at_ns, "")
