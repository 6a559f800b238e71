"""A whole mesh without processes: the reducers, the controllers' core on the feed, and agents that do what their task
rows order."""

from collections.abc import Callable, Iterable
from typing import Any

from mesh.core.control.decide import Memory, Now, decide
from mesh.core.control.view import View
from mesh.core.state.dict_store import DictStore
from mesh.core.state.outcome import Outcome
from mesh.core.state.reducer import apply
from schemas.commands import command, encode_command
from schemas.ids import make_group_id
from schemas.states import GONE, ORDER_CLAIM, ORDER_START, ORDER_STOP

START_MS = 1_764_000_000_000


def document(n_nodes: int = 1, per_node_gpu: int = 1, **over: Any) -> dict[str, Any]:
    top = {key: over.pop(key) for key in ("priority", "on_isolation", "name") if key in over}
    task = {key: over.pop(key) for key in ("image", "ports") if key in over}
    task_type = over.pop("task_type", "training")
    shape = {"n_nodes": n_nodes} | ({"per_node_gpu": per_node_gpu} if task_type == "training" else {})
    return {
        "name": "job",
        "task_type": task_type,
        **top,
        task_type: {**shape, **over},
        "task": {"command": "python train.py", "gpu_required": per_node_gpu, **task},
    }


def cards(node: str, count: int, kind: str = "H100") -> list[dict[str, Any]]:
    return [{"uuid": f"GPU-{node}-{at}", "type": kind, "memory_mb": 81_559, "index": at} for at in range(count)]


class World:
    def __init__(self, nodes: dict[str, int] | None = None) -> None:
        self.store = DictStore()
        self.view = View()
        self.feed: Callable[[int, list[Any]], None] = self.view.extend
        self.memory = Memory()
        self.idx = 0
        self.now_ms = START_MS
        self.made = 0
        self.seqs: dict[tuple[str, int, int], int] = {}
        self.sent: list[dict[str, Any]] = []
        self.log: list[dict[str, Any]] = []
        for node, count in (nodes or {}).items():
            self.join(node, count)

    # -- the log

    def do(self, name: str, /, **fields: Any) -> Outcome:
        self.idx += 1
        self.now_ms += 1
        entry = command(name, at_ms=self.now_ms, **fields)
        self.log.append(entry)
        outcome = apply(self.store, self.idx, entry)
        self.feed(self.idx, self.store.take_changes())
        return outcome

    def propose(self, proposal: dict[str, Any]) -> Outcome:
        encode_command(proposal)  # as the voter does
        fields = {key: value for key, value in proposal.items() if key not in ("v", "t")}
        return self.do(proposal["t"], **fields)

    def control(self, pass_ms: int = 0) -> list[dict[str, Any]]:
        """One pass of the controllers; its commands are applied and returned."""
        self.now_ms += pass_ms
        proposals = decide(self.view, Now(self.now_ms, self.now_ms), self.memory)
        for proposal in proposals:
            self.propose(proposal)
        self.sent += proposals
        return proposals

    def new_leader(self) -> None:
        self.memory = Memory()

    # -- hosts

    def join(
        self,
        node: str,
        count: int,
        kind: str = "H100",
        uid: str | None = None,
        gpus: list[dict[str, Any]] | None = None,
        **facts: Any,
    ) -> Outcome:
        return self.do(
            "RegisterNode",
            **{
                "node_id": node,
                "uid": uid or f"uid-{node}",
                "api_addr": f"{node}.example:7460",
                "voter_addr": None,
                "gpus": cards(node, count, kind) if gpus is None else gpus,
                "gpu_backend": "simulated",
                "runtime": "memory",
                "labels": {},
                "version": "0.1.0",
                "cpus": 8,
                "memory_mb": 64_000,
                **facts,
            },
        )

    def lose(self, node: str) -> Outcome:
        return self.do("ExpireNode", node_id=node, uid=f"uid-{node}", text="no lease renewal for 15.0 s")

    def rejoin(self, node: str, tasks: Iterable[dict[str, Any]] = ()) -> Outcome:
        refs = [{key: task[key] for key in ("group_id", "attempt", "rank", "token")} for task in tasks]
        row = self.store.get("node", node)
        losses = max(row["losses"], 1) if row is not None else 1
        return self.do("RejoinNode", node_id=node, uid=f"uid-{node}", losses=losses, tasks=refs)

    # -- groups

    def submit(self, n_nodes: int = 1, per_node_gpu: int = 1, **over: Any) -> str:
        outcome = self.try_submit(document(n_nodes, per_node_gpu, **over))
        assert outcome.ok, outcome
        return str(outcome.data["group_id"])

    def try_submit(self, body: dict[str, Any], group_id: str | None = None, **extra: Any) -> Outcome:
        self.made += 1
        return self.do(
            "SubmitGroup",
            group_id=group_id or make_group_id(self.now_ms, self.made.to_bytes(7, "big")),
            document=body,
            tenant="team",
            user="ada",
            warnings=[],
            resubmit_of=None,
            **extra,
        )

    def group(self, group_id: str) -> dict[str, Any]:
        row = self.store.get("group", group_id)
        assert row is not None
        return row

    def status(self, group_id: str) -> str:
        return str(self.group(group_id)["status"])

    def tasks(self, group_id: str, attempt: int | None = None) -> list[dict[str, Any]]:
        number = self.group(group_id)["attempt"] if attempt is None else attempt
        return [row for _, row in self.store.scan("task", f"{group_id}/{number:04d}/")]

    def kinds(self, group_id: str) -> list[str]:
        return [row["kind"] for _, row in self.store.scan("event", f"{group_id}/")]

    def transitions(self, group_id: str) -> list[str]:
        moves = (
            "bound",
            "starting",
            "running",
            "completed",
            "failed",
            "stopping",
            "stopped",
            "pausing",
            "paused",
            "resumed",
            "recovering",
            "requeued",
            "rolled_back",
            "rebuilding",
        )
        return [kind for kind in self.kinds(group_id) if kind in moves]

    # -- agents

    def report(self, task: dict[str, Any], kind: str, seq: int | None = None, **fields: Any) -> Outcome:
        ref = (task["group_id"], task["attempt"], task["rank"])
        if seq is None:
            seq = self.seqs.get(ref, 0) + 1
        self.seqs[ref] = max(self.seqs.get(ref, 0), seq)
        if kind == "exited":
            fields = {"exit_code": 0, "signal": None, "at_ms": self.now_ms, **fields}
        if kind == "claim_failed":
            fields = {"code": "port_in_use", "text": "port taken by pid 7", "permanent": False, **fields}
        body = {key: task[key] for key in ("group_id", "attempt", "rank", "token")} | {
            "seq": seq,
            "kind": kind,
            **fields,
        }
        return self.do("TaskReports", node=task["node"], uid=f"uid-{task['node']}", reports=[body])

    def obey(self, group_id: str, attempt: int | None = None) -> None:
        """Every agent does the next thing its rows order: claim, start, or end and clean."""
        for task in self.tasks(group_id, attempt):
            if task["order"] == ORDER_CLAIM and task["status"] == "bound":
                self.report(task, "claimed", resume=None)
            elif task["order"] == ORDER_START and task["status"] == "starting":
                self.report(task, "started")
            elif task["order"] == ORDER_STOP and task["status"] not in GONE:
                self.report(task, "exited", exit_code=None, signal=15, why="stopped")

    def clean(self, group_id: str, attempt: int | None = None) -> None:
        for task in self.tasks(group_id, attempt):
            if task["status"] in GONE and not task["released"]:
                self.report(task, "released")

    def run_up(self, group_id: str) -> None:
        """From pending to running, with every agent obedient."""
        for _ in range(6):
            if self.status(group_id) == "running":
                return
            self.control(5000)
            self.obey(group_id)
        assert self.status(group_id) == "running", self.group(group_id)

    def finish(self, group_id: str, code: int = 0) -> None:
        for task in self.tasks(group_id):
            self.report(task, "exited", exit_code=code)
        self.clean(group_id)

    # -- rows

    def rows(self) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        return {entity: list(self.store.scan(entity)) for entity in self.store.entities()}
