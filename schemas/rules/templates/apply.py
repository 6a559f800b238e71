"""Applying a template: the framework is switched, and only what nobody has edited is filled in.

A field was edited when it is there and is not what the template that the document was made from had put there.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.rules.templates import ALL, LABEL, Template

Path = tuple[str, ...]
# It is what a template is applied for.
_SWITCHED: Path = ("training", "framework")
_MARK: Path = ("labels", LABEL)


@dataclass(frozen=True, slots=True)
class Applied:
    """kept: dotted fields that were edited and differ from the template; removed: those that only the earlier template
    had; unknown_base: the label's text where this version has no such template."""

    document: dict[str, Any]
    kept: tuple[str, ...]
    removed: tuple[str, ...]
    unknown_base: str | None = None


def newest() -> list[Template]:
    """One of each name, in the order of the list."""
    found = {template.name: template for template in sorted(ALL, key=lambda template: template.version)}
    return [found[name] for name in dict.fromkeys(template.name for template in ALL)]


def template_named(text: str) -> Template | None:
    """NAME, or NAME/VERSION."""
    exact = next((template for template in ALL if template.mark == text), None)
    return exact or next((template for template in newest() if template.name == text), None)


def applied(template: Template, document: Mapping[str, Any]) -> Applied:
    """document: as it was read, scalars as texts; empty for the template itself."""
    given = dict(_leaves(document))
    label = given.get(_MARK)
    base = next((known for known in ALL if label is not None and known.mark == str(label)), None)
    before = dict(_leaves(base.document)) if base is not None else {}
    wanted = dict(_leaves(template.document))
    edited = {path for path, value in given.items() if not _same(value, before.get(path))}
    made = {path: value for path, value in given.items() if path in edited}
    made |= {path: value for path, value in wanted.items() if path not in edited}
    made[_SWITCHED] = wanted[_SWITCHED]
    made[_MARK] = template.mark
    kept = [
        path for path in sorted(edited) if path in wanted and path != _SWITCHED and not _same(given[path], wanted[path])
    ]
    return Applied(
        _tree(made, [*wanted, *given]),
        tuple(".".join(path) for path in kept),
        tuple(sorted(".".join(path) for path in given if path not in made)),
        str(label) if label is not None and base is None else None,
    )


def _same(one: Any, other: Any) -> bool:
    """A number read from a file is its text."""
    return type(one) is not bool and type(other) is not bool and other is not None and _text(one) == _text(other)


def _text(value: Any) -> Any:
    return [_text(item) for item in value] if isinstance(value, list | tuple) else str(value)


def _leaves(value: Mapping[str, Any], at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Lists are one value: half of a command means nothing."""
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            yield from _leaves(item, (*at, str(key)))
        else:
            yield (*at, str(key)), item


def _tree(leaves: Mapping[Path, Any], order: list[Path]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path in dict.fromkeys([*order, *leaves]):
        if path not in leaves:
            continue
        holder = tree
        for name in path[:-1]:
            inner = holder.setdefault(name, {})
            if not isinstance(inner, dict):
                inner = holder[name] = {}
            holder = inner
        holder[path[-1]] = leaves[path]
    return tree
