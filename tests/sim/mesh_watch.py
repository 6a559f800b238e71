"""What must hold between the replicated state and the ground truth of processes, checked at every event."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from agentd.runtime.base import TaskId
from mesh.core.state.outcome import Outcome
from mesh.store.feed import FeedFrame
from mesh.store.row_codec import decode_row
from schemas.states import GONE, LOST, PAUSED, PENDING, RECOVERING, RUNNING, SCHEDULING, STARTING, TERMINAL
from schemas.task_types import ENDLESS
from tests.sim.loop import Loop, Violation

if TYPE_CHECKING:
    from tests.sim.task import SimTask

Row = dict[str, Any]


class MeshWatch:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.counts: Counter[str] = Counter()
        self.alive: dict[str, dict[TaskId, SimTask]] = {}
        self.groups: dict[str, Row] = {}
        self.nodes: dict[str, Row] = {}
        self.holds: dict[str, Row] = {}
        self.requests: dict[tuple[str, str], str] = {}
        self.answers: dict[tuple[str, str], dict[str, Any]] = {}
        self.deleted: set[str] = set()
        self._cards: dict[str, SimTask] = {}
        self._held_cards: dict[tuple[str, str], str] = {}
        self._held_ports: dict[tuple[str, int], str] = {}
        self._claims: dict[TaskId, str] = {}  # made on a host and not dropped
        self._status: dict[TaskId, str] = {}
        self._startable: set[tuple[str, int]] = set()
        self._done: dict[tuple[str, str], Outcome] = {}
        self._outcomes: list[tuple[int, object, int]] = []

    def fail(self, what: str) -> None:
        raise Violation(what)

    # -- ground truth

    def started(self, task: SimTask) -> None:
        key = task.id
        self._loop.trace(task.name, "starts, token", task.token)
        self.counts["starts"] += 1
        siblings = self.alive.setdefault(key.group_id, {})
        for other in siblings.values():
            if other.id.attempt != key.attempt:
                self.fail(f"no two attempts alive: {task.name} starts while {other.name} is alive")
        if key in siblings:
            self.fail(f"one process a rank: {task.name} starts beside {siblings[key].name}")
        if (key.group_id, key.attempt) not in self._startable:
            self.fail(f"gang: {task.name} starts before all ranks of its attempt were claimed")
        if self._status.get(key) in GONE:
            self.fail(f"{task.name} starts after the state declared it {self._status[key]}")
        for card in task.gpus:
            if card in self._cards:
                self.fail(f"no card in two tasks: {card} is used by {self._cards[card].name} and {task.name}")
            self._cards[card] = task
        siblings[key] = task

    def ended(self, task: SimTask) -> None:
        self._loop.trace(task.name, "is gone")
        del self.alive[task.id.group_id][task.id]
        for card in task.gpus:
            del self._cards[card]

    def fenced(self, task: SimTask, by: str) -> None:
        self._loop.trace(task.name, "fenced by", by)

    def claim_made(self, node: str, key: TaskId) -> None:
        self._claims[key] = node

    def claim_dropped(self, key: TaskId) -> None:
        self._claims.pop(key, None)

    # -- the replicated state

    def applied(
        self, voter: str, index: int, command: Row, outcome: Outcome | None, frame: FeedFrame | None, state_hash: int
    ) -> None:
        """Every apply of every voter, in each voter's order; the first one at an index speaks for all."""
        at = index - 1
        if at < len(self._outcomes):
            first_index, first_outcome, first_hash = self._outcomes[at]
            if (index, outcome, state_hash) != (first_index, first_outcome, first_hash):
                self.fail(
                    f"equal state at equal applied: {voter} differs at {index}: {outcome} against {first_outcome}"
                )
            return
        self._outcomes.append((index, outcome, state_hash))
        if outcome is not None:
            self.counts[f"{command['t']}: {outcome.code or 'ok'}"] += 1
            self._once(command.get("request"), outcome)
        for change in frame.changes if frame is not None else ():
            row = decode_row(change.row) if change.row is not None else None
            match change.entity:
                case "task":
                    self._task(change.key, row)
                case "group":
                    self._group(change.key, row)
                case "hold":
                    self._hold(change.key, row)
                case "node":
                    self._node(change.key, row)
        self._attempts_follow(frame)

    def _once(self, request: Row | None, outcome: Outcome) -> None:
        if request is None:
            return
        name = (request["client"], request["id"])
        first = self._done.setdefault(name, outcome)
        if first != outcome:
            self.fail(f"a request is applied once: {name} gave {first} and then {outcome}")
        self.counts["repeated requests"] += first is not outcome

    def _task(self, text: str, row: Row | None) -> None:
        group_id, attempt, rank = text.split("/")
        key = TaskId(group_id, int(attempt), int(rank))
        if row is None:
            self._status.pop(key, None)
            return
        old, new = self._status.get(key), row["status"]
        if old in GONE and new != old:
            self.fail(f"nothing leaves a gone status: rank {text} goes from {old} to {new}")
        if new in GONE and old not in GONE:
            alive = self.alive.get(group_id, {}).get(key)
            if alive is not None and alive.token == row["token"]:
                self.fail(f"a rank that the state calls {new} is gone: {alive.name} is alive")
            self.counts["lost"] += new == LOST
        self._status[key] = new

    def _group(self, group_id: str, row: Row | None) -> None:
        old = self.groups.get(group_id)
        if row is None:
            self.groups.pop(group_id, None)
            self.deleted.add(group_id)
            self.counts["deleted"] += 1
            return
        self.groups[group_id] = row
        status = row["status"]
        if old is None:
            self._submitted(group_id, row)
            return
        if old["status"] == status and old["attempt"] == row["attempt"]:
            return
        self._loop.trace(group_id[-4:], old["status"], "->", status, "attempt", row["attempt"])
        if old["status"] in TERMINAL:
            self.fail(f"nothing leaves a terminal state: group {group_id} goes from {old['status']} to {status}")
        if status in (STARTING, RUNNING) and old["status"] == SCHEDULING:
            if row["claimed"] != list(range(len(row["nodes"]))):
                self.fail(f"gang: attempt {row['attempt']} of {group_id} starts with only {row['claimed']} claimed")
            self._startable.add((group_id, row["attempt"]))
        rebuilt = (row.get("rebuild") or {}).get("total", 0)
        if rebuilt > (old.get("rebuild") or {}).get("total", 0):
            self.counts["rebuilds"] += 1
        if status == "completed" and row["task_type"] in ENDLESS:
            self.fail(f"a service never completes: {group_id}")
        if status == PENDING:
            self.counts["rollbacks" if old["status"] == SCHEDULING else "requeues"] += 1
        if status in TERMINAL:
            self.counts[status] += 1
        if status == RECOVERING:
            self.counts["recoveries"] += 1
        if status == PAUSED:
            self.counts["paused"] += 1
            if self.alive.get(group_id):
                self.fail(f"a paused group has no process: {group_id} has {list(self.alive[group_id])}")

    def _submitted(self, group_id: str, row: Row) -> None:
        self.counts["submitted"] += 1
        request = row["request"]
        if request is not None:
            name = (request["client"], request["id"])
            first = self.requests.setdefault(name, group_id)
            if first != group_id:
                self.fail(f"a request is applied once: {name} made {first} and {group_id}")

    def _attempts_follow(self, frame: FeedFrame | None) -> None:
        """After all changes of the index: a new attempt only once its predecessor is gone."""
        for change in frame.changes if frame is not None else ():
            if change.entity == "group" and change.row is not None:
                row = self.groups[change.key]
                if row["status"] == SCHEDULING and row["attempt"] > 1:
                    for rank in range(len(row["nodes"])):
                        status = self._status.get(TaskId(change.key, row["attempt"] - 1, rank))
                        if status is not None and status not in GONE:
                            self.fail(
                                f"attempt {row['attempt']} of {change.key} is bound while a rank before is {status}"
                            )

    def _hold(self, key: str, row: Row | None) -> None:
        node, group_id, attempt, rank = key.split("/")
        task = TaskId(group_id, int(attempt), int(rank))
        old = self.holds.pop(key, None)
        if row is None:
            for gpu in old["gpus"] if old is not None else ():
                del self._held_cards[node, gpu]
            for port in _ports(old) if old is not None else ():
                del self._held_ports[node, port]
            if self._claims.get(task) == node:
                self.fail(f"cards are released by their holder: hold {key} ends while the agent keeps its claim")
            if task in self.alive.get(group_id, {}):
                self.fail(f"cards are released by their holder: hold {key} ends while its process is alive")
            return
        for gpu in row["gpus"]:
            if self._held_cards.setdefault((node, gpu), key) != key:
                self.fail(f"no card is held twice: {gpu} of {node} by {self._held_cards[node, gpu]} and {key}")
        for port in _ports(row):
            if self._held_ports.setdefault((node, port), key) != key:
                self.fail(f"no port is held twice: {port} of {node} by {self._held_ports[node, port]} and {key}")
        self.holds[key] = row

    def _node(self, node: str, row: Row | None) -> None:
        old = self.nodes.get(node)
        if row is None:
            self.nodes.pop(node, None)
            return
        self.nodes[node] = row
        if old is not None and old["state"] != row["state"]:
            self._loop.trace("node", node, old["state"], "->", row["state"])
            self.counts["expiries" if row["state"] == "lost" else "rejoins"] += 1

    # -- clients

    def answered(self, request: tuple[str, str], answer: dict[str, Any]) -> None:
        first = self.answers.setdefault(request, answer)
        if (first["ok"], first["code"], first["data"]) != (answer["ok"], answer["code"], answer["data"]):
            self.fail(f"a request has one answer: {request} got {first} and {answer}")
        self.counts["answers"] += 1

    def nothing_lost(self) -> None:
        """Every submission that was answered is there, unless it was deleted later."""
        for request, answer in self.answers.items():
            made = answer["data"].get("group_id") if answer["ok"] else None
            if made is not None and made not in self.groups and made not in self.deleted:
                self.fail(f"an answered command is never lost: {request} was told {answer['data']}, which is not there")


def _ports(hold: Row) -> list[int]:
    return [port for port in (hold["port"], *hold.get("ports", ())) if port]
