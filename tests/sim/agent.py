"""One agent: the product's lease holder, node feed, reconcile core and claim checks under a shell of virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentd.core.claim import ClaimRefused, check_cards
from agentd.core.reconcile import Action, Claim, DropClaim, MakeClaim, Remove, Report, Start, Stop, reconcile
from agentd.node_feed import NodeFeed
from agentd.rejoin import Rejoin
from agentd.runtime.base import Observed, TaskId
from mesh.core.lease.holder import Holder
from mesh.store.feed import FeedFilter
from schemas.commands import command
from schemas.limits import RENEW_TIMEOUT_MS, Profile
from tests.sim.caller import Caller
from tests.sim.host import Host, LeaseFile
from tests.sim.loop import MS, Process, S
from tests.sim.mesh_voter import MeshVoter
from tests.sim.mesh_watch import MeshWatch
from tests.sim.network import Network
from tests.sim.task import Program, SimTask

if TYPE_CHECKING:
    from tests.sim.controllers import SimControllers

LOOK_AGAIN_NS = 5 * S
REPEAT_NS = 1 * S
ALWAYS = 1_000_000


@dataclass(slots=True)
class ClaimRates:
    """fail, hang: shares of claims that are refused or take as long as they like."""

    takes_ns: int = 100 * MS
    fail: float = 0.0
    hang: float = 0.0


@dataclass(slots=True)
class LocalClaim:
    token: int
    cards: tuple[str, ...]
    state: str = "working"
    refusal: ClaimRefused | None = None


class SimAgent(Process):
    def __init__(
        self, host: Host, network: Network, voters: list[MeshVoter], watch: MeshWatch, profile: Profile,
        programs: dict[str, Program], rates: ClaimRates,
    ) -> None:  # fmt: skip
        super().__init__(host.loop, f"{host.name}:agent")
        self.rate = host.rate
        self.machine = host
        self.uid = f"uid-{host.name}-1"
        self.controllers: SimControllers | None = None
        self.rates = rates
        self._network, self._voters, self._watch, self._profile = network, voters, watch, profile
        self._programs = programs
        self._claims: dict[TaskId, LocalClaim] = {}

    # -- life

    def start(self) -> None:
        self.begin()
        host = self.machine
        self._mesh = Caller(self, host.name, self._network, self._voters)
        self._renewers = [Caller(self, host.name, self._network, self._voters) for _ in range(2)]
        self._feed_caller = Caller(self, host.name, self._network, self._voters)
        self._lease = LeaseFile(host)
        self._holder = Holder(host.name, self.uid, self._profile.renew_ms)
        self._feed = NodeFeed(None, host.name, self.wake)  # type: ignore[arg-type]  # no mesh
        self._rejoin = Rejoin(None, self._feed, host.name, self.uid)  # type: ignore[arg-type]  # no mesh
        self._claims = {}
        self._ready = self._passing = self._again = False
        self._reports: dict[tuple[TaskId, int], dict[str, Any]] = {}
        self._reported: dict[tuple[TaskId, int], tuple[int, int]] = {}
        self._in_flight: set[tuple[TaskId, int]] = set()
        self._rejoining = False
        self._watch.counts["adoptions"] += sum(task.running for task in host.tasks.values())
        if self.controllers is not None:
            self.controllers.start()
        self._register()

    def overhear(self, name: str) -> list[dict[str, Any]]:
        """Fills with the commands of that name which this life proposes from now on."""
        return self._mesh.overheard.setdefault(name, [])

    def crash(self) -> None:
        """Claims die with the process: the port is its socket, the rest its memory."""
        if not self.alive:
            return
        self.end()
        for key in self._claims:
            self._watch.claim_dropped(key)
        self._claims = {}
        self.loop.trace(self.name, "crash")
        if self.loop.rng.random() < 0.3:
            self._lease.torn()

    def _register(self) -> None:
        host = self.machine
        gpus = [{"uuid": uuid, "type": "H100", "memory_mb": 80_000, "index": at} for at, uuid in enumerate(host.gpus)]
        facts = command(
            "RegisterNode", node_id=host.name, uid=self.uid, api_addr=f"{host.name}:7460", voter_addr=None, gpus=gpus,
            gpu_backend="simulated", runtime="process", labels={}, version="sim", cpus=8, memory_mb=1000,
        )  # fmt: skip
        self._mesh.propose(facts, self._registered, ALWAYS)

    def _registered(self, answer: dict[str, Any] | None) -> None:
        assert answer is not None
        if not answer["ok"]:
            # The name belongs to the host that was here before its disk was changed, until that one is given up.
            assert answer["code"] == "node_name_taken", answer
            self._watch.counts["names refused"] += 1
            self.after(2 * S, self._register)
            return
        self._register_index = answer["idx"]
        self._renew()
        self._poll(None)

    # -- lease

    @property
    def granted(self) -> bool:
        return self.machine.now_ns() < self._lease.deadline_ns

    def _renew(self) -> None:
        renewal = self._holder.renewal(self.machine.now_ns())
        if renewal is not None:
            for caller in self._renewers:
                voter = caller.voter()
                wait = RENEW_TIMEOUT_MS * MS
                caller.ask(
                    voter, voter.op_renew, (renewal,), wait, lambda v, _, c=caller, a=voter: self._renewed(c, a, v)
                )
        self.after(max(1, self._holder.next_ns - self.machine.now_ns()), self._renew)

    def _renewed(self, caller: Caller, asked: MeshVoter, answer: dict[str, Any] | None) -> None:
        if answer is None:
            return
        if answer["reason"] == "not_leading":
            caller.leave(asked)
        before = self.granted
        if self._holder.answered(answer, self.machine.now_ns()) is None:
            self._lease.extend(self._holder.until_ns)
        if self.granted != before:
            self.wake()

    # -- feed

    def _poll(self, after: int | None) -> None:
        voter = self._feed_caller.voter()
        node = FeedFilter("node", self.machine.name)
        self._feed_caller.ask(voter, voter.op_feed, (node, after), 4 * S, lambda v, code: self._polled(after, v, code))

    def _polled(self, after: int | None, answer: Any, code: str) -> None:
        if code:
            self.after(100 * MS, self._poll, after)
            return
        for frame in answer if isinstance(answer, list) else [answer]:
            self._feed._take(frame)
        if not self._ready and self._feed.index >= self._register_index:
            # Before that an order may be missing, and a healthy task would be stopped.
            self._ready = True
            self._look_again()
        self._poll(self._feed.index)

    # -- reconcile

    def wake(self) -> None:
        if self._ready and not self._again:
            self._again = True
            self.after(1 * MS, self._pass)

    def _look_again(self) -> None:
        self.wake()
        self.after(LOOK_AGAIN_NS, self._look_again)

    def _pass(self) -> None:
        self._again = False
        seen = [task.observed() for task in sorted(self.machine.tasks.values(), key=lambda task: task.id)]
        claims = {key: Claim(claim.token, claim.state) for key, claim in self._claims.items()}
        actions = reconcile(self._feed.orders(), seen, claims, self.granted)
        by_id = {item.id: item for item in seen}
        self._offer([(a, self._report_fields(a, by_id.get(a.key))) for a in actions if isinstance(a, Report)])
        changing = [action for action in actions if not isinstance(action, Report)]
        for action in changing:
            self._carry_out(action, by_id)
        if any(isinstance(action, Start | Remove | DropClaim) for action in changing):
            self.wake()
        self._rejoin.look(seen)
        self._rejoin_if_clean()

    def _carry_out(self, action: Action, seen: dict[TaskId, Observed]) -> None:
        key = action.key
        match action:
            case MakeClaim():
                self._make_claim(key, action.token, seen)
            case DropClaim():
                self._drop_claim(key)
            case Start():
                self._start_task(key, action.token)
            case Stop():
                self.machine.tasks[key].ask_stop(self._programs[key.group_id].grace_ns, "stopped")
            case Remove():
                self.machine.tasks.pop(key).end()

    def _make_claim(self, key: TaskId, token: int, seen: dict[TaskId, Observed]) -> None:
        row, group = self._feed.tasks[key], self._feed.groups.get(key.group_id)
        if group is None:
            return
        in_use = {card: str(item.id) for item in seen.values() if item.id != key for card in item.gpus}
        in_use |= {card: str(other) for other, held in self._claims.items() for card in held.cards}
        cards = tuple(row["gpus"])
        claim = self._claims[key] = LocalClaim(token, cards)
        self._watch.claim_made(self.machine.name, key)
        rng = self.loop.rng
        refusal = check_cards(cards, len(cards), self.machine.gpus, in_use)
        if refusal is None and rng.random() < self.rates.fail:
            refusal = ClaimRefused("disk_full", "drawn", permanent=rng.random() < 0.03)
        takes = self.rates.takes_ns * (0.2 + rng.random())
        if rng.random() < self.rates.hang:
            takes += rng.uniform(0, 90) * S
        self.after(takes, self._claimed, key, claim, refusal)

    def _claimed(self, key: TaskId, claim: LocalClaim, refusal: ClaimRefused | None) -> None:
        if self._claims.get(key) is claim:
            claim.state = "held" if refusal is None else "failed"
            claim.refusal = refusal
            if refusal is not None:
                self._watch.counts["claims refused"] += 1
            self.wake()

    def _drop_claim(self, key: TaskId) -> None:
        del self._claims[key]
        self._watch.claim_dropped(key)

    def _start_task(self, key: TaskId, token: int) -> None:
        cards = self._claims[key].cards
        self._drop_claim(key)
        group = self._feed.groups[key.group_id]
        task = SimTask(
            self.machine,
            self._watch,
            key,
            token,
            cards,
            group["on_isolation"],
            self._programs[key.group_id],
            self._task_changed,
        )
        self.machine.tasks[key] = task
        task.launch()

    def _task_changed(self) -> None:
        """The runtime's push to whichever agent runs now."""
        self.deliver(self.life, self.wake, ())

    # -- reports, repeated until the rows show them

    def _report_fields(self, report: Report, seen: Observed | None) -> dict[str, Any]:
        key = report.key
        fields: dict[str, Any] = {
            "group_id": key.group_id, "attempt": key.attempt, "rank": key.rank, "token": report.token,
            "seq": report.seq, "kind": report.kind, "at_ms": self.machine.wall_ms(),
        }  # fmt: skip
        claim = self._claims.get(key)
        if report.kind == "claimed":
            fields["resume"] = None
        if report.kind == "claim_failed":
            refusal = claim.refusal if claim is not None else None
            fields |= {"code": refusal.code, "text": refusal.text, "permanent": refusal.permanent} if refusal else {}
        if report.kind == "exited":
            why, code, signal = (seen.why, seen.exit_code, seen.signal) if seen is not None else ("lost", None, None)
            fields |= {"exit_code": code, "signal": signal, "why": why, "text": ""}
        return fields

    def _offer(self, reports: list[tuple[Report, dict[str, Any]]]) -> None:
        offered = {(report.key, report.seq): fields for report, fields in reports}
        now_ns = self.machine.now_ns()
        self._reported = {name: sent for name, sent in self._reported.items() if name in offered}
        for name, fields in offered.items():
            index, at = self._reported.get(name, (0, 0))
            early = name in self._reported and (self._feed.index < index or now_ns - at < REPEAT_NS)
            if name not in self._in_flight and not early:
                self._reports[name] = fields
        self._reports = {name: fields for name, fields in self._reports.items() if name in offered}
        self._send_reports()

    def _send_reports(self) -> None:
        if self._in_flight or not self._reports:
            return
        batch = dict(sorted(self._reports.items()))
        self._in_flight = set(batch)
        reports = command("TaskReports", node=self.machine.name, uid=self.uid, reports=list(batch.values()))
        self._mesh.propose(reports, lambda answer: self._sent(batch, answer), 1)

    def _sent(self, batch: dict[tuple[TaskId, int], dict[str, Any]], answer: dict[str, Any] | None) -> None:
        self._in_flight = set()
        if answer is None:
            self.after(200 * MS, self._send_reports)
            return
        for name in batch:
            self._reports.pop(name, None)
            self._reported[name] = (answer["idx"], self.machine.now_ns())
        self._send_reports()

    # -- the way back of a lost host

    def _rejoin_if_clean(self) -> None:
        inventory = self._rejoin._inventory
        if inventory is None or self._rejoining:
            return
        self._rejoining = True
        rejoin = command(
            "RejoinNode", node_id=self.machine.name, uid=self.uid, losses=self._rejoin._losses, tasks=inventory
        )
        self._mesh.propose(rejoin, self._rejoined, 1)

    def _rejoined(self, _: dict[str, Any] | None) -> None:
        self.after(1 * S, self._may_rejoin)

    def _may_rejoin(self) -> None:
        self._rejoining = False
        self.wake()
