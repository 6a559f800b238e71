"""The programs a command starts: shells followed, wrappers taken off, variables followed from assignment to use."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from schemas.rules.guards.shell import Block, Group, Item, List, Node, Pipeline, Simple, parse
from schemas.rules.guards.words import Unknowns, Unreadable, expand, is_one_unknown, without_private

_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash"))
_PYTHON = re.compile(r"(python|pypy)[0-9.]*\Z")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=(.*)\Z", re.DOTALL)
LAUNCHERS = frozenset(
    "torchrun accelerate accelerate-launch deepspeed fleetrun mpirun mpiexec orterun horovodrun".split()
)
# They run what follows them, in the same environment and with its exit code.
_WRAPPERS = frozenset(
    "nohup time exec command builtin nice ionice stdbuf setsid numactl taskset chrt timeout tini dumb-init catchsegv "
    "unbuffer gosu su-exec setpriv prlimit eatmydata".split()
)
# Their options and subcommands are many: what they run is the first name below that is known.
_TOOLS = frozenset("nsys ncu rocprof perf strace gdb valgrind py-spy xvfb-run flock srun".split())
_RUNNERS = frozenset("uv poetry pipenv pixi conda mamba micromamba pdm hatch rye".split())  # by `run`
_DECLARE = frozenset(("export", "declare", "typeset", "readonly", "local"))
_SHELL_DEPTH_MAX = 6
# No one writes such a command; without bounds one of 64 KiB would keep an agent busy for minutes.
_CALLS_MAX = 500
_WRAPPERS_MAX = 50
_EXPANDED_MAX = 1024 * 1024


@dataclass(slots=True)
class Environment:
    """values: None where a variable is known to be unset. closed: nothing else is set either (`env -i`, `sudo`).
    assigned: what the line itself has set."""

    values: dict[str, str | None]
    closed: bool = False
    assigned: dict[str, str] = field(default_factory=dict)

    def copy(self) -> "Environment":
        return Environment(dict(self.values), self.closed, dict(self.assigned))

    def assign(self, name: str, value: str) -> None:
        self.values[name] = self.assigned[name] = value

    def unset(self, name: str) -> None:
        self.values[name] = None
        self.assigned.pop(name, None)

    def close(self) -> None:
        self.values.clear()
        self.assigned.clear()
        self.closed = True

    def value(self, name: str) -> str | None:
        """ "" where it is unset, None where it cannot be known."""
        if name in self.values:
            return self.values[name] or ""
        return "" if self.closed else None

    def has(self, name: str) -> bool:
        """Whether a variable that the platform sets is still there."""
        return self.values[name] is not None if name in self.values else not self.closed


@dataclass(frozen=True, slots=True)
class Call:
    """words: the program and its arguments. environment: as the call gets it. conditional: it stands in a branch.
    looped: in a loop. expanded: by a shell, so that a `$` left over is meant. stdin: fed by a here-document."""

    words: list[str]
    environment: Environment
    simple: Simple
    conditional: bool
    looped: bool
    expanded: bool
    stdin: bool = False

    @property
    def set_here(self) -> dict[str, str]:
        """What the line itself sets before the call."""
        return self.environment.assigned

    @property
    def program(self) -> str:
        return base_name(self.words[0])


@dataclass(slots=True)
class Inner:
    """The list of a shell that a simple command starts."""

    items: List
    errexit: bool
    pipefail: bool


@dataclass(slots=True)
class Walk:
    """items: None for a list of words, which no shell reads."""

    unknowns: Unknowns
    items: List | None = None
    calls: list[Call] = field(default_factory=list)
    fields: dict[int, list[str]] = field(default_factory=dict)
    inner: dict[int, Inner] = field(default_factory=dict)


def base_name(word: str) -> str:
    return word.rpartition("/")[2]


def is_python(word: str) -> bool:
    return _PYTHON.match(base_name(word)) is not None


def walk(command: str | Sequence[str], environment: Mapping[str, str]) -> Walk:
    """environment: what is known of the task's variables. Raises Unreadable."""
    found = Walk(Unknowns())
    walker = _Walker(found)
    start = Environment({name: without_private(value) for name, value in environment.items()})
    if isinstance(command, str):
        found.items = parse(without_private(command), found.unknowns)
        walker.run(found.items, start, _Place())
    else:
        simple = Simple(found.unknowns.number(), [])
        walker.words([without_private(word) for word in command], start, simple, _Place(expanded=False))
    return found


@dataclass(frozen=True, slots=True)
class _Place:
    conditional: bool = False
    looped: bool = False
    expanded: bool = True
    depth: int = 0


class _Walker:
    def __init__(self, found: Walk) -> None:
        self._found = found
        self._expanded_bytes = 0

    def run(self, items: List, environment: Environment, place: _Place) -> None:
        for item in items:
            self._item(item, environment.copy() if item.background else environment, place)

    def _item(self, item: Item, environment: Environment, place: _Place) -> None:
        guarded = False
        for operator, pipeline in item.parts:
            here = place if not (operator and guarded) else _Place(True, place.looped, place.expanded, place.depth)
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
        elif node.kind != "function":
            self._block(node, environment, place)

    def _block(self, block: Block, environment: Environment, place: _Place) -> None:
        looped = place.looped or block.kind == "loop"
        self.run(block.test, environment, _Place(place.conditional, looped, place.expanded, place.depth))
        inside = _Place(True, looped, place.expanded, place.depth)
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

    def _expanded(self, word: tuple, environment: Environment) -> str:  # type: ignore[type-arg]
        return "".join(expand(word, environment.value, self._found.unknowns, split=False))

    def _simple(self, simple: Simple, environment: Environment, place: _Place) -> None:
        fields = [text for word in simple.words for text in expand(word, environment.value, self._found.unknowns)]
        self._spend(fields)
        self._found.fields[simple.number] = fields
        if not fields:
            for name, value in simple.assigns:
                environment.assign(name, self._expanded(value, environment))
            return
        own = environment.copy() if simple.assigns else environment
        for name, value in simple.assigns:
            own.assign(name, self._expanded(value, environment))
        self.words(fields, own, simple, place)

    def words(self, fields: list[str], environment: Environment, simple: Simple, place: _Place) -> None:
        """Follows wrappers and shells down to what is called."""
        if len(self._found.calls) > _CALLS_MAX:
            raise Unreadable("it calls more programs than can be followed")
        for _ in range(_WRAPPERS_MAX):
            if not fields:
                return
            program = base_name(fields[0])
            if program in _DECLARE:
                self._declare(fields[1:], environment)
                return
            if program == "unset":
                for name in fields[1:]:
                    environment.unset(name)
                return
            if program == "eval":
                inner = self._inner(" ".join(fields[1:]), simple, environment, place)
                self._found.inner[simple.number] = Inner(inner, False, False)
                return
            if program in _SHELLS and self._shell(fields, environment, simple, place):
                return
            if program in ("env", "sudo"):
                environment = environment.copy()
                after = _through_env(fields, environment)
            elif program in _WRAPPERS:
                after = _behind_wrapper(fields)
            elif program in _TOOLS or (program in _RUNNERS and "run" in fields[1:3]):
                after = _first_known(fields)
            else:
                after = None
            if after is None:
                where = (place.conditional, place.looped, place.expanded, simple.stdin)
                self._found.calls.append(Call(fields, environment.copy(), simple, *where))
                return
            fields = after
        raise Unreadable("it wraps a program more often than can be followed")

    def _declare(self, words: Sequence[str], environment: Environment) -> None:
        for word in words:
            if assigned := _ASSIGNMENT.match(word):
                environment.assign(assigned.group(1), assigned.group(2))

    def _shell(self, fields: list[str], environment: Environment, simple: Simple, place: _Place) -> bool:
        """Whether it is a shell with its line at hand."""
        errexit = pipefail = False
        at = 1
        while at < len(fields) and fields[at][:1] in ("-", "+") and len(fields[at]) > 1:
            word = fields[at]
            if word.startswith("--"):
                at += 2 if word in ("--rcfile", "--init-file") else 1
                continue
            letters = word[1:]
            errexit |= "e" in letters and word[0] == "-"
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
                inner = self._inner(fields[at], simple, environment.copy(), place)
                self._found.inner[simple.number] = Inner(inner, errexit, pipefail)
                return True
        return False

    def _inner(self, text: str, simple: Simple, environment: Environment, place: _Place) -> List:
        if place.depth >= _SHELL_DEPTH_MAX:
            raise Unreadable("shells are nested too deeply")
        if is_one_unknown(text):
            call = Call([text], environment, simple, place.conditional, place.looped, True)
            self._found.calls.append(call)
            return []
        items = parse(text, self._found.unknowns)
        self.run(items, environment, _Place(place.conditional, place.looped, True, place.depth + 1))
        return items


def _is_test(pipeline: Pipeline, fields: Mapping[int, list[str]]) -> bool:
    """A test of a node's own rank decides what follows it by && and ||."""
    first = pipeline.commands[0]
    words = fields.get(first.number, []) if isinstance(first, Simple) else []
    return bool(words) and words[0] in ("[", "[[", "test", "((")


def _through_env(fields: list[str], environment: Environment) -> list[str] | None:
    """Behind `env` or `sudo`, with what they do to the environment; None where nothing is called."""
    sudo = base_name(fields[0]) == "sudo"
    if sudo and not any(word in ("-E", "--preserve-env") for word in fields[1:6]):
        environment.close()
    at = 1
    while at < len(fields):
        word = fields[at]
        if word in ("-i", "-", "--ignore-environment") and not sudo:
            environment.close()
        elif word in ("-u", "--unset", "-C", "--chdir", "-g", "-h", "-p", "-D") and at + 1 < len(fields):
            if word in ("-u", "--unset") and not sudo:
                environment.unset(fields[at + 1])
            at += 1
        elif word in ("-S", "--split-string") and at + 1 < len(fields):
            return fields[at + 1].split() + fields[at + 2 :]
        elif word.startswith("--unset="):
            environment.unset(word[8:])
        elif word.startswith("-u") and not word.startswith("--") and not sudo:
            environment.unset(word[2:])
        elif assigned := _ASSIGNMENT.match(word):
            environment.assign(assigned.group(1), assigned.group(2))
        elif not word.startswith("-"):
            return fields[at:]
        at += 1
    return None


def _behind_wrapper(fields: list[str]) -> list[str] | None:
    if base_name(fields[0]) == "command" and fields[1:2] in (["-v"], ["-V"]):
        return None
    after_option = False
    for at, word in enumerate(fields[1:], 1):
        if word.startswith("-"):
            # A letter may take its value from the next word; --name=value and -oL have theirs.
            after_option = word != "--" and "=" not in word
        elif _is_program(word) or not (after_option or word[:1].isdigit()):
            return fields[at:]
        else:
            after_option = False
    return None


def _first_known(fields: list[str]) -> list[str] | None:
    return next((fields[at:] for at, word in enumerate(fields) if at and _is_program(word)), None)


def _is_program(word: str) -> bool:
    name = base_name(word)
    return name in LAUNCHERS or name in _SHELLS or name in _WRAPPERS or name == "env" or is_python(word)
