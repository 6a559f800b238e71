"""Random histories on the reducers and the controllers' core."""

import copy
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.core.state.dict_store import DictStore
from mesh.core.state.reducer import apply
from mesh.core.state.shape import Shape, shape_of
from schemas.commands import COMMANDS
from schemas.limits import RETENTION_LEAST_MS
from schemas.states import GROUP_MOVES, TERMINAL
from schemas.task_types import ENDLESS
from tests.property.state_invariants import violations
from tests.unit.state.world import World, document

NODES = ("n1", "n2", "n3")
KINDS = ("claimed", "started", "exited", "released", "claim_failed", "progress")
PAUSES_MS = (0, 1, 900, 5_000, 31_000, 61_000, 300_000, 90_000_000)
LIVE = {(move.source, move.target) for move in GROUP_MOVES if move.live}
SMALL = st.integers(0, 7)
STEP = st.tuples(st.integers(0, 56), SMALL, SMALL, SMALL)
# Short ones shrink to a readable case; long ones reach the deep states.
STEPS = st.lists(STEP, max_size=30) | st.integers(0, 1 << 32).map(lambda seed: seeded(seed))
RELAXED = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def seeded(seed: int) -> list[tuple[int, int, int, int]]:
    rng = random.Random(seed)
    return [(rng.randrange(57), rng.randrange(8), rng.randrange(8), rng.randrange(8)) for _ in range(70)]


class History:
    """Turns numbers into commands that are mostly plausible, often late, repeated or wrong, and checks the state after
    each."""

    def __init__(self) -> None:
        self.world = World()
        self.groups: list[str] = []
        self.said: list[dict[str, Any]] = []
        self.seen: dict[str, str] = {}

    def run(self, steps: list[tuple[int, int, int, int]]) -> None:
        for node in NODES:
            self.world.join(node, 2)
        for step in steps:
            self.step(*step)
            self.check()

    def check(self) -> None:
        assert violations(self.world.store) == []
        for group_id in self.groups:
            row = self.world.store.get("group", group_id)
            if row is None:
                assert self.seen.get(group_id, "deleted") in (*TERMINAL, "deleted")
                self.seen[group_id] = "deleted"
                continue
            assert reachable(self.seen.get(group_id, "pending"), row["status"]), (
                self.seen.get(group_id),
                row["status"],
            )
            self.seen[group_id] = row["status"]

    def step(self, kind: int, a: int, b: int, c: int) -> None:
        world = self.world
        if kind == 0:
            world.now_ms += PAUSES_MS[a]
        elif kind < 3:
            node = NODES[a % 3]
            facts: dict[str, Any] = {}
            if node == "n3" and b > 3:
                facts = {"runtime": "docker", "engine_down": "silent" if c == 1 else None}
            world.join(node, 1 + b % 3, uid=f"uid-{node}" if c else "another", **facts)
        elif kind < 8:
            self.submit(a, b, c)
        elif kind < 18:
            world.control(PAUSES_MS[c % 6])
        elif kind < 30:
            self.report(kind, a, b, c)
        elif kind == 30:
            world.lose(NODES[a % 3])
        elif kind == 31:
            self.rejoin(NODES[a % 3], truthful=bool(b))
        elif kind < 34:
            self.forged_bind(a, b, c)
        elif kind == 34:
            self.on_group("ContinuePhase", a, attempt=1 + b % 3, status=("scheduling", "starting")[c % 2])
        elif kind == 35:
            self.on_group("RollbackGroup", a, attempt=1 + b % 3, code="x", text="y", node=NODES[c % 3])
        elif kind == 36:
            master = {"addr": "h", "port": 20_000 + c}
            self.on_group("StartGroup", a, attempt=1 + b % 3, claimed=[0, 1], master=master, resume=None)
        elif kind == 37:
            self.on_group("StopGroup", a, by="ada")
        elif kind == 38 and b % 2:
            world.now_ms += (0, 3_600_000)[c % 2]
            before = {group_id: world.group(group_id) for group_id in self.groups if world.store.get("group", group_id)}
            pruned = world.do("PruneGroups", group_ids=self.groups[-20:]).data["pruned"]
            assert all(before[group_id]["status"] in TERMINAL for group_id in pruned)
            assert all(world.now_ms - before[group_id]["ended_ms"] >= RETENTION_LEAST_MS for group_id in pruned)
        elif kind == 38:
            self.on_group("DeleteGroup", a)
        elif kind == 39:
            world.new_leader()
        elif kind == 40:
            phase = ("opened", "ended")[c % 2]
            self.on_group("RecordExec", a, attempt=1 + b % 3, rank=c % 3, by="ada", phase=phase, text="sh")
            seen = ("formed", "missing", "silent", "split")[c % 4]
            self.on_group("RecordRendezvous", a, attempt=1 + b % 3, state=seen, text=seen)
            name = ("RecordDownload", "RecordUpload")[b % 2]
            self.on_group(name, a, attempt=1 + c % 3, rank=b % 3, path="/checkpoint/a")
        elif kind == 41:
            self.rejoin(NODES[a % 3], truthful=True)
        elif kind == 53:
            over = ("deadline_over", "wait_over", "stalled")[c % 3]
            self.on_group("FailGroup", a, attempt=b % 3, over=over, text="silent")
        elif kind == 54:
            self.on_group("StopAfterCheckpoint", a, by="ada", within_s=(1, 60)[c % 2])
        elif kind > 54:
            self.saved(a, b, c)
        elif kind > 49:
            self.on_group("PauseGroup" if kind < 52 else "ResumeGroup", a, by="ada")
        else:
            self.operate(kind - 42, a, b, c)

    def operate(self, kind: int, a: int, b: int, c: int) -> None:
        world, node = self.world, NODES[a % 3]
        asked = {"by": "op", "reason": ("", "new fans")[b % 2]}
        how = {"mode": ("wait", "move")[b % 2], "deadline_s": (0, 1, 60, 600)[c % 4]}
        if kind < 2:
            world.do("DrainNode", node_id=node, **how, **asked)
        elif kind == 2:
            world.do("CordonNode", node_id=node, **asked)
        elif kind < 4:
            world.do("UncordonNode", node_id=node, by="op")
        elif kind < 5:
            world.do("GiveUpNode", node_id=node, **asked)
        elif kind == 5:
            when = {"from_ms": None if b % 2 else world.now_ms - 2_000, "in_s": (0, 5, 60)[c % 3], "for_s": 1 + 30 * c}
            world.do("PlanMaintenance", node_id=node, **when, **how, **asked)
        elif kind == 6:
            self.on_group("MoveGroup", a, attempt=1 + b % 3, node_id=NODES[c % 3])
            world.do("EndDrain", node_id=node)
            world.do("TurnMaintenance", node_id=node, to=("open", "over")[c % 2])
            if c == 7:
                world.do("CancelMaintenance", node_id=node, by="op")
        elif c > 5:
            self.hold(a, b)
        elif b % 2:
            world.do("PauseScheduling", **asked)
        else:
            world.do("ResumeScheduling", by="op")

    def hold(self, a: int, b: int) -> None:
        """Most of the leader's counts are of the hold that stands, and go down."""
        row = self.world.store.get("meta", "lease_hold")
        if row is None or row["over_ms"] is not None or a == 0:
            self.world.do("HoldMesh", for_s=1 + 100 * b, by="op", reason="")
        elif a == 1:
            self.world.do("ReleaseHold", by="op")
        else:
            left_ms = row["left_ms"] * (a - 2) // 4
            self.world.do("HoldLeft", hold=row["hold"] if b else row["hold"] + 1, left_ms=left_ms)

    def submit(self, a: int, b: int, c: int) -> None:
        over: dict[str, Any] = {"priority": ("normal", "high", "highest")[c % 3]}
        if a % 2:
            over["checkpoint_path"] = f"/data/{a}"
        if b > 5:
            over["on_isolation"] = "keep"
        if c == 3:
            over["image"] = "team/pt:1"
        if c in (4, 5):
            over |= {"deadline_s": 200, "max_wait_s": 400, "recovery": {"max_restarts": c - 4, "on": ["nccl_init"]}}
        if c in (6, 7):
            over["task_type"] = ("container", "inference")[a < 5]
            over.pop("checkpoint_path", None)
        if b in (3, 6):
            over["ports"] = {"http": 20_000 + a % 3}
        request: dict[str, Any] = {"request": {"client": f"c{a % 2}", "id": f"k-{c}", "digest": "d"}} if c > 4 else {}
        outcome = self.world.try_submit(document(1 + a % 3, b % 3, **over), **request)
        if outcome.ok and outcome.data["group_id"] not in self.groups:
            self.groups.append(outcome.data["group_id"])

    def on_group(self, name: str, a: int, **fields: Any) -> None:
        if self.groups:
            self.world.do(name, group_id=self.groups[a % len(self.groups)], **fields)

    def report(self, kind: int, a: int, b: int, c: int) -> None:
        """Mostly what an obedient agent says; else anything, an old report again, or one with an old number."""
        if self.said and kind == 18:
            self.world.do("TaskReports", **copy.deepcopy(self.said[a % len(self.said)]))
            return
        rows = [row for _, row in self.world.store.scan("task") if not row["released"]]
        if not rows:
            return
        task = rows[(a + 8 * b) % len(rows)]
        said = KINDS[c % 6] if kind < 21 else expected(task)
        body: dict[str, Any] = {key: task[key] for key in ("group_id", "attempt", "rank", "token")}
        body |= {"seq": max(1, task["seq"] + (1 if kind < 28 else b - 3)), "kind": said}
        if said == "progress":
            body |= {"seq": 0, "text": f"{b} %"}
        if said == "exited":
            code = (0, 0, 0, 1, None)[b % 5]
            body |= {
                "exit_code": code,
                "signal": 9 if code is None and a % 2 else None,
                "at_ms": a,
                "why": ("", "fenced")[a == 7],
            }
            body |= {"class": "nccl_init"} if code == 1 and a % 2 else {}
        if said == "claim_failed":
            body |= {"code": "port", "text": "taken", "permanent": a == 0}
        fields = {"node": task["node"], "uid": f"uid-{task['node']}", "reports": [body]}
        self.said.append(fields)
        self.world.do("TaskReports", **copy.deepcopy(fields))

    def saved(self, a: int, b: int, c: int) -> None:
        """Of any rank, also of one that has ended or of an attempt before."""
        rows = [row for _, row in self.world.store.scan("task")]
        if not rows:
            return
        task = rows[a % len(rows)]
        body = {key: task[key] for key in ("group_id", "attempt", "rank", "token")} | {"seq": 0}
        if c == 7:
            body |= {"kind": "checkpoints_removed", "removed": ["step-1"]}
        else:
            body |= {"kind": "checkpoint", "pick": f"step-{b}", "step": b, "mark": f"{b}{c % 2}"}
            body |= {"bytes": 1, "files": 1, "age_ms": c, "took_ms": 0}
        self.world.do("TaskReports", node=task["node"], uid=f"uid-{task['node']}", reports=[body])

    def rejoin(self, node: str, truthful: bool) -> None:
        tasks = [row for _, row in self.world.store.scan("task") if row["node"] == node and not row["released"]]
        alive = [row for row in tasks if row["status"] not in ("lost", "exited", "cancelled")]
        self.world.rejoin(node, alive if truthful else tasks[:1])

    def forged_bind(self, a: int, b: int, c: int) -> None:
        """A plan of a leader that looked at another state: well-formed, and wrong about what is free."""
        pending = [group_id for group_id in self.groups if self.seen.get(group_id) == "pending"]
        if not pending:
            return
        row = self.world.group(pending[a % len(pending)])
        shape = shape_of(row["document"])
        assert isinstance(shape, Shape)
        ranks = [
            {
                "rank": rank,
                "node": node,
                "gpus": [f"GPU-{node}-{(c + at) % 2}" for at in range(shape.per_node_gpu)],
                "port": 0,
            }
            for rank, node in enumerate((NODES + NODES)[b % 3 : b % 3 + shape.n_nodes + (b == 7)])
        ]
        ranks[0]["port"] = 20_000 + c
        self.world.do("BindGroup", group_id=row["group_id"], attempt=row["attempt"] + (c != 7), placements=ranks)


def expected(task: dict[str, Any]) -> str:
    by_status = {"bound": "claimed", "claimed": "released", "starting": "started", "running": "exited"}
    if task["order"] == "stop" and task["status"] == "starting":
        return "exited"
    return by_status.get(task["status"], "released")


def reachable(source: str, target: str) -> bool:
    """One command may make several moves (a last report can end an attempt), each of them legal."""
    if source == target:
        return True
    reached, fresh = {source}, {source}
    while fresh:
        fresh = {end for start, end in LIVE if start in fresh} - reached
        reached |= fresh
    return target in reached


@RELAXED
@given(STEPS)
def test_no_history_breaks_an_invariant(steps):
    History().run(steps)


@RELAXED
@given(STEPS)
def test_equal_logs_give_equal_rows(steps):
    history = History()
    history.run(steps)
    other = DictStore()
    for idx, entry in enumerate(history.world.log, start=1):
        apply(other, idx, copy.deepcopy(entry))
    assert {entity: list(other.scan(entity)) for entity in other.entities()} == history.world.rows()


@RELAXED
@given(STEPS)
def test_the_controllers_picture_built_from_the_feed_equals_one_built_from_a_snapshot(steps):
    history = History()
    history.run(steps)
    world = history.world
    fed = world.view
    rows = [(entity, key, row) for entity, found in world.rows().items() for key, row in found]
    fresh = type(fed)()
    fresh.reset(world.idx, rows)
    assert (fresh.waiting, fresh.attempts, fresh.unstarted) == (fed.waiting, fed.attempts, fed.unstarted)
    assert (fresh.operated(), fresh.sched().paused) == (fed.operated(), fed.sched().paused)
    assert sorted(fresh.sched().nodes, key=lambda node: node.node_id) == sorted(
        fed.sched().nodes, key=lambda node: node.node_id
    )


@RELAXED
@given(STEPS)
def test_every_history_can_be_brought_to_an_end(steps):
    """From any state, obedient agents and healthy hosts finish every group: nothing is stuck for ever."""
    history = History()
    history.run(steps)
    world = history.world
    world.do("ResumeScheduling", by="op")
    for node in NODES:
        row = world.store.get("node", node)
        world.do("CancelMaintenance", node_id=node, by="op")
        world.do("UncordonNode", node_id=node, by="op")
        if row is not None and row["state"] == "lost":
            world.seqs.clear()
            history.rejoin(node, truthful=True)
        world.join(node, len(row["gpus"]), uid=row["uid"], runtime=row["runtime"])
    for at in range(80):
        for group_id in history.groups:
            if history.seen[group_id] == "paused":
                world.do("ResumeGroup", group_id=group_id, by="ada")
        if at == 5:  # they end in no other way
            for group_id, row in world.store.scan("group"):
                if row["task_type"] in ENDLESS and row["status"] not in TERMINAL:
                    assert world.do("StopGroup", group_id=group_id, by="op").ok
        world.control(61_000)
        obey_all(history)
        history.check()
        if all(
            history.seen[group_id] in (*TERMINAL, "deleted") or too_big(world, group_id) for group_id in history.groups
        ):
            return
    raise AssertionError({group_id: world.group(group_id) for group_id in history.groups})


def obey_all(history: History) -> None:
    world = history.world
    for _, task in list(world.store.scan("task")):
        row = world.store.get("task", f"{task['group_id']}/{task['attempt']:04d}/{task['rank']:05d}")
        if row is None or row["released"]:
            continue
        node = world.store.get("node", row["node"])
        said = "exited" if row["order"] == "stop" and row["status"] in ("starting", "running") else expected(row)
        if row["status"] == "claimed":
            continue
        body = {key: row[key] for key in ("group_id", "attempt", "rank", "token")} | {
            "seq": row["seq"] + 1,
            "kind": said,
        }
        if said == "exited":
            body |= {"exit_code": 0, "signal": None, "at_ms": 1}
        world.do("TaskReports", node=row["node"], uid=node["uid"], reports=[body])


UNFIT = ("cluster_too_small", "behind", "no_engine", "containers_only")


def too_big(world: World, group_id: str) -> bool:
    row = world.group(group_id)
    return row["status"] == "pending" and (row["pending_reason"] or {}).get("code") in UNFIT


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.attack(39)
@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(COMMANDS)), st.dictionaries(st.text(max_size=8), ANY, max_size=4), st.data())
def test_no_command_whatever_it_holds_raises(name, junk, data):
    world = World({"n1": 2})
    group = world.submit(1, 2)
    fields: dict[str, Any] = {"v": 1, "t": name, "at_ms": 5, "group_id": group, "node_id": "n1", "uid": "uid-n1"}
    for field in COMMANDS[name][0]:
        if field not in fields or data.draw(st.integers(0, 5)) == 0:
            fields[field] = data.draw(ANY)
    before = world.rows()
    outcome = apply(world.store, 99, {**fields, **junk})
    assert outcome.ok or world.rows() == before
