"""The ledger of a group: each checkpoint that the node of rank 0 saw complete, what came of resuming from it, and which
were removed. Told by that node, in durations, so that no two clocks are compared."""

from collections.abc import Iterator, Mapping
from typing import Any

from mesh.core.state.group import Group
from mesh.core.state.keys import save_key
from mesh.core.state.store import Row, StateStore
from schemas.limits import LEDGER_MAX, RESTORES_KEPT

# Of a row that is older than the attempt that is told of it, or of a group before this one.
BEFORE = 0


def is_news(task: Row, report: Row) -> bool:
    """The first look of an agent that was started again repeats what is known."""
    return bool(task["rank"] == 0 and report["mark"] != task.get("saved"))


def note_save(group: Group, task: Row, report: Row) -> bool:
    """True where this attempt has saved something new."""
    task["saved"] = report["mark"]
    group.touch()
    if task["attempt"] != group.attempt:
        return False
    saved_ms = max(0, group.at_ms - report["age_ms"])
    facts = {
        "bytes": report["bytes"],
        "files": report["files"],
        "saved_ms": saved_ms,
        "took_ms": report["took_ms"],
    }
    key, row = _entry(group, report["pick"], report["mark"])
    if row is None:
        own = not _was_there(group.row, task, report["mark"], saved_ms)
        row = _new(report["pick"], report.get("step"), report["mark"], group.attempt if own else BEFORE)
        key = _append(group, row)
    row.update(facts)
    group.store.put("save", key, row)
    group.row["saved"] = {
        "pick": row["pick"],
        "step": row["step"],
        "mark": row["mark"],
        "bytes": row["bytes"],
        "saved_ms": saved_ms,
        "attempt": row["attempt"],
    }
    if report.get("free_bytes") is not None:
        group.row["saved"]["free_bytes"] = report["free_bytes"]
    return bool(row["attempt"] == group.attempt)


def note_restore(group: Group, resume: Row | None) -> None:
    """An attempt starts from it. One that this group did not write, or not under these eyes, gets its line here."""
    if resume is None:
        return
    below = f"{(group.row['checkpoint_path'] or '').rstrip('/')}/"
    pick = resume["path"].removeprefix(below) if group.row["checkpoint_path"] else resume["path"]
    mark = _mark_seen(group.row)
    key, row = _entry(group, pick, mark)
    if row is None:
        row = _new(pick, resume.get("step"), mark or "", BEFORE)
        key = _append(group, row)
    row["restores"] = [*row["restores"], group.attempt][-RESTORES_KEPT:]
    group.store.put("save", key, row)


def note_passed_over(group: Group, sees: Mapping[str, Any]) -> None:
    """What the node of rank 0 found unfinished as it looked for something to resume from."""
    known = {(row["pick"], row["why"]) for _, row in _entries(group) if not row["complete"]}
    for item in sees.get("rejected") or ():
        if (item["name"], item["why"]) not in known:
            _append(group, {**_new(item["name"], None, "", BEFORE), "complete": False, "why": item["why"]})


def note_removed(group: Group, removed: list[str]) -> None:
    """By the platform's own hand, as keep_last_n says."""
    names = frozenset(removed)
    for key, row in [*_entries(group)]:
        if row["pick"] in names and row["complete"] and row["removed_ms"] is None:
            group.store.put("save", key, {**row, "removed_ms": group.at_ms})
            group.touch()


def forget_saves(store: StateStore, group_id: str) -> int:
    keys = [key for key, _ in store.scan("save", f"{group_id}/")]
    for key in keys:
        store.delete("save", key)
    return len(keys)


def _new(pick: str, step: int | None, mark: str, attempt: int) -> Row:
    return {
        "pick": pick,
        "step": step,
        "mark": mark,
        "attempt": attempt,
        "complete": True,
        "why": "",
        "bytes": None,
        "files": None,
        "saved_ms": None,
        "took_ms": None,
        "restores": [],
        "removed_ms": None,
    }


def _entries(group: Group) -> Iterator[tuple[str, Row]]:
    return group.store.scan("save", f"{group.id}/")


def _entry(group: Group, pick: str, mark: str | None) -> tuple[str, Row | None]:
    """The newest of that name, and of that save where it is known."""
    found: tuple[str, Row | None] = ("", None)
    for key, row in _entries(group):
        if row["pick"] == pick and row["complete"] and (mark is None or row["mark"] in (mark, "")):
            found = (key, row)
    return found


def _append(group: Group, row: Row) -> str:
    """Bounded: the oldest goes."""
    number = group.row["saves"] = int(group.row.get("saves", 0)) + 1
    group.touch()
    key = save_key(group.id, number)
    group.store.put("save", key, row)
    if number > LEDGER_MAX:
        group.store.delete("save", save_key(group.id, number - LEDGER_MAX))
    return key


def _mark_seen(group: Row) -> str | None:
    views = group.get("views") or []
    return views[0].get("mark") or None if views else None


def _was_there(group: Row, task: Row, mark: str, saved_ms: int) -> bool:
    """Before this attempt: what its claim saw. Where nobody looked then, by the stamps."""
    seen = _mark_seen(group)
    return mark == seen if seen is not None else saved_ms < task["bound_ms"]
