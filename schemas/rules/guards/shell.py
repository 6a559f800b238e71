"""The tree of a shell line: lists, pipelines, groups and compound commands. As much of bash as commands need."""

import re
from dataclasses import dataclass, field

from schemas.rules.guards.words import Part, Scanner, Unknowns, Unreadable, Word

_DEPTH_MAX = 40
_OPERATORS = ("&&", "||", ";;", "|&", ";", "&", "|", "(", ")", "\n")
_REDIRECT = re.compile(r"(?:[0-9]{1,3}|\{[A-Za-z_]\w*\})?(<<<|<<-?|<>|<&|<(?!\()|&>>|&>|>>|>&|>\||>(?!\())")
_PROCESS = re.compile(r"[<>]\(")
_COMMENT = re.compile(r"#[^\n]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_ENDS = frozenset(("then", "else", "elif", "fi", "do", "done", "esac", "}"))


@dataclass(slots=True)
class Simple:
    """number: its own within the command. assigns: (name, value) in front of it. stdin: fed by a here-document."""

    number: int
    words: list[Word]
    assigns: list[tuple[str, Word]] = field(default_factory=list)
    stdin: bool = False


@dataclass(slots=True)
class Group:
    """( … ) or { …; }; a subshell keeps its variables to itself."""

    body: "List"
    subshell: bool


@dataclass(slots=True)
class Block:
    """kind: "if", "loop", "case" or "function". test: what decides; bodies: what it decides about."""

    kind: str
    test: "List"
    bodies: list["List"]


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


def parse(text: str, unknowns: Unknowns) -> List:
    """Raises Unreadable."""
    parser = _Parser(text, unknowns)
    items = parser.items()
    if parser.operator is not None or parser.keyword:
        raise Unreadable(f"{parser.operator or parser.keyword} stands where no command could begin")
    return items


class _Parser:
    """One token is looked at: `operator`, or `current` (a word), or neither at the end."""

    def __init__(self, text: str, unknowns: Unknowns) -> None:
        self._scanner = Scanner(text, unknowns)
        self._unknowns = unknowns
        self._here: list[tuple[str, bool]] = []
        self._depth = 0
        self.operator: str | None = None
        self.current: Word | None = None
        self.redirect = ""
        self._next()

    @property
    def keyword(self) -> str:
        """The word, where it is one unquoted piece of text and so may be reserved."""
        if self.current is None or len(self.current) != 1 or self.current[0].quoted or self.current[0].kind != "text":
            return ""
        return self.current[0].text

    def items(self) -> List:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise Unreadable("it is nested too deeply")
        found: List = []
        while True:
            while self.operator in (";", "\n"):
                self._next()
            if self.operator in (")", ";;") or self.keyword in _ENDS or (self.current is None and not self._more()):
                break
            item = self._item()
            if self.operator == "&":
                item.background = True
                self._next()
            found.append(item)
        self._depth -= 1
        return found

    def _more(self) -> bool:
        return self.operator is not None or bool(self.redirect)

    def _item(self) -> Item:
        parts = [("", self._pipeline())]
        while self.operator in ("&&", "||"):
            joined = self.operator
            self._next()
            self._newlines()
            parts.append((joined, self._pipeline()))
        return Item(parts)

    def _pipeline(self) -> Pipeline:
        negated = False
        while self.keyword in ("!", "time"):
            negated ^= self.keyword == "!"
            self._next()
        commands = [self._command()]
        while self.operator in ("|", "|&"):
            self._next()
            self._newlines()
            commands.append(self._command())
        return Pipeline(commands, negated)

    def _newlines(self) -> None:
        while self.operator == "\n":
            self._next()

    def _command(self) -> Node:
        node: Node
        if self.operator == "(":
            node = self._parenthesis()
        elif self.keyword == "{":
            self._next()
            node = Group(self.items(), subshell=False)
            self._expect("}")
        elif self.keyword == "if":
            node = self._if()
        elif self.keyword in ("while", "until"):
            self._next()
            test = self.items()
            node = Block("loop", test, [self._do()])
        elif self.keyword in ("for", "select"):
            self._next()
            if self.operator == "(":
                self._parenthesis()
            while self.operator not in (";", "\n") and self.keyword != "do" and self._any():
                self._next()
            while self.operator in (";", "\n"):
                self._next()
            node = Block("loop", [], [self._do()])
        elif self.keyword == "case":
            node = self._case()
        elif self.keyword == "function":
            self._next()
            self._next()
            node = self._function()
        elif self.operator is not None or not self._any():
            raise Unreadable(f"a command is missing before {(self.operator or 'the end').strip() or 'the line end'}")
        else:
            return self._simple()
        while self.redirect:
            self._redirect()
        return node

    def _any(self) -> bool:
        return self.current is not None or self._more()

    def _expect(self, keyword: str) -> None:
        if self.keyword != keyword:
            raise Unreadable(f"{keyword} is missing")
        self._next()

    def _do(self) -> List:
        self._expect("do")
        body = self.items()
        self._expect("done")
        return body

    def _if(self) -> Block:
        tests: List = []
        bodies = []
        while self.keyword in ("if", "elif"):
            self._next()
            tests += self.items()
            self._expect("then")
            bodies.append(self.items())
        if self.keyword == "else":
            self._next()
            bodies.append(self.items())
        self._expect("fi")
        return Block("if", tests, bodies)

    def _case(self) -> Block:
        while self.keyword != "in" and self._any():
            self._next()
        self._expect("in")
        bodies = []
        self._skip_lines()
        while self.keyword != "esac":
            while self.operator != ")":
                if not self._any():
                    raise Unreadable("esac is missing")
                self._next()
            self._next()
            bodies.append(self.items())
            if self.operator == ";;":
                self._next()
            self._skip_lines()
        self._next()
        return Block("case", [], bodies)

    def _skip_lines(self) -> None:
        while self.operator in (";", "\n"):
            self._next()

    def _parenthesis(self) -> Node:
        if self._scanner.text.startswith("(", self._scanner.at):
            end = self._scanner.text.find("))", self._scanner.at)
            if end < 0:
                raise Unreadable(")) is missing")
            self._scanner.at = end + 2
            self._next()
            return Simple(self._unknowns.number(), [(Part("text", "((", True),)])
        self._next()
        body = self.items()
        if self.operator != ")":
            raise Unreadable(") is missing")
        self._next()
        return Group(body, subshell=True)

    def _function(self) -> Block:
        """After its name. What it does is seen where it is called, which is not followed."""
        if self.operator == "(":
            self._next()
            if self.operator != ")":
                raise Unreadable(") is missing")
            self._next()
        self._newlines()
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise Unreadable("it is nested too deeply")
        body = self._command()
        self._depth -= 1
        return Block("function", [], [[Item([("", Pipeline([body]))])]])

    def _simple(self) -> Node:
        node = Simple(self._unknowns.number(), [])
        bracket = self.keyword == "[["
        while True:
            if self.redirect:
                node.stdin |= self._redirect() in ("<<", "<<-", "<<<")
            elif self.current is not None:
                self._word(node)
                ends = bracket and self.keyword == "]]"
                self._next()
                bracket = bracket and not ends
            elif bracket and self.operator is not None:
                self._next()
            elif self.operator == "(" and len(node.words) == 1 and not node.assigns:
                return self._function()
            elif self.operator == "(":
                raise Unreadable("( stands inside a command")
            else:
                return node

    def _word(self, node: Simple) -> None:
        word = self.current or ()
        first = word[0] if word else None
        if not node.words and first and first.kind == "text" and (found := _ASSIGNMENT.match(first.text)):
            rest = Part("text", first.text[found.end() :], first.quoted)
            value: Word = (rest, *word[1:])
            if not first.quoted:
                if not rest.text and self._scanner.text.startswith("(", self._scanner.at):
                    value = self._array()
                node.assigns.append((found.group().rstrip("=+"), value))
                return
        node.words.append(word)

    def _array(self) -> Word:
        """NAME=( … ) of bash."""
        self._next()
        self._next()
        while self.operator != ")":
            if not self._any():
                raise Unreadable(") is missing")
            self._next()
        return (Part("unknown", "an array", False),)

    def _redirect(self) -> str:
        kind = self.redirect
        self._next()
        if self.current is None:
            raise Unreadable(f"{kind} leads nowhere")
        if kind in ("<<", "<<-"):
            self._here.append(("".join(part.text for part in self.current), kind == "<<-"))
        self._next()
        return kind

    def _next(self) -> None:
        scanner, text = self._scanner, self._scanner.text
        self.operator, self.current, self.redirect = None, None, ""
        while scanner.at < len(text):
            if text[scanner.at] in " \t":
                scanner.at += 1
            elif text.startswith("\\\n", scanner.at):
                scanner.at += 2
            elif text[scanner.at] == "#":
                scanner.at = _end(_COMMENT, text, scanner.at)
            else:
                break
        if scanner.at >= len(text):
            return
        if found := _PROCESS.match(text, scanner.at):
            scanner.at = found.end()
            self._process()
        elif found := _REDIRECT.match(text, scanner.at):
            self.redirect = found.group(1)
            scanner.at = found.end()
        elif operator := next((known for known in _OPERATORS if text.startswith(known, scanner.at)), None):
            self.operator = operator
            scanner.at += len(operator)
            if operator == "\n":
                self._skip_documents()
        else:
            start = scanner.at
            self.current = scanner.word()
            if scanner.at == start:
                raise Unreadable(f"{text[start]!r} is not expected")

    def _process(self) -> None:
        """<( … ) or >( … ): a file name for the command it stands in."""
        depth, scanner = 1, self._scanner
        while depth:
            if scanner.at >= len(scanner.text):
                raise Unreadable(") is missing")
            depth += {"(": 1, ")": -1}.get(scanner.text[scanner.at], 0)
            scanner.at += 1
        self.current = (Part("unknown", "<(…)", True),)

    def _skip_documents(self) -> None:
        for delimiter, tabs in self._here:
            scanner = self._scanner
            while scanner.at < len(scanner.text):
                end = scanner.text.find("\n", scanner.at)
                end = len(scanner.text) if end < 0 else end
                line = scanner.text[scanner.at : end]
                scanner.at = end + 1
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
        self._here.clear()


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
