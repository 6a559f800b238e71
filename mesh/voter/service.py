"""One voter: the Raft loop, the state machine, peers and sessions tied together on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import ClientSession

from mesh.core.raft.config import Config
from mesh.core.raft.message import Message, MsgType
from mesh.core.raft.rawnode import RawNode
from mesh.core.raft.ready import ReadState, Role, SoftState
from mesh.security.wire import Wire
from mesh.store.directory import Roster
from mesh.store.log_db import LogDb
from mesh.store.raft_storage import RaftStorage
from mesh.store.state_db import AppliedBatch, StateDb
from mesh.store.state_reader import StateReader
from mesh.store.worker import Worker
from mesh.transport.codec import pack
from mesh.transport.peers import RAFT_PATH, Counters, Envelope, PeerLink, PeerServer, Received
from mesh.voter.agreement import Agreement
from mesh.voter.answers import Reply, disk_full, no_leader, outcome_unknown, too_large
from mesh.voter.beats import Beats
from mesh.voter.calls import Calls
from mesh.voter.feeds import FeedHub
from mesh.voter.leases import TICK_S as LEASE_TICK_S
from mesh.voter.leases import LeaseKeeper
from mesh.voter.machine import Machine
from mesh.voter.options import TIMERS, Options
from mesh.voter.proposals import Proposals
from mesh.voter.queries import Queries
from mesh.voter.raft_loop import RaftLoop
from mesh.voter.reads import ReadBarrier
from mesh.voter.requests import renewal_fault
from mesh.voter.sessions import Session
from mesh.voter.status import status_of
from schemas.commands import command_refusal
from schemas.errors import InvalidInput, Problem, Unavailable
from schemas.limits import ENTRY_MAX, PROFILES

LEASE_SHARE = 0.7
"""Of the minimum election timeout: members' ticks drift against this clock."""
MARK_S = 1.0
AGREE_S = 5.0
HAND_OVER_S = 1.0
"""An election on the leader's word takes two messages and two writes. A mesh that stops as a whole waits in vain."""
PROTOCOL_VERSION = 1

_logger = logging.getLogger("heteroflow.voter")


@dataclass(slots=True)
class Parts:
    """What was opened before the voter starts."""

    options: Options
    roster: Roster
    log: LogDb
    log_worker: Worker
    storage: RaftStorage
    state: StateDb
    state_worker: Worker
    reader: StateReader
    reader_worker: Worker


class Voter:
    """on_fatal is called once, with the error that ends the process."""

    def __init__(
        self, parts: Parts, client: ClientSession, wire: Wire, on_fatal: Callable[[BaseException], None]
    ) -> None:
        options, roster = parts.options, parts.roster
        self._loop = asyncio.get_running_loop()
        self._parts, self._on_fatal = parts, on_fatal
        self.roster = roster
        self._timers = timers = TIMERS[options.profile]
        self._me = options.raft_id
        self.sessions: set[Session] = set()
        self.node = RawNode(
            Config(
                id=self._me,
                storage=parts.storage,
                rng=random.SystemRandom(),
                election_ticks=timers.election_ticks,
                heartbeat_ticks=timers.heartbeat_ticks,
                applied=parts.state.index,
                max_msg_bytes=ENTRY_MAX,
                max_inflight=64,
            )
        )
        self.machine = Machine(
            self._loop, parts.state_worker, parts.state, self._on_batch, self._state_full, self.fatal
        )
        self.proposals = Proposals(
            self.node,
            lambda: time.time_ns() // 1_000_000,
            lambda: self.machine.stamp_ms,
            lambda: self.machine.cluster_version,
        )
        self.reads_barrier = ReadBarrier(self._loop, self.node)
        self.raft = RaftLoop(
            self._loop, self.node, parts.log, parts.storage, parts.log_worker, self.machine, self.proposals, self
        )
        self.feeds = FeedHub(
            roster.cluster_id, roster.epoch, self.machine, parts.reader_worker, parts.state.path, parts.reader
        )
        self.queries = Queries(self._loop, self.reads_barrier, self.raft, self.machine, self.feeds)
        self.leases = LeaseKeeper(PROFILES[options.profile], self._quorum_held, self._load_leases, self._propose_surely)
        # Alone there is nobody to hand the lead to.
        self.beats = Beats(expected=options.control_fd is not None and len(roster.voters) > 1)
        self.calls = Calls(self._loop.time)
        self.counters = Counters()
        envelope = Envelope(roster.cluster_id, roster.epoch, self._me)
        peers = {v.raft_id: v.node for v in roster.voters if v.raft_id != self._me}
        self.peer_server = PeerServer(envelope, peers, self.counters, self._on_received, wire)
        self.links = {
            v.raft_id: PeerLink(
                envelope,
                v.raft_id,
                f"ws://{v.voter_addr}{RAFT_PATH}",
                "" if wire.secure else options.token,
                client,
                self.counters,
                self._link_down,
                partial(wire.check_voter, node=v.node),
            )
            for v in roster.voters
            if v.raft_id in peers
        }
        self.agreement = Agreement(self.machine, lambda raft_id: self._name(raft_id))
        self._soft = SoftState(0, Role.FOLLOWER)
        self._another_leads = asyncio.Event()
        self._lead_from, self._lead_since = 0, 0.0
        self._leads = False
        self._disk_full = {"log": False, "state": False}
        self._term = 0
        self._tasks: list[asyncio.Task[None]] = []

    # -- life

    def start(self) -> None:
        every = self._every
        self._tasks = [asyncio.create_task(link.run()) for link in self.links.values()]
        self._tasks += [
            asyncio.create_task(every(self._timers.tick_s, self._tick)),
            asyncio.create_task(every(LEASE_TICK_S, self.leases.tick)),
            asyncio.create_task(every(MARK_S, self._each_second)),
            asyncio.create_task(every(AGREE_S, self._compare_states)),
        ]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)
        if not self.links:
            self.node.campaign()
        self.raft.wake()

    async def hand_over(self) -> None:
        """Before an orderly end: another voter is told to lead and awaited for a moment; nobody has to time out."""
        if not self.node.is_leader or not any(link.connected for link in self.links.values()):
            return
        self._another_leads.clear()
        self.raft.give_up_lead("it is being stopped")
        self.raft.wake()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HAND_OVER_S):
                await self._another_leads.wait()
            _logger.info("%s leads now", self._name(self._soft.leader))

    async def stop(self) -> None:
        self.raft.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for session in tuple(self.sessions):
            session.closed()

    async def _every(self, period_s: float, work: Callable[[], None]) -> None:
        await asyncio.sleep(period_s * random.random())  # voters started together must not tick together
        while True:
            await asyncio.sleep(period_s)
            work()

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """None of them ends by itself; without one of them the voter would be half alive."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fatal(error)

    def fatal(self, error: BaseException) -> None:
        self.raft.stop()
        self._on_fatal(error)

    def _tick(self) -> None:
        self.raft.tick()
        self.queries.note_lease()
        if self.reads_barrier.tick():
            self.raft.wake()
        now = self._loop.time()
        if self.node.is_leader and self.beats.lost(now):
            _logger.error("the controllers have not beaten for %.1f s; giving up the lead", self.beats.silent_s(now))
            self.node.step_down("its controllers are silent", quiet_ticks=2 * self._timers.election_ticks)
            self.raft.wake()

    def _each_second(self) -> None:
        self.proposals.expire(self._loop.time())
        self.calls.expire()
        self._parts.log_worker.submit(self._parts.log.sync_mark, self._marked)

    def _marked(self, _: Any, error: BaseException | None) -> None:
        if error is not None:
            self.fatal(error)

    def _compare_states(self) -> None:
        report = pack(self.agreement.report())
        for link in self.links.values():
            link.call(0, "state_hash", report)

    # -- the loop's hooks

    def send(self, messages: list[Message]) -> None:
        by_peer: dict[int, list[Message]] = {}
        for message in messages:
            by_peer.setdefault(message.to, []).append(message)
        for peer, theirs in by_peer.items():
            self.links[peer].send(theirs)

    def before_turn(self) -> None:
        self.reads_barrier.flush()

    def reads(self, served: list[ReadState], dropped: list[bytes]) -> None:
        self.reads_barrier.served(served, dropped)

    def leadership(self, soft: SoftState, term: int) -> None:
        """Leader, role or term changed. Several changes may have come between two calls, even a lost and won lead."""
        before, self._soft, self._term, old_term = self._soft, soft, term, self._term
        leads = soft.role is Role.LEADER
        if soft.leader not in (0, self._me):
            self._another_leads.set()
        if before.role is Role.LEADER and (not leads or term != old_term):
            self._lose_lead()
        if (soft.leader, term) != (before.leader, old_term):
            self.calls.fail("the leader changed")
        if leads and (before.role is not Role.LEADER or term != old_term):
            # It acts for the mesh only once its state includes everything up to its own first entry.
            self._lead_from, self._lead_since = self.node.raft.log.last_index(), self._loop.time()
            self.beats.leads(self._lead_since, True)
            self._take_lead()
        elif not leads:
            self._tell_leader()

    def _lose_lead(self) -> None:
        self._leads, self._lead_from = False, 0
        self.beats.leads(self._loop.time(), False)
        self.leases.drop()
        self.proposals.fail_all(outcome_unknown("this voter is not the leader any more"))

    def _take_lead(self) -> None:
        if (
            self._lead_from
            and not self._leads
            and self.machine.index >= self._lead_from
            and self.machine.term == self.node.term
        ):
            self._leads = True
            # A majority has taken an entry of this term, which was sent after the election.
            self.queries.fresh(self._lead_since)
            self.leases.lead()
            self._tell_leader()

    def _tell_leader(self) -> None:
        for session in tuple(self.sessions):
            session.push_leader()

    def disk_full(self, full: bool) -> None:
        self._full("log", full)

    def _state_full(self, full: bool) -> None:
        if full:
            self.raft.give_up_lead("its disk is full")
            self.raft.wake()
        self._full("state", full)

    def _full(self, what: str, full: bool) -> None:
        self._disk_full[what] = full
        self.proposals.disk_is_full = any(self._disk_full.values())
        if full:
            self.proposals.fail_all(outcome_unknown("the leader's disk is full"))

    def _on_batch(self, batch: AppliedBatch) -> None:
        self.proposals.applied(batch.outcomes, batch.index)
        if batch.frames:
            self.feeds.publish(batch.frames)
            for frame in batch.frames:
                self.leases.observe(frame)
        self._take_lead()
        if not self.machine.behind:
            self.raft.wake()

    # -- peers

    def _on_received(self, received: Received) -> None:
        if received.messages:
            if received.sender == self._soft.leader and any(
                m.type in (MsgType.APP, MsgType.HEARTBEAT) for m in received.messages
            ):
                self.queries.fresh(self._loop.time())
            self.raft.step(received.messages)
        link = self.links[received.sender]
        if not link.connected:
            link.retry_now()
        for number, op, args in received.calls:
            self._on_call(link, number, op, args)
        for number, value, problem in received.answers:
            self.calls.answered(received.sender, number, value, problem)

    def _on_call(self, link: PeerLink, number: int, op: str, args: Any) -> None:
        def reply(value: Any, problem: Problem | None) -> None:
            link.answer(number, value, problem.to_dict() if problem is not None else None, urgent=op == "renew")

        if op == "propose" and isinstance(args, list) and len(args) == 2 and isinstance(args[0], dict):
            self._propose_here(args[0], args[1] if isinstance(args[1], int) else None, reply)
        elif op == "renew" and isinstance(args, dict):
            reply(self.leases.renew(args), None)
        elif op == "state_hash":
            self.agreement.compare(link.peer, args)
        else:
            reply(None, Problem("unknown_op", f"{op!r:.80} is no call between voters of this version"))

    def _link_down(self, peer: int) -> None:
        self.calls.fail("the link to the leader broke", peer)

    # -- what sessions ask

    def propose(self, command: object, term: object, reply: Reply) -> None:
        refusal = command_refusal(command)
        if refusal is not None or not isinstance(command, dict):
            reply(None, refusal)
            return
        planned = term if isinstance(term, int) else None
        # The core's own view: what was told to sessions stands still while the disk is full.
        if self.node.is_leader:
            self._propose_here(command, planned, reply)
        elif (link := self.links.get(self.node.leader)) is not None:
            payload = pack([command, planned])
            if len(payload) > ENTRY_MAX:
                reply(None, too_large(str(command["t"]), len(payload)))
                return
            self.calls.call(link, "propose", payload, reply)
        else:
            reply(None, disk_full() if self.proposals.disk_is_full else no_leader())

    def _propose_here(self, command: dict[str, Any], term: int | None, reply: Reply) -> None:
        self.proposals.add(command, term, reply)
        self.raft.wake()

    def renew(self, renewal: object, reply: Reply) -> None:
        fault = renewal_fault(renewal)
        if fault or not isinstance(renewal, dict):
            reply(None, InvalidInput("invalid_renewal", fault).problem)
        elif self.node.is_leader:
            reply(self.leases.renew(renewal), None)
        elif (link := self.links.get(self.node.leader)) is not None:
            self.calls.call(link, "renew", pack(renewal), reply, urgent=True)
        else:
            reply(None, no_leader())

    def beat(self) -> None:
        self.beats.beat(self._loop.time())

    async def query(self, level: object, reads: object, min_idx: object) -> dict[str, Any]:
        return await self.queries.query(level, reads, min_idx)

    def hello(self) -> dict[str, Any]:
        roster = self.roster
        return {
            "cluster_id": roster.cluster_id,
            "epoch": roster.epoch,
            "raft_id": self._me,
            "node": self._name(self._me),
            "profile": self._parts.options.profile,
            "versions": [PROTOCOL_VERSION],
        }

    def leader_event(self) -> dict[str, Any] | None:
        """None while this voter has won but not yet caught up with its own first entry."""
        leader = self._soft.leader
        if leader == self._me and not self._leads:
            return None
        return {
            "raft_id": leader,
            "node": self._name(leader),
            "term": self.node.term,
            "me": leader == self._me,
            "applied": self.machine.index,
        }

    def _name(self, raft_id: int) -> str | None:
        voter = self.roster.voter(raft_id)
        return voter.node if voter is not None else None

    def status(self) -> dict[str, Any]:
        return status_of(self)

    # -- leases

    def _quorum_held(self, now_ns: int) -> bool:
        sent_ns = self.raft.quorum_lease_sent_ns()
        if not sent_ns or not self.node.may_serve_lease_reads():
            return False
        return now_ns - sent_ns < LEASE_SHARE * self._timers.election_min_s * 1e9

    async def _load_leases(self) -> tuple[int, list[tuple[str, str, dict[str, Any]]]]:
        result: tuple[int, list[tuple[str, str, dict[str, Any]]]] = await self.feeds.reader_call(
            lambda reader: reader.leases()
        )
        return result

    async def _propose_surely(self, command: dict[str, Any]) -> bool:
        """True when the command surely was not applied and will not be."""
        term = self.node.term
        try:
            await self.queries.barrier()
        except Unavailable:
            return True
        answer: asyncio.Future[tuple[Any, Problem | None]] = self._loop.create_future()
        self._propose_here(command, term, lambda value, problem: answer.set_result((value, problem)))
        value, problem = await answer
        if problem is not None:
            return problem.code != "timeout_unknown"
        if not value["ok"]:
            _logger.warning("%s was refused: %s", command["t"], value["text"])
        return not value["ok"]
