"""What is typed behind `/`: words that must be in a row, `!word` that must not, `field=word`, `field>number`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_TERM = re.compile(r"(!?)([a-z_]+)(=|>|<)(.+)\Z")


@dataclass(frozen=True, slots=True)
class RowFilter:
    """fields: `name -> how to get it from a row`; text: everything a plain word is looked for in."""

    words: str
    terms: tuple[tuple[bool, str, str, str], ...]  # (wanted, field, operator, value); field "" = the whole row

    def matches(self, text: str, fields: Mapping[str, Callable[[], object]]) -> bool:
        return all(
            wanted == _holds(field, operator, value, text, fields) for wanted, field, operator, value in self.terms
        )


def row_filter(words: str, known_fields: tuple[str, ...]) -> RowFilter:
    """A field nobody knows is a plain word: names may hold `=` themselves."""
    terms = []
    for word in words.lower().split():
        found = _TERM.match(word)
        if found is not None and found.group(2) in known_fields:
            terms.append((not found.group(1), found.group(2), found.group(3), found.group(4)))
        elif word.startswith("!") and len(word) > 1:
            terms.append((False, "", "=", word[1:]))
        elif word != "!":
            terms.append((True, "", "=", word))
    return RowFilter(words.strip(), tuple(terms))


def _holds(field: str, operator: str, value: str, text: str, fields: Mapping[str, Callable[[], object]]) -> bool:
    if not field:
        return value in text
    had = fields[field]()
    if operator == "=":
        return value in str(had if had is not None else "").lower()
    try:
        limit = float(value)
    except ValueError:
        return False
    if not isinstance(had, int | float):
        return False
    return had > limit if operator == ">" else had < limit
