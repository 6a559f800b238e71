"""Programs and loops that end only when something ends them: what waits for one never goes on."""

from collections.abc import Callable, Sequence

from schemas.rules.guards.known import Environment
from schemas.rules.guards.wrappers import base_name, behind, is_python

_WRAPPED_MAX = 8
_MODULES = frozenset(("tensorboard", "tensorboard.main", "http.server"))


def is_endless(fields: Sequence[str]) -> bool:
    """Whether a call goes on for ever. fields: with what stands in front of the program."""
    words = list(fields)
    for _ in range(_WRAPPED_MAX):
        program = base_name(words[0])
        if program == "timeout":
            return False
        if rule := _PROGRAMS.get(program):
            return rule(words[1:])
        if is_python(program):
            return words[1:2] == ["-m"] and not _MODULES.isdisjoint(words[2:3])
        if (after := behind(words, Environment({}))) is None:
            return False
        words = after
    return False


def _sleeps(words: Sequence[str]) -> bool:
    return any(word.lower() in ("infinity", "inf") for word in words)


def _follows(words: Sequence[str]) -> bool:
    """`tail -f`, `tail -n0 -F`; by --pid it ends with that process."""
    if any(word.startswith("--pid") for word in words):
        return False
    return any(
        word.startswith("--follow") or (word[:1] == "-" and word[:2] != "--" and not {*"fF"}.isdisjoint(word))
        for word in words
    )


def _shows_cards(words: Sequence[str]) -> bool:
    """`nvidia-smi dmon`, `nvidia-smi -l 5`: without a count of how often."""
    if words[:1] in (["dmon"], ["pmon"]):
        return not any(word.startswith(("-c", "--count")) for word in words)
    return any(word in ("-l", "-lms") or word.startswith(("--loop", "-l=", "-lms=")) for word in words)


def _serves(words: Sequence[str]) -> bool:
    return not any(word in ("--help", "-h", "--version", "--inspect") for word in words)


_PROGRAMS: dict[str, Callable[[Sequence[str]], bool]] = {
    "sleep": _sleeps,
    "tail": _follows,
    "nvidia-smi": _shows_cards,
    "tensorboard": _serves,
    "watch": _serves,
}
