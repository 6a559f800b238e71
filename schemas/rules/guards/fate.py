"""What a shell ends with when every training in its command has failed: the command is run in thought.

Exit codes are known as far as they matter: FAILED, GOOD, or OTHER, which is that of a program nobody knows and is taken
for good where something depends on it; NEVER where it does not end at all. Where a test cannot be told, both ways are
followed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from schemas.rules.guards.calls import Inner, Walk
from schemas.rules.guards.endless import is_endless
from schemas.rules.guards.shell import parse
from schemas.rules.guards.shell_state import (
    FAILED,
    GOOD,
    NEVER,
    OTHER,
    State,
    after_shell,
    code_in,
    code_of,
    plain_text,
    tested_code,
    with_options,
)
from schemas.rules.guards.tree import Block, Group, Item, List, Node, Pipeline, Simple
from schemas.rules.guards.words import Unknowns, Unreadable, Word
from schemas.rules.guards.wrappers import base_name, loses_code

SUCCEEDS = frozenset("true : echo printf sleep date touch cat ls pwd tail sync wait cd mkdir tee".split())
_NOT_FOLLOWED = ("break", "continue", "let")
_NEGATED = {FAILED: GOOD, GOOD: FAILED}
_WAYS_OUT = (["break"], ["exit"], ["return"], ["exec"], ["kill"])
_KILLERS = ("kill", "pkill", "killall", "disown")
_TESTS = ("[", "[[", "test", "((")
_STEPS_MAX = 4000


class NotFollowed(Exception):
    """Is raised where this cannot tell what a shell would do."""


def ends_with(
    walk: Walk, shells: Iterable[Inner], trainings: Mapping[int, str], every_turn: bool = False, either: bool = False
) -> set[str]:
    """The codes that are possible where a training ran. trainings: how each of these simple commands ends. every_turn:
    of a loop, not only in the first ones. either: a program nobody knows may fail too. Raises NotFollowed."""
    run = _Run(walk, trainings, every_turn=every_turn, either=either)
    ends = [run.shell(shell.items, State(errexit=shell.errexit, pipefail=shell.pipefail)) for shell in shells]
    return {state.code for found in ends for state in found if state.ran}


class _Run:
    def __init__(
        self,
        walk: Walk,
        trainings: Mapping[int, str],
        at_exit: str | None = None,
        every_turn: bool = False,
        either: bool = False,
    ) -> None:
        """at_exit: the code that a bare `exit` ends with, inside a trap."""
        self._walk, self._trainings, self._at_exit, self._steps = walk, trainings, at_exit, 0
        self._every_turn, self._either = every_turn, either
        self._functions: dict[str, List] = {}

    def shell(self, items: List, begun: State, tested: bool = False) -> set[State]:
        """How a shell of its own may end; of what it knew only its code and whether a training ran are of use."""
        found = set()
        for state in self._list(items, {replace(begun, ended="", trap="")}, tested):
            codes = self._trapped(state) if state.trap and state.code != NEVER else {state.code}
            found |= {State(code, state.ran) for code in codes}
        return found

    def _trapped(self, state: State) -> set[str]:
        """With what the text of a trap at the exit ends."""
        try:
            items = parse(state.trap, self._walk.unknowns)  # for numbers that no other command has
        except Unreadable:
            raise NotFollowed from None
        called = {
            node.number: Inner(self._functions[name], same=True)
            for node in _simples(items)
            if (name := plain_text(node.words[0]) if node.words else "") in self._functions
        }
        nodes = [*_simples(items), *(node for function in called.values() for node in _simples(function.items))]
        fields = {node.number: [plain_text(word) for word in node.words] for node in nodes}
        inner = _Run(Walk(Unknowns(), fields=fields, inner=called), {}, state.code)
        begun = replace(state, trap="", ended="", errexit=False)
        return {ended.code if ended.ended else state.code for ended in inner._list(items, {begun}, False)}

    def _list(self, items: List, states: set[State], tested: bool) -> set[State]:
        """tested: something looks at the code, so that errexit does not."""
        for item in items:
            states = self._each(states, partial(self._item, item=item, tested=tested))
        return states

    def _each(self, states: set[State], step: Callable[[State], set[State]]) -> set[State]:
        after: set[State] = set()
        for state in sorted(states):
            self._steps += 1
            if self._steps > _STEPS_MAX:
                raise NotFollowed
            after |= {state} if state.ended else step(state)
        return after

    def _item(self, state: State, item: Item, tested: bool) -> set[State]:
        if item.background:
            ends = self.shell([Item(item.parts)], state)
            after = {replace(state, code=GOOD, ran=state.ran or end.ran).keep("!", end.code) for end in ends}
            return {found.keep("&", NEVER) if found.get("!") == NEVER else found for found in after}
        states = {state}
        for at, (operator, pipeline) in enumerate(item.parts):
            looked_at = tested or at + 1 < len(item.parts)
            part = partial(self._part, operator=operator, pipeline=pipeline, tested=looked_at)
            states = self._each(states, part)
        return states

    def _part(self, state: State, operator: str, pipeline: Pipeline, tested: bool) -> set[State]:
        if operator and (operator == "&&") == (state.code == FAILED):
            return {state}
        return self._pipeline(state, pipeline, tested)

    def _pipeline(self, state: State, pipeline: Pipeline, tested: bool) -> set[State]:
        tested = tested or pipeline.negated
        if len(pipeline.commands) == 1:
            states = self._node(pipeline.commands[0], state, tested)
        else:
            states = self._pipe(pipeline, state, tested)
        after = set()
        for found in states:
            if pipeline.negated and not found.ended:
                found = replace(found, code=_NEGATED.get(found.code, found.code))
            elif not tested and found.errexit and found.code == FAILED and not found.ended:
                found = replace(found, ended="exit")
            after.add(found)
        return after

    def _pipe(self, pipeline: Pipeline, state: State, tested: bool) -> set[State]:
        each = [self.shell([Item([("", Pipeline([node]))])], state, tested) for node in pipeline.commands]
        fails = state.pipefail and any(end.code == FAILED for ends in each for end in ends)
        ran = state.ran or any(end.ran for ends in each for end in ends)
        return {
            replace(state, ran=ran)
            .keep("pipe", first.code)
            .ending_as(last.code if last.code == NEVER or not fails else FAILED)
            for first in each[0]
            for last in each[-1]
        }

    def _node(self, node: Node, state: State, tested: bool) -> set[State]:
        if isinstance(node, Simple):
            return self._simple(node, state, tested)
        if isinstance(node, Group):
            if node.subshell:
                return after_shell(state, self.shell(node.body, state, tested))
            return self._list(node.body, {state}, tested)
        if node.kind == "function":
            self._functions[node.name] = node.bodies[0]
            return {replace(state, code=GOOD)}
        return self._block(node, state, tested)

    def _block(self, block: Block, state: State, tested: bool) -> set[State]:
        if block.kind == "if":
            return self._if(block, state, tested)
        if block.kind == "case":
            bodies = [self._list(body, {state}, tested) for body in block.bodies]
            return set().union({replace(state, code=GOOD)}, *bodies)
        if not self._trains_within(block):
            return self._round(block, state, tested)
        if block.test:
            raise NotFollowed  # it may go round for ever
        once = self._list(block.bodies[0], {state}, tested)
        again = self._list(block.bodies[0], once, tested)
        if self._every_turn:
            return again
        trainings, self._trainings = self._trainings, {}
        better = self._list(block.bodies[0], once, tested)
        self._trainings = trainings
        return again | better

    def _round(self, block: Block, state: State, tested: bool) -> set[State]:
        """A loop without a training: `for` has something to go through, `while` perhaps not."""
        if self._is_endless(block):
            return {state.ending_as(NEVER)}
        not_at_all = {replace(state, code=GOOD)}
        try:
            once = self._list([*block.test, *block.bodies[0]], {state}, tested)
        except NotFollowed:
            return not_at_all
        return once | not_at_all if block.test else once

    def _is_endless(self, block: Block) -> bool:
        """`while true`, `while sleep 9` without a way out."""
        tests = [node for item in block.test for _, pipeline in item.parts for node in pipeline.commands]
        if len(tests) != 1 or not isinstance(tests[0], Simple):
            return False
        always = (["false"],) if block.name == "until" else (["true"], [":"], ["[", "1", "]"])
        words = self._walk.fields.get(tests[0].number, [])
        asked = words in always or (block.name == "while" and words[:1] == ["sleep"])
        return asked and not self._leaves(block.bodies[0])

    def _leaves(self, items: List) -> bool:
        return any(
            self._walk.fields.get(simple.number, [""])[0:1] in _WAYS_OUT
            or any(self._leaves(inner.items) for inner in self._walk.within(simple.number))
            for simple in _simples(items)
        )

    def _if(self, block: Block, state: State, tested: bool) -> set[State]:
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

    def _trains_within(self, block: Block) -> bool:
        return any(
            simple.number in self._trainings or self._inner_trains(simple)
            for items in [block.test, *block.bodies]
            for simple in _simples(items)
        )

    def _inner_trains(self, simple: Simple) -> bool:
        return any(
            each.number in self._trainings or self._inner_trains(each)
            for inner in self._walk.within(simple.number)
            for each in _simples(inner.items)
        )

    def _simple(self, simple: Simple, state: State, tested: bool) -> set[State]:
        states = {state}
        if not (outputs := self._walk.outputs.get(simple.number)):
            return self._called(simple, state, tested)
        for inner in outputs:
            states = self._each(states, partial(self._printed, inner=inner))
        after: set[State] = set()
        for found in sorted(states):
            alone = not self._walk.fields.get(simple.number)
            # `OUT=$(…)` ends as the last of them does; a program around it has a code of its own.
            after |= {self._assigned(simple, found, found.code)} if alone else self._called(simple, found, tested)
        return after

    def _printed(self, state: State, inner: Inner | None) -> set[State]:
        if inner is None:
            return {replace(state, code=GOOD)}
        return after_shell(state, self.shell(inner.items, replace(state, errexit=state.errexit and inner.errexit)))

    def _called(self, simple: Simple, state: State, tested: bool) -> set[State]:
        fields = self._walk.fields.get(simple.number, [])
        if not fields:
            state = replace(state, code=GOOD) if not simple.assigns else self._assigned(simple, state)
            return {state}
        program = base_name(fields[0])
        if inner := self._walk.inner.get(simple.number):
            states = self._inner(inner, state, tested)
        elif simple.number in self._trainings:
            states = {replace(state, code=self._trainings[simple.number], ran=True)}
        else:
            return self._other(program, simple, fields, state)
        for lost in filter(None, map(loses_code, self._walk.wrappers.get(simple.number, ()))):
            states = {replace(found, code=GOOD) for found in states} | (set() if lost[0] else states)
        if program == "exec":
            return {replace(found, ended="exit", trap="") for found in states}
        return states

    def _inner(self, inner: Inner, state: State, tested: bool) -> set[State]:
        if not inner.same:
            begun = State(errexit=inner.errexit, pipefail=inner.pipefail)
            return after_shell(state, self.shell(inner.items, begun))
        after = self._list(inner.items, {state}, tested)
        return {replace(found, ended="") if found.ended == "return" else found for found in after}

    def _assigned(self, simple: Simple, state: State, code: str = GOOD) -> State:
        for name, value in simple.assigns:
            state = state.keep(name, code_in(value, state))
        return replace(state, code=code)

    def _other(self, program: str, simple: Simple, fields: list[str], state: State) -> set[State]:
        if program in ("exit", "return"):
            code = self._said(simple.words[1], fields[1], state) if len(fields) > 1 else self._at_exit or state.code
            return {replace(state, code=code, ended=program)}
        if program in _NOT_FOLLOWED:
            raise NotFollowed
        if is_endless(fields):
            return {state.ending_as(NEVER)}
        if program in _KILLERS:
            return {replace(state.killed(), code=OTHER)}
        if program == "set":
            return {with_options(fields, replace(state, code=GOOD))}
        if program == "trap" and len(fields) > 2 and any(name in ("EXIT", "0") for name in fields[2:]):
            return {replace(state, code=GOOD, trap="" if fields[1] == "-" else fields[1])}
        if program in ("export", "local", "declare", "readonly", "typeset"):
            return {self._exported(simple, state)}
        if program in _TESTS:
            return {replace(state, code=code) for code in tested_code(simple, fields, state)}
        if program == "wait":
            return {state.ending_as(self._waited(simple, fields, state))}
        code = FAILED if program == "false" else GOOD if program in SUCCEEDS else OTHER
        if code == OTHER and self._either:
            return {replace(state, code=GOOD), replace(state, code=FAILED)}
        return {replace(state, code=code)}

    def _exported(self, simple: Simple, state: State) -> State:
        """`local rc=$?` keeps a code as an assignment does."""
        for word in simple.words[1:]:
            if word and word[0].kind == "text" and word[0].text.endswith("="):
                state = state.keep(word[0].text[:-1], code_in(word[1:], state))
        return replace(state, code=GOOD)

    def _waited(self, simple: Simple, fields: list[str], state: State) -> str:
        if len(fields) == 1:
            return state.get("&") or GOOD
        if plain_text(simple.words[1]) == "$!" and state.get("!") is None:
            return GOOD  # nothing is behind, and a bare wait is what is left
        code = code_in(simple.words[-1], state) if len(simple.words) == len(fields) else None
        if code is None and fields[1][:1] in ("%", "-"):
            code = state.get("!")
            if code == NEVER:
                code = None  # `wait -n`, `wait %1`: it need not be the last one
        if code is None:
            raise NotFollowed  # it may be that of a training
        return code

    def _said(self, word: Word, text: str, state: State) -> str:
        code = code_in(word, state) or code_of(text)
        if code is None and self._is_unset(word, text):
            # Nothing is left of it, as of a bare `exit`; in quotes it is no number, which is an error.
            bare = FAILED if word[-1].quoted else self._at_exit or state.code
            code = code_of(self._walk.unknowns.default(text) or "") or bare
        if code is None:
            raise NotFollowed
        return code

    def _is_unset(self, word: Word, text: str) -> bool:
        """Whether it is one variable that nothing in the command can have given a value, so no exit code either."""
        told = [part for part in word if part.text or part.kind != "text"]
        if len(told) != 1 or told[0].kind != "variable" or self._walk.unknowns.names(text) != [told[0].text]:
            return False
        lists = [self._walk.items or [], *(inner.items for inner in self._walk.inner.values())]
        simples = [simple for items in lists for simple in _simples(items) if simple.number not in self._walk.inner]
        return not any(_may_set(simple, told[0].text) for simple in simples)


def _may_set(simple: Simple, name: str) -> bool:
    """`rc=1`, `read rc`, `printf -v rc`, `((rc=1))`, and what is read from elsewhere."""
    words = [word[0].text for word in simple.words if word and word[0].kind == "text"]
    if words and words[0] in ("((", ".", "source", "eval", "let"):
        return True
    return name in [*words, *(known for known, _ in simple.assigns)] or any(
        word.startswith(f"{name}=") for word in words
    )


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
