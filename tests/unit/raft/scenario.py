"""Scenarios as text: prose that says what is proved, commands, `----`, the expected output.

    python -m tests.unit.raft.scenario --rewrite            write what the core does now into every file
    python -m tests.unit.raft.scenario FILE                 show the differences of one file

A block's commands run in order; most print only refusals. `#` starts prose.

    cluster N [option=value ...]   new nodes 1..N (see Config; timeouts=12,15,18 fixes each election timeout;
                                   options=etcd sets every difference from etcd to etcd's way)
    tick ID N                      N ticks, no Ready
    run N                          N times: one tick of every live node, then stabilize
    campaign ID                    propose ID DATA...            read ID CONTEXT
    step-down ID QUIET REASON
    ready ID                       do one whole Ready
    begin ID / finish ID           take a Ready and send what may go early / write, send the rest, apply, advance
    urgent ID                      send what does not wait for the Ready that is begun
    deliver ID [TYPE]              hand over all messages in flight to ID      drop ID [TYPE]
    elect ID VOTER...              campaign, with only these voters hearing of it, up to the winner's first Ready
    append ID TO...                one Ready of ID, appends delivered to these only, their answers delivered to ID
    repeat ID [TYPE] / late        deliver, and keep copies / put the copies in flight again
    cut ID... / heal               lose messages between these nodes and the rest / no more
    stabilize [ID...]              Readys and deliveries until quiet, only among these nodes
    crash ID / restart ID          what was not written is lost
    state, log, flight, applied, progress ID, reads ID, rounds ID      print
"""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mesh.core.raft import (
    Config,
    Entry,
    InvariantViolation,
    MemoryStorage,
    Message,
    RaftError,
    RawNode,
    Ready,
    etcd_options,
)

FOLDER = Path(__file__).parents[2] / "data" / "raft"


class FixedRng:
    """Draws the same number every time."""

    def __init__(self, value: int) -> None:
        self.value = value

    def randrange(self, stop: int, /) -> int:
        return min(self.value, stop - 1)


@dataclass
class Member:
    config: dict[str, Any]
    storage: MemoryStorage
    node: RawNode | None = None
    begun: Ready | None = None
    applied: list[str] = field(default_factory=list)
    applied_index: int = 0
    reads: list[str] = field(default_factory=list)

    def live(self) -> RawNode:
        if self.node is None:
            raise RaftError("the node is down")
        return self.node


def message_line(m: Message) -> str:
    parts = [f"{m.from_}->{m.to} {m.type.name} term={m.term}"]
    if m.index or m.log_term:
        parts.append(f"at={m.index}/{m.log_term}")
    if m.commit:
        parts.append(f"commit={m.commit}")
    if m.reject:
        parts.append(f"refused hint={m.reject_hint}")
    parts += [f"[{e.index}/{e.term} {e.data.decode()}]" for e in m.entries]
    return " ".join(parts)


class Scenario:
    def __init__(self) -> None:
        self.members: dict[int, Member] = {}
        self.flight: list[Message] = []
        self.late: list[Message] = []
        self.cut: set[int] = set()
        self.leaders: dict[int, int] = {}
        self.applied_at: dict[int, Entry] = {}
        self.out: list[str] = []

    def block(self, commands: list[str]) -> list[str]:
        self.out = []
        for command in commands:
            name, *args = command.split()
            try:
                getattr(self, "do_" + name.replace("-", "_"))(*args)
            except InvariantViolation as e:
                self.out.append(f"INVARIANT: {e}")
            except RaftError as e:
                self.out.append(f"{command}: {e}")
        return self.out

    # -- making and breaking

    def do_cluster(self, count: str, *options: str) -> None:
        given = dict(o.split("=") for o in options)
        config: dict[str, Any] = dict(etcd_options()) if given.pop("options", "") == "etcd" else {}
        timeouts = given.pop("timeouts", "").split(",")
        for key, value in given.items():
            config[key] = int(value) if value.isdigit() else {"yes": True, "no": False}.get(value, value)
        ticks = config.get("election_ticks", 10)
        self.members.clear()
        self.flight.clear()
        self.cut.clear()
        self.leaders.clear()
        self.applied_at.clear()
        for i in range(1, int(count) + 1):
            timeout = int(timeouts[i - 1]) if len(timeouts) == int(count) else ticks + 2 * i
            rng = FixedRng(timeout - ticks)
            member = Member({**config, "id": i, "rng": rng}, MemoryStorage(range(1, int(count) + 1)))
            self.members[i] = member
            self._start(member)

    def _start(self, member: Member) -> None:
        member.node = RawNode(Config(storage=member.storage, applied=member.applied_index, **member.config))

    def do_crash(self, node: str) -> None:
        member = self.members[int(node)]
        member.node = member.begun = None
        self._take(int(node))

    def do_restart(self, node: str) -> None:
        self._start(self.members[int(node)])

    def do_cut(self, *nodes: str) -> None:
        self.cut = set(map(int, nodes))

    def do_heal(self) -> None:
        self.cut = set()

    # -- feeding

    def do_tick(self, node: str, count: str) -> None:
        for _ in range(int(count)):
            self.members[int(node)].live().tick()

    def do_run(self, count: str) -> None:
        for _ in range(int(count)):
            for member in self.members.values():
                if member.node is not None:
                    member.node.tick()
            self.do_stabilize()

    def do_campaign(self, node: str) -> None:
        if refusal := self.members[int(node)].live().campaign():
            self.out.append(f"{node} does not campaign: {refusal}")

    def do_propose(self, node: str, *data: str) -> None:
        self.members[int(node)].live().propose_batch([d.encode() for d in data])

    def do_read(self, node: str, context: str) -> None:
        self.members[int(node)].live().read_index(context.encode())

    def do_step_down(self, node: str, quiet: str, *reason: str) -> None:
        self.members[int(node)].live().step_down(" ".join(reason), int(quiet))

    # -- Readys and the network

    def do_begin(self, node: str) -> None:
        member = self.members[int(node)]
        member.begun = member.live().ready()
        self._send(member.begun.split_messages()[0])

    def do_urgent(self, node: str) -> None:
        self._send(self.members[int(node)].live().take_urgent())

    def do_finish(self, node: str) -> None:
        member = self.members[int(node)]
        raw, rd, member.begun = member.live(), member.begun, None
        assert rd is not None, "begin comes before finish"
        member.storage.append(rd.entries)
        if rd.hard_state is not None:
            member.storage.set_hard_state(rd.hard_state)
        self._send(rd.split_messages()[1])
        for entry in rd.committed_entries:
            member.applied_index = entry.index
            known = self.applied_at.setdefault(entry.index, entry)
            if known.term != entry.term:
                raise InvariantViolation(f"{node} applies another entry at {entry.index} than was applied elsewhere")
            if entry.data:
                member.applied.append(entry.data.decode())
        member.reads += [f"{s.context.decode()} at {s.index}" for s in rd.read_states]
        member.reads += [f"{c.decode()} dropped" for c in rd.dropped_reads]
        raw.advance()
        if raw.is_leader and self.leaders.setdefault(raw.term, int(node)) != int(node):
            raise InvariantViolation(f"{node} and {self.leaders[raw.term]} both lead term {raw.term}")

    def do_ready(self, node: str) -> None:
        self.do_begin(node)
        self.do_finish(node)

    def do_elect(self, node: str, *voters: str) -> None:
        self.do_campaign(node)
        for _ in range(2 if self.members[int(node)].live().raft.config.pre_vote else 1):
            self.do_ready(node)
            self._round(node, voters, ("VOTE", "PRE_VOTE"))

    def do_append(self, node: str, *followers: str) -> None:
        self.do_ready(node)
        self._round(node, followers, ("APP",))

    def _round(self, node: str, others: tuple[str, ...], kinds: tuple[str, ...]) -> None:
        """Deliver what node sent to others, and their answers; what it sent to anybody else is lost."""
        for other in others:
            for kind in kinds:
                self.do_deliver(other, kind)
            self.do_ready(other)
        self.flight = [m for m in self.flight if m.from_ != int(node)]
        self.do_deliver(node)

    def _send(self, messages: list[Message]) -> None:
        for m in messages:
            if (m.from_ in self.cut) == (m.to in self.cut) and self.members[m.to].node is not None:
                self.flight.append(Message.from_wire(m.to_wire()))

    def _take(self, to: int, kind: str = "") -> list[Message]:
        taken = [m for m in self.flight if m.to == to and kind in ("", m.type.name)]
        self.flight = [m for m in self.flight if m not in taken]
        return taken

    def do_deliver(self, node: str, kind: str = "") -> None:
        for m in self._take(int(node), kind):
            self.members[int(node)].live().step(m)

    def do_repeat(self, node: str, kind: str = "") -> None:
        taken = self._take(int(node), kind)
        self.late += taken
        for m in taken:
            self.members[int(node)].live().step(m)

    def do_late(self) -> None:
        self.flight += self.late
        self.late = []

    def do_drop(self, node: str, kind: str = "") -> None:
        self._take(int(node), kind)

    def do_stabilize(self, *nodes: str) -> None:
        among = [int(n) for n in nodes] or list(self.members)
        for _ in range(1000):
            busy = False
            for i in among:
                member = self.members[i]
                if member.node is None:
                    self._take(i)
                    continue
                if member.begun is not None:
                    continue
                while member.node.has_ready():
                    busy = True
                    self.do_ready(str(i))
            for i in among:
                member = self.members[i]
                if member.node is not None and member.begun is None:
                    for m in [m for m in self._take(i) if m.from_ in among]:
                        busy = True
                        member.node.step(m)
            if not busy:
                return
        raise InvariantViolation("it never becomes quiet")

    # -- views

    def do_state(self) -> None:
        for i, member in self.members.items():
            if member.node is None:
                self.out.append(f"{i} down")
                continue
            s = member.node.status()
            self.out.append(
                f"{i} {s.role.name} term={s.term} vote={s.vote} leader={s.leader} commit={s.commit} "
                f"applied={s.applied} last={s.last_index}"
            )

    def do_log(self) -> None:
        for i, member in self.members.items():
            if member.node is None:
                entries = member.storage.entries(1, member.storage.last_index() + 1)
            else:
                entries = member.node.raft.log.all_entries()
            self.out.append(f"{i} " + " ".join(f"{e.index}/{e.term}:{e.data.decode() or '-'}" for e in entries))

    def do_flight(self) -> None:
        self.out += [message_line(m) for m in self.flight] or ["nothing in flight"]

    def do_applied(self) -> None:
        for i, member in self.members.items():
            self.out.append(f"{i} {' '.join(member.applied) or '-'}")

    def do_progress(self, node: str) -> None:
        for i, p in self.members[int(node)].live().status().progress.items():
            active = "active" if p.active else "silent"
            paused = " paused" if p.paused else ""
            self.out.append(f"{i} {p.state.name} match={p.match} next={p.next} inflight={p.inflight} {active}{paused}")

    def do_reads(self, node: str) -> None:
        self.out += self.members[int(node)].reads or ["no answer"]

    def do_rounds(self, node: str) -> None:
        raw = self.members[int(node)].live()
        self.out.append(f"newest {raw.beat_round()}, acknowledged by a quorum {raw.quorum_acked_round()}")


def run_text(text: str) -> str:
    """The text with every expected output replaced by what the core does."""
    scenario = Scenario()
    lines = text.splitlines()
    result: list[str] = []
    commands: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if line == "----":
            while at < len(lines) and lines[at]:
                at += 1
            result += [line, *scenario.block(commands)]
            commands = []
            continue
        if line and not line.startswith("#"):
            commands.append(line)
        result.append(line)
    if commands:
        raise ValueError(f"commands without ---- at the end: {commands}")
    return "\n".join(result) + "\n"


def difference(path: Path) -> str:
    """What the core does otherwise than the file says; empty if it agrees."""
    want = path.read_text()
    got = run_text(want)
    return "".join(difflib.unified_diff(want.splitlines(True), got.splitlines(True), path.name, "the core"))


def main(args: list[str]) -> int:
    rewrite = "--rewrite" in args
    paths = [Path(a) for a in args if not a.startswith("-")] or sorted(FOLDER.glob("*.txt"))
    changed = 0
    for path in paths:
        found = difference(path)
        print(found, end="")
        changed += bool(found)
        if rewrite and found:
            path.write_text(run_text(path.read_text()))
    return 0 if rewrite else changed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
