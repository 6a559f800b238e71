"""Whether a failed launcher fails the task, or its exit code is lost on the way: a lost code is a false success."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from schemas.rules.guards.calls import Inner, Walk
from schemas.rules.guards.endless import is_endless
from schemas.rules.guards.fate import SUCCEEDS, NotFollowed, ends_with
from schemas.rules.guards.shell_state import FAILED, GOOD, NEVER, OTHER
from schemas.rules.guards.tree import Block, Group, Item, List, Node, Pipeline, Simple
from schemas.rules.guards.words import is_known
from schemas.rules.guards.wrappers import base_name, loses_code


@dataclass(frozen=True, slots=True)
class Loss:
    """refused: no failure would be seen. how: a clause that says what loses the code; instead: what to write."""

    refused: bool
    how: str
    instead: str


def lost_exit_codes(walk: Walk, launches: set[int]) -> list[Loss]:
    """launches: ids of the simple commands whose failure must be the task's."""
    fate, shells = _Fate(walk, launches), _shells(walk)
    found = list(dict.fromkeys(loss for shell in shells for loss in fate.of(shell)))
    failing = dict.fromkeys(launches, FAILED)
    try:
        # Where it runs only if another program fails: `[ -f done ] || torchrun t.py`.
        codes = ends_with(walk, shells, failing) or ends_with(walk, shells, failing, either=True)
        if codes == {FAILED} and _each_fails(walk, shells, launches, every_turn=False):
            return [replace(_OTHERWISE, refused=False)] if _may_be_lost(walk, shells, failing) else []
        # Tried again and again, it ends with a failure unless one of the turns was good: that may be meant.
        if ends_with(walk, shells, failing, every_turn=True) == {FAILED} and _each_fails(walk, shells, launches, True):
            return [loss for loss in found if not loss.refused] or [replace(_OTHERWISE, refused=False)]
    except NotFollowed:
        return found
    if codes == {GOOD} and not any(loss.refused for loss in found):
        return [replace(loss, refused=True) for loss in found] or [_OTHERWISE]
    if found or not codes or (FAILED in codes and codes <= {FAILED, NEVER}):
        return found  # what may go on for ever stands behind a test: `if [ "$DEBUG" ]; then sleep infinity; fi`
    how = _OTHERWISE if GOOD in codes else _OF_ANOTHER if OTHER in codes else _NOT_TOLD
    return [replace(how, refused=FAILED not in codes)]


def after_success(walk: Walk, launches: set[int]) -> Loss | None:
    """What keeps a training that succeeded from being a success: the command never ends, or always with a failure."""
    try:
        codes = ends_with(walk, _shells(walk), dict.fromkeys(launches, GOOD), either=True)
    except NotFollowed:
        return None
    if codes == {NEVER}:
        endless = next((" ".join(fields[:3]) for fields in walk.fields.values() if fields and is_endless(fields)), "")
        what = walk.unknowns.shown(endless) or "a loop"
        return Loss(
            True,
            f"does not end when the training has: {what} goes on for ever, and the cards stay taken",
            "Remove it, or end it by `kill` behind the training; a bare `wait` waits for it too.",
        )
    if codes == {FAILED}:
        how = "ends with a failure even where the training has succeeded"
        return Loss(True, how, "End with the code of the training: …; code=$?; …; exit $code.")
    return None


def _shells(walk: Walk) -> list[Inner]:
    """A list of words is no shell; the one it may start (`[bash, -c, …]`) stands alone."""
    return [Inner(walk.items, False, False)] if walk.items is not None else list(walk.inner.values())


_FIRST = "Write it before that, as a command of its own, and keep its code: code=$?; …; exit $code."
_ALONE = "Call it as a command of its own: the platform keeps the log."
_NAMED = {"if": "an `if`", "loop": "a loop", "case": "a `case`"}
_OTHERWISE = Loss(
    True, "what stands around it ends with 0", "Let it stand last, or keep its code: code=$?; …; exit $code."
)
_OF_ANOTHER = replace(_OTHERWISE, how="the task ends with the exit code of another command")
_NOT_TOLD = replace(_OTHERWISE, how="what stands behind it never ends, so that no failure is told")


def _each_fails(walk: Walk, shells: list[Inner], launches: set[int], every_turn: bool) -> bool:
    return len(launches) == 1 or all(
        ends_with(walk, shells, {each: FAILED}, every_turn) <= {FAILED} for each in sorted(launches)
    )


def _may_be_lost(walk: Walk, shells: list[Inner], failing: dict[int, str]) -> bool:
    """Where a program that nobody knows decides: `torchrun t.py; if grep -q Error log; then exit 1; fi`."""
    try:
        return GOOD in ends_with(walk, shells, failing, either=True)
    except NotFollowed:
        return False


class _Fate:
    def __init__(self, walk: Walk, launches: set[int]) -> None:
        self._walk, self._launches = walk, launches

    def of(self, shell: Inner) -> list[Loss]:
        return list(self._list(shell.items, shell.errexit, shell.pipefail))

    def _holds(self, node: Node) -> bool:
        if isinstance(node, Simple):
            return node.number in self._launches or any(
                self._any(inner.items) for inner in self._walk.within(node.number)
            )
        if isinstance(node, Group):
            return self._any(node.body)
        return node.kind != "function" and (self._any(node.test) or any(map(self._any, node.bodies)))

    def _any(self, items: List) -> bool:
        return any(self._holds(node) for item in items for _, pipe in item.parts for node in pipe.commands)

    def _list(self, items: List, errexit: bool, pipefail: bool) -> Iterator[Loss]:
        for at, item in enumerate(items):
            errexit, pipefail = self._options(item, errexit, pipefail)
            if not self._any([item]):
                continue
            later = items[at + 1 :]
            yield from self._item(item, later, errexit, pipefail)
            if item.background:
                yield from self._awaited(later)
            elif later and not self._any(later[-1:]):
                yield from self._followed(item, later, errexit)
            elif later and not errexit and not self._says_code(later):
                yield Loss(False, "the exit code of an earlier launch is lost", "Join the launches with &&.")

    def _item(self, item: Item, later: List, errexit: bool, pipefail: bool) -> Iterator[Loss]:
        seen = False
        for operator, pipeline in item.parts:
            if seen and operator == "||":
                yield from self._otherwise(pipeline)
            if any(map(self._holds, pipeline.commands)):
                seen = True
                yield from self._pipeline(pipeline, later, errexit, pipefail)

    def _pipeline(self, pipeline: Pipeline, later: List, errexit: bool, pipefail: bool) -> Iterator[Loss]:
        if pipeline.negated:
            yield Loss(True, "`!` turns its failure into success", "Remove the `!`.")
        if not self._holds(pipeline.commands[-1]) and not pipefail and not self._mentions(later, "PIPESTATUS"):
            last = self._program(pipeline.commands[-1])
            yield Loss(
                True,
                f"the exit code is that of {last or 'the last command of the pipe'}, behind the `|`",
                "The platform keeps the whole log: drop the pipe, or run it by bash -o pipefail -c '…'.",
            )
        for node in pipeline.commands:
            if isinstance(node, Group):
                yield from self._list(node.body, errexit, pipefail)
            elif isinstance(node, Block) and self._holds(node):
                yield from self._block(node, errexit, pipefail)
            elif isinstance(node, Simple) and self._holds(node):
                for fields in self._walk.wrappers.get(node.number, ()):
                    if lost := loses_code(fields):
                        yield Loss(*lost)
                for inner in self._walk.within(node.number):
                    yield from self._list(inner.items, *options_of(inner, errexit, pipefail))
                if self._walk.outputs.get(node.number) and (program := self._program(node)):
                    yield Loss(True, f"{program} ends with a code of its own, whatever $(…) inside it does", _ALONE)

    def _block(self, block: Block, errexit: bool, pipefail: bool) -> Iterator[Loss]:
        if self._any(block.test):
            yield Loss(False, f"it decides {_NAMED[block.kind]}, which takes its exit code", _FIRST)
        if block.kind == "loop" and not errexit:
            how = "it runs in a loop, whose exit code is that of the last turn"
            yield Loss(False, how, "Submit one group for each turn, or begin with set -e.")
        for body in block.bodies:
            yield from self._list(body, errexit, pipefail)

    def _otherwise(self, pipeline: Pipeline) -> Iterator[Loss]:
        node = pipeline.commands[-1]
        ends = self._ending(node)
        if ends == "fails" or pipeline.negated:
            return
        said = self._program(node)
        how = f"`|| {said or '…'}` replaces its exit code"
        if self._holds(node):
            yield Loss(True, f"{how}: a rank that starts again alone cannot join its world", "Remove the `||`.")
        else:
            yield Loss(ends == "succeeds", how, "Remove it, or end it with `exit 1`.")

    def _ending(self, node: Node) -> str:
        """How what stands behind `||` ends: "fails", "succeeds" or ""."""
        if isinstance(node, Group):
            if not node.body:
                return ""
            return self._ending(node.body[-1].parts[-1][1].commands[-1])
        if not isinstance(node, Simple):
            return ""
        words = self._walk.fields.get(node.number, [])
        program = base_name(words[0]) if words else ":"
        if program in ("exit", "return"):
            return "succeeds" if words[1:] == ["0"] else "fails"
        if program == "false":
            return "fails"
        return "succeeds" if program in SUCCEEDS else ""

    def _awaited(self, later: List) -> Iterator[Loss]:
        waits = [words for words in self._simple_words(later) if words[:1] == ["wait"]]
        if not waits:
            how = "`&` puts it into the background and nothing waits for it: the task ends at once, with success"
            yield Loss(True, how, "Remove the `&`.")
        elif all(len(words) == 1 for words in waits):
            yield Loss(True, "a bare `wait` ends with 0 whatever happened", "Remove the `&`, or `wait $!`.")

    def _followed(self, item: Item, later: List, errexit: bool) -> Iterator[Loss]:
        last_part = any(map(self._holds, item.parts[-1][1].commands))
        if (errexit and last_part) or self._says_code(later):
            return
        first = next((words for words in self._simple_words(later)), [])
        if first == ["exit"] or (first and not self._plain_end(later)):
            return
        said = base_name(first[0])[:40] if first else "what follows"
        how = f"the exit code is that of what follows it ({self._walk.unknowns.shown(said)} …)"
        yield Loss(True, how, "Join them with &&, or keep it: …; code=$?; …; exit $code.")

    def _plain_end(self, later: List) -> bool:
        """Whether the last command is one whose code is its own; an `if` or `case` may look at the launcher's."""
        node = later[-1].parts[-1][1].commands[-1]
        return not isinstance(node, Block) or node.kind in ("loop", "function")

    def _says_code(self, later: List) -> bool:
        """Whether the code is kept and given back: `rc=$?; …; exit $rc`."""
        for words in self._simple_words(later):
            if words[0] in ("exit", "return") and len(words) > 1 and not is_known(words[1]):
                return True
        return self._mentions(later, "PIPESTATUS")

    def _options(self, item: Item, errexit: bool, pipefail: bool) -> tuple[bool, bool]:
        direct = [node for _, pipeline in item.parts for node in pipeline.commands if isinstance(node, Simple)]
        for words in filter(None, (self._walk.fields.get(node.number) for node in direct)):
            if words[0] == "set":
                on = any(word.startswith("-") and "e" in word[1:].rstrip("o") for word in words[1:])
                off = any(word.startswith("+") and "e" in word[1:] for word in words[1:])
                errexit = (errexit or on or "errexit" in words) and not off
                pipefail |= "pipefail" in words
        return errexit, pipefail

    def _simple_words(self, items: List) -> Iterator[list[str]]:
        for item in items:
            for _, pipeline in item.parts:
                for node in pipeline.commands:
                    if isinstance(node, Simple):
                        if words := self._walk.fields.get(node.number):
                            yield words
                    elif isinstance(node, Group):
                        yield from self._simple_words(node.body)

    def _mentions(self, items: List, name: str) -> bool:
        unknowns = self._walk.unknowns
        nodes = (node for item in items for _, pipe in item.parts for node in pipe.commands if isinstance(node, Simple))
        return any(
            name in part.text
            for node in nodes
            for word in [*node.words, *(value for _, value in node.assigns)]
            for part in word
        ) or any(
            name in known for words in self._simple_words(items) for word in words for known in unknowns.names(word)
        )

    def _program(self, node: Node) -> str:
        words = self._walk.fields.get(node.number, []) if isinstance(node, Simple) else []
        return self._walk.unknowns.shown(base_name(words[0])) if words else ""


def options_of(inner: Inner, errexit: bool, pipefail: bool) -> tuple[bool, bool]:
    """Those that hold inside it."""
    return (errexit, pipefail) if inner.same else (inner.errexit, inner.pipefail)
