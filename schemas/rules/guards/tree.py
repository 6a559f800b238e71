"""The tree of a shell line: lists, pipelines, groups and compound commands."""

from dataclasses import dataclass, field

from schemas.rules.guards.words import Word


@dataclass(slots=True)
class Simple:
    """number: its own within the command. assigns: (name, value) in front of it; arrays: (name, array) among the words
    of a `declare`. fed: what a here-document or a here-string gives to it."""

    number: int
    words: list[Word]
    assigns: list[tuple[str, Word]] = field(default_factory=list)
    arrays: list[tuple[str, Word]] = field(default_factory=list)
    fed: Word | None = None


@dataclass(slots=True)
class Group:
    """( … ) or { …; }; a subshell keeps its variables to itself."""

    body: "List"
    subshell: bool


@dataclass(slots=True)
class Block:
    """kind: "if", "loop", "case" or "function". test: what decides; bodies: what it decides about. tests: of an `if`,
    one for each body but that of `else`. name: of a function, and "while" or "until" of a loop that has a test.
    subject: of a `case`; labels: of its arms; whole: whether it has an arm for everything else."""

    kind: str
    test: "List"
    bodies: list["List"]
    tests: list["List"] = field(default_factory=list)
    name: str = ""
    subject: "Word" = ()
    whole: bool = True
    labels: list["Word"] = field(default_factory=list)


Node = Simple | Group | Block


@dataclass(slots=True)
class Pipeline:
    commands: list[Node]
    negated: bool = False


@dataclass(slots=True)
class Item:
    """Pipelines joined by && and ||. parts: (the operator before it, "" at the first; the pipeline)."""

    parts: list[tuple[str, Pipeline]]
    background: bool = False


List = list[Item]
