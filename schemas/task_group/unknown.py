"""What to say about a field the document does not have: where it belongs, or what was meant."""

from difflib import get_close_matches

from schemas.errors import Finding
from schemas.task_group.fields import SECTIONS, Later, Refused
from schemas.task_group.readers import shown
from schemas.task_types import TASK_TYPES, TRAINING

_KEY_SHOWN = 80
_KEY_COMPARED = 60


def unknown_field(section: str, key: object, kind: str = TRAINING) -> tuple[Finding, str | None]:
    """The finding, and the dotted field that was surely meant, if there is one. kind: the document's task type."""
    name = str(key) if isinstance(key, str) else shown(key)
    place = dotted(section, name[:_KEY_SHOWN] if name.isprintable() else ascii(name)[:_KEY_SHOWN])
    code, meant, said, hint = _meant(section, name, kind)
    return Finding(code, place, f"{place} is not a field here{said}", hint), meant


def _meant(section: str, name: str, kind: str) -> tuple[str, str | None, str, str]:
    """Code, the field that was meant, how to say so, and what to do."""
    here = SECTIONS[section]
    if (ours := here.elsewhere.get(name)) is not None:
        return "unknown_field", dotted(section, ours), f" (did you mean {ours}?)", f"Rename it to {ours}."
    if (advice := here.advice.get(name)) is not None:
        return "unknown_field", None, "", f"{advice[0].upper()}{advice[1:]}."
    if section == kind != TRAINING and name in SECTIONS[TRAINING].fields:
        return "not_for_type", None, f": only training has it, and this is {kind}", "Remove it."
    sections = {other: SECTIONS[other] for other in SECTIONS if other not in TASK_TYPES or other == kind}
    homes = [dotted(other, name) for other, fields in sections.items() if other != section and name in fields.fields]
    if homes:
        return _misplaced(name, homes[0])
    if len(name) <= _KEY_COMPARED:
        spelled = name.lower().replace("-", "_")
        if close := get_close_matches(spelled, _below(section, kind), n=1, cutoff=0.72):
            return (
                "unknown_field",
                dotted(section, close[0]),
                f" (did you mean {close[0]}?)",
                f"Rename it to {close[0]}.",
            )
        for other, fields in sections.items():
            if other != section and (near := get_close_matches(spelled, list(fields.fields), n=1, cutoff=0.85)):
                field = dotted(other, near[0])
                return "unknown_field", None, f" (did you mean {field}?)", f"Rename it and move it to {field}."
    return "unknown_field", None, "", f"Remove it. Fields here: {', '.join(_below(section, kind))}."


def _below(section: str, kind: str) -> list[str]:
    """Names that may stand here; at the top the sections too."""
    sections = [name for name in SECTIONS if name and (name not in TASK_TYPES or name == kind)] if not section else []
    return [*SECTIONS[section].fields, *sections]


def _misplaced(name: str, home: str) -> tuple[str, str | None, str, str]:
    where = f"in {home}" if "." in home else "at the top level"
    field = SECTIONS[home.rpartition(".")[0]].fields[name]
    if isinstance(field, Refused):
        return "unknown_field", None, f", nor anywhere: {name} {field.why}", field.instead
    if isinstance(field, Later):
        said = f" (it belongs {where}, and is not supported yet in this version)"
        return "misplaced_field", home, said, field.instead
    return "misplaced_field", home, f" (it belongs {where})", f"Put it {where}."


def dotted(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name
