"""Reads a shell line into its tree. As much of bash as commands need."""

import re
from contextlib import suppress

from schemas.rules.guards.tree import Block, Group, Item, List, Node, Pipeline, Simple
from schemas.rules.guards.words import Part, Scanner, Unknowns, Unreadable, Word

_DEPTH_MAX = 40
_OPERATORS = ("&&", "||", ";;", "|&", ";", "&", "|", "(", ")", "\n")
_REDIRECT = re.compile(r"(?:[0-9]{1,3}|\{[A-Za-z_]\w*\})?(<<<|<<-?|<>|<&|<(?!\()|&>>|&>|>>|>&|>\||>(?!\())")
_PROCESS = re.compile(r"[<>]\(")
_COMMENT = re.compile(r"#[^\n]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_DECLARE = ("declare", "typeset", "local", "export", "readonly")
_ENDS = frozenset(("then", "else", "elif", "fi", "do", "done", "esac", "}"))


def parse(text: str, unknowns: Unknowns, of_bash: list[str] | None = None) -> List:
    """of_bash: None where bash reads it; else what only bash knows is put there, and read as dash reads it.

    Raises Unreadable."""
    parser = _Parser(text, unknowns, plain=of_bash is not None)
    items = parser.items()
    if of_bash is not None:
        of_bash += parser.of_bash
    if parser.operator is not None or parser.keyword:
        raise Unreadable(f"{parser.operator or parser.keyword} stands where no command could begin")
    return items


class _Parser:
    """One token is looked at: `operator`, or `current` (a word), or neither at the end."""

    def __init__(self, text: str, unknowns: Unknowns, plain: bool) -> None:
        self._scanner = Scanner(text, unknowns)
        self._unknowns, self._plain = unknowns, plain
        # Of here-documents whose text is still to come: delimiter, whether tabs are taken off, whether nothing in it is
        # expanded, and what gets it.
        self._here: list[tuple[str, bool, bool, Simple | None]] = []
        self._depth = 0
        self.operator: str | None = None
        self.current: Word | None = None
        self.redirect = ""
        self._next()

    @property
    def of_bash(self) -> list[str]:
        return self._scanner.of_bash

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
        negated = timed = False
        while self.keyword in ("!", "time"):
            negated ^= self.keyword == "!"
            timed = self.keyword == "time"
            self._next()
        commands = [self._timed() if timed and self.keyword.startswith("-") else self._command()]
        while self.operator in ("|", "|&"):
            if self.operator == "|&":
                self.of_bash.append("|&")
            self._next()
            self._newlines()
            commands.append(self._command())
        return Pipeline(commands, negated)

    def _timed(self) -> Node:
        """Behind `time`, at an option: bash knows -p alone; another shell, and bash as `sh`, runs a program `time`."""
        if not self._plain:
            if self.keyword == "-p":
                self._next()
            return self._command()
        node = self._command()
        if isinstance(node, Simple):
            node.words.insert(0, (Part("text", "time", False),))
        return node

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
        elif (word := self.keyword) in ("while", "until"):
            self._next()
            test = self.items()
            node = Block("loop", test, [self._do()], name=word)
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
            self.of_bash.append("function")
            self._next()
            name = self.keyword
            self._next()
            node = self._function(name)
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
        tests, bodies = [], []
        while self.keyword in ("if", "elif"):
            self._next()
            tests.append(self.items())
            self._expect("then")
            bodies.append(self.items())
        if self.keyword == "else":
            self._next()
            bodies.append(self.items())
        self._expect("fi")
        return Block("if", [item for test in tests for item in test], bodies, tests)

    def _case(self) -> Block:
        self._next()
        subject: Word = self.current or ()
        while self.keyword != "in" and self._any():
            self._next()
        self._expect("in")
        bodies, labels, whole = [], [], False
        self._skip_lines()
        while self.keyword != "esac":
            while self.operator != ")":
                if not self._any():
                    raise Unreadable("esac is missing")
                whole |= self.keyword == "*"
                labels += [self.current] if self.current else []
                self._next()
            self._next()
            bodies.append(self.items())
            if self.operator == ";;":
                self._next()
            self._skip_lines()
        self._next()
        return Block("case", [], bodies, subject=subject, whole=whole, labels=labels)

    def _skip_lines(self) -> None:
        while self.operator in (";", "\n"):
            self._next()

    def _parenthesis(self) -> Node:
        if self._scanner.text.startswith("(", self._scanner.at):
            end = self._scanner.text.find("))", self._scanner.at)
            if end < 0:
                raise Unreadable(")) is missing")
            self._scanner.at = end + 2
            self.of_bash.append("((…))")
            self._next()
            return Simple(self._unknowns.number(), [(Part("text", "((", True),)])
        self._next()
        body = self.items()
        if self.operator != ")":
            raise Unreadable(") is missing")
        self._next()
        return Group(body, subshell=True)

    def _function(self, name: str) -> Block:
        """After its name."""
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
        return Block("function", [], [[Item([("", Pipeline([body]))])]], name=name)

    def _simple(self) -> Node:
        node = Simple(self._unknowns.number(), [])
        bracket = self.keyword == "[["
        if bracket:
            self.of_bash.append("[[")
        while True:
            if self.redirect:
                self._redirect(node)
            elif self.current is not None:
                self._word(node)
                ends = bracket and self.keyword == "]]"
                self._next()
                bracket = bracket and not ends
            elif bracket and self.operator is not None:
                self._next()
            elif self.operator == "(" and self._declares(node):
                node.arrays.append((_text(node.words.pop()).rstrip("=+"), self._array()))
                self._next()
            elif self.operator == "(" and len(node.words) == 1 and not node.assigns:
                return self._function(_text(node.words[0]))
            elif self.operator == "(":
                raise Unreadable("( stands inside a command")
            else:
                return node

    def _declares(self, node: Simple) -> bool:
        """`local NAME=` in front of a bracket."""
        words = [_text(word) for word in node.words]
        return len(words) > 1 and words[0] in _DECLARE and _ASSIGNMENT.fullmatch(words[-1]) is not None

    def _word(self, node: Simple) -> None:
        word = self.current or ()
        first = word[0] if word else None
        if not node.words and first and first.kind == "text" and (found := _ASSIGNMENT.match(first.text)):
            rest = Part("text", first.text[found.end() :], first.quoted)
            value: Word = (rest, *word[1:])
            if not first.quoted:
                name, adds = found.group().rstrip("=+"), found.group().endswith("+=")
                if not rest.text and self._scanner.text.startswith("(", self._scanner.at):
                    self._next()
                    value = self._array((Part("every", name, True),) if adds else None)
                elif adds:
                    value = (Part("variable", name, True), *value)
                node.assigns.append((name, value))
                return
        node.words.append(word)

    def _array(self, before: Word | None = None) -> Word:
        """( … ) of bash, at its bracket. before: what it is added to."""
        self.of_bash.append("an array")
        elements = [before] if before else []
        self._next()
        while self.operator != ")":
            if not self._any():
                raise Unreadable(") is missing")
            if self.current is not None:
                elements.append(self.current)
            self._next()
        return (Part("array", "an array", False, elements=tuple(elements)),)

    def _redirect(self, node: Simple | None = None) -> None:
        """node: what is redirected, where it may be a shell."""
        kind = self.redirect
        self._next()
        if self.current is None:
            raise Unreadable(f"{kind} leads nowhere")
        if kind in ("<<", "<<-"):
            plain = any(part.quoted for part in self.current)
            self._here.append((_text(self.current), kind == "<<-", plain, node))
        elif kind == "<<<":
            self.of_bash.append(kind)
            if node is not None:
                node.fed = self.current
        self._next()

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
            if self.redirect in ("&>", "&>>"):
                self.of_bash.append(self.redirect)
            if self._plain and self.redirect in ("&>", "&>>"):
                # To dash that is a command in the background, and an empty one whose output is led away.
                self.redirect, self.operator = "", "&"
                scanner.at = found.start() + 1
            else:
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
        self.of_bash.append("<(…)")
        depth, scanner = 1, self._scanner
        start = scanner.at
        while depth:
            if scanner.at >= len(scanner.text):
                raise Unreadable(") is missing")
            depth += {"(": 1, ")": -1}.get(scanner.text[scanner.at], 0)
            scanner.at += 1
        self._unknowns.runs(scanner.text[start : scanner.at - 1])
        self.current = (Part("unknown", "<(…)", True),)

    def _skip_documents(self) -> None:
        for delimiter, tabs, plain, node in self._here:
            scanner = self._scanner
            lines = []
            while scanner.at < len(scanner.text):
                end = scanner.text.find("\n", scanner.at)
                end = len(scanner.text) if end < 0 else end
                line = scanner.text[scanner.at : end]
                scanner.at = end + 1
                line = line.lstrip("\t") if tabs else line
                if line == delimiter:
                    break
                lines.append(line)
            if node is not None:
                node.fed = self._document("\n".join(lines), plain)
        self._here.clear()

    def _document(self, body: str, plain: bool) -> Word:
        if not plain:
            with suppress(Unreadable):
                return Scanner(body, self._unknowns).document()
        return (Part("text", body, True),)


def _text(word: Word) -> str:
    return "".join(part.text for part in word)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
