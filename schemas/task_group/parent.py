"""A group that goes on from another one's checkpoint: how its document names it, and what it takes from the other's
document."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from schemas.errors import Finding
from schemas.ids import group_id_refusal
from schemas.task_group import readers
from schemas.task_group.readers import shaped
from schemas.task_types import TRAINING, type_of

FIELD = f"{TRAINING}.parent_checkpoint"
_NAMED = re.compile(r"(?P<group>[^@]+)(@(?P<step>0|[1-9][0-9]{0,14}))?\Z")
# Checkpoints of two groups in one directory could not be told apart; world_size is worked out from the rest.
_OWN = frozenset({"checkpoint_path", "resume_from_checkpoint", "parent_checkpoint", "world_size"})


class ParentNamed(NamedTuple):
    """step: None is the newest."""

    group_id: str
    step: int | None


@shaped({"type": "string", "pattern": "^tg-[0-9a-hjkmnp-tv-z]{20}(@(0|[1-9][0-9]{0,14}))?$"})
def parent_checkpoint(value: object, path: str, found: list[Finding]) -> Any:
    words = readers.text(64)(value, path, found)
    if words is readers.ABSENT or _parent_named(words) is not None:
        return words
    hint = "Write the id of a group, tg-…, and @STEP behind it for another checkpoint than its newest."
    return readers.refuse(found, path, f"is {readers.shown(words)}, which is neither GROUP nor GROUP@STEP", hint)


def parent_of(document: Mapping[str, Any]) -> ParentNamed | None:
    """document: also one that nobody has checked; None where it names no parent, or not rightly."""
    part = document.get(TRAINING)
    named = part.get("parent_checkpoint") if isinstance(part, Mapping) and type_of(document) == TRAINING else None
    return _parent_named(named) if isinstance(named, str) else None


def with_inherited(document: Mapping[str, Any], parent: Mapping[str, Any]) -> dict[str, Any]:
    """What `training` and `task` leave out is the parent's, hyper-parameters one by one; nothing is respelled.
    document: as written, with a parent; parent: normalised, of a training. What is no mapping the check tells."""
    own = document[TRAINING]
    inherited = {name: value for name, value in parent[TRAINING].items() if name not in _OWN}
    training = {**inherited, **own}
    theirs, mine = inherited.get("hyper_params"), own.get("hyper_params")
    if isinstance(theirs, Mapping) and isinstance(mine, Mapping):
        training["hyper_params"] = {**theirs, **mine}
    task = document.get("task", {})
    if isinstance(task, Mapping):
        task = {**parent["task"], **task}
    return {**document, TRAINING: training, "task": task}


def told_by_parent(found: Finding) -> bool:
    """Of a document with a parent: what it leaves out here, `with_inherited` may put in."""
    section, _, name = found.path.partition(".")
    return found.code == "missing_field" and section in (TRAINING, "task") and name not in _OWN


def _parent_named(words: str) -> ParentNamed | None:
    matched = _NAMED.match(words)
    if matched is None or group_id_refusal(matched["group"]) is not None:
        return None
    return ParentNamed(str(matched["group"]), None if matched["step"] is None else int(matched["step"]))
