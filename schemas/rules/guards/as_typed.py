"""Slips of the hand and of copying that make a command fail, or be another one than it looks."""

import re
from collections.abc import Sequence
from difflib import get_close_matches

from schemas.rules.guards.calls import Walk
from schemas.rules.guards.judge import Judge
from schemas.rules.guards.launch import Launch, python_call
from schemas.rules.guards.words import is_known
from schemas.rules.guards.wrappers import LAUNCHERS, SHELLS, base_name, is_python

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_OPERATORS = ("&&", "||", ";", "2>&1")
_END_AT_UNKNOWN = ("torchrun", "torch.distributed.run", "accelerate", "deepspeed")
# What the launchers call alike.
_SAME_OPTION = (
    frozenset(("nnodes", "num_nodes", "num_machines")),
    frozenset(("nproc_per_node", "num_gpus", "num_processes")),
    frozenset(("node_rank", "machine_rank", "rank")),
    frozenset(("master_addr", "main_process_ip", "master")),
    frozenset(("master_port", "main_process_port")),
)
_BUILT_IN = ("cd", "export", "source", ".", "set", "ulimit", "eval", "alias", "unset")
# Of word processors and web pages: dashes, quotes and spaces that are characters like others to a shell.
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_STRANGE = re.compile("[\u00a0\u2000-\u200d\u2018-\u201f\u202f\u205f\u3000\ufeff]")


def judge_typing(command: str | Sequence[str], walk: Walk, launches: Sequence[Launch], judge: Judge) -> None:
    if not isinstance(command, str):
        _list(command, judge)
    for call in walk.calls:
        program = call.words[0]
        if not is_known(program):
            continue
        if found := _STRANGE.search(program):
            _strange(program, found.group(), "names no program", judge)
        elif program.startswith("-"):
            said = f"has {judge.shown(program)} where a command begins: the line before it ends without a backslash, "
            hint = "End every line but the last by a backslash."
            judge.refuse("broken_line", said + "or with a space behind it", hint)
        elif call.expanded and " " in program and _is_known_name(program):
            said = f"quotes {judge.shown(program)} as one word: a program of that whole name is looked for"
            judge.refuse("quoted_command", said, "Remove the quotes around it.")
        elif is_python(program):
            _script_name(python_call(call.words).name, call.program, judge)
    for launch in launches:
        _script_name(launch.script[0] if launch.script else "", launch.kind, judge)
        if launch.kind in _END_AT_UNKNOWN:
            _unknown_options(launch, judge)
        for word in launch.options.quoted:
            said = f'has "{judge.shown(word)}" as one word, which {launch.kind} takes for the script'
            listed = not launch.call.expanded
            hint = "Make each of them an element of the list." if listed else "Remove the quotes around it."
            judge.refuse("quoted_arguments", said, hint)
    if isinstance(command, str) and "\r\n" in command:
        said = "has line ends of Windows: a shell takes the carriage return as part of the last word of each line"
        judge.warn("carriage_return", said, "Save it with Unix line ends.")


def _unknown_options(launch: Launch, judge: Judge) -> None:
    """Such a launcher ends at once; another version of it may know the option."""
    for spelled in dict.fromkeys(launch.options.unknown):
        name = spelled.lstrip("-").replace("-", "_")
        same = next((names for names in _SAME_OPTION if name in names), frozenset())
        known = launch.known_options
        meant = next(iter(sorted(same & known) or get_close_matches(name, sorted(known), n=1, cutoff=0.8)), None)
        said = f"says {judge.shown(spelled)}, which {launch.kind} does not know: it would end with an error at once"
        hint = (
            f"Write --{meant}." if meant else f"Remove {judge.shown(spelled)}, or put it behind the script it is for."
        )
        judge.warn("unknown_option", said, hint)


def _script_name(name: str, program: str, judge: Judge) -> None:
    if name[:1] in tuple(_DASHES) or _STRANGE.match(name):
        _strange(name, name[0], f"is the script to {program}", judge)


def _strange(word: str, character: str, what: str, judge: Judge) -> None:
    said = f"says {judge.shown(word)}, which {what}: U+{ord(character):04X} in it only looks like a usual character"
    judge.refuse("strange_character", said, "Type it anew: text from a web page or an office program has such.")


def _list(words: Sequence[str], judge: Judge) -> None:
    """A list is started as it stands, by no shell."""
    first, hint = words[0] if words else "", "Write the command as one text instead of a list."
    if len(words) == 1 and " " in first and _is_known_name(first):
        said = f"is a list of one word, {judge.shown(first)}: a program of that whole name is looked for"
        judge.refuse("quoted_command", said, hint)
    elif _ASSIGNMENT.match(first):
        said = f"begins a list with {judge.shown(first)}, which only a shell takes for a variable"
        judge.refuse("not_expanded", said, "Put it into task.env, or begin the list with env.")
    elif first in _BUILT_IN:
        said = f"begins a list with {judge.shown(first)}, which is no program but a word of the shell"
        judge.refuse("not_expanded", said, hint)
    elif found := next((word for word in words if word in _OPERATORS), None):
        said = f"has {found} in a list, which no shell reads: the program gets it as a word"
        judge.refuse("not_expanded", said, hint)


def _is_known_name(words: str) -> bool:
    """Whether the first of them is a program that trainings are started by."""
    name = base_name(next(iter(words.split()), ""))
    return name in LAUNCHERS or name in SHELLS or is_python(name)
