"""Reading a command line, and saying what is wrong with it as everything else is said: what, and what to do."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from console.core.exit_codes import USAGE
from console.core.other_words import option_hint, value_hint, verb_hint
from console.core.sanitize import sanitize


class UsageParser(argparse.ArgumentParser):
    """Ends the process by SystemExit(2), as argparse does, with a hint below what is wrong. Options are said in full:
    `--token SECRET` is no `--token-file`, and scripts go on to work when an option is added that begins as another."""

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **{**more, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        self.wrong(message)

    def wrong(self, message: str, hint: str = "") -> NoReturn:
        self.print_usage(sys.stderr)
        hint = hint or f"`{self.prog} --help` says more."
        self.exit(USAGE, f"heteroflow: {sanitize(message)}\n  {sanitize(hint)}\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """A word that is none of those allowed."""
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            hint = verb_hint(str(value), known)
            self.wrong(f"there is no verb {value!r}", f"{hint} `heteroflow --help` lists the verbs.".lstrip())
        name = "/".join(action.option_strings) or action.metavar or action.dest
        listed = ", ".join(known)
        self.wrong(f"{name} {value!r} is none of {listed}", value_hint(str(value), known))

    def words_left(self, words: Sequence[str], runs_program: bool = False) -> NoReturn:
        """What nothing of this verb takes."""
        verb = self.prog.removeprefix("heteroflow ")
        known = [option for action in self._actions for option in action.option_strings if option.startswith("--")]
        for word in words:
            if word.startswith("-") and word != "--":
                hint = option_hint(word, known) or ("Put -- before the program that is to run." if runs_program else "")
                self.wrong(f"{verb} has no option {word}", hint)
        self.wrong(f"{verb} does not take {' '.join(words)!r} as well")
