"""TaskReports: facts from one agent about its ranks. A fact is recorded once, whatever the order and the number of its
deliveries."""

from dataclasses import dataclass, field

from mesh.core.state.agreement import note_view
from mesh.core.state.failure import exit_text, failure_of, is_own, judge_exit
from mesh.core.state.group import Group, mark_releasing, release
from mesh.core.state.keys import task_key
from mesh.core.state.outcome import Outcome, done, refused
from mesh.core.state.penalty import penalise
from mesh.core.state.reach import note_reach
from mesh.core.state.real_paths import refuse_taken
from mesh.core.state.rebuild import endless_exit
from mesh.core.state.retry import note_ended_by_host
from mesh.core.state.saves import is_news, note_passed_over, note_removed, note_save
from mesh.core.state.settle import advance, blame_earlier, fail, failure_follows_loss, finish, recover, roll_back
from mesh.core.state.stop_after import stop_at_checkpoint
from mesh.core.state.store import Row, StateStore
from schemas.states import (
    BOUND,
    CANCELLED,
    CLAIMED,
    ENDING_FAILED,
    EXITED,
    GONE,
    ORDER_CLAIM,
    ORDER_STOP,
    RUNNING,
    SCHEDULING,
    STARTING,
)


@dataclass(slots=True)
class Touched:
    """One group of a batch. bad: (agent's time, place in the batch, how it ends the attempt, report) of unasked-for
    ends; refusals: failed claims; fenced: a rank that its host ended for want of a lease; saved: a new
    checkpoint of this attempt."""

    group: Group
    bad: list[tuple[int, int, str, Row]] = field(default_factory=list)
    refusals: list[Row] = field(default_factory=list)
    fenced: int | None = None
    saved: str | None = None


def task_reports(store: StateStore, idx: int, command: Row) -> Outcome:
    node_id, at_ms = command["node"], command["at_ms"]
    node = store.get("node", node_id)
    if node is None:
        return refused("no_such_node", f"node {node_id} has never registered.")
    if node["uid"] != command["uid"]:
        return refused(
            "wrong_node_uid", f"node name {node_id} belongs to another host now; this one must join under another name."
        )
    touched: dict[str, Touched] = {}
    ignored = 0
    for at, report in enumerate(command["reports"]):
        if not _take(store, node_id, at_ms, at, report, touched):
            ignored += 1
    for item in touched.values():
        _conclude(store, item, node_id, command.get("sent_ms"))
    return done(accepted=len(command["reports"]) - ignored, ignored=ignored)


def _take(store: StateStore, node_id: str, at_ms: int, at: int, report: Row, touched: dict[str, Touched]) -> bool:
    task = store.get("task", task_key(report["group_id"], report["attempt"], report["rank"]))
    if task is None or task["node"] != node_id or task["token"] != report["token"]:
        return False
    if not _is_news(report, task):
        return False
    item = touched.get(report["group_id"])
    if item is None:
        group = Group.load(store, report["group_id"], at_ms)
        assert group is not None, f"task {report['group_id']} has no group"
        item = touched[report["group_id"]] = Touched(group)
    if report["kind"] == "claimed":
        report = refuse_taken(item.group, report)
    if report["kind"] not in _NO_STEPS:
        task["seq"] = max(task["seq"], report["seq"])
    _KINDS[report["kind"]](item, task, report, at)
    item.group.put_task(task)
    return True


def _is_news(report: Row, task: Row) -> bool:
    if report["kind"] == "log_lost":
        return bool(report["bytes"] > task.get("log_lost", 0))
    if report["kind"] == "checkpoint":
        return is_news(task, report)
    if report["kind"] == "checkpoints_removed":
        return True
    if report["kind"] == "progress":
        bound = task["order"] == ORDER_CLAIM and task["status"] == BOUND
        return bool(bound and task["reason"] != report["text"])
    # The exit overtook the start: the state stays, but the timeline still gets the moment it began.
    unseen_start = report["kind"] == "started" and task["status"] == EXITED and task["started_ms"] is None
    return report["seq"] > task["seq"] or unseen_start


def _progress(item: Touched, task: Row, report: Row, at: int) -> None:
    task["reason"] = report["text"]


def _claimed(item: Touched, task: Row, report: Row, at: int) -> None:
    group = item.group
    if not group.move_task(task, CLAIMED):
        return
    task["reason"] = None
    group.row["claimed"] = sorted({*group.row["claimed"], task["rank"]})
    if task["rank"] == 0:
        group.row["probe"] = report.get("resume")
    note_reach(group.row, task["rank"], task["node"], report)
    if report.get("sees") is not None:
        note_view(group.row, task["rank"], task["node"], report["sees"])
        if task["rank"] == 0:
            note_passed_over(group, report["sees"])
    group.event(
        "claimed",
        f"Rank {task['rank']} is claimed on {task['node']}.",
        rank=task["rank"],
        node=task["node"],
        **_agent_time(report),
    )


def _claim_failed(item: Touched, task: Row, report: Row, at: int) -> None:
    group = item.group
    if task["status"] not in (BOUND, CLAIMED) or group.attempt != task["attempt"]:
        return
    task["reason"] = report["text"]
    group.move_task(task, CANCELLED)
    mark_releasing(group.store, task)
    group.event(
        "claim_failed",
        f"Rank {task['rank']} could not be claimed on {task['node']}: {report['text']}",
        rank=task["rank"],
        node=task["node"],
        code=report["code"],
        permanent=report["permanent"],
        **_agent_time(report),
    )
    item.refusals.append(report)


def _started(item: Touched, task: Row, report: Row, at: int) -> None:
    group = item.group
    moved = group.move_task(task, RUNNING)
    if not moved and task["started_ms"] is not None:
        return
    if not moved and task["status"] != EXITED:
        return
    task["started_ms"] = group.at_ms
    group.event(
        "rank_started",
        f"Rank {task['rank']} started on {task['node']}." + ("" if moved else " (This report arrived after its exit.)"),
        rank=task["rank"],
        node=task["node"],
        attempt=task["attempt"],
        **_agent_time(report),
    )
    if report.get("image") is not None:
        _note_image(group, task, report["image"])


def _note_image(group: Group, task: Row, image: Row) -> None:
    """The first rank of an attempt says what it runs; who differs, in this attempt or from the one before, is told."""
    image = {"id": image["id"], "digest": image.get("digest")}
    task["image"] = image
    known = group.row.get("image")
    if known is not None and not _same_image(known, image):
        other = "the other ranks run" if known["attempt"] == task["attempt"] else f"attempt {known['attempt']} ran"
        group.event(
            "image_changed",
            f"Rank {task['rank']} on {task['node']} runs image {_short(image)}, {other} {_short(known)}.",
            rank=task["rank"],
            node=task["node"],
            attempt=task["attempt"],
            image=image,
            before={"id": known["id"], "digest": known["digest"]},
        )
    if known is None or known["attempt"] < task["attempt"]:
        group.row["image"] = {**image, "attempt": task["attempt"]}


def _same_image(one: Row, other: Row) -> bool:
    """The digest is the registry's, for all kinds of machine; the id is of one kind, and there without a registry."""
    if one["digest"] and other["digest"]:
        return bool(one["digest"] == other["digest"])
    return bool(one["id"] == other["id"])


def _short(image: Row) -> str:
    return str(image["digest"] or image["id"]).removeprefix("sha256:")[:12]


def _exited(item: Touched, task: Row, report: Row, at: int) -> None:
    group = item.group
    asked = task["order"] == ORDER_STOP
    if not group.move_task(task, EXITED):
        return
    task.update(
        exit_code=report["exit_code"], signal=report["signal"], reason=report.get("text") or report.get("why") or None
    )
    mark_releasing(group.store, task)
    group.event(
        "rank_exited",
        f"Rank {task['rank']} on {task['node']} {exit_text(report['exit_code'], report['signal'])}"
        + (f" after a stop order{_said_of_stop(report)}." if asked else "."),
        rank=task["rank"],
        node=task["node"],
        exit_code=report["exit_code"],
        signal=report["signal"],
        why=report.get("why", ""),
        **_agent_time(report),
    )
    if report.get("why") == "fenced":
        item.fenced = task["rank"]
    ending = judge_exit(report) or (None if asked else endless_exit(group))
    if ending is not None:
        item.bad.append((report["at_ms"], at, ending, report))


def _said_of_stop(report: Row) -> str:
    """What the host says beyond that it was one."""
    _, _, more = str(report.get("text") or "").partition(": ")
    return f" ({more})" if more else ""


def _log_lost(item: Touched, task: Row, report: Row, at: int) -> None:
    task["log_lost"] = report["bytes"]
    item.group.event(
        "log_lost",
        f"At least {report['bytes']} bytes of the output of rank {task['rank']} on {task['node']} are lost; "
        "its log says where.",
        rank=task["rank"],
        node=task["node"],
        attempt=task["attempt"],
        bytes=report["bytes"],
        **_agent_time(report),
    )


def _checkpoint(item: Touched, task: Row, report: Row, at: int) -> None:
    if note_save(item.group, task, report):
        item.saved = report["pick"]


def _removed(item: Touched, task: Row, report: Row, at: int) -> None:
    note_removed(item.group, report["removed"])


def _released(item: Touched, task: Row, report: Row, at: int) -> None:
    group = item.group
    if task["released"]:
        return
    if task["status"] in (BOUND, CLAIMED) or (task["status"] == STARTING and task["order"] == ORDER_STOP):
        task["reason"] = task["reason"] or "its agent let it go before it started"
        group.move_task(task, CANCELLED)
        item.bad.append((report.get("at_ms", 0), at, "unclaimed", report))
    elif task["status"] not in GONE:
        group.lose_task(task, f"node {task['node']} has no process of it and no exit status.")
        item.bad.append((report.get("at_ms", 0), at, "vanished", report))
    release(group.store, task)


# No steps of the task's life: they may come between any two of them.
_NO_STEPS = ("log_lost", "progress", "checkpoint", "checkpoints_removed")
_KINDS = {
    "progress": _progress,
    "claimed": _claimed,
    "claim_failed": _claim_failed,
    "started": _started,
    "exited": _exited,
    "released": _released,
    "log_lost": _log_lost,
    "checkpoint": _checkpoint,
    "checkpoints_removed": _removed,
}


def _conclude(store: StateStore, item: Touched, node_id: str, sent_ms: int | None) -> None:
    group = item.group
    advance(group)
    if item.saved is not None:
        stop_at_checkpoint(group, item.saved)
    if group.row["ending"] is None and item.refusals:
        _end_claims(store, group, item.refusals, node_id)
    elif item.fenced is not None and failure_follows_loss(group):
        recover(group, f"node {node_id} was cut off and ended rank {item.fenced}.", node_id)
    elif group.row["ending"] is None and item.bad:
        # Clocks of one host order its own ranks.
        _, _, ending, report = min(item.bad, key=lambda bad: bad[:2])
        if ending == ENDING_FAILED:
            fail(group, failure_of(report, node_id, group.at_ms, sent_ms))
        elif group.status == SCHEDULING:
            penalise(store, node_id, group.at_ms)
            roll_back(
                group, "claim_dropped", f"node {node_id} let rank {report['rank']} go before it started.", node_id
            )
        else:
            # It may be sick: the next attempt goes elsewhere where it can, and here only after a rest.
            penalise(store, node_id, group.at_ms)
            said = f" ({report['text']})" if report.get("text") else ""
            why = f"rank {report['rank']} on {node_id} was ended by its host, not by its code{said}."
            note_ended_by_host(group, why)
            recover(group, why, node_id)
    elif group.row["ending"] == ENDING_FAILED:
        own = [bad for bad in item.bad if is_own(bad[3])]
        if own:
            blame_earlier(group, failure_of(min(own, key=lambda bad: bad[:2])[3], node_id, group.at_ms, sent_ms))
    finish(group)
    group.save()


def _end_claims(store: StateStore, group: Group, refusals: list[Row], node_id: str) -> None:
    permanent = [report for report in refusals if report["permanent"]]
    report = (permanent or refusals)[0]
    why = f"rank {report['rank']} could not be claimed on {node_id}: {report['text']}"
    if permanent and group.status == SCHEDULING:
        fail(
            group,
            {
                "class": report["code"],
                "rank": report["rank"],
                "exit_code": None,
                "signal": None,
                "text": why[:1].upper() + why[1:],
            },
        )
        return
    penalise(store, node_id, group.at_ms)
    roll_back(group, report["code"], why, node_id)


def _agent_time(report: Row) -> dict[str, int]:
    at_ms = report.get("at_ms")
    return {"agent_ms": at_ms} if at_ms is not None else {}
