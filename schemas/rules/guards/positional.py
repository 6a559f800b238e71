"""The arguments of a shell or a function: "$@", $1 to $9, `set -- …` and `shift`."""

from collections.abc import Sequence

from schemas.rules.guards.known import Environment
from schemas.rules.guards.words import Unknowns, elements, every, joined

_ALL = every("@")
_NAMES = (_ALL, *"123456789")


def give(environment: Environment, words: Sequence[str], unknowns: Unknowns) -> None:
    """Behind an unquoted unknown, which may be none or many words, no number can be told."""
    told = next((at for at, word in enumerate(words) if unknowns.may_split(word)), len(words))
    environment.values[_ALL] = joined(words)
    for at, name in enumerate(_NAMES[1:]):
        if at < told:
            environment.values[name] = words[at]
        else:
            environment.values[name] = "" if told == len(words) else unknowns.mark(name, False)


def taken(environment: Environment) -> dict[str, str | None]:
    """What `give_back` restores behind a function."""
    return {name: environment.values[name] for name in _NAMES if name in environment.values}


def give_back(environment: Environment, before: dict[str, str | None]) -> None:
    for name in _NAMES:
        environment.values.pop(name, None)
    environment.values.update(before)


def set_by(words: Sequence[str]) -> Sequence[str] | None:
    """The arguments that `set` gives; None where it sets options alone. words: behind `set`."""
    at = 0
    while at < len(words) and words[at][:1] in ("-", "+") and len(words[at]) > 1:
        if words[at] == "--":
            return words[at + 1 :]
        at += 2 if words[at].endswith("o") else 1
    return words[at:] or None


def shift(environment: Environment, words: Sequence[str], unknowns: Unknowns, looped: bool) -> None:
    """words: behind `shift`. looped: nobody knows how often."""
    here = elements(environment.values.get(_ALL) or "")
    count = int(words[0]) if words and words[0].isdecimal() and len(words[0]) < 4 else 1
    if looped or (words and not words[0].isdecimal()) or any(map(unknowns.may_split, here[:count])):
        give(environment, [unknowns.mark("@", False)], unknowns)
    elif count <= len(here):
        give(environment, here[count:], unknowns)
