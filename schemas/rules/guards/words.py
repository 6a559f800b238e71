"""Words of a shell line: quoting, variables, and what of them can be known before the line is run.

What cannot be known (a variable of the image, the output of a program) is kept as one private character that stands for
it, so that it travels through nested shells and is never taken for text.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from schemas.rules.environment import PER_PROCESS_NAMES
from schemas.rules.guards.arithmetic import evaluated

_FIRST, _LAST = 0xF0000, 0xFFFFD
_PRIVATE = re.compile(f"[{chr(_FIRST)}-{chr(_LAST)}]")
_PLAIN = re.compile(rf"[^\s;&|<>()\\'\"$`{chr(_FIRST)}-{chr(_LAST)}]+")
_IN_QUOTES = re.compile(rf"[^\"\\$`{chr(_FIRST)}-{chr(_LAST)}]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[1-9])(?:(:?[-=?])(.*))?\Z", re.DOTALL)
_SPECIAL = "@*#?!$-0123456789"
_EXPANDED_MAX = 256 * 1024  # of one word; `A=$A$A` a few times over is more than any memory
_LABEL_MAX = 40
METACHARACTERS = " \t\n;&|<>()"
_EVERY = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_]*)\[([@*])\]|([@*]))\Z")
_POSIX = re.compile(r"[#]?[A-Za-z_0-9@*#?!$-]+(?:[%#+]|:\+|\Z)")  # of ${…}; the rest is of bash
# `$(which torchrun)`: a path of the program, whatever it is.
_WHICH = re.compile(r"(?:\$\(|`)\s*(?:which|command -v|type -p)\s+([A-Za-z][\w.-]*)\s*(?:\)|`)\Z")
_IFS = " \t\n"
_SPACES = re.compile(r"[ \t\n]+")
_BETWEEN = "\x1f"  # of the elements of an array, as one value


_NOTHING = ("?", False, None)  # of a private character that stands for nothing


class Unreadable(Exception):
    """Is raised when a line is no shell grammar, or none that is known here."""


@dataclass(frozen=True, slots=True)
class Part:
    """kind: "text", "variable" (text is its name), "sum" (of $((…))), "every" (${NAME[@]}, "$@"), "whole" (the same
    with *, which quotes make one word), "array" (NAME=( … )) or "unknown" (text says what it is). default: that of
    ${NAME:-default}; keeps: ${NAME:=default}; elements: of an array; line: what `$(…)` runs."""

    kind: str
    text: str
    quoted: bool
    default: "tuple[Part, ...] | None" = None
    elements: "tuple[tuple[Part, ...], ...]" = ()
    line: str | None = None
    keeps: bool = False


Word = tuple[Part, ...]


class Unknowns:
    """The private characters of one command, each with the name of what it stands for, whether it was quoted, and what
    it is where nobody sets it (`${NAME:-default}`); and the numbers of its parts."""

    def __init__(self) -> None:
        self._numbers = 0
        self._marks: dict[tuple[str, bool, str | None], str] = {}
        self._names: dict[str, tuple[str, bool, str | None]] = {}
        self.run_for_output: list[str] = []  # the lines of `$(…)` and the like, once each

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def mark(self, name: str, quoted: bool, default: str | None = None) -> str:
        key = (name, quoted, default)
        if key not in self._marks:
            if _FIRST + len(self._marks) > _LAST:
                raise Unreadable("more unknown values than can be told apart")
            self._marks[key] = mark = chr(_FIRST + len(self._marks))
            self._names[mark] = key
        return self._marks[key]

    def runs(self, line: str) -> None:
        if line not in self.run_for_output:
            self.run_for_output.append(line)

    def name(self, mark: str) -> str:
        return self._names.get(mark, _NOTHING)[0]

    def default(self, text: str) -> str | None:
        """What a text that is one unknown is where nobody sets it; None where it has no default."""
        return self._names.get(text, _NOTHING)[2]

    def again(self, mark: str, quoted: bool) -> str:
        """The mark of the same value at another place, as quoted as that is."""
        name, _, default = self._names.get(mark, _NOTHING)
        return self.mark(name, quoted, default)

    def part(self, mark: str, quoted: bool) -> "Part":
        name, _, default = self._names.get(mark, _NOTHING)
        return Part("unknown", name, quoted, None if default is None else (Part("text", default, True),))

    def names(self, text: str) -> list[str]:
        """Of the unknowns in a text, each once, in their order."""
        return list(dict.fromkeys(map(self.name, _PRIVATE.findall(text))))

    def quoted(self, text: str) -> list[str]:
        return [self.name(mark) for mark in _PRIVATE.findall(text) if self._names.get(mark, _NOTHING)[1]]

    def may_split(self, text: str) -> bool:
        """Whether it may turn out to be no word, or several."""
        return any(not self._names.get(mark, _NOTHING)[1] for mark in _PRIVATE.findall(text))

    def shown(self, text: str) -> str:
        """A text for people: unknowns in their spelling, nothing that drives a terminal."""
        words = _PRIVATE.sub(lambda found: _spelled(self.name(found.group())), text)
        words = words if words.isprintable() else ascii(words)[1:-1]
        return words if len(words) <= 80 else words[:80] + "…"


def _spelled(name: str) -> str:
    name = name.removesuffix("[@]")
    return f"${name}" if _NAME.fullmatch(name) or name == "@" or name.isdecimal() else name


def is_known(text: str) -> bool:
    return _PRIVATE.search(text) is None


def is_one_unknown(text: str) -> bool:
    return _PRIVATE.fullmatch(text) is not None


def without_private(text: str) -> str:
    """A user's own text, in which no private character stands for anything."""
    return _PRIVATE.sub("\ufffd", text)


def every(name: str) -> str:
    """The name under which an array is kept as one value, its elements joined."""
    return f"{name}[@]"


def joined(elements: Sequence[str]) -> str:
    return _BETWEEN.join(element.replace(_BETWEEN, "\ufffd") for element in elements)


def elements(value: str) -> list[str]:
    """Of an array that `joined` made one value."""
    return value.split(_BETWEEN) if value else []


def expand(word: Word, value_of: Callable[[str], str | None], unknowns: Unknowns, split: bool = True) -> list[str]:
    """The fields a shell makes of a word. value_of: None where it cannot be known."""
    fields: list[str] = []
    current: str | None = None
    for part in word:
        if part.kind == "text":
            if part.text or part.quoted:
                current = (current or "") + part.text
            continue
        text = _value(part, value_of, unknowns)
        if part.kind == "every" and part.quoted and split:
            *whole, last = text.split(_BETWEEN)
            fields += [(current or "") + whole[0], *whole[1:]] if whole else []
            if text:
                current = last if whole else (current or "") + last
            continue
        if part.kind in ("every", "whole"):
            text = text.replace(_BETWEEN, " ")
        if len(text) + len(current or "") > _EXPANDED_MAX:
            raise Unreadable("its variables expand to more than can be followed")
        if part.quoted or not split:
            current = (current or "") + text
            continue
        pieces = [piece for piece in _SPACES.split(text) if piece]
        if text[:1] in _IFS and text and current is not None:
            fields.append(current)
            current = None
        for at, piece in enumerate(pieces):
            if at:
                fields.append(current or "")
                current = None
            current = (current or "") + piece
        if pieces and text[-1] in _IFS:
            fields.append(current or "")
            current = None
    if current is not None:
        fields.append(current)
    return fields


def _value(part: Part, value_of: Callable[[str], str | None], unknowns: Unknowns) -> str:
    if part.kind == "sum":
        known = evaluated(part.text, value_of)
        return known if known is not None else unknowns.mark(_label(f"$(({part.text}))"), part.quoted)
    if part.kind in ("unknown", "array"):
        default = None if part.default is None else "".join(known.text for known in part.default)
        return unknowns.mark(part.text, part.quoted, default)
    value = value_of(every(part.text) if part.kind in ("every", "whole") else part.text)
    if value is None and part.text in PER_PROCESS_NAMES and part.default is not None:
        value = ""  # no node has it, so the default is what every node gets
    default = None
    if not value and part.default is not None:
        default = "".join(expand(part.default, value_of, unknowns, split=False))
    if value is None:
        return unknowns.mark(part.text, part.quoted, default if default is None or is_known(default) else None)
    # Its own unknowns are as quoted as the place they come to.
    return default or _PRIVATE.sub(lambda found: unknowns.again(found.group(), part.quoted), value)


class Scanner:
    """Reads words at a position of a text. of_bash: what it met that no other shell knows."""

    def __init__(self, text: str, unknowns: Unknowns) -> None:
        self.text, self.unknowns, self.at = text, unknowns, 0
        self.of_bash: list[str] = []

    def word(self) -> Word:
        parts: list[Part] = []
        while self.at < len(self.text) and self.text[self.at] not in METACHARACTERS:
            self._piece(parts)
        return tuple(parts)

    def _piece(self, parts: list[Part]) -> None:
        character = self.text[self.at]
        if character == "\\":
            if self.text[self.at + 1 : self.at + 2] != "\n":
                parts.append(Part("text", self.text[self.at + 1 : self.at + 2], True))
            self.at += 2
        elif character == "'":
            self._until_quote(parts, self.at + 1)
        elif character == '"':
            self.at += 1
            self._double(parts)
        elif character == "$" and self.text[self.at + 1 : self.at + 2] in ("'", '"'):
            self.at += 1
            self.of_bash.append(f"${self.text[self.at]}…{self.text[self.at]}")
            if self.text[self.at] == "'":
                self._until_quote(parts, self.at + 1)
            else:
                self.at += 1
                self._double(parts)
        elif character in "$`" or not is_known(character):
            parts.append(self._dollar(quoted=False))
        else:
            self._run(parts, _PLAIN, quoted=False)

    def _run(self, parts: list[Part], run: re.Pattern[str], quoted: bool) -> None:
        found = run.match(self.text, self.at)
        end = found.end() if found else self.at + 1
        parts.append(Part("text", self.text[self.at : end], quoted))
        self.at = end

    def _until_quote(self, parts: list[Part], start: int) -> None:
        end = self.text.find("'", start)
        if end < 0:
            raise Unreadable("a quote ' is not closed")
        parts.append(Part("text", "", True))
        for character in re.split(f"({_PRIVATE.pattern})", self.text[start:end]):
            if is_one_unknown(character):
                parts.append(self.unknowns.part(character, True))
            elif character:
                parts.append(Part("text", character, True))
        self.at = end + 1

    def document(self) -> Word:
        """The whole text as that of a here-document, in which a double quote is a character like others."""
        parts: list[Part] = []
        self._double(parts, ends=False)
        return tuple(parts)

    def _double(self, parts: list[Part], ends: bool = True) -> None:
        start = len(parts)
        while self.at < len(self.text):
            character = self.text[self.at]
            if character == '"' and ends:
                self.at += 1
                if [part.kind for part in parts[start:]] != ["every"]:  # "$@" of no arguments is no word
                    parts.insert(start, Part("text", "", True))
                return
            if character == "\\" and self.text[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\", "\n"):
                if self.text[self.at + 1] != "\n":
                    parts.append(Part("text", self.text[self.at + 1], True))
                self.at += 2
            elif character in "$`" or not is_known(character):
                parts.append(self._dollar(quoted=True))
            else:
                self._run(parts, _IN_QUOTES, quoted=True)
        if ends:
            raise Unreadable('a quote " is not closed')

    def _dollar(self, quoted: bool) -> Part:
        """At a dollar, a backtick or a private character."""
        if not is_known(character := self.text[self.at]):
            self.at += 1
            return self.unknowns.part(character, quoted)
        if character == "`":
            end = self._closing(self.at + 1, "`")
            start, self.at = self.at, end
            return self._output(self.text[start:end], self.text[start + 1 : end - 1], quoted)
        following = self.text[self.at + 1 : self.at + 2]
        if following == "(":
            start, end = self.at, self._closing(self.at + 2, ")")
            self.at = end
            inner = self.text[start + 3 : end - 2]
            is_sum = self.text.startswith("((", start + 1) and self.text.endswith("))", start, end) and is_known(inner)
            if is_sum:
                return Part("sum", inner, quoted)
            return self._output(self.text[start:end], self.text[start + 2 : end - 1], quoted)
        if following == "{":
            start, end = self.at, self._closing(self.at + 2, "}")
            self.at = end
            return self._braced(self.text[start + 2 : end - 1], quoted)
        if name := _NAME.match(self.text, self.at + 1):
            self.at = name.end()
            return Part("variable", name.group(), quoted)
        if following and following in _SPECIAL:
            self.at += 2
            if following in "@*":
                return Part("every" if following == "@" else "whole", "@", quoted)
            if following in "123456789":
                return Part("variable", following, quoted)
            return Part("unknown", f"${following}", quoted)
        self.at += 1
        return Part("text", "$", quoted)

    def _output(self, text: str, line: str, quoted: bool) -> Part:
        """What a program prints, in the place of `$(…)`."""
        if found := _WHICH.match(text):
            return Part("text", f"/{found.group(1)}", True)
        self.unknowns.runs(line)
        return Part("unknown", _label(text), quoted, line=line)

    def _braced(self, inner: str, quoted: bool) -> Part:
        if (found := _BRACED.match(inner)) is None:
            if not _POSIX.match(inner):
                self.of_bash.append(_label(f"${{{inner}}}"))
            if found := _EVERY.match(inner):
                name, star = (found.group(1), found.group(2)) if found.group(1) else ("@", found.group(3))
                return Part("whole" if star == "*" else "every", name, quoted)
            return Part("unknown", f"${{{inner[:_LABEL_MAX]}}}", quoted)
        name, operator, rest = found.groups()
        default = None
        if operator in ("-", ":-", "=", ":="):
            scanner = Scanner(f'"{rest}"' if '"' not in rest else rest, self.unknowns)
            default = scanner.word()
        return Part("variable", name, quoted, default, keeps=operator in ("=", ":="))

    def _closing(self, start: int, closer: str) -> int:
        """Behind the character that closes what began before `start`; quotes and nesting inside are honoured."""
        opener = {")": "(", "}": "{"}.get(closer)
        depth, at = 1, start
        while at < len(self.text):
            character = self.text[at]
            if character == "\\":
                at += 1
            elif character == "'" and closer != "`":
                at = self.text.find("'", at + 1)
                if at < 0:
                    break
            elif character == '"' and closer != "`":
                at += 1
                while at < len(self.text) and self.text[at] != '"':
                    at += 2 if self.text[at] == "\\" else 1
            elif character == closer:
                depth -= 1
                if not depth:
                    return at + 1
            elif character == opener:
                depth += 1
            at += 1
        raise Unreadable(f"{closer} is missing")


def _label(label: str) -> str:
    return label if len(label) <= _LABEL_MAX else label[:_LABEL_MAX] + "…"
