"""One reader per kind of field: a value as written goes in, its normalised form or ABSENT and findings come out.

A reader accepts its own output, so a normalised document may be read again (clone, resubmit) and stays what it is.
"""

import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from math import isfinite
from typing import Any

from schemas.errors import Finding
from schemas.lexemes import Number, Plain, lone_surrogate

CODE = "invalid_field"


class Absent(Enum):
    ABSENT = "absent"


ABSENT = Absent.ABSENT
Reader = Callable[[object, str, list[Finding]], Any]
Schema = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Shaped:
    """A reader, and the JSON schema of what it takes from JSON. What no schema can say is the reader's own matter."""

    read: Reader
    schema: Schema

    def __call__(self, value: object, path: str, found: list[Finding]) -> Any:
        return self.read(value, path, found)


def shaped(schema: Schema) -> Callable[[Reader], Reader]:
    return lambda read: Shaped(read, schema)


def schema_of_reader(reader: Reader) -> Schema:
    schema: Schema = getattr(reader, "schema", {})
    return schema


_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)\Z")
_WHOLE_IN_OTHER_WORDS = re.compile(r"\+?([0-9]+)(?:\.0+)?\Z", re.ASCII)  # "4" in quotes, 04, 4.0, +4
_DURATION = re.compile(r"([0-9]{1,9}) ?([smhd])\Z", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_PART_MAX = 255  # bytes of one name, of every file system that checkpoints are on
_TRUTH = {"true": True, "false": False}
_SHOWN_MAX = 60


def shown(value: object) -> str:
    """A value in a message: short, printable, and in the spelling of the document."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, Number | Plain):
        text = str(value)
    elif isinstance(value, str):
        text = ascii(value) if not value.isprintable() else f'"{value}"'
    elif isinstance(value, int | float):
        text = str(value) if not isinstance(value, int) or -(10**18) < value < 10**18 else "a number beyond 10^18"
    else:
        text = type(value).__name__
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"


def refuse(found: list[Finding], path: str, message: str, hint: str = "", code: str = CODE) -> Absent:
    found.append(Finding(code, path, f"{path} {message}", hint))
    return ABSENT


def is_null(value: object, path: str, found: list[Finding]) -> bool:
    if value is not None:
        return False
    refuse(found, path, "is null", 'Give it a value or remove the key; write "null" in quotes if the text is meant.')
    return True


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A whole number from low to high, both included."""

    low: int
    high: int
    unit: str = ""

    @property
    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}

    def __call__(self, value: object, path: str, found: list[Finding]) -> int | Absent:
        span = f"Allowed: {self.low} to {self.high}{self.unit and f' {self.unit}'}."
        if is_null(value, path, found):
            return ABSENT
        if isinstance(value, Number | Plain) and _WHOLE.match(value):
            # Longer than any limit: refused by its range, without turning 100,000 digits into a number first.
            number = int(value) if len(value) <= 20 else self.high + 1
        elif isinstance(value, int) and not isinstance(value, bool):
            number = value
        else:
            # Where without them it would be right, the quotes are what is wrong.
            quoted = " in quotes" if isinstance(value, str) and _WHOLE.match(value) else ""
            said = f"must be a whole number{self.unit and f' of {self.unit}'}, not {shown(value)}{quoted}"
            return refuse(found, path, said, f"{self._instead(value)}{span}")
        if not self.low <= number <= self.high:
            return refuse(found, path, f"is {shown(value)}, outside {self.low} to {self.high}", span)
        return number

    def _instead(self, value: object) -> str:
        """The number that was surely meant."""
        words = str(value).strip() if isinstance(value, str) else ""
        if len(words) > 20:
            return ""
        if self.unit == "seconds" and (lasts := _DURATION.match(words)):
            number = int(lasts.group(1)) * _SECONDS[lasts.group(2)]
        elif (plain := _WHOLE_IN_OTHER_WORDS.match(words)) is None:
            return ""
        else:
            number = int(plain.group(1))
        return f"Write {number}. " if self.low <= number <= self.high else ""


@shaped({"type": "boolean"})
def truth(value: object, path: str, found: list[Finding]) -> Any:
    if is_null(value, path, found):
        return ABSENT
    if isinstance(value, bool):
        return value
    if isinstance(value, Plain) and value in _TRUTH:
        return _TRUTH[value]
    return refuse(found, path, f"must be true or false, not {shown(value)}", "Write true or false, without quotes.")


def text(limit: int, lines: bool = False, empty: bool = False) -> Reader:
    """Text of at most `limit` bytes; `lines` allows line breaks and tabs."""

    @shaped({"type": "string", "minLength": 0 if empty else 1, "maxLength": limit})
    def read(value: object, path: str, found: list[Finding]) -> Any:
        if is_null(value, path, found):
            return ABSENT
        if not isinstance(value, str) or isinstance(value, Number):
            hint = f'Write it in quotes: "{shown(value)}".' if isinstance(value, Number | bool | int) else "Write text."
            return refuse(found, path, f"must be text, not {shown(value)}", hint)
        return str(value) if _fits(value, path, found, limit, lines, empty) else ABSENT

    return read


def _fits(value: str, path: str, found: list[Finding], limit: int, lines: bool, empty: bool) -> bool:
    if not value.strip() and not empty:
        refuse(found, path, "is empty", "Give it a value or remove the key.")
    elif lone_surrogate(value):
        refuse(found, path, "holds half of a surrogate pair, which is no character", "Remove it.")
    elif (size := len(value.encode())) > limit:
        refuse(found, path, f"has {size} bytes; at most {limit} fit", "Shorten it.")
    elif not _printable(value, lines):
        refuse(found, path, f"holds control or direction-changing characters: {shown(value)}", "Remove them.")
    else:
        return True
    return False


def _printable(value: str, lines: bool) -> bool:
    if lines:
        value = value.translate({0x0A: None, 0x09: None, 0x0D: None})
    return value.isprintable()


def raw_text(limit: int, empty: bool = False) -> Reader:
    """Text that is handed on byte for byte: anything but NUL, which no process can be given."""

    @shaped({"type": "string", "minLength": 0 if empty else 1, "maxLength": limit})
    def read(value: object, path: str, found: list[Finding]) -> Any:
        if is_null(value, path, found):
            return ABSENT
        if not isinstance(value, str) or isinstance(value, Number):
            return refuse(
                found, path, f"must be text, not {shown(value)}", "Write text, in quotes where it looks like a number."
            )
        return bounded(str(value), path, found, limit, empty)

    return read


def bounded(value: str, path: str, found: list[Finding], limit: int, empty: bool) -> str | Absent:
    if not value.strip() and not empty:
        return refuse(found, path, "is empty", "Give it a value or remove the key.")
    if "\0" in value:
        return refuse(found, path, "holds a NUL byte, which no process can be given", "Remove it.")
    if lone_surrogate(value):
        return refuse(found, path, "holds half of a surrogate pair, which is no character", "Remove it.")
    if len(value.encode()) > limit:
        return refuse(
            found,
            path,
            f"has {len(value.encode())} bytes; at most {limit} fit",
            "Put it into a file and pass its path.",
        )
    return value


def scalar_as_written(limit: int) -> Reader:
    """Any scalar as the text that was typed: numbers and true/false keep their spelling, nothing else becomes text."""

    @shaped({"type": ["string", "number", "boolean"], "maxLength": limit})
    def read(value: object, path: str, found: list[Finding]) -> Any:
        if is_null(value, path, found):
            return ABSENT
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return (
                str(value)
                if -(10**30) < value < 10**30
                else refuse(found, path, "is a number beyond 10^30", "Write it in quotes.")
            )
        if isinstance(value, float):
            return refuse(found, path, "came as a binary number, whose spelling is lost", "Send it as text or as JSON.")
        if not isinstance(value, str):
            return refuse(
                found,
                path,
                f"must be one value, not {shown(value)}",
                "Write it as text if the script parses it, for example JSON in quotes.",
            )
        if isinstance(value, Number) and not isfinite(float(value[:400])):
            return refuse(
                found,
                path,
                f"is {shown(value)}, more than any floating-point number can hold",
                "Write it in quotes if the text is meant.",
            )
        return bounded(str(value), path, found, limit, empty=True)

    return read


def choice(
    *allowed: str, later: Mapping[str, str] | None = None, other_names: Mapping[str, str] | None = None
) -> Reader:
    """later: known values whose machinery is not in this version, with what to do meanwhile. other_names: of the
    values, as people call them elsewhere."""

    @shaped({"enum": list(allowed)})
    def read(value: object, path: str, found: list[Finding]) -> Any:
        if is_null(value, path, found):
            return ABSENT
        word = str(value) if isinstance(value, str) and not isinstance(value, Number) else ""
        if word in allowed:
            return word
        if later and word in later:
            return refuse(found, path, f"{word} is not supported yet in this version", later[word], "not_supported_yet")
        close = get_close_matches(word[:60].lower().replace("-", "_"), allowed, n=1, cutoff=0.6)
        if (meant := (other_names or {}).get(word.lower(), close[0] if close else "")) and word:
            hint = f"Did you mean {meant}? Use {' or '.join(allowed)}."
        else:
            hint = f"Use {' or '.join(allowed)}."
        return refuse(found, path, f"is {shown(value)}; it must be one of {', '.join(allowed)}", hint)

    return read


def listed(inner: Reader, limit: int, one_alone: bool = False) -> Reader:
    """one_alone: a single value may stand for a list of one."""

    several: Schema = {"type": "array", "minItems": 1, "maxItems": limit, "items": schema_of_reader(inner)}
    if one_alone:
        several |= {"uniqueItems": True}

    @shaped({"anyOf": [several, schema_of_reader(inner)]} if one_alone else several)
    def read(value: object, path: str, found: list[Finding]) -> Any:
        if is_null(value, path, found):
            return ABSENT
        if isinstance(value, str) and one_alone:
            value = [value]
        if not isinstance(value, list | tuple):
            return refuse(found, path, f"must be a list, not {shown(value)}", "Write [a, b].")
        if not value or len(value) > limit:
            return refuse(found, path, f"has {len(value)} elements; 1 to {limit} are allowed", "Shorten or remove it.")
        items = [inner(item, f"{path}[{at}]", found) for at, item in enumerate(value)]
        if ABSENT in items:
            return ABSENT
        if one_alone and len(set(items)) < len(items):
            return refuse(found, path, "names one value twice", "List each once, the preferred first.")
        return items

    return read


def mapped(key: re.Pattern[str], key_rule: str, inner: Reader, limit: int, key_max: int = 64) -> Reader:
    names = {"pattern": key.pattern.replace(r"\Z", "$"), "maxLength": key_max}

    @shaped(
        {
            "type": "object",
            "propertyNames": names,
            "maxProperties": limit,
            "additionalProperties": schema_of_reader(inner),
        }
    )
    def read(value: object, path: str, found: list[Finding]) -> Any:
        if is_null(value, path, found):
            return ABSENT
        if not isinstance(value, Mapping):
            return refuse(
                found, path, f"must be a mapping of keys to values, not {shown(value)}", "Write key: value lines."
            )
        if len(value) > limit:
            return refuse(
                found, path, f"has {len(value)} keys; at most {limit} are allowed", "Put the rest into a file."
            )
        kept: dict[str, Any] = {}
        for name in sorted(value, key=str):
            if not isinstance(name, str) or not key.match(name) or len(name) > key_max:
                refuse(found, path, f"has the key {shown(name)}; {key_rule}", "Rename it.")
                continue
            item = inner(value[name], f"{path}.{name}", found)
            if item is not ABSENT:
                kept[str(name)] = item
        return kept

    return read


_COMMAND_MAX = 64 * 1024
_WORDS_MAX = 4096


@shaped(
    {
        "description": "text is run by a shell, a list is run as it is",
        "anyOf": [
            {"type": "string", "minLength": 1, "maxLength": _COMMAND_MAX},
            {
                "type": "array",
                "minItems": 1,
                "maxItems": _WORDS_MAX,
                "items": {"type": ["string", "number"], "maxLength": _COMMAND_MAX},
            },
        ],
    }
)
def command(value: object, path: str, found: list[Finding]) -> Any:
    """Text is run by a shell, a list is run as it is."""
    if isinstance(value, list | tuple):
        if not value:
            return refuse(found, path, "is an empty list", "Name the program and its arguments.")
        if len(value) > _WORDS_MAX:
            return refuse(
                found, path, f"has {len(value)} words; at most {_WORDS_MAX} are allowed", "Put it into a script."
            )
        words = [_word(item, f"{path}[{at}]", found, at) for at, item in enumerate(value)]
        return ABSENT if ABSENT in words else words
    return raw_text(_COMMAND_MAX)(value, path, found)


def _word(value: object, path: str, found: list[Finding], at: int) -> Any:
    # A list such as [python, t.py, --steps, 100] means the word 100.
    if isinstance(value, Number):
        value = str(value)
    return raw_text(_COMMAND_MAX, empty=at > 0)(value, path, found)


@shaped({"type": "string", "pattern": "^/", "maxLength": 4096})
def absolute_path(value: object, path: str, found: list[Finding]) -> Any:
    words = text(4096)(value, path, found)
    if words is ABSENT:
        return ABSENT
    if not words.startswith("/"):
        return refuse(found, path, f"is {shown(words)}, which is not absolute", _absolute_hint(words))
    if ".." in words.split("/"):
        return refuse(
            found, path, f"is {shown(words)}, which leaves a directory with '..'", "Write the path without '..'."
        )
    if (longest := max(len(part.encode()) for part in words.split("/"))) > _PART_MAX:
        said = f"has a part of {longest} bytes; a file system takes names of at most {_PART_MAX}"
        return refuse(found, path, said, "Shorten it.")
    # normpath keeps exactly two leading slashes, which POSIX allows to mean something else; Linux does not.
    return posixpath.normpath("/" + words.lstrip("/"))


def _absolute_hint(words: str) -> str:
    if "://" in words:
        return "Mount the storage on every node, and write the directory it is mounted on."
    if words[:1] in ("~", "$"):
        return f"Nothing expands {words[:1]} here: write the whole path, beginning with /."
    return "Begin it with /."
