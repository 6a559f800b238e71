"""A launch that stands behind a test of the node's rank: the other nodes would never join it."""

from collections.abc import Iterator, Sequence

from schemas.rules.guards.calls import Walk
from schemas.rules.guards.judge import CONTRADICTION, NODE_RANK_NAMES, Judge
from schemas.rules.guards.launch import Launch
from schemas.rules.guards.tree import Block, Group, Item, List, Node, Simple

_TESTS = ("[", "[[", "test", "((")


def judge_nodes(walk: Walk, launches: Sequence[Launch], judge: Judge) -> None:
    if not judge.shape.several or not launches:
        return
    reader = _Reader(walk, {launch.call.simple.number for launch in launches}, judge.shape.nodes or 0)
    outputs = [inner for inners in walk.outputs.values() for inner in inners if inner]
    shells = [walk.items or [], *(inner.items for inner in [*walk.inner.values(), *outputs])]
    if any(found for shell in shells for found in reader.partial(shell)):
        said = f"starts {launches[0].kind} on some of the {judge.shape.nodes} nodes only, by their rank: "
        hint = "Start it on every node; let the script ask for its rank where only one may do something."
        judge.refuse(CONTRADICTION, said + "those would wait for the others in vain", hint)


class _Reader:
    def __init__(self, walk: Walk, launches: set[int], nodes: int) -> None:
        self._walk, self._launches, self._nodes = walk, launches, nodes

    def partial(self, items: List) -> Iterator[bool]:
        """True for each place where some nodes start a launch and others do not."""
        for at, item in enumerate(items):
            later = any(map(self._item_launches, items[at + 1 :]))
            yield self._item_partial(item, later)
            for _, pipeline in item.parts:
                for node in pipeline.commands:
                    yield from self._within(node, later)

    def _within(self, node: Node, later: bool) -> Iterator[bool]:
        if isinstance(node, Group):
            yield from self.partial(node.body)
        elif isinstance(node, Block) and node.kind != "function":
            if node.kind == "if" and self._asks_rank(node.test):
                named = [self._rank_asked(test) for test in node.tests]
                yield self._arms_differ(node, later, len(node.bodies) > len(node.tests) or self._all_of(named))
            if node.kind == "case" and any(
                part.text in NODE_RANK_NAMES for part in node.subject if part.kind == "variable"
            ):
                named = ["".join(part.text for part in label) for label in node.labels]
                yield self._arms_differ(node, later, node.whole or self._all_of(named))
            for body in node.bodies:
                yield from self.partial(body)

    def _all_of(self, named: Sequence[str]) -> bool:
        """Whether every node's rank is among those that arms are for."""
        return self._nodes <= len(named) and {*map(str, range(self._nodes))} <= {*named}

    def _rank_asked(self, test: List) -> str:
        """The 1 of `[ $NODE_RANK = 1 ]`; "" of any other test."""
        first = test[0].parts[0][1].commands[0] if len(test) == 1 and len(test[0].parts) == 1 else None
        fields = self._walk.fields.get(first.number, []) if isinstance(first, Simple) else []
        if len(fields) < 4 or fields[0] not in ("[", "[[", "test") or fields[2] not in ("=", "==", "-eq"):
            return ""
        return fields[3] if NODE_RANK_NAMES & {*self._walk.unknowns.names(fields[1])} else ""

    def _arms_differ(self, block: Block, later: bool, whole: bool) -> bool:
        """whole: whether one of the arms is taken in any case."""
        starts = [any(map(self._item_launches, body)) for body in block.bodies]
        leaves = [any(map(self._leaves, body)) for body in block.bodies]
        if not whole:
            starts.append(False)
            leaves.append(False)
        return (any(starts) and not all(starts)) or (later and any(leaves) and not all(leaves))

    def _item_partial(self, item: Item, later: bool) -> bool:
        """`[ $NODE_RANK = 0 ] && torchrun …`, or the same with `||`; or `|| exit` in front of a launch."""
        if len(item.parts) < 2 or not self._asks_rank([Item(item.parts[:1])]):
            return False
        starts = {operator for operator, pipeline in item.parts[1:] if any(map(self._launches_in, pipeline.commands))}
        leaves = any(self._leaves(Item([("", pipeline)])) for _, pipeline in item.parts[1:])
        return len(starts) == 1 or (later and leaves)

    def _asks_rank(self, items: List) -> bool:
        for item in items:
            for _, pipeline in item.parts:
                first = pipeline.commands[0]
                fields = self._walk.fields.get(first.number, []) if isinstance(first, Simple) else []
                if fields and fields[0] in _TESTS:
                    names = [name for word in fields for name in self._walk.unknowns.names(word)]
                    if NODE_RANK_NAMES & set(names):
                        return True
        return False

    def _item_launches(self, item: Item) -> bool:
        return any(self._launches_in(node) for _, pipeline in item.parts for node in pipeline.commands)

    def _launches_in(self, node: Node) -> bool:
        if isinstance(node, Simple):
            return node.number in self._launches or any(
                self._item_launches(item) for inner in self._walk.within(node.number) for item in inner.items
            )
        if isinstance(node, Group):
            return any(map(self._item_launches, node.body))
        return node.kind != "function" and any(self._item_launches(item) for body in node.bodies for item in body)

    def _leaves(self, item: Item) -> bool:
        """Whether it is `exit` itself."""
        for _, pipeline in item.parts:
            for node in pipeline.commands:
                if isinstance(node, Group) and not node.subshell and any(map(self._leaves, node.body)):
                    return True
                if isinstance(node, Simple) and self._walk.fields.get(node.number, [""])[:1] == ["exit"]:
                    return True
        return False
