"""What the leader's agent holds of all nodes: their newest blobs as they came, and the alerts judged from them.

In memory only. A new leader hears every node within one period and judges the same, because a blob carries durations
and no verdicts.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from agentd.core.alert_book import Alert, AlertBook, AlertKey
from agentd.core.autopsy import autopsy
from agentd.core.certificate_life import CertificateNow
from agentd.core.clocks import Clock, astray, skew_text
from agentd.core.rendezvous import RendezvousLimits
from agentd.core.stall import StallLimits, Verdict, judge
from agentd.core.telemetry_blob import BLOB_MAX, BlobRefused, NodeNow, TaskNow, by_attempt, claimed_node, unpack_node
from agentd.telemetry.rendezvous_watch import RendezvousWatch
from schemas.limits import NODES_MAX

log = logging.getLogger(__name__)
STALLED, LOSS_NOT_FINITE, CLOCK_SKEW, CERTIFICATE = "stalled", "loss_not_finite", "clock_skew", "certificate"
_ADVICE = {
    STALLED: "look at the logs of every rank; stop it, and resubmit goes on from the newest checkpoint",
    LOSS_NOT_FINITE: "look at learning rate and data around that step; stop it unless the script recovers by itself",
    CLOCK_SKEW: "set its clock (chronyc makestep); placement, leases and logs go on by other clocks, but times mislead",
    CERTIFICATE: "see that the host with the mesh CA runs and can be reached; then heteroflow-agentd cert renew there",
}
_FORGET_S = 60.0
_PIECE = 200


@dataclass(slots=True)
class _Entry:
    received: float
    blob: bytes
    read: NodeNow | None = None


class TelemetryDesk:
    def __init__(self, limits: StallLimits, every_s: float, rendezvous: RendezvousLimits | None = None) -> None:
        self._limits = limits
        self.rendezvous = RendezvousWatch(rendezvous or RendezvousLimits())
        self._fresh_s = max(10.0, 5 * every_s)
        self._entries: dict[str, _Entry] = {}
        self.book = AlertBook()
        self.verdicts: dict[tuple[str, int], Verdict] = {}
        self._attempts: Mapping[tuple[str, int], Sequence[tuple[NodeNow, TaskNow]]] = {}
        self.refused = 0

    def take(self, node_id: str, blob: bytes) -> None:
        """A blob that is not the sender's own is not kept."""
        if claimed_node(blob) != node_id:
            self.refused += 1
        elif len(blob) <= BLOB_MAX and (node_id in self._entries or len(self._entries) < NODES_MAX):
            self._entries[node_id] = _Entry(time.monotonic(), blob)

    def clear(self) -> None:
        """This agent is not with the leader any more."""
        self._entries, self.verdicts, self._attempts, self.book = {}, {}, {}, AlertBook()
        self.rendezvous.clear()

    def blobs(self) -> dict[str, tuple[float, bytes]]:
        """`{node: (age in seconds, blob)}`"""
        now = time.monotonic()
        return {node: (now - entry.received, entry.blob) for node, entry in self._entries.items()}

    async def judge(self) -> None:
        """In pieces: with a thousand nodes it takes tens of milliseconds."""
        now = time.monotonic()
        self._entries = {
            node: entry for node, entry in self._entries.items() if now - entry.received < max(_FORGET_S, self._fresh_s)
        }
        nodes: list[NodeNow] = []
        clocks: dict[str, Clock] = {}
        certificates: dict[str, CertificateNow] = {}
        for at, (node, entry) in enumerate(list(self._entries.items()), start=1):
            if (read := self._read(node, entry)) is not None:
                if now - entry.received <= self._fresh_s:
                    nodes.append(read)
                if read.clock is not None:
                    clocks[node] = read.clock
                if read.certificate is not None:
                    certificates[node] = read.certificate
            if at % _PIECE == 0:
                await asyncio.sleep(0)
        attempts = self._attempts = by_attempt(nodes)
        self.verdicts = {
            key: judge([task.signals for _, task in ranks], max(task.ranks for _, task in ranks), self._limits)
            for key, ranks in attempts.items()
        }
        now_ms = time.time_ns() // 1_000_000
        found: list[Alert] = []
        undecided: dict[AlertKey, str] = {}
        for key, verdict in self.verdicts.items():
            if verdict.state == "stalled":
                since_ms = now_ms - int(verdict.stalled_s * 1000)
                found.append(Alert(STALLED, *key, "critical", verdict.text, _ADVICE[STALLED], since_ms))
            elif verdict.state == "unjudged":
                undecided[STALLED, *key] = verdict.text
            found += (alert for _, task in attempts[key] if (alert := _loss_alert(task, now_ms)) is not None)
        meetings, unmet = self.rendezvous.judge(attempts, now_ms)
        found += meetings
        undecided |= unmet
        found += self._clock_alerts(clocks, now_ms)
        found += [
            Alert(CERTIFICATE, "", 0, seen.level, seen.text, _ADVICE[CERTIFICATE], now_ms, node_id=node)
            for node, seen in certificates.items()
        ]
        for alert in self.book.update(now_ms, found, undecided):
            log.warning("alert %s: %s", alert.state, alert.text, extra={"alert": alert.id})

    def autopsy(self, group_id: str, attempt: int) -> str:
        """What was last seen of the ranks of an attempt that has a verdict."""
        return autopsy([(node.node_id, task.signals) for node, task in self._attempts[group_id, attempt]])

    def _clock_alerts(self, clocks: dict[str, Clock], now_ms: int) -> list[Alert]:
        """A node that is heard no more keeps its last word until it is forgotten: clocks do not mend themselves."""
        known = [alert.node_id for alert in self.book.raised() if alert.rule == CLOCK_SKEW]
        return [
            Alert(
                CLOCK_SKEW, "", 0, "warning", skew_text(ahead_s, len(clocks)), _ADVICE[CLOCK_SKEW], now_ms, node_id=node
            )
            for node, ahead_s in astray(clocks, known).items()
        ]

    def _read(self, node: str, entry: _Entry) -> NodeNow | None:
        if entry.read is None:
            try:
                entry.read = unpack_node(entry.blob)
            except BlobRefused as refusal:
                self.refused += 1
                log.debug("telemetry of %s: %s", node, refusal)
                return None
        return entry.read


def _loss_alert(task: TaskNow, now_ms: int) -> Alert | None:
    progress = task.progress
    if progress is None or isfinite(progress.value) or task.step is None or not task.running:
        return None
    text = f"{progress.tag} is {progress.value} at step {progress.step}"
    since_ms = now_ms - int(max(progress.age_s, 0.0) * 1000)
    return Alert(LOSS_NOT_FINITE, task.group_id, task.attempt, "warning", text, _ADVICE[LOSS_NOT_FINITE], since_ms)
