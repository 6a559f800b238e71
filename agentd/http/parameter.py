"""Query parameters: one declaration reads the request and stands in the API's description."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from aiohttp import web

from schemas.errors import Finding, InvalidInput

_SHOWN = 40
_NEAR = 0.7


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from low to high, both included. default: None where leaving it out means something of its
    own."""

    name: str
    low: int
    high: int
    about: str
    default: int | None = None
    repeats = False

    def read(self, request: web.Request) -> int:
        """Raises InvalidInput. -1 stands for one that was left out and has no default."""
        text = request.query.get(self.name)
        if text is None:
            return -1 if self.default is None else self.default
        if not text.isascii() or not text.isdigit() or len(text) > 18 or not self.low <= int(text) <= self.high:
            raise refused(self.name, text, f"is not a whole number from {self.low} to {self.high}")
        return int(text)

    @property
    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "integer", "minimum": self.low, "maximum": self.high}
        return schema if self.default is None else {**schema, "default": self.default}


@dataclass(frozen=True, slots=True)
class Choice:
    name: str
    values: tuple[str, ...]
    about: str
    default: str
    repeats = False

    def read(self, request: web.Request) -> str:
        """Raises InvalidInput."""
        text = request.query.get(self.name, self.default)
        if text not in self.values:
            raise refused(self.name, text, "is unknown", _instead(text, self.values))
        return text

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.values), "default": self.default}


@dataclass(frozen=True, slots=True)
class Choices:
    """Several of some words, separated by commas or given again. Left out it means all of them, but said without a
    word it is a mistake: a script whose variable was empty would get everything."""

    name: str
    values: tuple[str, ...]
    about: str
    repeats = False

    def read(self, request: web.Request) -> list[str]:
        """Raises InvalidInput."""
        given = [part for text in request.query.getall(self.name, []) for part in text.split(",")]
        for part in given:
            if part not in self.values:
                raise refused(self.name, part, "is none of them", _instead(part, self.values))
        return given

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "string", "enum": list(self.values)}, "minItems": 1}


@dataclass(frozen=True, slots=True)
class Flag:
    name: str
    about: str
    repeats = False

    def read(self, request: web.Request) -> bool:
        """Raises InvalidInput."""
        text = request.query.get(self.name, "false").lower()
        if text not in ("true", "false", "1", "0"):
            raise refused(self.name, text, "is neither true nor false")
        return text in ("true", "1")

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "boolean", "default": False}


@dataclass(frozen=True, slots=True)
class Words:
    """Text. pattern: what it looks like; repeats: may be given again."""

    name: str
    about: str
    pattern: str | None = None
    high: int = 256
    repeats: bool = False

    def read(self, request: web.Request) -> str:
        """ "" where it was left out. Raises InvalidInput."""
        return next(iter(self.read_all(request)), "")

    def read_all(self, request: web.Request) -> list[str]:
        """As often as it was given. Raises InvalidInput."""
        given: list[str] = request.query.getall(self.name, [])
        for text in given:
            if len(text) > self.high:
                raise refused(self.name, text, f"has more than {self.high} characters")
            # `$` as in the description: the end, and not before a line break that ends the text.
            if self.pattern is not None and (not re.search(self.pattern, text) or _breaks_off(self.pattern, text)):
                raise refused(self.name, text, f"does not match {self.pattern}", self.about)
        return given

    @property
    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string", "maxLength": self.high}
        return schema if self.pattern is None else {**schema, "pattern": self.pattern}


Parameter = Whole | Choice | Choices | Flag | Words

CONSISTENCY = Choice(
    "consistency",
    ("linearizable", "stale"),
    "stale: at once, also without a quorum",
    "linearizable",
)


def limit(high: int, default: int) -> Whole:
    return Whole("limit", 1, high, "at most this many; the answer's cursor leads to the next ones", default)


def refused(name: str, text: str, why: str, hint: str = "") -> InvalidInput:
    return InvalidInput("invalid_parameter", f"{name}={text[:_SHOWN]!r} {why}", hint, field=name)


def check_query(request: web.Request, known: Sequence[Parameter]) -> None:
    """Raises InvalidInput with every finding: a parameter that is not known, or said twice where one counts, would be
    left out in silence, and the caller would take the answer for what was asked."""
    names = {parameter.name: parameter for parameter in known}
    found = []
    for name in dict.fromkeys(request.query):
        parameter, times = names.get(name), len(request.query.getall(name))
        if parameter is None:
            near = get_close_matches(name[:_SHOWN].lower(), names, n=1, cutoff=_NEAR)
            hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(names) or 'none'}"
            said = f"{name[:_SHOWN]!r} is no parameter here"
            found.append(Finding("unknown_parameter", name[:_SHOWN], said, hint))
        elif times > 1 and not (parameter.repeats or isinstance(parameter, Choices)):
            said = f"{name} is given {times} times, and one of them would count"
            found.append(Finding("repeated_parameter", name, said, "give it once"))
    if found:
        first = found[0]
        raise InvalidInput(first.code, first.message, first.hint, field=first.path, findings=found)


def _breaks_off(pattern: str, text: str) -> bool:
    return pattern.endswith("$") and text.endswith("\n")


def _instead(text: str, values: tuple[str, ...]) -> str:
    near = get_close_matches(text[:_SHOWN].lower(), values, n=1, cutoff=_NEAR)
    return (f"did you mean {near[0]}? " if near else "") + f"use {_spoken(values)}"


def _spoken(values: tuple[str, ...]) -> str:
    return ", ".join(values[:-1]) + " or " + values[-1] if len(values) < 6 else ", ".join(values)
