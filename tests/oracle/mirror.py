"""Our core behind the driver's commands: each method does one command and makes the line the Go driver answers.

An answer is `done` or `refused`, then every Ready (soft and hard state, must_sync, read states, entries written and
applied, messages sorted by text), then the node's state: term, vote, role, leader, commit, applied, last index, first
index not yet written, timers, uncommitted size, reads in each stage, checksums of the whole log (indexes, terms, kinds,
data) and of the messages not yet in a Ready, and on a leader match, next, state, inflight and flags of each member.
"""

from __future__ import annotations

import contextlib
import random
import zlib
from dataclasses import dataclass

from mesh.core.raft import (
    NO_LIMIT,
    Config,
    Entry,
    HardState,
    InvariantViolation,
    MemoryStorage,
    Message,
    MsgType,
    ProposalDropped,
    RawNode,
    ReadDropped,
    Ready,
    Role,
)
from mesh.core.raft.config import EtcdOptions


@dataclass(slots=True, frozen=True)
class RunConfig:
    members: int
    election_ticks: int
    heartbeat_ticks: int
    pre_vote: bool
    check_quorum: bool
    max_msg_bytes: int
    max_inflight: int
    max_uncommitted_bytes: int

    def command(self) -> str:
        return (
            f"n {self.members} {self.election_ticks} {self.heartbeat_ticks} {self.pre_vote:d} {self.check_quorum:d} "
            f"{_limit(self.max_msg_bytes)} {self.max_inflight} {_limit(self.max_uncommitted_bytes)}"
        )


def _limit(value: int) -> int:
    return -1 if value >= NO_LIMIT else value


def entry_text(entries: list[Entry]) -> str:
    return "".join([f"{e.index}:{e.term}:{e.kind:d}:{e.data.decode()}," for e in entries])


def message_text(m: Message) -> str:
    verdict = "no" if m.reject else "yes"
    head = f"{m.type.name} {m.to} {m.from_} {m.term} {m.log_term} {m.index} {m.commit} {m.reject_hint} {verdict} "
    if m.type is MsgType.READ_INDEX or m.type is MsgType.READ_INDEX_RESP:
        return head + m.context.decode("latin-1")
    return f"{head}{m.context.decode('latin-1')} {entry_text(m.entries)}"


class Mirror:
    """The nodes of one run, their disks, and every message any Ready gave, numbered as the driver numbers them.

    It also checks what must hold in every run, whatever etcd does: one leader a term, the same entry applied
    everywhere, and no read answered below what was committed when it was asked. options are the differences from
    etcd; with the product's own (an empty dict) the same schedules test what lock-step cannot.
    """

    def __init__(self, config: RunConfig, seed: int, options: EtcdOptions | None = None) -> None:
        self.config = config
        self.options = options
        ids = range(1, config.members + 1)
        self.disks = {i: MemoryStorage(ids) for i in ids}
        self._rngs = {i: random.Random(seed * 7 + i) for i in ids}
        self.nodes = {i: self._start(i, 0) for i in ids}
        self.messages: list[Message] = []
        self.applied_log: dict[int, Entry] = {}
        self.leaders: dict[int, int] = {}
        self._read_floor: dict[bytes, int] = {}

    def _start(self, node: int, applied: int) -> RawNode:
        c = self.config
        return RawNode(
            Config(
                id=node,
                storage=self.disks[node],
                rng=self._rngs[node],
                election_ticks=c.election_ticks,
                heartbeat_ticks=c.heartbeat_ticks,
                applied=applied,
                pre_vote=c.pre_vote,
                check_quorum=c.check_quorum,
                max_msg_bytes=c.max_msg_bytes,
                max_apply_bytes=c.max_msg_bytes,
                max_inflight=c.max_inflight,
                max_uncommitted_bytes=c.max_uncommitted_bytes,
                **(self.options or {}),  # type: ignore[arg-type]  # by name
            )
        )

    def tick(self, node: int, count: int, hold: bool) -> str:
        for _ in range(count):
            self.nodes[node].tick()
        return self._end(node, "done", hold)

    def campaign(self, node: int, hold: bool) -> str:
        self.nodes[node].campaign()
        return self._end(node, "done", hold)

    def propose(self, node: int, batch: list[bytes], hold: bool) -> str:
        try:
            self.nodes[node].propose_batch(batch)
        except ProposalDropped:
            return self._end(node, "refused", hold)
        return self._end(node, "done", hold)

    def deliver(self, number: int, hold: bool) -> str:
        message = self.messages[number]
        self.nodes[message.to].step(message)
        return self._end(message.to, "done", hold)

    def read(self, node: int, context: bytes, hold: bool) -> str:
        self._read_floor[context] = max(n.raft.log.committed for n in self.nodes.values())
        with contextlib.suppress(ReadDropped):  # etcd drops it without a word
            self.nodes[node].read_index(context)
        return self._end(node, "done", hold)

    def flush(self, node: int) -> str:
        return self._end(node, "done", False)

    def tell_to_stand(self, node: int, to: int) -> str:
        """As if node, which leads or led, had handed its lead over. It does not step down, as etcd's does not."""
        self.messages.append(Message(MsgType.TIMEOUT_NOW, to, node, self.nodes[node].term))
        return self._end(node, "done", True)

    def crash(self, node: int, hard_state: HardState | None, entries: list[Entry]) -> str:
        """Of the next Ready only this reaches the disk; then the node restarts."""
        applied = self.nodes[node].raft.log.applied
        if self.nodes[node].has_ready():
            # Nothing in etcd's way; ours lets a leader send appends while the write is under way.
            self.messages += self.nodes[node].ready().split_messages()[0]
        if hard_state is not None:
            self.disks[node].set_hard_state(hard_state)
        self.disks[node].append(entries)
        self.nodes[node] = self._start(node, applied)
        return self._end(node, "done", True)

    def all_states(self) -> str:
        return "".join([self.state(i) + "/" for i in self.nodes])

    def _end(self, node: int, verdict: str, hold: bool) -> str:
        if hold:
            return f"{verdict} {self.state(node)}"
        return f"{verdict} {self._do_readys(node)}|{self.state(node)}"

    def _do_readys(self, node: int) -> str:
        raw, disk = self.nodes[node], self.disks[node]
        out = []
        while raw.has_ready():
            rd = raw.ready()
            if rd.hard_state is not None:
                disk.set_hard_state(rd.hard_state)
            disk.append(rd.entries)
            self._check(node, rd)
            order = sorted((message_text(m), i) for i, m in enumerate(rd.messages))
            out.append(_ready_text(rd, [text for text, _ in order]))
            self.messages += [rd.messages[i] for _, i in order]
            raw.advance()
        return "".join(out)

    def _check(self, node: int, rd: Ready) -> None:
        raw = self.nodes[node]
        for entry in rd.committed_entries:
            known = self.applied_log.setdefault(entry.index, entry)
            if known.term != entry.term or known.data != entry.data:
                raise InvariantViolation(f"{entry} applied where another node applied {known}")
        for read in rd.read_states:
            if read.index < self._read_floor[read.context]:
                raise InvariantViolation(f"read {read.context!r} answered at {read.index}, which is stale")
        if raw.is_leader and self.leaders.setdefault(raw.term, node) != node:
            raise InvariantViolation(f"{node} and {self.leaders[raw.term]} both lead term {raw.term}")

    def state(self, node: int) -> str:
        r = self.nodes[node].raft
        log = r.log
        leads = r.role is Role.LEADER
        texts = sorted([message_text(m) for m in r.msgs])
        beat = f"{r.heartbeat_elapsed} " if leads else ""
        line = (
            f"{r.term} {r.vote} {r.role:d} {r.leader} {log.committed} {log.applied} {log.last_index()} {log.offset} "
            f"{r.election_elapsed} {beat}{r.uncommitted_bytes} {len(r.reads.pending())} {len(r.early_reads)} "
            f"{len(r.read_states)} {zlib.crc32(entry_text(log.all_entries()).encode())} "
            f"{zlib.crc32(''.join([t + chr(10) for t in texts]).encode())} "
        )
        if leads:
            for member, p in r.tracker.progress.items():
                active = p.recent_active or member == node
                line += f"[{p.match} {p.next} {p.state:d} {len(p.inflights)} {p.probe_sent:d}{active:d}]"
        return line


def _ready_text(rd: Ready, messages: list[str]) -> str:
    out = "|ready"
    if rd.soft_state is not None:
        out += f" soft {rd.soft_state.leader} {rd.soft_state.role:d}"
    if rd.hard_state is not None:
        out += f" hard {rd.hard_state.term} {rd.hard_state.vote} {rd.hard_state.commit}"
    if rd.must_sync:
        out += " sync"
    for s in rd.read_states:
        out += f" read {s.index} {s.context.decode()}"
    if rd.entries:
        out += " write " + entry_text(rd.entries)
    if rd.committed_entries:
        out += " apply " + entry_text(rd.committed_entries)
    return out + "".join([";" + text for text in messages])
