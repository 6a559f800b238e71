"""The task-group document: everything wrong with it in one answer, or its normalised form."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.errors import Finding, InvalidInput
from schemas.lexemes import sayable
from schemas.limits import DOCUMENT_MAX
from schemas.rules.allowed_paths import DEFAULT_ALLOWED_PATHS, host_path
from schemas.rules.frameworks import FRAMEWORKS
from schemas.rules.guards import command_findings
from schemas.task_group.encode import encode_document, settled
from schemas.task_group.fields import DEFAULT_STOP_GRACE_S, OF_TRAINING, REQUIRED_PARTS, SECTIONS, Later, Refused
from schemas.task_group.readers import ABSENT, is_null, refuse, shown
from schemas.task_group.relations import contradictions, host_findings, warnings_of
from schemas.task_group.unknown import unknown_field
from schemas.task_types import TASK_TYPES, TRAINING, part_of, type_of

UNKNOWN_MAX = 30  # of one section: a foreign file of 10,000 keys is told once, and spelling is compared within budget


@dataclass(frozen=True, slots=True)
class Checked:
    """document: normalised, None where there is any error. Checking a normalised document gives it back unchanged."""

    document: dict[str, Any] | None
    errors: list[Finding]
    warnings: list[Finding]


def check_task_group(raw: object, extra_allowed_paths: Sequence[str] = ()) -> Checked:
    """raw: what `parse_strict_json` or `parse_yaml` gave, or a normalised document. Total: no input raises."""
    found: list[Finding] = []
    raw = settled(raw)  # so that a file is told the same here as where it is submitted
    if not isinstance(raw, Mapping):
        message = f"the document must be a mapping, not {shown(raw)}"
        return Checked(
            None, [Finding("invalid_document", "", message, "Write name, task_type, training and task.")], []
        )
    kind = _kind(raw)
    document = _section("", raw, found, kind)
    for name in (kind, "task"):
        if name in raw and not is_null(raw[name], name, found):
            part = raw[name]
            if isinstance(part, Mapping):
                document[name] = _section(name, part, found, kind)
            else:
                refuse(found, name, f"must be a mapping, not {shown(part)}", f"Write the fields of {name} below it.")
    for name in TASK_TYPES:
        if name in raw and name != kind:
            hint = f"Remove {name}, or write task_type: {name}."
            refuse(found, name, f"is of another type: this is task_type: {kind}", hint, "not_for_type")
    found += contradictions(document, (*DEFAULT_ALLOWED_PATHS, *extra_allowed_paths), kind)
    errors, warnings = (
        command_findings(document.get(TRAINING, {}), document.get("task", {}), _framework(raw))
        if kind == TRAINING
        else ([], [])
    )
    found += errors
    if not found:
        _fill(document)
        if (size := len(encode_document(document))) > DOCUMENT_MAX:
            refuse(found, "document", f"has {size} bytes; at most {DOCUMENT_MAX} are taken", "Move data into files.")
    if found:
        wrong = {finding.path for finding in found}
        doubtful = [warning for warning in warnings_of(document) if warning.path not in wrong]
        return Checked(None, _sorted(found), _sorted([*doubtful, *warnings]))
    return Checked(document, [], _sorted([*warnings_of(document), *warnings]))


def accepted_task_group(
    raw: object, extra_allowed_paths: Sequence[str] = ()
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The normalised document and its warnings. Raises InvalidInput(invalid_document) with every finding."""
    checked = check_task_group(raw, extra_allowed_paths)
    if checked.document is not None:
        return checked.document, [warning.to_dict() for warning in checked.warnings]
    count = len(checked.errors)
    message = f"the task group was not created: {count} thing{'' if count == 1 else 's'} must be changed"
    first = checked.errors[0]
    raise InvalidInput("invalid_document", message, first.hint, first.path, checked.errors)


def task_findings(document: Mapping[str, Any]) -> list[Finding]:
    """What no host carries out, asked again of an accepted document where it is about to run: a document that came to
    the state by another way than the API, or past a check that failed there, starts nothing. Paths are not compared
    with an allow-list here, since each host has its own."""
    found: list[Finding] = []
    raw = document.get("task")
    if not isinstance(raw, Mapping):
        refuse(found, "task", f"must be a mapping, not {shown(raw)}", "")
        return found
    task = _section("task", raw, found, type_of(document))
    training = document.get("training")
    found += host_findings(training if isinstance(training, Mapping) else {}, task)
    return _sorted(found)


def _kind(raw: Mapping[Any, Any]) -> str:
    """Where it names none that there is, the one whose section is there."""
    if (named := type_of(raw)) in TASK_TYPES and "task_type" in raw:
        return named
    there = [name for name in TASK_TYPES if name in raw]
    return there[0] if len(there) == 1 else TRAINING


def _section(name: str, raw: Mapping[Any, Any], found: list[Finding], kind: str) -> dict[str, Any]:
    section = SECTIONS[name]
    subsections = (*TASK_TYPES, "task") if not name else ()
    required_here = (*section.required, kind) if not name and kind in REQUIRED_PARTS else section.required
    dot = f"{name}." if name else ""
    unknown = sorted((key for key in raw if key not in section.fields and key not in subsections), key=shown)
    told = [unknown_field(name, key, kind) for key in unknown[:UNKNOWN_MAX]]
    found += [finding for finding, _ in told]
    meant = [field for _, field in told]
    if len(unknown) > UNKNOWN_MAX:
        refuse(
            found,
            name or "document",
            f"has {len(unknown) - UNKNOWN_MAX} more unknown fields",
            "Is this the right file?",
        )
    for required in required_here:
        if required not in raw and f"{dot}{required}" not in meant:
            refuse(found, f"{dot}{required}", "is missing", _missing_hint(f"{dot}{required}", kind), "missing_field")
    document: dict[str, Any] = {}
    for key, reader in section.fields.items():
        if key not in raw:
            continue
        path = f"{dot}{key}"
        if kind == TRAINING and path in OF_TRAINING:
            reader = OF_TRAINING[path]
        if isinstance(reader, Later):
            refuse(found, path, "is not supported yet in this version", reader.instead, "not_supported_yet")
        elif isinstance(reader, Refused):
            refuse(found, path, reader.why, reader.instead)
        elif (value := reader(raw[key], path, found)) is not ABSENT:
            document[key] = value
    return document


def _framework(raw: Mapping[Any, Any]) -> str:
    """As declared, also where it is none: the guards that do not depend on it are said all the same."""
    training = raw.get("training")
    named = training.get("framework") if isinstance(training, Mapping) else None
    return str(named) if isinstance(named, str) else ""


_MISSING_HINTS = {
    "task_type": f"Write one of {', '.join(TASK_TYPES)}.",
    "task.command": "Name the program to run: without one a task does nothing and exits 0.",
    "task.gpu_required": "Write the number of cards of one node, the same as training.per_node_gpu.",
    "training.framework": f"Write one of {', '.join(FRAMEWORKS)}.",
    "training": "Write framework, n_nodes and per_node_gpu below it.",
    "task": "Write command and gpu_required below it.",
}


def _missing_hint(path: str, kind: str) -> str:
    if path == "task.gpu_required" and kind != TRAINING:
        return "Write the number of cards of one node; 0 is none."
    return _MISSING_HINTS.get(path, f"Add {path}.")


def _fill(document: dict[str, Any]) -> None:
    """Defaults are written down, so that a later version with other defaults runs an old document as it was meant.
    Paths are kept as the host has them; an agent shows them to a container in its own terms."""
    document.setdefault("priority", "normal")
    document.setdefault("on_isolation", "stop")
    kind, task = type_of(document), document["task"]
    if kind == TRAINING:
        _fill_training(document[TRAINING])
    else:
        document[kind] = {"n_nodes": 1, **part_of(document)}
    task.setdefault("stop_grace_s", DEFAULT_STOP_GRACE_S)
    if "image" in task:
        task.setdefault("pull", "missing")


def _fill_training(training: dict[str, Any]) -> None:
    if "resume_from_checkpoint" in training:
        training["resume_from_checkpoint"] = host_path(training["resume_from_checkpoint"], training)
    training["world_size"] = training["n_nodes"] * training["per_node_gpu"]


def _sorted(found: Iterable[Finding]) -> list[Finding]:
    """In an order that does not depend on the order of keys, and free of text that no UTF-8 could carry."""
    unique = {(item.path, item.message): item for item in map(_sayable, found)}
    return [unique[key] for key in sorted(unique)]


def _sayable(item: Finding) -> Finding:
    return Finding(*map(sayable, (item.code, item.path, item.message, item.hint)))
