"""Which launcher a call is, how it was told the world, and what it runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.rules.guards.calls import Call
from schemas.rules.guards.options import (
    ACCELERATE,
    DEEPSPEED,
    LAUNCH,
    MPI,
    PADDLE,
    TORCHRUN,
    Grammar,
    Options,
    read_options,
)
from schemas.rules.guards.wrappers import LAUNCHERS, MODULES, base_name, is_python

# `python /opt/venv/lib/python3.11/site-packages/torch/distributed/run.py`, by the last three parts of its path.
_MODULE_FILES = {"/".join(f"{name.replace('.', '/')}.py".split("/")[-3:]): name for name in MODULES}
_GRAMMARS: dict[str, Grammar] = {
    **dict.fromkeys(("torchrun", "torch.distributed.run"), TORCHRUN),
    "torch.distributed.launch": LAUNCH,
    "accelerate": ACCELERATE,
    "deepspeed": DEEPSPEED,
    **dict.fromkeys(("paddle.distributed.launch", "fleetrun"), PADDLE),
    **dict.fromkeys(("mpirun", "horovodrun"), MPI),
}
TORCH_KINDS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
PADDLE_KINDS = ("paddle.distributed.launch", "fleetrun")
MPI_KINDS = ("mpirun", "horovodrun")
_ALIASES = {
    "accelerate-launch": "accelerate",
    **dict.fromkeys(("mpirun", "mpiexec", "orterun", "prterun"), "mpirun"),  # mpiexec.hydra, mpirun.openmpi
}
_ASKS = frozenset(("--version", "-V"))
_PYTHON_OPTIONS_WITH_VALUES = "WX"
# torchrun takes PET_STANDALONE=1 for --standalone (torch/distributed/argparse_util.py, check_env).
_FLAGS_BY_VARIABLE = ("standalone", "module", "no_python", "run_path")


@dataclass(frozen=True, slots=True)
class Launch:
    """kind: a key of the grammars. script: what it runs and its arguments."""

    kind: str
    options: Options
    call: Call

    @property
    def known_options(self) -> frozenset[str]:
        grammar = _GRAMMARS[self.kind]
        return grammar.flags | grammar.values

    @property
    def script(self) -> list[str]:
        return self.options.rest

    @property
    def only_asked(self) -> bool:
        """`torchrun --help`, `mpirun --version`: it says something and starts nothing."""
        return not self.script and ("help" in self.options.given or not _ASKS.isdisjoint(self.call.words))


@dataclass(frozen=True, slots=True)
class Python:
    """kind: "script", "module" or "inline" (-c, or standard input). name: of the first two."""

    kind: str
    name: str
    rest: list[str]


def launch_of(call: Call) -> Launch | None:
    found = named_launcher(call.words)
    if found is None:
        return None
    kind, words = found
    options = read_options(words, _GRAMMARS[kind])
    if kind in TORCH_KINDS:
        for flag in _FLAGS_BY_VARIABLE:
            variable = f"PET_{flag.upper()}"
            if flag not in options.given and call.set_here.get(variable, "0").strip() not in ("", "0"):
                options.given[flag] = (variable, call.set_here[variable])
    return Launch(kind, options, call)


def named_launcher(words: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """(kind, the words behind it), where the words call a launcher."""
    if not words:
        return None
    program, rest = base_name(words[0]), words[1:]
    if is_python(program):
        python = python_call(words)
        if python.kind == "module" and python.name in MODULES:
            kind = MODULES[python.name]
            behind = python.rest[1:] if python.name.endswith("_cli") and python.rest[:1] == ["launch"] else python.rest
            return (kind, behind) if python.name != "accelerate.commands.accelerate_cli" or behind else None
        if python.kind == "module" and (at := _module_within(python.rest)) is not None:
            return named_launcher([words[0], *python.rest[at:]])
        if python.kind == "script" and "/" in python.name and base_name(python.name) in LAUNCHERS:
            return named_launcher([python.name, *python.rest])
        if python.kind == "script" and (module := _MODULE_FILES.get("/".join(python.name.split("/")[-3:]))):
            return named_launcher([words[0], "-m", module, *python.rest])
        return None
    if program == "accelerate":
        return ("accelerate", rest[1:]) if rest[:1] == ["launch"] else None
    kind = _ALIASES.get(program.partition(".")[0], program)
    return (kind, rest) if kind in _GRAMMARS else None


def _module_within(rest: Sequence[str]) -> int | None:
    """`python -m cProfile -m torch.distributed.run`: modules that run modules say so by -m."""
    return next((at for at, word in enumerate(rest[:-1]) if word == "-m" and rest[at + 1] in MODULES), None)


def python_call(words: Sequence[str]) -> Python:
    """What an interpreter is told to run."""
    at = 1
    while at < len(words) and words[at].startswith("-") and len(words[at]) > 1:
        word = words[at]
        at += 1
        if word.startswith("--"):
            at += "=" not in word and word == "--check-hash-based-pycs"
            continue
        for position, letter in enumerate(word[1:], 1):
            attached = word[position + 1 :]
            if letter == "c":
                return Python("inline", "", [])
            if letter == "m":
                rest = list(words[at:])
                return Python("module", attached or "".join(rest[:1]), rest if attached else rest[1:])
            if letter in _PYTHON_OPTIONS_WITH_VALUES:
                at += not attached
                break
    if at >= len(words) or words[at] == "-":
        return Python("inline", "", [])
    return Python("script", words[at], list(words[at + 1 :]))
