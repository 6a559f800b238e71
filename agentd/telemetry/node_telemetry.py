"""Every few seconds: looks at the tasks of this host, keeps a sample, tells the leader, and judges where this is he."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import aiohttp

from agentd.core.certificate_life import CertificateNow
from agentd.core.clocks import Clock
from agentd.core.quiet import Quiet
from agentd.core.report import Report
from agentd.core.telemetry_blob import CardNow, NodeNow, Progress, TaskNow, pack_node
from agentd.node_feed import NodeFeed, Row
from agentd.runtime.base import Observed, TaskId
from agentd.telemetry.curve_files import CurveFiles, Logs
from agentd.telemetry.desk import TelemetryDesk
from agentd.telemetry.history import History, TaskSample
from agentd.telemetry.leader_agent import LeaderAgent
from agentd.telemetry.rendezvous_probe import Wanted
from agentd.telemetry.report_pipes import ReportPipes
from agentd.telemetry.stall_end import StallEnd
from agentd.telemetry.task_probe import Seen, TaskProbe, running_s
from mesh.client import MeshClient
from schemas.errors import HeteroFlowError
from schemas.rules.tfevents.run_state import RunState
from schemas.states import GONE, RUNNING
from schemas.task_types import TRAINING

log = logging.getLogger(__name__)
HISTORY_EVERY_S = 10.0
# A host without tasks has little to say.
_IDLE_EVERY_S = 10.0
_SEND_S = 5.0


def task_name(task_id: TaskId) -> str:
    return f"{task_id.group_id}.{task_id.attempt}.{task_id.rank}"


def logs_of(group: Row) -> Logs:
    training = group["document"].get("training") or {}
    return Logs(group["checkpoint_path"], training.get("loss_tag"))


class NodeTelemetry:
    def __init__(
        self,
        node_id: str,
        mesh: MeshClient,
        feed: NodeFeed,
        probe: TaskProbe,
        curves: CurveFiles,
        reports: ReportPipes,
        history: History,
        desk: TelemetryDesk,
        leader: LeaderAgent,
        every_s: float,
        simulated: bool,
        certificate: Callable[[], CertificateNow | None] = lambda: None,
        stall_end: StallEnd | None = None,
    ) -> None:
        self.node_id, self._mesh, self._feed, self._probe = node_id, mesh, feed, probe
        self.curves, self.history, self.desk, self.leader = curves, history, desk, leader
        self._reports, self._stall_end = reports, stall_end or StallEnd(0)
        self._every_s, self.simulated, self._certificate = every_s, simulated, certificate
        self._seen: Sequence[Observed] = ()
        self._sampled = self._told = float("-inf")
        self._clock: Clock | None = None
        self.now: NodeNow = NodeNow(node_id, simulated, every_s)

    def cards_of(self, task_id: TaskId) -> list[CardNow] | None:
        """As of the last round; None of a task that does not run here."""
        for task in self.now.tasks:
            if (task.group_id, task.attempt, task.rank) == (task_id.group_id, task_id.attempt, task_id.rank):
                return [card for card in self.now.cards if card.uuid in task.cards]
        return None

    def look(self, seen: Sequence[Observed]) -> None:
        """After each reconcile pass: what runs here."""
        self._seen = seen

    async def run(self) -> None:
        while True:
            started = time.monotonic()
            try:
                await self.round(started)
            except (HeteroFlowError, aiohttp.ClientError, OSError, TimeoutError) as error:
                log.debug("telemetry not sent: %s", error)
            except Exception:
                log.exception("a round of telemetry failed; the next one begins anew")
            await asyncio.sleep(max(self._every_s - (time.monotonic() - started), self._every_s / 4))

    async def round(self, now: float) -> None:
        alive = [task for task in self._seen if task.state != "exited" and task.id.group_id in self._feed.groups]
        # Where no task runs the cards are looked at as seldom as they are told of.
        if alive or self.now.tasks or now - self._told >= _IDLE_EVERY_S:
            seen, states = await asyncio.gather(
                self._probe.look(alive, self._meeting(alive)), self.curves.follow(self._followed(alive))
            )
            self._reports.look([task.id for task in alive], now)
            # A group that ended during the look is not known here any more.
            still = [task for task in alive if task.id.group_id in self._feed.groups]
            tasks = tuple(self._task_now(task, seen[task.id], states) for task in still)
            self.now = NodeNow(
                self.node_id,
                self.simulated,
                self._every_s,
                self._probe.cards,
                tasks,
                self._clock,
                self._certificate(),
            )
            await self._tell(pack_node(self.now))
            self._told = now
            if tasks and now - self._sampled >= HISTORY_EVERY_S:
                self._sampled = now
                await self.history.add(self._samples(tasks))
        leader = self._mesh.leader
        if leader is not None and leader.node == self.node_id:
            await self.desk.judge()
            await self.desk.rendezvous.record(self._mesh)
            await self._stall_end.look(self._mesh, self.desk)
        elif leader is not None:
            self.desk.clear()
            self._stall_end.clear()

    def _followed(self, tasks: Sequence[Observed]) -> list[Logs]:
        """Only rank 0 reads: the directory is one for all ranks."""
        return [logs_of(self._feed.groups[task.id.group_id]) for task in tasks if task.id.rank == 0]

    def _meeting(self, tasks: Sequence[Observed]) -> dict[TaskId, Wanted]:
        """Of groups of several nodes: where their ranks meet."""
        found = {}
        for task in tasks:
            group = self._feed.groups[task.id.group_id]
            master = group["master"]
            if task.pid is None or len(group["nodes"]) < 2 or not (group["document"].get("training") or {}):
                continue
            if task.id.attempt == group["attempt"] and master is not None and master["addr"]:
                found[task.id] = Wanted(task.pid, str(master["addr"]), int(master["port"]))
        return found

    def _task_now(self, task: Observed, seen: Seen, states: dict[str, RunState]) -> TaskNow:
        group = self._feed.groups[task.id.group_id]
        state = states.get(logs_of(group).root or "") if task.id.rank == 0 else None
        # Of the group's first node alone: it is one number that people see.
        report = self._reports.newest.get(task.id) if task.id.rank == 0 else None
        if report is not None:
            report = replace(report, stepped_s=max(time.monotonic() - report.stepped_s, 0.0))
        progress = _newer(_progress(state), report)
        since_start_s = running_s(task)
        # A point that is older than the attempt is another attempt's.
        stepped = progress is not None and progress.age_s <= since_start_s
        return TaskNow(
            group_id=task.id.group_id,
            attempt=task.id.attempt,
            rank=task.id.rank,
            ranks=len(group["nodes"]),
            running=task.state == "running"
            and not task.stopping
            and group["status"] == RUNNING
            and group["attempt"] == task.id.attempt,
            running_s=since_start_s,
            cards=tuple(task.gpus),
            cpu_percent=seen.cpu_percent,
            # A service that nobody asks anything is idle and well: without its log nobody can call it stalled.
            log=seen.log if group["task_type"] == TRAINING else None,
            cards_quiet=tuple(seen.cards.values()),
            files=seen.files,
            processor=seen.processor,
            step=Quiet(max(progress.age_s, 0.0), True) if progress is not None and stepped else None,
            curve_state=state.state if state is not None else "",
            curve_text=state.text if state is not None else "",
            progress=progress,
            report=report,
            rendezvous=seen.rendezvous,
            ended=sum((group.get("tally") or {}).get(status, 0) for status in GONE),
        )

    async def _tell(self, blob: bytes) -> None:
        leader = self._mesh.leader
        if leader is None or leader.node is None:
            return
        if leader.node == self.node_id:
            self._clock = Clock(0.0)
            self.desk.take(self.node_id, blob)
        else:
            # Said with the next blob; against another leader's clock it would mean something else.
            self._clock = None
            self._clock = await self.leader.tell(leader.node, blob, _SEND_S)

    def _samples(self, tasks: Sequence[TaskNow]) -> list[TaskSample]:
        cards = {card.uuid: card for card in self.now.cards}
        at_ms = time.time_ns() // 1_000_000
        return [
            TaskSample(
                at_ms=at_ms,
                task=f"{task.group_id}.{task.attempt}.{task.rank}",
                cpu_percent=task.cpu_percent,
                step=task.progress.step if task.progress is not None else None,
                loss=task.progress.value if task.progress is not None else None,
                cards=tuple(cards[uuid] for uuid in task.cards if uuid in cards),
            )
            for task in tasks
        ]


def _newer(curve: Progress | None, report: Report | None) -> Progress | None:
    """Of what the event files and the task itself say, the one that moved last."""
    if report is None or report.step is None or report.loss is None:
        return curve
    if curve is not None and curve.age_s < report.stepped_s:
        return curve
    return Progress("loss", report.step, report.loss, time.time() - report.stepped_s, report.stepped_s)


def _progress(state: RunState | None) -> Progress | None:
    if state is None or state.last is None or state.loss is None or state.age_s is None:
        return None
    return Progress(state.loss, state.last.step, state.last.value, state.last.wall, state.age_s)
