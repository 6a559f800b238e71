"""YAML read by its syntax alone: every unquoted scalar stays the text that was typed (`schemas.lexemes.Plain`).

No tag, anchor or alias is followed, so a document can be no larger in memory than it was on paper.
"""

from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from schemas.errors import Finding, InvalidInput
from schemas.lexemes import Plain
from schemas.limits import DOCUMENT_MAX
from schemas.strict_json import DEPTH_MAX, BodyTooLarge

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))


class _Level:
    """One open mapping or sequence. key: the mapping key that waits for its value."""

    def __init__(self, holder: dict[str, Any] | list[Any]) -> None:
        self.holder = holder
        self.key: str | None = None


def parse_yaml(body: bytes, limit: int = DOCUMENT_MAX) -> Any:
    """Raises InvalidInput(invalid_yaml) with the line, BodyTooLarge."""
    if len(body) > limit:
        hint = "Move data into files and name their path."
        raise BodyTooLarge("body_too_large", f"the document has {len(body)} bytes; at most {limit} are taken", hint)
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        _refuse(body[: error.start].count(b"\n") + 1, f"byte {error.start} is not UTF-8", "Save it as UTF-8.")
    builder = _Builder()
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            builder.take(event)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = str(error.problem or error.context or "not YAML")
        hint = "Indent with spaces." if "\\t" in message else "Correct the YAML there."
        _refuse(mark.line + 1 if mark else 0, message, hint)
    except YAMLError as error:
        _refuse(0, " ".join(str(error).split())[:200], "Remove characters that are no text.")
    except (ValueError, IndexError, TypeError, AttributeError, AssertionError, KeyError, RecursionError) as error:
        # The parser itself stumbles over some malformed directives and escapes.
        _refuse(0, f"the document cannot be read as YAML ({type(error).__name__})", "Check directives and escapes.")
    if not builder.documents:
        _refuse(1, "the document is empty", "Write a mapping with name, training and task.")
    return builder.root


class _Builder:
    def __init__(self) -> None:
        self.root: Any = None
        self.documents = 0
        self._open: list[_Level] = []

    def take(self, event: Event) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                _refuse(line, "a second document begins", "Submit one document at a time.")
        elif isinstance(event, AliasEvent):
            _refuse(line, f"*{event.anchor} refers to another place", "Write the value out; aliases are not followed.")
        elif isinstance(event, NodeEvent):
            self._node(event, line)
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            self._open.pop()

    def _node(self, event: Any, line: int) -> None:
        if event.anchor is not None:
            _refuse(
                line, f"&{event.anchor} names a place to refer to", "Write the value out; anchors are not followed."
            )
        if event.tag is not None:
            _refuse(
                line,
                f"the tag {str(event.tag)[:60]} asks for another type",
                "Remove it; quote a value to keep its text.",
            )
        if isinstance(event, ScalarEvent):
            self._place(_scalar(event), line)
            return
        holder: dict[str, Any] | list[Any] = {} if isinstance(event, MappingStartEvent) else []
        assert isinstance(event, MappingStartEvent | SequenceStartEvent)
        self._place(holder, line)
        self._open.append(_Level(holder))
        if len(self._open) > DEPTH_MAX:
            _refuse(line, f"nested deeper than {DEPTH_MAX} levels", "Flatten the document.")

    def _place(self, value: Any, line: int) -> None:
        if not self._open:
            self.root = value
            return
        level = self._open[-1]
        if isinstance(level.holder, list):
            level.holder.append(value)
        elif level.key is None:
            level.key = _key(value, level.holder, line)
        else:
            level.holder[level.key] = value
            level.key = None


def _key(value: Any, holder: dict[str, Any], line: int) -> str:
    if value is None or not isinstance(value, str):
        _refuse(line, "a key is empty or not a word", "Keys are plain words; quote one that looks like null.")
    key = str(value)
    if key == "<<":
        _refuse(line, "<< merges another mapping", "Write the fields out; merge keys are not followed.")
    if key in holder:
        _refuse(line, f"the key {key[:80]!r} stands twice in one mapping", "Keep one of them.")
    return key


def _scalar(event: ScalarEvent) -> str | None:
    text = str(event.value)
    if event.style:
        return text
    return None if text in _NULLS else Plain(text)


def _refuse(line: int, message: str, hint: str) -> NoReturn:
    said = f"line {line}: {message}" if line else message
    raise InvalidInput("invalid_yaml", said, hint, findings=[Finding("invalid_yaml", "", said, hint)])
