"""The programs a command starts: shells followed, wrappers taken off, variables followed from assignment to use."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from schemas.rules.guards import positional
from schemas.rules.guards.known import Environment
from schemas.rules.guards.shell import parse
from schemas.rules.guards.tree import Block, Group, Item, List, Node, Pipeline, Simple
from schemas.rules.guards.words import (
    Unknowns,
    Unreadable,
    Word,
    every,
    expand,
    is_one_unknown,
    joined,
    without_private,
)
from schemas.rules.guards.wrappers import (
    PLAIN_SHELLS,
    SHELLS,
    base_name,
    behind,
    launches_world,
    line_of,
    may_launch,
    of_bash,
)

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=(.*)\Z", re.DOTALL)
_DECLARE = frozenset(("export", "declare", "typeset", "readonly", "local"))
_SHELL_DEPTH_MAX = 6
# No one writes such a command; without bounds one of 64 KiB would keep an agent busy for minutes.
_CALLS_MAX = 500
_WRAPPERS_MAX = 50
_EXPANDED_MAX = 1024 * 1024
_STEPS_MAX = 50_000


@dataclass(frozen=True, slots=True)
class Call:
    """words: the program and its arguments. environment: as the call gets it. conditional: it stands in a branch.
    looped: in a loop. expanded: by a shell, so that a `$` left over is meant. caught: in `$(…)`, which keeps what it
    prints."""

    words: list[str]
    environment: Environment
    simple: Simple
    conditional: bool
    looped: bool
    expanded: bool
    caught: bool = False

    @property
    def set_here(self) -> dict[str, str]:
        """What the line itself sets before the call."""
        return self.environment.assigned

    @property
    def program(self) -> str:
        return base_name(self.words[0])


@dataclass(slots=True)
class Inner:
    """The list of a shell that a simple command starts. same: it is no shell of its own, but `eval` or a function."""

    items: List
    errexit: bool = False
    pipefail: bool = False
    same: bool = False


@dataclass(slots=True)
class Walk:
    """items: None for a list of words, which no shell reads. inner: by the number of the simple command that starts it.
    of_bash: what only bash knows, where another shell may read it."""

    unknowns: Unknowns
    items: List | None = None
    calls: list[Call] = field(default_factory=list)
    fields: dict[int, list[str]] = field(default_factory=dict)
    inner: dict[int, Inner] = field(default_factory=dict)
    # The shells of the `$(…)` in its words, where one of them launches; None for any other `$(…)`.
    outputs: dict[int, list[Inner | None]] = field(default_factory=dict)
    # What was taken off in front of what a simple command runs.
    wrappers: dict[int, list[list[str]]] = field(default_factory=dict)
    of_bash: list[str] = field(default_factory=list)
    followed: set[str] = field(default_factory=set)  # lines of `$(…)`

    def within(self, number: int) -> list[Inner]:
        """Every shell that a simple command starts."""
        inner = self.inner.get(number)
        return [*([inner] if inner else ()), *filter(None, self.outputs.get(number, ()))]


def walk(command: str | Sequence[str], environment: Mapping[str, str]) -> Walk:
    """environment: what is known of the task's variables. Raises Unreadable."""
    found = Walk(Unknowns())
    walker = _Walker(found)
    start = Environment({name: without_private(value) for name, value in environment.items()})
    positional.give(start, [], found.unknowns)
    if isinstance(command, str):
        found.items = parse(without_private(command), found.unknowns, found.of_bash)
        walker.run(found.items, start, _Place(plain=True))
    else:
        simple = Simple(found.unknowns.number(), [])
        walker.words([without_private(word) for word in command], start, simple, _Place(expanded=False))
    return found


@dataclass(frozen=True, slots=True)
class _Place:
    """plain: read by /bin/sh, which need not be bash."""

    conditional: bool = False
    looped: bool = False
    expanded: bool = True
    depth: int = 0
    plain: bool = False
    caught: bool = False


class _Walker:
    def __init__(self, found: Walk) -> None:
        self._found = found
        self._expanded_bytes = 0
        self._steps = 0
        self._functions: dict[str, List] = {}

    def run(self, items: List, environment: Environment, place: _Place) -> None:
        for item in items:
            self._item(item, environment.copy() if item.background else environment, place)

    def _item(self, item: Item, environment: Environment, place: _Place) -> None:
        guarded = False
        for operator, pipeline in item.parts:
            here = place if not (operator and guarded) else replace(place, conditional=True)
            self._pipeline(pipeline, environment, here)
            guarded = guarded or _is_test(pipeline, self._found.fields)

    def _pipeline(self, pipeline: Pipeline, environment: Environment, place: _Place) -> None:
        several = len(pipeline.commands) > 1
        for command in pipeline.commands:
            self._node(command, environment.copy() if several else environment, place)

    def _node(self, node: Node, environment: Environment, place: _Place) -> None:
        if isinstance(node, Simple):
            self._simple(node, environment, place)
        elif isinstance(node, Group):
            self.run(node.body, environment.copy() if node.subshell else environment, place)
        elif node.kind == "function":
            self._functions[node.name] = node.bodies[0]
        else:
            self._block(node, environment, place)

    def _block(self, block: Block, environment: Environment, place: _Place) -> None:
        looped = place.looped or block.kind == "loop"
        self.run(block.test, environment, replace(place, looped=looped))
        inside = replace(place, conditional=True, looped=looped)
        for body in block.bodies:
            branch = environment.copy()
            self.run(body, branch, inside)
            for name, value in branch.values.items():
                if environment.values.get(name, "") != value or name not in environment.values:
                    environment.values[name] = self._found.unknowns.mark(name, False)

    def _spend(self, fields: Sequence[str]) -> None:
        self._expanded_bytes += sum(map(len, fields)) + len(fields)
        if self._expanded_bytes > _EXPANDED_MAX:
            raise Unreadable("its variables expand to more than can be followed")

    def _fields(self, words: Sequence[Word], environment: Environment) -> list[str]:
        fields = [text for word in words for text in expand(word, environment.value, self._found.unknowns)]
        self._spend(fields)
        return fields

    def _text(self, word: Word, environment: Environment) -> str:
        return "".join(expand(word, environment.value, self._found.unknowns, split=False))

    def _assign(self, environment: Environment, name: str, value: Word, known: Environment) -> None:
        if value and value[0].kind == "array":
            elements = self._fields(value[0].elements, known)
            environment.assign(every(name), joined(elements))
            environment.assign(name, elements[0] if elements else "")
        else:
            environment.assign(name, self._text(value, known))

    def _simple(self, simple: Simple, environment: Environment, place: _Place) -> None:
        self._steps += 1
        if self._steps > _STEPS_MAX:
            raise Unreadable("it does more than can be followed")
        fields = self._fields(simple.words, environment)
        self._found.fields[simple.number] = fields
        for part in (part for word in simple.words for part in word if part.keeps):
            environment.values[part.text] = self._text((part,), environment)
        self._outputs(simple, environment, place)
        own = environment.copy() if fields and simple.assigns else environment
        for name, value in simple.assigns:
            self._assign(own, name, value, environment)
        for name, value in simple.arrays:
            self._assign(environment, name, value, environment)
        if fields:
            self.words(fields, own, simple, place)

    def _outputs(self, simple: Simple, environment: Environment, place: _Place) -> None:
        """Follows the `$(…)` among its words where they launch; what else they run is nobody's training."""
        words = [*simple.words, *(value for _, value in simple.assigns)]
        lines = [part.line for word in words for part in word if part.line is not None]
        if not any(self._may_launch(line) for line in lines):
            return
        before, inside = self._found.calls, replace(place, caught=True)
        shells: list[Inner | None] = []
        for line in lines:
            self._found.calls = []
            try:
                items = self._inner(line, simple, environment.copy(), inside, same=True)
            except Unreadable:
                if self._steps > _STEPS_MAX or self._expanded_bytes > _EXPANDED_MAX:
                    raise
                items = []
            launches = [call for call in self._found.calls if launches_world(call.words)]
            # dash, and bash as `sh`, hand `set -e` on to it.
            shells.append(Inner(items, errexit=place.plain) if launches else None)
            before += launches
            self._found.followed.add(line)
        self._found.calls = before
        if any(shells):
            self._found.outputs[simple.number] = shells

    def _may_launch(self, line: str) -> bool:
        """Most of them only look something up, and need not be read."""
        return may_launch(line) or "$" in line or any(name in line for name in self._functions)

    def words(self, fields: list[str], environment: Environment, simple: Simple, place: _Place) -> None:
        """Follows wrappers and shells down to what is called."""
        if len(self._found.calls) > _CALLS_MAX:
            raise Unreadable("it calls more programs than can be followed")
        for _ in range(_WRAPPERS_MAX):
            if not fields:
                return
            if (likely := self._found.unknowns.default(fields[0])) is not None:
                # `${PYTHON:-python}`: whoever sets it sets another path of the same program.
                fields = [*likely.split(), *fields[1:]]
                continue
            program = base_name(fields[0])
            if place.plain and (only := of_bash(fields)):
                self._found.of_bash.append(only)
            if program in _DECLARE:
                self._declare(fields[1:], environment)
                return
            if program == "unset":
                for name in fields[1:]:
                    environment.unset(name)
                return
            if fields[0] in self._functions:
                self._function(fields, environment, simple, place)
                return
            if program == "set" and (given := positional.set_by(fields[1:])) is not None:
                positional.give(environment, given, self._found.unknowns)
            elif program == "shift":
                positional.shift(environment, fields[1:], self._found.unknowns, place.looped)
            if program in SHELLS and self._shell(fields, environment, simple, place):
                return
            if (line := line_of(fields, environment)) is not None:
                self._line(fields, line, environment, simple, place)
                return
            after = behind(fields, environment := environment.copy())
            if after is None:
                where = (place.conditional, place.looped, place.expanded, place.caught)
                self._found.calls.append(Call(fields, environment, simple, *where))
                return
            self._found.wrappers.setdefault(simple.number, []).append(fields)
            fields = after
        raise Unreadable("it wraps a program more often than can be followed")

    def _function(self, fields: list[str], environment: Environment, simple: Simple, place: _Place) -> None:
        if place.depth >= _SHELL_DEPTH_MAX:
            raise Unreadable("its functions are nested too deeply")
        body = self._functions[fields[0]]
        before = positional.taken(environment)
        positional.give(environment, fields[1:], self._found.unknowns)
        self.run(body, environment, replace(place, depth=place.depth + 1))
        positional.give_back(environment, before)
        self._found.inner[simple.number] = Inner(body, same=True)

    def _line(self, fields: list[str], line: str, environment: Environment, simple: Simple, place: _Place) -> None:
        """What `eval`, `su -c` and the like are given as one text."""
        same = base_name(fields[0]) == "eval"
        if not same:
            environment = environment.copy()
            positional.give(environment, [], self._found.unknowns)
            self._found.wrappers.setdefault(simple.number, []).append(fields)
        self._found.inner[simple.number] = Inner(self._inner(line, simple, environment, place, same), same=same)

    def _declare(self, words: Sequence[str], environment: Environment) -> None:
        for word in words:
            if assigned := _ASSIGNMENT.match(word):
                environment.assign(assigned.group(1), assigned.group(2))

    def _shell(self, fields: list[str], environment: Environment, simple: Simple, place: _Place) -> bool:
        """Whether it is a shell with its line at hand."""
        errexit = pipefail = reads = False
        text: str | None = None
        given: list[str] = []
        at = 1
        while at < len(fields) and fields[at][:1] in ("-", "+") and len(fields[at]) > 1:
            word = fields[at]
            if word.startswith("--"):
                at += 2 if word in ("--rcfile", "--init-file") else 1
                continue
            letters = word[1:]
            errexit |= "e" in letters and word[0] == "-"
            reads |= "s" in letters and word[0] == "-"
            if letters.endswith(("o", "O")):
                at += 1
                option = fields[at] if at < len(fields) else ""
                pipefail |= option == "pipefail"
                errexit |= option == "errexit"
            at += 1
            if "c" in letters and word[0] == "-":
                while at < len(fields) and fields[at][:1] == "-" and len(fields[at]) > 1:
                    pipefail |= fields[at : at + 2][1:] == ["pipefail"]
                    at += 2 if fields[at].endswith("o") else 1
                if at >= len(fields):
                    return False
                text, given = fields[at], fields[at + 2 :]
                break
        if text is None and simple.fed is not None and (reads or at >= len(fields)):
            text, given = self._text(simple.fed, environment), fields[at:]
        if text is None:
            return False
        plain = base_name(fields[0]) in PLAIN_SHELLS
        own = environment.copy()
        positional.give(own, given, self._found.unknowns)
        inner = self._inner(text, simple, own, replace(place, plain=plain))
        self._found.inner[simple.number] = Inner(inner, errexit, pipefail)
        return True

    def _inner(self, text: str, simple: Simple, environment: Environment, place: _Place, same: bool = False) -> List:
        if place.depth >= _SHELL_DEPTH_MAX:
            raise Unreadable("shells are nested too deeply")
        if is_one_unknown(text):
            call = Call([text], environment, simple, place.conditional, place.looped, True, place.caught)
            self._found.calls.append(call)
            return []
        known = self._functions
        if not same:
            self._functions = {}  # another shell has none of these
        items = parse(text, self._found.unknowns, self._found.of_bash if place.plain else None)
        self.run(items, environment, replace(place, expanded=True, depth=place.depth + 1))
        self._functions = known
        return items


def _is_test(pipeline: Pipeline, fields: Mapping[int, list[str]]) -> bool:
    """A test of a node's own rank decides what follows it by && and ||."""
    first = pipeline.commands[0]
    words = fields.get(first.number, []) if isinstance(first, Simple) else []
    return bool(words) and words[0] in ("[", "[[", "test", "((")
