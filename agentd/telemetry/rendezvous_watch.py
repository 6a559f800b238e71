"""The leader's watch over how ranks meet: judged each round, told as alerts, and written once a change into the record
of the group.

The record is also the memory: what has formed is not doubted again, neither by an agent that began to look later nor
by another leader.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agentd.core.alert_book import Alert, AlertKey
from agentd.core.rendezvous import (
    FORMED,
    MISSING,
    SILENT,
    SPLIT,
    TOLD,
    UNJUDGED,
    Meeting,
    RankView,
    RendezvousLimits,
    judge_rendezvous,
)
from agentd.core.telemetry_blob import NodeNow, TaskNow
from mesh.client import MeshClient
from schemas.commands import command

RENDEZVOUS = "rendezvous"
Attempts = Mapping[tuple[str, int], Sequence[tuple[NodeNow, TaskNow]]]
_ADVICE = {
    MISSING: "look at the log of that rank, at what it does before it joins, and whether it can reach that port",
    SILENT: "look at the log of rank 0: what it does before its launcher starts, and whether it uses MASTER_PORT",
    SPLIT: "stop it: each world trains by itself and writes the same checkpoints; see the launcher's options and what "
    "the script does with them",
}
_AT_ONCE = 64


class _Recorded(NamedTuple):
    """What the record of a group says; empty where it says nothing of this attempt."""

    state: str = ""
    text: str = ""
    at_ms: int = 0


class RendezvousWatch:
    def __init__(self, limits: RendezvousLimits) -> None:
        self._limits = limits
        self._recorded: dict[tuple[str, int], _Recorded] = {}
        self.meetings: dict[tuple[str, int], Meeting] = {}

    def clear(self) -> None:
        self._recorded, self.meetings = {}, {}

    def judge(self, attempts: Attempts, now_ms: int) -> tuple[list[Alert], dict[AlertKey, str]]:
        """What stands, and what cannot be judged now."""
        self._recorded = {key: told for key, told in self._recorded.items() if key in attempts}
        self.meetings = {}
        found: list[Alert] = []
        undecided: dict[AlertKey, str] = {}
        for key, ranks in attempts.items():
            if self._is_formed(key) or (meeting := self._meeting(ranks)) is None:
                continue
            self.meetings[key] = meeting
            told = self._recorded.get(key)
            if meeting.state in _ADVICE and told is not None:
                found.append(_alert(key, meeting.state, meeting.text, now_ms - int(meeting.late_s * 1000)))
            elif meeting.state == UNJUDGED and told is not None and told.state in _ADVICE:
                # A leader that is as new as the agent of a rank has no alert of his own that could stay.
                found.append(_alert(key, told.state, f"{told.text}; now: {meeting.text}", told.at_ms))
            elif meeting.state == UNJUDGED:
                undecided[RENDEZVOUS, *key] = meeting.text
        return found, undecided

    async def record(self, mesh: MeshClient) -> None:
        """Raises HeteroFlowError; what was not written is tried in the next round."""
        changed = [key for key, meeting in self.meetings.items() if meeting.state in TOLD and not self._is_told(key)]
        changed = changed[:_AT_ONCE]
        doubted = [key for key, meeting in self.meetings.items() if meeting.state == UNJUDGED]
        if unknown := [key for key in (*changed, *doubted) if key not in self._recorded][:_AT_ONCE]:
            answer = await mesh.query([{"get": ["group", group_id]} for group_id, _ in unknown], level="stale")
            for key, row in zip(unknown, answer["results"], strict=True):
                told = (row or {}).get("rendezvous")
                ours = told if told and told["attempt"] == key[1] else None
                self._recorded[key] = _Recorded(ours["state"], ours["text"], ours["at_ms"]) if ours else _Recorded()
        for key in changed:
            meeting = self.meetings[key]
            if self._is_formed(key) or self._is_told(key):
                continue
            # Refused where the attempt is over: then there is nothing to tell either.
            await mesh.propose(
                command("RecordRendezvous", group_id=key[0], attempt=key[1], state=meeting.state, text=meeting.text)
            )
            self._recorded[key] = _Recorded(meeting.state, meeting.text)

    def _is_formed(self, key: tuple[str, int]) -> bool:
        return key in self._recorded and self._recorded[key].state == FORMED

    def _is_told(self, key: tuple[str, int]) -> bool:
        told, meeting = self._recorded.get(key), self.meetings[key]
        return told is not None and told.state == meeting.state and told.text.startswith(meeting.what)

    def _meeting(self, ranks: Sequence[tuple[NodeNow, TaskNow]]) -> Meeting | None:
        """None where nobody watches: of one node, or of programs that are in nobody's process table."""
        nodes = max(task.ranks for _, task in ranks)
        place = next((task.rendezvous.place for _, task in ranks if task.rendezvous is not None), None)
        if nodes < 2 or place is None:
            return None
        views = [
            RankView(
                task.rank,
                node.node_id,
                task.running,
                task.running_s,
                task.step is not None,
                task.rendezvous,
                task.ended,
            )
            for node, task in ranks
        ]
        return judge_rendezvous(views, nodes, place, self._limits)


def _alert(key: tuple[str, int], state: str, text: str, since_ms: int) -> Alert:
    return Alert(RENDEZVOUS, *key, "critical" if state == SPLIT else "warning", text, _ADVICE[state], since_ms)
