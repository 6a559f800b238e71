"""Which launchers fit a framework, how many may stand in one command, and what a launcher may be asked to run."""

from collections.abc import Sequence

from schemas.rules.guards.calls import Call, Walk
from schemas.rules.guards.exit_code import after_success, lost_exit_codes
from schemas.rules.guards.judge import Judge
from schemas.rules.guards.launch import (
    MPI_KINDS,
    PADDLE_KINDS,
    TORCH_KINDS,
    Launch,
    Python,
    launch_of,
    named_launcher,
    python_call,
)
from schemas.rules.guards.unseen import judge_outputs, judge_schedulers, shell_scripts, strangers, warn_of_unseen
from schemas.rules.guards.words import is_known
from schemas.rules.guards.wrappers import LAUNCHERS, base_name, is_python

SCRIPT = "script"  # training.launcher: the script itself starts one process a card
_FITTING: dict[str, tuple[str, ...]] = {
    "ddp": (*TORCH_KINDS, "accelerate", *MPI_KINDS),
    "fsdp": (*TORCH_KINDS, "accelerate"),
    "deepspeed": (*TORCH_KINDS, "accelerate", "deepspeed"),
    "megatron": (*TORCH_KINDS, "accelerate"),
    "paddle": PADDLE_KINDS,
    "tensorflow": (),
    "jax": (),
}
# Two names of one program.
_SAME = {**dict.fromkeys(TORCH_KINDS[:2], TORCH_KINDS[:2]), **dict.fromkeys(PADDLE_KINDS, PADDLE_KINDS)}
_USE = {
    "paddle": "Use python -m paddle.distributed.launch, or fleetrun.",
    "tensorflow": "Call python alone: TensorFlow takes every card of a node in one process; TF_CONFIG names the rest.",
    "jax": "Call python alone: JAX takes every card of the node in one process.",
    "deepspeed": "Use torchrun, accelerate launch or deepspeed.",
}
_USE_TORCHRUN = "Use torchrun or accelerate launch."
_FOLLOWED_MAX = 16  # launches of one command whose exit codes are followed: each is compared with all behind it
# accelerate 1.15, accelerate/commands/accelerate_cli.py.
_ACCELERATE_VERBS = frozenset(
    "config estimate-memory env launch merge-weights tpu-config test to-fsdp2 -h --help --version".split()
)
_BY_SSH = ("ssh", "pdsh", "clush", "parallel-ssh")
# Python programs that prepare or look, and train nothing.
_TOOL_MODULES = ("pip", "venv", "http.server", "json.tool", "compileall", "zipfile", "tarfile", "site", "ensurepip")


def launches_of(walk: Walk) -> list[Launch]:
    found = (launch_of(call) for call in walk.calls)
    return [launch for launch in found if launch is not None and not launch.only_asked]


def judge_choice(walk: Walk, launches: Sequence[Launch], declared: str | None, judge: Judge) -> None:
    framework = judge.shape.framework
    _misused_python(walk, judge)
    _misused_accelerate(walk, judge)
    _elsewhere(walk, judge)
    judge_schedulers(walk, judge)
    judge_outputs(walk, launches, judge)
    for launch in launches:
        fitting = _FITTING.get(framework)
        if fitting is not None and launch.kind not in fitting:
            said = f"calls {launch.kind}, which starts no world of {framework}"
            judge.refuse("wrong_launcher", said, _USE.get(framework, _USE_TORCHRUN))
        _what_it_runs(launch, judge)
    _together(launches, judge)
    main = {launch.call.simple.number for launch in launches[:_FOLLOWED_MAX]}
    if not launches:
        main = _without_launcher(walk, declared, judge)
    # Which of several programs of a command is the training is known where a launcher starts it, or must not.
    known = bool(launches) or not _FITTING.get(framework, ("",))
    losses = lost_exit_codes(walk, main)
    for loss in losses:
        said = f"loses the exit code of the training: {loss.how}"
        (judge.refuse if loss.refused and known else judge.warn)("hidden_exit_code", said, loss.instead)
    if not any(loss.refused for loss in losses) and (spoilt := after_success(walk, main)):
        (judge.refuse if known else judge.warn)("no_success", spoilt.how, spoilt.instead)
    if declared is not None:
        _declared(walk, launches, declared, judge)


def _misused_python(walk: Walk, judge: Judge) -> None:
    for call in walk.calls:
        if not is_python(call.program):
            continue
        python = python_call(call.words)
        name = python.name
        called = name in ("torchrun", "fleetrun", "mpirun") or (
            python.kind == "script" and name in ("accelerate", "deepspeed", "torchrun")
        )
        if called and named_launcher(call.words) is None:
            how = f"{call.program} {'-m ' if python.kind == 'module' else ''}{name}"
            said = f"calls {how}, but {name} is a program of its own"
            judge.refuse("wrong_launcher", said, f"Remove {call.program} in front of {name}.")


def _misused_accelerate(walk: Walk, judge: Judge) -> None:
    for call in walk.calls:
        verb = call.words[1] if len(call.words) > 1 else ""
        if call.program == "accelerate" and is_known(verb) and verb not in _ACCELERATE_VERBS:
            said = f"calls accelerate {judge.shown(verb)}, but what starts a script is accelerate launch"
            judge.refuse("wrong_launcher", said, "Write accelerate launch, then its options, then the script.")


def _elsewhere(walk: Walk, judge: Judge) -> None:
    for call in walk.calls:
        words = {base_name(piece) for word in call.words[1:] for piece in word.split()}
        if call.program in _BY_SSH and (names := sorted(words & LAUNCHERS)):
            said = f"starts {names[0]} on another host by {call.program}: there is no ssh between the nodes of a group"
            judge.refuse("needs_ssh", said, "Let the command start its own node alone: it runs on every node.")


def _what_it_runs(launch: Launch, judge: Judge) -> None:
    script, options = launch.script, launch.options
    for spelled in options.one_dash:
        said = f"says {judge.shown(spelled)} with one dash, which {launch.kind} does not take for that option"
        judge.refuse("launch_contradiction", said, f"Write -{judge.shown(spelled)}, or leave it out.")
    if not script:
        if not options.opaque:
            judge.refuse("no_script", f"calls {launch.kind} without a script", "Name the script behind its options.")
        return
    if launch.kind in MPI_KINDS:
        inner = named_launcher(script)
    else:
        if is_python(script[0]) and is_known(script[0]) and "no_python" not in options.given:
            said = f"lets {launch.kind} run {script[0]}, which it would take for the script"
            judge.refuse("wrong_launcher", said, f"Remove {script[0]}: {launch.kind} starts Python itself.")
        behind_module = "module" in options.given
        inner = named_launcher(["python", "-m", *script] if behind_module else script)
    if inner is not None:
        said = f"lets {launch.kind} start {inner[0]}: every process would start a world of its own"
        judge.refuse("nested_launchers", said, "Keep one of the two.")


def _together(launches: Sequence[Launch], judge: Judge) -> None:
    """Several launches are right one after another; which of them run at once the exit code already says."""
    plain = [launch for launch in launches if not launch.call.conditional]
    if len(plain) > 1 and len({launch.call.simple.number for launch in plain}) > 1:
        said = (
            f"starts {len(plain)} launchers: one after the other each forms the world anew, at once they would collide"
        )
        judge.warn("several_launchers", said, "Submit one group for each.")


def _without_launcher(walk: Walk, declared: str | None, judge: Judge) -> set[int]:
    """The simple commands that are the training itself, where no launcher is seen."""
    pythons = [(call, python_call(call.words)) for call in walk.calls if is_python(call.program)]
    scripts = [(call, python) for call, python in pythons if _trains(python)]
    framework, world = judge.shape.framework, judge.shape.world
    fitting = _FITTING.get(framework)
    hidden = shell_scripts(walk)
    if fitting and scripts and not hidden and (world or 0) > 1 and declared != SCRIPT:
        _alone(*scripts[-1], judge)
    elif fitting and hidden and (world or 0) > 1 and not scripts:
        warn_of_unseen(hidden[0], judge)
    return {call.simple.number for call, _ in scripts}


def judge_strangers(walk: Walk, launches: Sequence[Launch], declared: str | None, judge: Judge) -> None:
    """Where no launcher, no Python and no shell script is seen, what trains is another program, or nothing."""
    scripts = [call for call in walk.calls if is_python(call.program) and python_call(call.words).kind != "inline"]
    told = bool(launches or scripts or shell_scripts(walk))
    if told or declared == SCRIPT or not _FITTING.get(judge.shape.framework) or (judge.shape.world or 0) < 2:
        return
    for call in strangers(walk)[:1]:
        warn_of_unseen(call, judge)


def _alone(call: Call, python: Python, judge: Judge) -> None:
    """With one card a node, one process a node is right, if it takes NODE_RANK for its rank: that cannot be seen."""
    shape = judge.shape
    what = f"{'-m ' if python.kind == 'module' else ''}{judge.shown(python.name)}"
    said = f"calls {call.program} {what} without a launcher: that is one process a node, "
    use = _USE.get(shape.framework, _USE_TORCHRUN)
    if shape.cards == 1 and "RANK" in call.environment.assigned:
        return
    if shape.cards == 1:
        said += "and no RANK is set: a script that does not take NODE_RANK for it makes each node a world of its own"
        judge.warn("no_launcher", said, f"{use} Say training.launcher: script where it does.")
    else:
        said += f"and {shape.framework} needs one for each of the {shape.cards} cards of a node"
        starts = "A script that starts a process for each card itself says so with training.launcher: script."
        judge.refuse("no_launcher", said, f"{use} {starts}")


def _trains(python: Python) -> bool:
    return (
        python.kind != "inline"
        and python.name.partition(".")[0] not in ("pip", "venv")
        and (python.name not in _TOOL_MODULES)
    )


def _declared(walk: Walk, launches: Sequence[Launch], declared: str, judge: Judge) -> None:
    if shell_scripts(walk) or (not launches and strangers(walk)):
        return
    kinds = {launch.kind for launch in launches}
    if declared == SCRIPT:
        if kinds:
            said = f"is script, but task.command calls {sorted(kinds)[0]}"
            judge.refuse("launch_contradiction", said, "Remove launcher.", "training.launcher")
    elif not kinds & set(_SAME.get(declared, (declared,))):
        said = f"is {declared}, but task.command does not call it"
        judge.refuse("launch_contradiction", said, "Remove launcher, or call it in task.command.", "training.launcher")
