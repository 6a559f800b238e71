"""A voter with its state machine, leases and feeds: SimVoter's driver plus the product's parts that need no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from mesh.core.lease.grantor import Expire, Grantor
from mesh.core.raft import Entry
from mesh.core.state.outcome import Outcome
from mesh.store.feed import FeedFilter, FeedFrame
from mesh.store.row_codec import decode_row
from mesh.voter.answers import Reply, no_leader, outcome_unknown
from mesh.voter.beats import Beats
from mesh.voter.leases import take
from mesh.voter.proposals import Proposals
from schemas.commands import command
from schemas.errors import Problem
from schemas.limits import Profile
from schemas.versions import FIRST
from tests.sim.host import Host
from tests.sim.loop import MS, Process, S
from tests.sim.mesh_watch import MeshWatch
from tests.sim.state_machine import StateMachine
from tests.sim.voter import SimVoter

LEASE_TICK_NS = 250 * MS
LEASE_SHARE = 0.7
READ_WAIT_NS = 5 * S
FEED_WAIT_NS = 3 * S
QUIET_TIMEOUTS = 2


class MeshVoter(SimVoter):
    def equip(self, host: Host, watch: MeshWatch, profile: Profile) -> None:
        self.machine_host = host
        self.mesh_watch = watch
        self.profile = profile
        self.machine = StateMachine()
        self.rate = host.rate
        self.expiries_proposed = 0

    # -- life

    def start(self) -> None:
        self._rounds: deque[tuple[int, int]] = deque(maxlen=256)
        self._was_leader = False
        self.grantor: Grantor | None = None
        self._led_term = 0
        self._polls: list[tuple[FeedFilter, int, Reply]] = []
        self.beats = Beats(expected=True)
        self._proposals: Proposals | None = None
        super().start()
        self._proposals = Proposals(self.node, self.machine_host.wall_ms, lambda: self.machine.stamp_ms, lambda: FIRST)
        self.after(LEASE_TICK_NS, self._lease_tick)

    def restore(self) -> int:
        return self.machine.index

    def power_loss(self) -> None:
        if self.alive:
            self.crash()
        self.machine.power_loss()

    # -- turns

    def pump(self) -> None:
        if self._writing is None and self._proposals is not None:
            self._proposals.flush(self.now_s())
        super().pump()

    def now_s(self) -> float:
        return self.machine_host.now_ns() / S

    def apply(self, entry: Entry) -> None:
        machine = self.machine
        outcome, frame = machine.apply(entry)
        self.mesh_watch.applied(self.name, entry.index, machine.last_command, outcome, frame, machine.store.hash.value)
        if entry.index % 64 == self.raft_id % 64:
            machine.sync()
        if self.node.is_leader and entry.term == self.node.term and self._led_term != entry.term:
            self._lead()
        if frame is not None:
            self._publish(frame)
        if self._proposals is not None:
            done: list[tuple[int, int, Outcome]] = []
            if outcome is not None:
                done.append((entry.index, entry.term, outcome))
            self._proposals.applied(done, entry.index)

    def beat_sent(self, number: int) -> None:
        self._rounds.append((number, self.machine_host.now_ns()))

    def role_changed(self) -> None:
        leads, self._was_leader, before = self.node.is_leader, self.node.is_leader, self._was_leader
        if leads != before:
            self.beats.leads(self.now_s(), leads)
        if before and not leads:
            self.grantor = None
            if self._proposals is not None:
                self._proposals.fail_all(outcome_unknown("this voter is not the leader any more"))

    # -- proposals

    def op_propose(self, fields: dict[str, Any], term: int | None, reply: Reply) -> None:
        """On any voter; a follower passes it on once."""
        if self.node.is_leader or not self.node.leader:
            self.propose_here(fields, term, reply)
            return
        leader = self.peers[self.node.leader]
        assert isinstance(leader, MeshVoter)
        self.call(self, self.host, leader, leader.propose_here, (fields, term), reply)

    def propose_here(self, fields: dict[str, Any], term: int | None, reply: Reply) -> None:
        if not self.node.is_leader or self._proposals is None:
            reply(None, no_leader())
            return
        fields = dict(fields)

        def answered(value: Any, problem: Problem | None) -> None:
            if value is not None:
                self.watch.answered(value["idx"], self.watch.chosen[value["idx"] - 1].term)
            reply(value, problem)

        self._proposals.add(fields, term, answered)
        self.pump()

    def call(
        self,
        caller: Process,
        source: str,
        target: SimVoter,
        op: Callable[..., None],
        args: tuple[Any, ...],
        reply: Reply,
    ) -> None:
        """A request over the network and its answer back to this life of the caller."""
        life = caller.life

        def back(value: Any, problem: Problem | None) -> None:
            self.network.send(target.host, source, caller, given, value, problem)

        def given(value: Any, problem: Problem | None) -> None:
            if caller.life == life:
                reply(value, problem)

        self.network.send(source, target.host, target, op, *args, back)

    # -- leases

    def quorum_held(self) -> bool:
        acked = self.node.quorum_acked_round()
        if not acked or not self.node.may_serve_lease_reads():
            return False
        for number, sent_ns in reversed(self._rounds):
            if number <= acked:
                return self.machine_host.now_ns() - sent_ns < LEASE_SHARE * self.timers.election_ns
        return False

    def _lead(self) -> None:
        """Its first entry is applied: everything that earlier leaders decided about nodes is known here."""
        self._led_term = self.node.term
        self.grantor = Grantor(self.profile, self.machine_host.now_ns())
        for entity in ("meta", "node"):
            for key, row in self.machine.store.scan(entity):
                take(self.grantor, entity, key, row, self.machine_host.now_ns())

    def _lease_tick(self) -> None:
        self.after(LEASE_TICK_NS, self._lease_tick)
        if self.node.is_leader and self.beats.lost(self.now_s()):
            self.mesh_watch.counts["beat step-downs"] += 1
            self.node.step_down("its controllers are silent", QUIET_TIMEOUTS * self.timers.election_ticks)
            self.pump()
        if self._proposals is not None:
            self._proposals.expire(self.now_s())
        if self.grantor is not None:
            for effect in self.grantor.tick(self.machine_host.now_ns(), self.quorum_held()):
                self._expire(self.grantor, effect, self.node.term)
            left = self.grantor.hold_left(self.machine_host.now_ns(), self.quorum_held())
            if left is not None:
                self.propose_here(command("HoldLeft", **left), self.node.term, lambda value, problem: None)

    def _expire(self, grantor: Grantor, effect: Expire, term: int) -> None:
        self.loop.trace(self.name, "expires", effect.node, effect.text)
        state = {"open": True}

        def failed() -> None:
            if state["open"]:
                state["open"] = False
                grantor.expiry_failed(effect.node, self.machine_host.now_ns())

        def confirmed(_: int) -> None:
            if not state["open"]:
                return
            state["open"] = False
            self.expiries_proposed += 1
            self.propose_here(
                command("ExpireNode", node_id=effect.node, uid=effect.uid, text=effect.text), term, proposed
            )

        def proposed(value: Any, problem: Problem | None) -> None:
            surely_not = problem.code != "timeout_unknown" if problem is not None else not value["ok"]
            if surely_not:
                grantor.expiry_failed(effect.node, self.machine_host.now_ns())

        if self.read(self.watch.acked, confirmed):
            self.after(READ_WAIT_NS, failed)
        else:
            failed()

    def op_renew(self, renewal: dict[str, Any], reply: Reply) -> None:
        if not self.node.is_leader and self.node.leader:
            leader = self.peers[self.node.leader]
            assert isinstance(leader, MeshVoter)
            self.call(self, self.host, leader, leader.renew_here, (renewal,), reply)
        else:
            self.renew_here(renewal, reply)

    def renew_here(self, renewal: dict[str, Any], reply: Reply) -> None:
        if self.grantor is None:
            reply({"granted": False, "sent_ns": renewal["sent_ns"], "ttl_ms": 0, "reason": "not_leading"}, None)
        else:
            reply(self.grantor.renew(renewal, self.machine_host.now_ns(), self.quorum_held()), None)

    def op_beat(self, reply: Reply) -> None:
        self.beats.beat(self.now_s())
        reply({"leading": self.node.is_leader, "term": self.node.term, "led": self._led_term}, None)

    # -- the feed, as a poll that waits

    def op_feed(self, feed_filter: FeedFilter, after: int | None, reply: Reply) -> None:
        """after: the index the caller is at, None for a snapshot. A caller is never sent back in time."""
        if after is None:
            reply({"snapshot": self._snapshot(feed_filter), "token": self._token(self.machine.index)}, None)
            return
        frames = self._wanted(feed_filter, self.machine.frames_after(after))
        if after <= self.machine.index and frames:
            reply(frames, None)
            return
        waiting = (feed_filter, after, reply)
        self._polls.append(waiting)
        self.after(FEED_WAIT_NS, self._poll_ends, waiting)

    def _poll_ends(self, waiting: tuple[FeedFilter, int, Reply]) -> None:
        if waiting in self._polls:
            self._polls.remove(waiting)
            _, after, reply = waiting
            if self.machine.index < after:
                reply(None, Problem("lagging", "this voter is behind the token", "resume on another", status=503))
            else:
                reply([{"changes": [], "token": self._token(self.machine.index)}], None)

    def _publish(self, frame: FeedFrame) -> None:
        if self.grantor is not None:
            for change in frame.changes:
                row = decode_row(change.row) if change.row is not None else None
                take(self.grantor, change.entity, change.key, row, self.machine_host.now_ns())
        for waiting in list(self._polls):
            feed_filter, after, reply = waiting
            if frame.index > after and feed_filter.select(frame):
                self._polls.remove(waiting)
                reply(self._wanted(feed_filter, self.machine.frames_after(after)), None)

    def _wanted(self, feed_filter: FeedFilter, frames: list[FeedFrame]) -> list[dict[str, Any]]:
        wanted = []
        for frame in frames:
            changes = feed_filter.select(frame)
            if changes:
                wire = [[c.entity, c.key, decode_row(c.row) if c.row is not None else None] for c in changes]
                wanted.append({"changes": wire, "token": self._token(frame.index)})
        return wanted

    def _snapshot(self, feed_filter: FeedFilter) -> list[list[Any]]:
        store = self.machine.store
        if feed_filter.kind == "active":
            groups = [key for key, _ in store.scan("active")]
            rows = [["meta", key, row] for key, row in store.scan("meta")]
            rows += [["node", key, row] for key, row in store.scan("node")]
            rows += [["hold", key, row] for key, row in store.scan("hold")]
            for group_id in groups:
                rows.append(["group", group_id, store.get("group", group_id)])
                rows += [["task", key, row] for key, row in store.scan("task", f"{group_id}/")]
            return rows
        node = feed_filter.key
        rows = [["node", node, row] for row in (store.get("node", node),) if row is not None]
        for key, _ in store.scan("hold", f"{node}/"):
            task_key = key.split("/", 1)[1]
            rows.append(["task", task_key, store.get("task", task_key)])
            group_id = task_key.split("/", 1)[0]
            rows.append(["group", group_id, store.get("group", group_id)])
        return rows

    def _token(self, index: int) -> str:
        return f"sim.1.{index}"
