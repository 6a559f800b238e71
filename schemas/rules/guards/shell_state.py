"""What is known at one place of a shell that is run in thought: the last exit code, and codes that were kept."""

import re
from dataclasses import dataclass, replace

from schemas.rules.guards.tree import Simple
from schemas.rules.guards.words import Word

GOOD, FAILED, OTHER, NEVER = "good", "failed", "other", "never"
_CODE_NAMES = {"$?": "?", "$!": "!", "${PIPESTATUS[0]}": "pipe", "$PIPESTATUS": "pipe"}

_DIGITS = re.compile(r"[0-9]+\Z")
_DIGITS_MAX = 18


@dataclass(frozen=True, slots=True, order=True)
class State:
    """At one place: the last exit code, codes kept in variables, what ends early, and how: "" while it goes on, "exit"
    or "return". kept: "pipe" is the code of the first command of the last pipe, "!" that of what runs behind, "&" is
    there while something runs behind that never ends. ran: whether a training was started at all."""

    code: str = GOOD
    ran: bool = False
    kept: tuple[tuple[str, str], ...] = ()
    errexit: bool = False
    pipefail: bool = False
    trap: str = ""
    ended: str = ""

    def get(self, name: str) -> str | None:
        return self.code if name == "?" else dict(self.kept).get(name)

    def keep(self, name: str, code: str | None) -> "State":
        kept = {known: value for known, value in self.kept if known != name}
        return replace(self, kept=tuple(sorted(kept.items() | ({(name, code)} if code else set()))))

    def ending_as(self, code: str) -> "State":
        """Nothing comes after what never ends."""
        return replace(self, code=code, ended="exit" if code == NEVER else self.ended)

    def killed(self) -> "State":
        """Behind `kill` nothing is known to go on for ever."""
        kept = {name: OTHER if code == NEVER else code for name, code in self.kept if name != "&"}
        return replace(self, kept=tuple(sorted(kept.items())))


def after_shell(state: State, ends: set[State]) -> set[State]:
    """A shell goes on when one that it started has ended."""
    return {replace(state, ran=state.ran or end.ran).ending_as(end.code) for end in ends}


def code_in(word: Word, state: State) -> str | None:
    """The exit code that a word stands for: `$?`, `"$rc"`, `${PIPESTATUS[0]}`."""
    told = [part for part in word if part.text or part.kind != "text"]
    if len(told) != 1:
        return None
    if told[0].kind in ("variable", "unknown"):
        return state.get(_CODE_NAMES.get(told[0].text, told[0].text))
    return code_of(told[0].text) if told[0].kind == "text" else None


def code_of(text: str) -> str | None:
    """That of a number as it is written; None of what is none. One too long for a shell is an error to it."""
    if _DIGITS.match(text) is None:
        return None
    return FAILED if len(text) > _DIGITS_MAX or int(text) % 256 else GOOD


def tested_code(simple: Simple, fields: list[str], state: State) -> set[str]:
    """Of `[ $? -ne 0 ]` and the like; a test of anything else may go either way."""
    words = [word for word in simple.words[1:] if plain_text(word) not in ("]", "]]")]
    if len(words) == 3 and (code := code_in(words[0], state)) is not None and plain_text(words[2]) == "0":
        same, other = plain_text(words[1]) in ("-eq", "=", "==", "-le"), plain_text(words[1]) in ("-ne", "!=", "-gt")
        if code != OTHER and (same or other):
            return {GOOD if (code == GOOD) == same else FAILED}
    return {GOOD, FAILED}


def with_options(fields: list[str], state: State) -> State:
    errexit, pipefail = state.errexit, state.pipefail
    for at, word in enumerate(fields[1:], 1):
        on = word[:1] == "-"
        if word[:1] in ("-", "+") and "e" in word[1:].rstrip("o"):
            errexit = on
        elif word in ("errexit", "pipefail"):
            on = fields[at - 1][:1] == "-"
            errexit, pipefail = (on, pipefail) if word == "errexit" else (errexit, on)
    return replace(state, errexit=errexit, pipefail=pipefail)


def plain_text(word: Word) -> str:
    return "".join(part.text for part in word)
