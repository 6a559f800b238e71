"""What a shell ends with when every training in its command has failed: the command is run in thought.

Exit codes are known as far as they matter: FAILED, GOOD, or OTHER, which is that of a program nobody knows and is taken
for good where something depends on it. Where a test cannot be told, both ways are followed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from schemas.rules.guards.calls import Inner, Walk
from schemas.rules.guards.shell import parse
from schemas.rules.guards.tree import Block, Group, Item, List, Node, Pipeline, Simple
from schemas.rules.guards.words import Unknowns, Unreadable, Word
from schemas.rules.guards.wrappers import base_name, loses_code

GOOD, FAILED, OTHER = "good", "failed", "other"
SUCCEEDS = frozenset("true : echo printf sleep date touch cat ls pwd tail sync wait cd mkdir tee".split())
_NOT_FOLLOWED = ("break", "continue", "let")
_CODE_NAMES = {"$?": "?", "$!": "!", "${PIPESTATUS[0]}": "pipe", "$PIPESTATUS": "pipe"}
_TESTS = ("[", "[[", "test", "((")
_STEPS_MAX = 4000


class NotFollowed(Exception):
    """Is raised where this cannot tell what a shell would do."""


@dataclass(frozen=True, slots=True, order=True)
class _State:
    """At one place: the last exit code, codes kept in variables, what ends early, and how: "" while it goes on, "exit"
    or "return". kept: "pipe" is the code of the first command of the last pipe, "!" that of what runs behind. ran:
    whether a training was started at all."""

    code: str = GOOD
    ran: bool = False
    kept: tuple[tuple[str, str], ...] = ()
    errexit: bool = False
    pipefail: bool = False
    trap: str = ""
    ended: str = ""

    def get(self, name: str) -> str | None:
        return self.code if name == "?" else dict(self.kept).get(name)

    def keep(self, name: str, code: str | None) -> "_State":
        kept = {known: value for known, value in self.kept if known != name}
        return replace(self, kept=tuple(sorted(kept.items() | ({(name, code)} if code else set()))))


def ends_with(walk: Walk, shells: Iterable[Inner], failing: set[int], every_turn: bool = False) -> set[str]:
    """The codes that are possible where a training ran. failing: the simple commands that fail. every_turn: of a loop,
    not only in the first ones. Raises NotFollowed."""
    run = _Run(walk, failing, every_turn=every_turn)
    ends = [run.shell(shell.items, _State(errexit=shell.errexit, pipefail=shell.pipefail)) for shell in shells]
    return {state.code for found in ends for state in found if state.ran}


class _Run:
    def __init__(self, walk: Walk, failing: set[int], at_exit: str | None = None, every_turn: bool = False) -> None:
        """at_exit: the code that a bare `exit` ends with, inside a trap."""
        self._walk, self._failing, self._at_exit, self._steps = walk, failing, at_exit, 0
        self._every_turn = every_turn
        self._functions: dict[str, List] = {}

    def shell(self, items: List, begun: _State, tested: bool = False) -> set[_State]:
        """How a shell of its own may end; of what it knew only its code and whether a training ran are of use."""
        found = set()
        for state in self._list(items, {replace(begun, ended="", trap="")}, tested):
            codes = self._trapped(state) if state.trap else {state.code}
            found |= {_State(code, state.ran) for code in codes}
        return found

    def _trapped(self, state: _State) -> set[str]:
        """With what the text of a trap at the exit ends."""
        try:
            items = parse(state.trap, self._walk.unknowns)  # for numbers that no other command has
        except Unreadable:
            raise NotFollowed from None
        called = {
            node.number: Inner(self._functions[name], same=True)
            for node in _simples(items)
            if (name := _text(node.words[0]) if node.words else "") in self._functions
        }
        nodes = [*_simples(items), *(node for function in called.values() for node in _simples(function.items))]
        fields = {node.number: [_text(word) for word in node.words] for node in nodes}
        inner = _Run(Walk(Unknowns(), fields=fields, inner=called), set(), state.code)
        begun = replace(state, trap="", ended="", errexit=False)
        return {ended.code if ended.ended else state.code for ended in inner._list(items, {begun}, False)}

    def _list(self, items: List, states: set[_State], tested: bool) -> set[_State]:
        """tested: something looks at the code, so that errexit does not."""
        for item in items:
            states = self._each(states, partial(self._item, item=item, tested=tested))
        return states

    def _each(self, states: set[_State], step: Callable[[_State], set[_State]]) -> set[_State]:
        after: set[_State] = set()
        for state in sorted(states):
            self._steps += 1
            if self._steps > _STEPS_MAX:
                raise NotFollowed
            after |= {state} if state.ended else step(state)
        return after

    def _item(self, state: _State, item: Item, tested: bool) -> set[_State]:
        if item.background:
            ends = self.shell([Item(item.parts)], state)
            return {replace(state, code=GOOD, ran=state.ran or end.ran).keep("!", end.code) for end in ends}
        states = {state}
        for at, (operator, pipeline) in enumerate(item.parts):
            looked_at = tested or at + 1 < len(item.parts)
            part = partial(self._part, operator=operator, pipeline=pipeline, tested=looked_at)
            states = self._each(states, part)
        return states

    def _part(self, state: _State, operator: str, pipeline: Pipeline, tested: bool) -> set[_State]:
        if operator and (operator == "&&") == (state.code == FAILED):
            return {state}
        return self._pipeline(state, pipeline, tested)

    def _pipeline(self, state: _State, pipeline: Pipeline, tested: bool) -> set[_State]:
        tested = tested or pipeline.negated
        if len(pipeline.commands) == 1:
            states = self._node(pipeline.commands[0], state, tested)
        else:
            states = self._pipe(pipeline, state, tested)
        after = set()
        for found in states:
            if pipeline.negated and not found.ended:
                found = replace(found, code=GOOD if found.code == FAILED else FAILED)
            elif not tested and found.errexit and found.code == FAILED and not found.ended:
                found = replace(found, ended="exit")
            after.add(found)
        return after

    def _pipe(self, pipeline: Pipeline, state: _State, tested: bool) -> set[_State]:
        each = [self.shell([Item([("", Pipeline([node]))])], state, tested) for node in pipeline.commands]
        fails = state.pipefail and any(end.code == FAILED for ends in each for end in ends)
        ran = state.ran or any(end.ran for ends in each for end in ends)
        return {
            replace(state, code=FAILED if fails else last.code, ran=ran).keep("pipe", first.code)
            for first in each[0]
            for last in each[-1]
        }

    def _node(self, node: Node, state: _State, tested: bool) -> set[_State]:
        if isinstance(node, Simple):
            return self._simple(node, state, tested)
        if isinstance(node, Group):
            if node.subshell:
                return _after(state, self.shell(node.body, state, tested))
            return self._list(node.body, {state}, tested)
        if node.kind == "function":
            self._functions[node.name] = node.bodies[0]
            return {replace(state, code=GOOD)}
        return self._block(node, state, tested)

    def _block(self, block: Block, state: _State, tested: bool) -> set[_State]:
        if block.kind == "if":
            return self._if(block, state, tested)
        if block.kind == "case":
            bodies = [self._list(body, {state}, tested) for body in block.bodies]
            return set().union({replace(state, code=GOOD)}, *bodies)
        if not self._fails_within(block):
            return self._round(block, state, tested)
        if block.test:
            raise NotFollowed  # it may go round for ever
        once = self._list(block.bodies[0], {state}, tested)
        again = self._list(block.bodies[0], once, tested)
        if self._every_turn:
            return again
        failing, self._failing = self._failing, set()
        better = self._list(block.bodies[0], once, tested)
        self._failing = failing
        return again | better

    def _round(self, block: Block, state: _State, tested: bool) -> set[_State]:
        """A loop without a training: `for` has something to go through, `while` perhaps not."""
        never = {replace(state, code=GOOD)}
        try:
            once = self._list([*block.test, *block.bodies[0]], {state}, tested)
        except NotFollowed:
            return never
        return once | never if block.test else once

    def _if(self, block: Block, state: _State, tested: bool) -> set[_State]:
        undecided, done = {state}, set()
        for test, body in zip(block.tests, block.bodies, strict=False):
            looked = self._list(test, undecided, True)
            done |= {state for state in looked if state.ended}
            looked = {state for state in looked if not state.ended}
            done |= self._list(body, {state for state in looked if state.code != FAILED}, tested)
            undecided = {state for state in looked if state.code == FAILED}
        if len(block.bodies) > len(block.tests):
            return done | self._list(block.bodies[-1], undecided, tested)
        return done | {replace(state, code=GOOD) for state in undecided}

    def _fails_within(self, block: Block) -> bool:
        return any(
            simple.number in self._failing or self._inner_fails(simple)
            for items in [block.test, *block.bodies]
            for simple in _simples(items)
        )

    def _inner_fails(self, simple: Simple) -> bool:
        inner = self._walk.inner.get(simple.number)
        return inner is not None and any(
            each.number in self._failing or self._inner_fails(each) for each in _simples(inner.items)
        )

    def _simple(self, simple: Simple, state: _State, tested: bool) -> set[_State]:
        fields = self._walk.fields.get(simple.number, [])
        if not fields:
            state = replace(state, code=GOOD) if not simple.assigns else self._assigned(simple, state)
            return {state}
        program = base_name(fields[0])
        if inner := self._walk.inner.get(simple.number):
            states = self._inner(inner, state, tested)
        elif simple.number in self._failing:
            states = {replace(state, code=FAILED, ran=True)}
        else:
            return self._other(program, simple, fields, state)
        for lost in filter(None, map(loses_code, self._walk.wrappers.get(simple.number, ()))):
            states = {replace(found, code=GOOD) for found in states} | (set() if lost[0] else states)
        if program == "exec":
            return {replace(found, ended="exit", trap="") for found in states}
        return states

    def _inner(self, inner: Inner, state: _State, tested: bool) -> set[_State]:
        if not inner.same:
            begun = _State(errexit=inner.errexit, pipefail=inner.pipefail)
            return _after(state, self.shell(inner.items, begun))
        after = self._list(inner.items, {state}, tested)
        return {replace(found, ended="") if found.ended == "return" else found for found in after}

    def _assigned(self, simple: Simple, state: _State) -> _State:
        for name, value in simple.assigns:
            state = state.keep(name, _code_in(value, state))
        return replace(state, code=GOOD)

    def _other(self, program: str, simple: Simple, fields: list[str], state: _State) -> set[_State]:
        if program in ("exit", "return"):
            code = self._said(simple.words[1], fields[1], state) if len(fields) > 1 else self._at_exit or state.code
            return {replace(state, code=code, ended=program)}
        if program in _NOT_FOLLOWED:
            raise NotFollowed
        if program == "set":
            return {_options(fields, replace(state, code=GOOD))}
        if program == "trap" and len(fields) > 2 and any(name in ("EXIT", "0") for name in fields[2:]):
            return {replace(state, code=GOOD, trap="" if fields[1] == "-" else fields[1])}
        if program in ("export", "local", "declare", "readonly", "typeset"):
            return {self._exported(simple, state)}
        if program in _TESTS:
            return {replace(state, code=code) for code in _tested(simple, fields, state)}
        if program == "wait":
            return {replace(state, code=self._waited(simple, fields, state))}
        code = FAILED if program == "false" else GOOD if program in SUCCEEDS else OTHER
        return {replace(state, code=code)}

    def _exported(self, simple: Simple, state: _State) -> _State:
        """`local rc=$?` keeps a code as an assignment does."""
        for word in simple.words[1:]:
            if word and word[0].kind == "text" and word[0].text.endswith("="):
                state = state.keep(word[0].text[:-1], _code_in(word[1:], state))
        return replace(state, code=GOOD)

    def _waited(self, simple: Simple, fields: list[str], state: _State) -> str:
        if len(fields) == 1:
            return GOOD
        if _text(simple.words[1]) == "$!" and state.get("!") is None:
            return GOOD  # nothing is behind, and a bare wait is what is left
        code = _code_in(simple.words[-1], state) if len(simple.words) == len(fields) else None
        if code is None and fields[1][:1] not in ("%", "-"):
            return OTHER
        return code or state.get("!") or OTHER

    def _said(self, word: Word, text: str, state: _State) -> str:
        if text.isascii() and text.isdigit():
            return FAILED if int(text) % 256 else GOOD
        code = _code_in(word, state)
        if code is None:
            raise NotFollowed
        return code


def _after(state: _State, ends: set[_State]) -> set[_State]:
    """A shell goes on when one that it started has ended."""
    return {replace(state, code=end.code, ran=state.ran or end.ran) for end in ends}


def _code_in(word: Word, state: _State) -> str | None:
    """The exit code that a word stands for: `$?`, `"$rc"`, `${PIPESTATUS[0]}`."""
    told = [part for part in word if part.text or part.kind != "text"]
    if len(told) != 1:
        return None
    if told[0].kind in ("variable", "unknown"):
        return state.get(_CODE_NAMES.get(told[0].text, told[0].text))
    if told[0].kind == "text" and told[0].text.isdigit():
        return FAILED if int(told[0].text) else GOOD
    return None


def _tested(simple: Simple, fields: list[str], state: _State) -> set[str]:
    """Of `[ $? -ne 0 ]` and the like; a test of anything else may go either way."""
    words = [word for word in simple.words[1:] if _text(word) not in ("]", "]]")]
    if len(words) == 3 and (code := _code_in(words[0], state)) is not None and _text(words[2]) == "0":
        same, other = _text(words[1]) in ("-eq", "=", "==", "-le"), _text(words[1]) in ("-ne", "!=", "-gt")
        if code != OTHER and (same or other):
            return {GOOD if (code == GOOD) == same else FAILED}
    return {GOOD, FAILED}


def _options(fields: list[str], state: _State) -> _State:
    errexit, pipefail = state.errexit, state.pipefail
    for at, word in enumerate(fields[1:], 1):
        on = word[:1] == "-"
        if word[:1] in ("-", "+") and "e" in word[1:].rstrip("o"):
            errexit = on
        elif word in ("errexit", "pipefail"):
            on = fields[at - 1][:1] == "-"
            errexit, pipefail = (on, pipefail) if word == "errexit" else (errexit, on)
    return replace(state, errexit=errexit, pipefail=pipefail)


def _simples(items: List) -> list[Simple]:
    found: list[Simple] = []
    for item in items:
        for _, pipeline in item.parts:
            for node in pipeline.commands:
                if isinstance(node, Simple):
                    found.append(node)
                elif isinstance(node, Group):
                    found += _simples(node.body)
                elif node.kind != "function":
                    found += [each for body in [node.test, *node.bodies] for each in _simples(body)]
    return found


def _text(word: Word) -> str:
    return "".join(part.text for part in word)
