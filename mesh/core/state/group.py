"""One group row while one command changes it: every status change, event and task move goes through here, and one
`save` writes the row."""

from collections.abc import Iterator
from typing import Any

from mesh.core.state.keys import attempt_prefix, ended_key, event_key, hold_key, task_key
from mesh.core.state.store import Row, StateStore
from schemas.states import (
    BOUND,
    CANCELLED,
    CLAIMED,
    EXITED,
    GONE,
    LOST,
    ORDER_NONE,
    ORDER_STOP,
    PENDING,
    RELEASING,
    RUNNING,
    TERMINAL,
    group_move,
    group_move_refusal,
    task_move_refusal,
)


class Group:
    """tally counts the attempt's tasks by status, so that settling a gang of a thousand ranks reads no task row."""

    def __init__(self, store: StateStore, row: Row, at_ms: int) -> None:
        self.store = store
        self.row = row
        self.at_ms = at_ms
        self._changed = False

    @staticmethod
    def load(store: StateStore, group_id: str, at_ms: int) -> "Group | None":
        row = store.get("group", group_id)
        return Group(store, row, at_ms) if row is not None else None

    @property
    def id(self) -> str:
        return str(self.row["group_id"])

    @property
    def status(self) -> str:
        return str(self.row["status"])

    @property
    def attempt(self) -> int:
        return int(self.row["attempt"])

    def save(self) -> None:
        """Every change comes with an event, a task's move or a touch; without any there is nothing to write."""
        if self._changed:
            self.store.put("group", self.id, self.row)

    def touch(self) -> None:
        """The row changed in something that is no event."""
        self._changed = True

    def event(
        self,
        kind: str,
        text: str,
        *,
        rank: int | None = None,
        node: str | None = None,
        attempt: int | None = None,
        **data: Any,
    ) -> None:
        self._changed = True
        self.row["events"] += 1
        self.store.put(
            "event",
            event_key(self.id, self.row["events"]),
            {
                "at_ms": self.at_ms,
                "kind": kind,
                "rank": rank,
                "attempt": self.attempt if attempt is None else attempt,
                "node": node,
                "text": text,
                "data": data,
            },
        )

    def move(self, target: str, text: str, *, rank: int | None = None, node: str | None = None, **data: Any) -> None:
        """Callers have checked the rules of their command; a forbidden move here is a defect of the reducer."""
        move = group_move(self.status, target)
        assert move is not None, group_move_refusal(self.status, target)
        if self.status in TERMINAL:
            self.store.delete("ended", ended_key(self.row["ended_ms"], self.id))
            self.row["ended_ms"] = None
        self._count_time(target)
        self.row["status"] = target
        if target == RUNNING and self.row["started_ms"] is None:
            self.row["started_ms"] = self.at_ms
        if target in TERMINAL:
            self.row["ended_ms"] = self.at_ms
            self.row["pending_reason"] = None
            self.store.delete("active", self.id)
            self.store.put("ended", ended_key(self.at_ms, self.id), {"status": target})
            self._free_checkpoint()
        else:
            self.store.put("active", self.id, {"status": target})
        self.event(move.kind, text, rank=rank, node=node, **data)

    def _count_time(self, target: str) -> None:
        """What its limits are counted by. A wait ends only when it runs: one that is placed and rolled back for ever
        has waited all the time. What it ran in earlier attempts counts, or restarts would extend its deadline."""
        row = self.row
        since_ms = row.get("runs_since_ms")
        if since_ms is not None:
            row["ran_ms"] = row.get("ran_ms", 0) + max(self.at_ms - since_ms, 0)
        row["runs_since_ms"] = self.at_ms if target == RUNNING else None
        if target == RUNNING:
            row["waits_since_ms"] = None
        elif target == PENDING and row.get("waits_since_ms") is None:
            row["waits_since_ms"] = self.at_ms

    def _free_checkpoint(self) -> None:
        path = self.row["checkpoint_path"]
        for one in ([path] if path is not None else []) + self.row.pop("real_paths", []):
            self.store.delete("ckpt", one)

    # -- tasks of the current attempt

    def tasks(self) -> Iterator[Row]:
        return (row for _, row in self.store.scan("task", attempt_prefix(self.id, self.attempt)))

    def count(self, *statuses: str) -> int:
        tally = self.row["tally"]
        return sum(tally.get(status, 0) for status in statuses)

    def world(self) -> int:
        return sum(self.row["tally"].values())

    def gone(self) -> bool:
        return self.count(*GONE) == self.world()

    def move_task(self, task: Row, target: str) -> bool:
        """Changes the row in hand (the caller puts it). False where the move is forbidden: a later fact is already
        known."""
        if task_move_refusal(task["status"], target) is not None:
            return False
        self._changed = True
        tally = self.row["tally"]
        tally[task["status"]] -= 1
        tally[target] = tally.get(target, 0) + 1
        task["status"] = target
        if target in GONE:
            task["ended_ms"] = self.at_ms
            # An exited rank needs no order; a rank that was cancelled or lost must not be there when its agent looks.
            task["order"] = ORDER_NONE if target == EXITED else ORDER_STOP
        return True

    def put_task(self, task: Row) -> None:
        self.store.put("task", task_key(task["group_id"], task["attempt"], task["rank"]), task)

    def order_stop(self) -> None:
        """Every rank not gone is told to stop, and the cards of all become releasing. A rank without a start order
        never had a process."""
        for task in self.tasks():
            if task["status"] in (BOUND, CLAIMED):
                task["reason"] = "cancelled before it started"
                self.move_task(task, CANCELLED)
                self.put_task(task)
            elif task["status"] not in GONE and task["order"] != ORDER_STOP:
                task["order"] = ORDER_STOP
                self.put_task(task)
            mark_releasing(self.store, task)

    def lose_task(self, task: Row, text: str) -> bool:
        """The rank is proved gone without an exit status."""
        if not self.move_task(task, LOST):
            return False
        task["reason"] = text
        mark_releasing(self.store, task)
        self.event(
            "rank_lost", f"Rank {task['rank']} on {task['node']} is gone: {text}", rank=task["rank"], node=task["node"]
        )
        return True


def mark_releasing(store: StateStore, task: Row) -> None:
    if task["released"]:
        return
    key = hold_key(task["node"], task["group_id"], task["attempt"], task["rank"])
    hold = store.get("hold", key)
    if hold is not None and hold["state"] != RELEASING:
        hold["state"] = RELEASING
        store.put("hold", key, hold)


def release(store: StateStore, task: Row) -> None:
    """The cards and the port are free again. Changes the row in hand (the caller puts it)."""
    store.delete("hold", hold_key(task["node"], task["group_id"], task["attempt"], task["rank"]))
    task["released"] = True
    task["order"] = ORDER_NONE
