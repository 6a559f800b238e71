"""What a node says of itself every few seconds: a few hundred bytes, kept by the leader as they came.

Everything is a duration at the moment of packing, never a time: no two hosts' clocks are compared, but for how far
they are apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import msgpack

from agentd.core.certificate_life import TEXT_MAX, CertificateNow
from agentd.core.clocks import Clock
from agentd.core.quiet import Quiet
from agentd.core.rendezvous import Processes, RendezvousNow
from agentd.core.report import METRICS_MAX, NAME_MAX, PHASE_MAX, Report
from agentd.core.stall import RankSignals

VERSION = 2
BLOB_MAX = 64 * 1024
_PLACE_MAX = 80
_NONE = (None, False, None, 0)  # of what a task without extras has


class BlobRefused(ValueError):
    """No blob of a version this agent reads."""


@dataclass(frozen=True, slots=True)
class CardNow:
    """util: percent. None is what could not be read."""

    uuid: str
    util: float | None = None
    memory_mb: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Of the tag that stands for the run. wall: Unix seconds by the writer's clock."""

    tag: str
    step: int
    value: float
    wall: float
    age_s: float


@dataclass(frozen=True, slots=True)
class TaskNow:
    """ranks: of the whole attempt. cards: uuids. curve_state and curve_text: empty on ranks that watch no curve.
    progress: the newest point, of whatever attempt wrote it."""

    group_id: str
    attempt: int
    rank: int
    ranks: int
    running: bool
    running_s: float
    cards: tuple[str, ...]
    cpu_percent: float | None
    log: Quiet | None
    cards_quiet: tuple[Quiet | None, ...]
    files: Quiet | None
    processor: Quiet | None
    step: Quiet | None = None
    curve_state: str = ""
    curve_text: str = ""
    progress: Progress | None = None
    report: Report | None = None
    """What the task said of itself; its stepped_s is an age."""
    rendezvous: RendezvousNow | None = None
    """Of a rank of several, as far as they meet at rank 0's port."""
    ended: int = 0
    """Of the attempt's ranks, how many are over."""

    @property
    def signals(self) -> RankSignals:
        return RankSignals(
            rank=self.rank,
            running=self.running,
            running_s=self.running_s,
            log=self.log,
            cards=self.cards_quiet,
            files=self.files,
            processor=self.processor,
            step=self.step,
            ended=self.ended,
        )


@dataclass(frozen=True, slots=True)
class NodeNow:
    node_id: str
    simulated: bool
    every_s: float
    cards: tuple[CardNow, ...] = ()
    tasks: tuple[TaskNow, ...] = ()
    clock: Clock | None = None
    certificate: CertificateNow | None = None
    """Only where people should be told of it."""

    def aged(self, by_s: float) -> "NodeNow":
        """The same, seen that much later."""
        return replace(self, tasks=tuple(_aged(task, by_s) for task in self.tasks))


def _aged(task: TaskNow, by_s: float) -> TaskNow:
    progress = task.progress
    if progress is not None:
        progress = replace(progress, age_s=progress.age_s + by_s)
    report = task.report
    if report is not None:
        report = replace(report, stepped_s=report.stepped_s + by_s)
    return replace(task, running_s=task.running_s + by_s, progress=progress, report=report)


def pack_node(now: NodeNow) -> bytes:
    """The newest tasks are left out where all of them do not fit."""
    tasks = [_pack_task(task) for task in now.tasks]
    while True:
        blob: bytes = msgpack.packb(
            [
                VERSION,
                now.node_id,
                now.simulated,
                now.every_s,
                [[card.uuid, card.util, card.memory_mb, card.temperature_c, card.power_w] for card in now.cards],
                tasks,
                None if now.clock is None else [round(now.clock.ahead_s, 3), round(now.clock.within_s, 3)],
                *_pack_certificate(now.certificate),
            ],
            use_single_float=False,
        )
        if len(blob) <= BLOB_MAX or not tasks:
            return blob
        del tasks[len(tasks) * 3 // 4 :]


def _pack_certificate(certificate: CertificateNow | None) -> list[Any]:
    """Left out where there is nothing to tell: an agent of the version before reads such a blob as it did."""
    return [] if certificate is None else [[round(certificate.left_s), certificate.trouble[:TEXT_MAX]]]


def _pack_task(task: TaskNow) -> list[Any]:
    progress = task.progress
    return [
        task.group_id,
        task.attempt,
        task.rank,
        task.ranks,
        task.running,
        round(task.running_s, 1),
        list(task.cards),
        task.cpu_percent,
        _pack_quiet(task.log),
        [_pack_quiet(quiet) for quiet in task.cards_quiet],
        _pack_quiet(task.files),
        _pack_quiet(task.processor),
        _pack_quiet(task.step),
        task.curve_state,
        task.curve_text[:300],
        None if progress is None else [progress.tag, progress.step, progress.value, progress.wall, progress.age_s],
        *_pack_extras(task),
    ]


def _pack_extras(task: TaskNow) -> list[Any]:
    """Left out where there are none: an agent of the version before reads such a blob as it did."""
    if task.rendezvous is None and not task.ended:
        return [] if task.report is None else [_pack_report(task.report)]
    # An agent of the version before knows the first of them alone, and needs one: a report that says nothing.
    meeting = None if task.rendezvous is None else _pack_meeting(task.rendezvous)
    extras = [_pack_report(task.report or Report(task.rank)), task.report is not None, meeting]
    return [*extras, task.ended] if task.ended else extras


def _pack_report(report: Report) -> list[Any]:
    numbers = [report.step, report.loss, report.lr, report.epoch]
    return [report.rank, *numbers, report.phase, [list(pair) for pair in report.metrics], round(report.stepped_s, 1)]


def _pack_meeting(now: RendezvousNow) -> list[Any]:
    said = now.processes
    told = None if said is None else [said.lowest, said.world, said.inside, said.outside, said.gathered]
    return [now.place[:_PLACE_MAX], round(now.watched_s, 1), now.listens, now.connected, round(now.held_s, 1), told]


def _pack_quiet(quiet: Quiet | None) -> list[Any] | None:
    return None if quiet is None else [round(quiet.seconds, 1), quiet.exact]


def claimed_node(blob: bytes) -> str | None:
    """Whose it says it is, without reading the rest; None where that is not to be seen."""
    unpacker = msgpack.Unpacker(max_buffer_size=BLOB_MAX)
    try:
        unpacker.feed(blob)
        unpacker.read_array_header()
        unpacker.skip()
        node = unpacker.unpack()
    except (ValueError, TypeError, msgpack.UnpackException, msgpack.BufferFull, RecursionError):
        return None
    return node if isinstance(node, str) else None


def unpack_node(blob: bytes) -> NodeNow:
    """Raises BlobRefused."""
    try:
        version, *fields = msgpack.unpackb(blob, raw=False)
        if version != VERSION:
            raise BlobRefused(f"a telemetry blob of version {version!r}, not {VERSION}")
        node_id, simulated, every_s, cards, tasks, clock, *rest = fields
        return NodeNow(
            str(node_id),
            bool(simulated),
            float(every_s),
            tuple(_card(item) for item in cards),
            tuple(_task(item) for item in tasks),
            _clock(clock),
            _certificate(rest[0]) if rest else None,
        )
    except BlobRefused:
        raise
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException, RecursionError) as error:
        raise BlobRefused(f"no telemetry blob: {error}") from error


def _clock(item: Sequence[Any] | None) -> Clock | None:
    if item is None:
        return None
    ahead, within = map(_number, item)
    return Clock(ahead, within) if ahead is not None and within is not None else None


def _certificate(item: Sequence[Any]) -> CertificateNow:
    left_s, trouble = item
    return CertificateNow(_number(left_s) or 0.0, str(trouble)[:TEXT_MAX])


def _card(item: Sequence[Any]) -> CardNow:
    uuid, util, memory_mb, temperature_c, power_w = item
    return CardNow(str(uuid), _number(util), _whole(memory_mb), _whole(temperature_c), _number(power_w))


def _task(item: Sequence[Any]) -> TaskNow:
    group_id, attempt, rank, ranks, running, running_s, cards, cpu, log, quiets, files, processor, step, *curve = item
    state, text, progress, *extras = curve
    report, reported, meeting, ended = (*extras, *(True, None, 0)[max(len(extras) - 1, 0) :])[:4] if extras else _NONE
    return TaskNow(
        str(group_id),
        int(attempt),
        int(rank),
        int(ranks),
        bool(running),
        float(running_s),
        tuple(map(str, cards)),
        _number(cpu),
        _quiet(log),
        tuple(_quiet(quiet) for quiet in quiets),
        _quiet(files),
        _quiet(processor),
        _quiet(step),
        str(state),
        str(text),
        None if progress is None else _progress(progress),
        _report(report) if reported else None,
        None if meeting is None else _meeting(meeting),
        int(ended),
    )


def _report(item: Sequence[Any]) -> Report:
    rank, step, loss, lr, epoch, phase, metrics, age_s = item
    values = [None if value is None else float(value) for value in (loss, lr, epoch)]
    named = tuple((str(name)[:NAME_MAX], float(value)) for name, value in metrics[:METRICS_MAX])
    return Report(int(rank), _whole(step), values[0], values[1], values[2], str(phase)[:PHASE_MAX], named, float(age_s))


def _meeting(item: Sequence[Any]) -> RendezvousNow:
    place, watched_s, listens, connected, held_s, told = item
    said = None
    if told is not None:
        lowest, world, inside, outside, gathered = told
        said = Processes(int(lowest), int(world), int(inside), _whole(outside), bool(gathered))
    return RendezvousNow(str(place), float(watched_s), _truth(listens), _truth(connected), float(held_s), said)


def _progress(item: Sequence[Any]) -> Progress:
    tag, step, value, wall, age_s = item
    return Progress(str(tag), int(step), float(value), float(wall), float(age_s))


def _quiet(item: Sequence[Any] | None) -> Quiet | None:
    if item is None:
        return None
    seconds, exact = item
    return Quiet(float(seconds), bool(exact))


def _number(value: Any) -> float | None:
    return float(value) if value is not None and isfinite(float(value)) else None


def _truth(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def by_attempt(nodes: Sequence[NodeNow]) -> Mapping[tuple[str, int], list[tuple[NodeNow, TaskNow]]]:
    """Ranks of each attempt, by rank, with the node that said so."""
    found: dict[tuple[str, int], list[tuple[NodeNow, TaskNow]]] = {}
    for node in nodes:
        for task in node.tasks:
            found.setdefault((task.group_id, task.attempt), []).append((node, task))
    for ranks in found.values():
        ranks.sort(key=lambda pair: pair[1].rank)
    return found
