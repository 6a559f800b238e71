"""Programs that run what follows them: what that is, what they do to its environment, and to its exit code."""

import re
from collections.abc import Sequence

from schemas.rules.guards.known import Environment

SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash"))
PLAIN_SHELLS = ("sh", "dash", "ash")  # they know nothing of what bash adds
_PYTHON = re.compile(r"(python|pypy)[0-9.]*\Z")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=(.*)\Z", re.DOTALL)
LAUNCHERS = frozenset(
    "torchrun accelerate accelerate-launch deepspeed fleetrun mpirun mpiexec orterun prterun horovodrun "
    "mpirun.openmpi mpiexec.openmpi mpirun.mpich mpiexec.mpich mpiexec.hydra".split()
)
MODULES = {
    "torch.distributed.run": "torch.distributed.run",
    "torch.distributed.launch": "torch.distributed.launch",
    "accelerate.commands.launch": "accelerate",
    "accelerate.commands.accelerate_cli": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "paddle.distributed.launch": "paddle.distributed.launch",
    "paddle.distributed.launch.main": "paddle.distributed.launch",
    "paddle.distributed.fleet.launch": "fleetrun",
    "horovod.runner": "horovodrun",
}
_LAUNCHER_TEXT = re.compile("torch|accelerate|deepspeed|paddle|fleetrun|mpi|orterun|prterun|horovod")
# They run what follows them, in the same environment and with its exit code.
_WRAPPERS = frozenset(
    "nohup time exec command builtin nice ionice stdbuf setsid numactl taskset chrt timeout tini dumb-init catchsegv "
    "unbuffer setpriv prlimit eatmydata coproc".split()
)
# Their options and subcommands are many: what they run is the first name below that is known.
_TOOLS = frozenset(
    "nsys ncu rocprof perf strace gdb valgrind py-spy xvfb-run flock srun gosu su-exec runuser chroot unshare "
    "screen singularity apptainer".split()
)
_CONTAINERS = ("singularity", "apptainer")  # of images that hand the environment on, unless told not to
_CLEAN = ("-e", "--cleanenv", "-C", "--containall")
RUNNERS = frozenset("uv poetry pipenv pixi conda mamba micromamba pdm hatch rye".split())  # by `run`
_UV_VALUES = frozenset(
    "-p --python --with --with-editable --with-requirements --extra --no-extra --group --no-group --only-group "
    "--env-file --directory --project --package --index --default-index --index-url --extra-index-url -f --find-links "
    "--cache-dir --config-file --color -n --link-mode --resolution --prerelease --refresh-package".split()
)
_TMUX_NEW = ("new", "new-session", "neww", "new-window")
_TMUX_VALUES = ("-s", "-n", "-c", "-x", "-y", "-t", "-e", "-F", "-f", "-L", "-S")
_OF_BASH = frozenset("source declare typeset shopt pushd popd let coproc mapfile readarray".split())


def base_name(word: str) -> str:
    return word.rpartition("/")[2]


def is_python(word: str) -> bool:
    return _PYTHON.match(base_name(word)) is not None


def launches_world(words: Sequence[str]) -> bool:
    """Whether a call is that of a launcher, by its program or by the module or file that Python runs."""
    return base_name(words[0]) in LAUNCHERS or (
        is_python(words[0]) and any(word in MODULES or ("/" in word and base_name(word) in LAUNCHERS) for word in words)
    )


def may_launch(line: str) -> bool:
    """Told in less time than it takes to read the line; where it is False no launcher is named."""
    return _LAUNCHER_TEXT.search(line) is not None


def behind(fields: list[str], environment: Environment) -> list[str] | None:
    """What a program is asked to run; None where it runs nothing that is known. environment: changed as it does."""
    program = base_name(fields[0])
    if program in ("env", "sudo"):
        return _through_env(fields, environment)
    if program in _WRAPPERS:
        return _behind_wrapper(fields)
    if program in _TOOLS or (program in RUNNERS and "run" in fields[1:3]):
        # `exec` of a container is its own word for what it does.
        found = _run_by_uv(fields) if program == "uv" else _first_known(fields[program in _CONTAINERS :])
        if program in _CONTAINERS and any(word in _CLEAN for word in fields[: len(fields) - len(found or ())]):
            environment.close()
        return found
    return None


def line_of(fields: Sequence[str], environment: Environment) -> str | None:
    """The shell line that a program other than a shell is given as text; None where it is given none."""
    program, words = base_name(fields[0]), fields[1:]
    if program == "eval":
        return " ".join(words)
    if program in ("su", "runuser", "script"):
        if program != "script" and any(word in ("-", "-l", "--login") for word in words):
            environment.close()
        return _after_c(words)
    if program == "tmux" and (new := [at for at, word in enumerate(words) if word in _TMUX_NEW]):
        at = new[0] + 1
        while at < len(words) and words[at].startswith("-"):
            at += 2 if words[at] in _TMUX_VALUES else 1
        return " ".join(words[at:]) or None
    return None


def loses_code(fields: Sequence[str]) -> tuple[bool, str, str] | None:
    """(whether it always does; how; what to write instead), where a wrapper does not end with the code of what it
    runs, or not when that ends."""
    program, words = base_name(fields[0]), fields[1:]
    letters = [word[1:] for word in words if word.startswith("-") and not word.startswith("--")]
    if program == "script" and "--return" not in words and not any("e" in some.partition("c")[0] for some in letters):
        return True, "`script` without -e ends with 0 whatever happened", "The platform keeps the log: drop it."
    if program == "screen" and any(some.startswith("d") for some in letters):
        return True, "`screen` puts it into the background, and the task ends at once", "Drop screen."
    if program == "tmux" and any("d" in some for some in letters):
        return True, "`tmux` puts it into the background, and the task ends at once", "Drop tmux."
    if program == "coproc":
        return True, "`coproc` puts it into the background, and the task ends at once", "Drop coproc."
    if program == "setsid" and not any("w" in some for some in letters) and "--wait" not in words:
        forks = "--fork" in words or any("f" in some for some in letters)
        how = "`setsid` does not wait for it" + ("" if forks else " where its shell has given way to it")
        return forks, how, "Drop setsid, or write setsid --wait."
    return None


def of_bash(fields: Sequence[str]) -> str:
    """What of a command only bash knows, "" where other shells run it alike."""
    program = fields[0]
    if program in _OF_BASH:
        return program
    if program == "[" and "==" in fields:
        return "== inside [ ]"
    if program == "set" and "pipefail" in fields:
        return "set -o pipefail"
    if fields[:2] == ["wait", "-n"]:
        return "wait -n"
    if program == "trap" and fields[-1:] == ["ERR"]:
        return "trap … ERR"
    return ""


def _after_c(words: Sequence[str]) -> str | None:
    for at, word in enumerate(words):
        if word.startswith("--command="):
            return word.partition("=")[2]
        short = word.startswith("-") and not word.startswith("--")
        if (word == "--command" or (short and word.endswith("c"))) and at + 1 < len(words):
            return words[at + 1]
    return None


def _through_env(fields: list[str], environment: Environment) -> list[str] | None:
    """Behind `env` or `sudo`, with what they do to the environment; None where nothing is called."""
    sudo = base_name(fields[0]) == "sudo"
    if sudo and not any(word in ("-E", "--preserve-env") for word in fields[1:6]):
        environment.close()
    at = 1
    while at < len(fields):
        word = fields[at]
        if word in ("-i", "-", "--ignore-environment") and not sudo:
            environment.close()
        elif word in ("-u", "--unset", "-C", "--chdir", "-g", "-h", "-p", "-D") and at + 1 < len(fields):
            if word in ("-u", "--unset") and not sudo:
                environment.unset(fields[at + 1])
            at += 1
        elif word in ("-S", "--split-string") and at + 1 < len(fields):
            return fields[at + 1].split() + fields[at + 2 :]
        elif word.startswith("--unset="):
            environment.unset(word[8:])
        elif word.startswith("-u") and not word.startswith("--") and not sudo:
            environment.unset(word[2:])
        elif assigned := _ASSIGNMENT.match(word):
            environment.assign(assigned.group(1), assigned.group(2))
        elif not word.startswith("-"):
            return fields[at:]
        at += 1
    return None


def _behind_wrapper(fields: list[str]) -> list[str] | None:
    if base_name(fields[0]) == "command" and fields[1:2] in (["-v"], ["-V"]):
        return None
    after_option = False
    for at, word in enumerate(fields[1:], 1):
        if word.startswith("-"):
            # A letter may take its value from the next word; --name=value and -oL have theirs.
            after_option = word != "--" and "=" not in word
        elif _is_program(word) or not (after_option or word[:1].isdigit()):
            return fields[at:]
        else:
            after_option = False
    return None


def _first_known(fields: list[str]) -> list[str] | None:
    return next((fields[at:] for at, word in enumerate(fields) if at and _is_program(word)), None)


def _is_program(word: str) -> bool:
    name = base_name(word)
    return name in LAUNCHERS or name in SHELLS or name in _WRAPPERS or name == "env" or is_python(word)


def _run_by_uv(fields: list[str]) -> list[str] | None:
    """`uv run train.py` and `uv run -m train` are run by Python."""
    at = fields.index("run") + 1
    while at < len(fields) and fields[at].startswith("-"):
        if fields[at] in ("-m", "--module"):
            return ["python", "-m", *fields[at + 1 :]]
        at += 2 if fields[at] in _UV_VALUES else 1
    run = fields[at:]
    return ["python", *run] if run and run[0].endswith(".py") else run or None
