"""What is wrong with a document as it is being typed, by the same rules that will judge it when it is submitted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from console.core import line
from console.core.line import Line, wrapped
from console.core.sanitize import sanitize
from schemas.as_written_yaml import parse_yaml
from schemas.errors import HeteroFlowError
from schemas.task_group import check_task_group, encode_document


@dataclass(frozen=True, slots=True)
class Judged:
    """body: what would be submitted, None where something is wrong. An agent may allow more paths than are known here,
    so a refused path is said but does not keep anyone from asking."""

    body: bytes | None
    lines: tuple[Line, ...]


def judged(text: str, original: Mapping[str, Any], cells: int) -> Judged:
    """Paths of the original were allowed where it was accepted."""
    try:
        raw = parse_yaml(text.encode())
    except HeteroFlowError as error:
        return Judged(None, tuple(_refused(error.problem.message, error.problem.hint, cells)))
    except UnicodeEncodeError as error:
        return Judged(None, tuple(_refused(str(error), "", cells)))
    checked = check_task_group(raw, _paths_of(original))
    lines: list[Line] = []
    for finding in checked.errors:
        lines += _refused(finding.message, finding.hint, cells)
    if checked.document is None:
        only_paths = all(finding.code == "path_not_allowed" for finding in checked.errors)
        return Judged(encode_document(raw) if only_paths and isinstance(raw, dict) else None, tuple(lines))
    before = check_task_group(original, _paths_of(original)).document or original
    changes = changed_fields(before, checked.document)
    count = f"{len(changes)} field{'s differ' if len(changes) > 1 else ' differs'}"
    said = f"✓ valid; {count} from the original" if changes else "✓ valid; the same as the original"
    lines = [((said, line.GOOD),)]
    for name, old, new in changes:
        lines.append(
            line.cut(((f"  {name}  ", line.DIM), (old, line.DIM), (" → ", line.RULE), (new, line.STRONG)), cells)
        )
    for finding in checked.warnings:
        lines += [((text, line.WARN),) for text in wrapped(sanitize(f"! {finding.message}"), cells)]
    return Judged(encode_document(checked.document), tuple(lines))


def _refused(message: str, hint: str, cells: int) -> list[Line]:
    lines: list[Line] = [((said, line.BAD),) for said in wrapped(sanitize(f"✗ {message}"), cells)]
    return lines + [((f"  {said}", line.DIM),) for said in wrapped(sanitize(hint), cells - 2) if said]


def changed_fields(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> list[tuple[str, str, str]]:
    """(dotted name, old, new) of each field that differs."""
    found = []
    for name in [*before, *(name for name in after if name not in before)]:
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += changed_fields(old, new, f"{path}{name}.")
        elif old != new:
            found.append((sanitize(f"{path}{name}"), _shown(old), _shown(new)))
    return found


def _paths_of(document: Mapping[str, Any]) -> list[str]:
    training = document.get("training") or {}
    fields = ("checkpoint_path", "dataset_path", "base_checkpoint", "resume_from_checkpoint")
    paths = [training.get(name) for name in fields]
    return [path.rpartition("/")[0] + "/" for path in paths if isinstance(path, str) and path.count("/") > 1]


def _shown(value: object) -> str:
    return "(none)" if value is None else sanitize(str(value))[:80]
