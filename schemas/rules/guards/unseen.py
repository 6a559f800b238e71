"""Programs whose work cannot be told from the command: one of them may start the launcher, or be none at all."""

from collections.abc import Sequence

from schemas.rules.guards.calls import Call, Walk
from schemas.rules.guards.calls import walk as follow
from schemas.rules.guards.judge import Judge
from schemas.rules.guards.launch import Launch, named_launcher, python_call
from schemas.rules.guards.words import Unreadable, is_known
from schemas.rules.guards.wrappers import LAUNCHERS, MODULES, RUNNERS, SHELLS, base_name, is_python, may_launch

_OUTPUTS_MAX = 50
_SHELL_SUFFIXES = (".sh", ".bash")
# Builtins, and programs that prepare, look or wait. Everything else may well be what trains.
_TRAIN_NOTHING = frozenset(
    ". : [ [[ (( alias awk basename bg break builtin cat cd chmod chown command continue cp curl cut date declare df "
    "dirname disown du echo env eval exec exit export expr false fc fg find free git grep hash head history hostname "
    "id install jobs kill killall let ln local ls mkdir mktemp mv nproc nvidia-smi pgrep pip pip3 pkill popd printenv "
    "printf ps pushd pwd read readlink readonly realpath return rm rmdir rsync sed seq set shift shopt sleep sort "
    "source stat stty sync tail tar tee test timeout times top touch tr trap true type ulimit umask unalias uname uniq "
    "unset unzip uptime wait wc wget which whoami xz yes zip apt apt-get yum dnf apk aws gsutil rclone huggingface-cli "
    "hf modelscope wandb ibstat ibv_devinfo lspci lscpu numactl ldconfig modprobe module tput umount mount".split()
)
# They ask the controller of another scheduler for nodes.
_SCHEDULERS = frozenset("srun salloc sbatch qsub bsub".split())


def shell_scripts(walk: Walk) -> list[Call]:
    return [call for call in walk.calls if _is_script(call)]


def strangers(walk: Walk) -> list[Call]:
    """Programs that are no launcher, no Python and nothing known; and lines of Python, which may do anything."""
    return [call for call in walk.calls if not _is_told(call)]


def warn_of_unseen(call: Call, judge: Judge) -> None:
    shown = judge.shown(base_name(script_of(call) or call.program))
    inside = next((base_name(word) for word in call.words[1:] if base_name(word) in LAUNCHERS or word in MODULES), None)
    if inside is not None:
        said = f"calls {shown}, which seems to start {inside}: what {inside} is told is not checked"
        judge.warn("unseen_launcher", said, f"Call {inside} itself, without {shown} in front of it, if you can.")
    else:
        said = f"calls {shown}: which launcher it uses cannot be seen from here"
        hint = "Let it call torchrun without options: PET_* variables tell it the world."
        starts = (
            "" if _is_script(call) else " If it starts a process for each card itself, say training.launcher: script."
        )
        judge.warn("unseen_launcher", said, hint + starts)


def judge_outputs(walk: Walk, launches: Sequence[Launch], judge: Judge) -> None:
    """Of what stands in `$(…)`, and of that in a place where it is not followed: `<(…)`, `for x in $(…)`."""
    for launch in launches:
        if launch.call.caught:
            said = f"runs {launch.kind} inside $(…): the shell keeps what it prints, so that no log shows how it goes"
            judge.warn(
                "caught_output", said, f"Call {launch.kind} as a command of its own; the platform keeps the log."
            )
    for line in walk.unknowns.run_for_output[:_OUTPUTS_MAX]:
        if line in walk.followed or not may_launch(line):
            continue
        try:
            inner = follow(line, {})
        except (Unreadable, RecursionError):
            continue
        for found in (named_launcher(call.words) for call in inner.calls):
            if found is not None:
                said = f"runs {found[0]} inside $(…): what it is told is not checked, and its exit code is easily lost"
                judge.warn(
                    "unseen_launcher", said, f"Call {found[0]} as a command of its own; the platform keeps the log."
                )


def judge_schedulers(walk: Walk, judge: Judge) -> None:
    """Of Slurm and its like, in a command copied from there."""
    called = [call.program for call in walk.calls]
    called += [base_name(fields[0]) for wrappers in walk.wrappers.values() for fields in wrappers]
    for program in sorted(_SCHEDULERS.intersection(called)):
        said = f"calls {program}, which asks another scheduler for nodes: the mesh has given this group its own already"
        judge.warn(
            "other_scheduler", said, f"Remove {program} and its options: every node runs this command by itself."
        )


def script_of(call: Call) -> str:
    if call.program in SHELLS or call.program in ("source", "."):
        return next((word for word in call.words[1:] if not word.startswith("-")), "")
    return call.words[0]


def _is_script(call: Call) -> bool:
    """A shell script, a program whose name is not known, or a shell that reads what only another program prints."""
    if not is_known(call.words[0]) or script_of(call).endswith(_SHELL_SUFFIXES):
        return True
    return call.program in SHELLS and not script_of(call)


def _is_told(call: Call) -> bool:
    program = call.program
    if program in RUNNERS:
        return "run" not in call.words[1:3]
    return (
        program in _TRAIN_NOTHING
        or program in LAUNCHERS
        or program in _SCHEDULERS
        or (is_python(program) and python_call(call.words).kind != "inline")
    )
