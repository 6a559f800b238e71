"""The world that DeepSpeed's, Paddle's and MPI's launchers would form."""

import re

from schemas.rules.guards.judge import CONTRADICTION, SPLIT, Judge, is_loopback
from schemas.rules.guards.launch import Launch
from schemas.rules.guards.options import MPI, read_options
from schemas.rules.guards.words import is_known

_HOSTS = ("host", "hostfile", "machinefile", "default_hostfile")
_DEVICES = ("devices", "gpus", "xpus", "npus")
_GPUS_EACH = ("-g", "--ngpus", "-t", "--nthreads")
_FORKED = ": ranks would hang or form separate worlds"
_PADDLE_WINS = "; PADDLE_* variables win over options, so that this one would be ignored without a word"


def deepspeed(launch: Launch, judge: Judge) -> None:
    options, call, shape = launch.options, launch.call, judge.shape
    given = options.given
    if "num_nodes" in given:
        judge.count(call, *given["num_nodes"], shape.nodes, "training.n_nodes", _FORKED, "$NNODES")
    for name in ("num_gpus", "num_accelerators"):
        if name in given:
            judge.count(call, *given[name], shape.cards, "training.per_node_gpu", "", "$LOCAL_WORLD_SIZE")
    if "node_rank" in given:
        judge.rank(call, *given["node_rank"], "$NODE_RANK")
    if "master_addr" in given:
        judge.address(*given["master_addr"])
    if "master_port" in given:
        judge.port(*given["master_port"])
    if "include" in given:
        for host in given["include"][1].split("@"):
            judge.cards(given["include"][0], host.partition(":")[2])
    if "exclude" in given and is_known(given["exclude"][1]):
        spelled, value = given["exclude"]
        said = f"says {spelled}={judge.shown(value)}, which leaves cards out; training.per_node_gpu is {shape.cards}"
        judge.refuse(CONTRADICTION, said, f"Remove {spelled}: every card of the group is used.")
    chosen = [given[name][0] for name in ("include", "exclude") if name in given]
    if chosen and ("num_nodes" in given or "num_gpus" in given):
        said = f"says {chosen[0]} beside --num_nodes or --num_gpus, which deepspeed refuses"
        judge.refuse(CONTRADICTION, said, f"Remove {chosen[0]}: every card of the group is used.")
    if not shape.several:
        return
    launcher = options.value("launcher")
    if launcher is not None and "no_ssh" not in given:
        said = f"says --launcher={judge.shown(launcher)}, which reaches the other nodes by ssh: there is none"
        judge.refuse("needs_ssh", said, _DEEPSPEED_HINT)
    if "elastic_training" in given:
        judge.refuse("elastic_world", "says --elastic_training; a training group never changes its size", "Remove it.")
    needed = ("no_ssh", "hostfile", "node_rank", "master_addr")
    missing = [f"--{name}" for name in needed if name not in given]
    if not missing or options.opaque:
        return
    said = f"calls deepspeed on {shape.nodes} nodes without {' '.join(missing)}: "
    alone = "hostfile" not in given
    why = "each node would train alone, as a world of its own" if alone else "it would reach for the others by ssh"
    judge.refuse(SPLIT if alone else "needs_ssh", said + why, _DEEPSPEED_HINT)


_DEEPSPEED_HINT = (
    "Use torchrun with a DeepSpeed configuration, or deepspeed --hostfile=$HETEROFLOW_HOSTFILE --no_ssh "
    "--node_rank=$NODE_RANK --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT."
)


def paddle(launch: Launch, judge: Judge) -> None:
    options, call, shape = launch.options, launch.call, judge.shape
    wins = call.environment.has("PADDLE_NNODES")
    why = _PADDLE_WINS if wins else _FORKED
    for name, variable, right, field_name, mean in (
        ("nnodes", "PADDLE_NNODES", shape.nodes, "training.n_nodes", "$NNODES"),
        ("nproc_per_node", "PADDLE_NPROC_PER_NODE", shape.cards, "training.per_node_gpu", "$LOCAL_WORLD_SIZE"),
    ):
        for spelled, value in _said(launch, name, variable):
            if name == "nnodes" and ":" in value and is_known(value):
                said = f"says {spelled}={judge.shown(value)}, an elastic range; a training group never changes its size"
                judge.refuse(CONTRADICTION, said, f"Remove {spelled}.")
            else:
                judge.count(call, spelled, value, right, field_name, why if spelled.startswith("-") else _FORKED, mean)
    _paddle_untold(launch, judge)
    for spelled, value in _said(launch, "rank", "PADDLE_RANK"):
        judge.rank(call, spelled, value, "$NODE_RANK")
    for spelled, value in _said(launch, "master", "PADDLE_MASTER"):
        judge.address(spelled, value)
    for name in _DEVICES:
        if name in options.given:
            judge.cards(*options.given[name])
    if "ips" in options.given:
        judge.warn("deprecated_launcher", "says --ips, the old form", "Remove it: PADDLE_MASTER tells the world.")
    _paddle_elastic(launch, judge)
    if options.unknown and options.rest and not options.rest[0].endswith(".py"):
        said = f"says {judge.shown(options.unknown[0])}, which Paddle's launcher does not know: it would run "
        said += f"{judge.shown(options.rest[0])} as the script, and the other nodes would wait"
        judge.refuse(CONTRADICTION, said, f"Remove {judge.shown(options.unknown[0])}.")


def _paddle_untold(launch: Launch, judge: Judge) -> None:
    environment, options = launch.call.environment, launch.options
    gone = [
        variable
        for name, variable in (("nnodes", "PADDLE_NNODES"), ("master", "PADDLE_MASTER"), ("rank", "PADDLE_RANK"))
        if name not in options.given and not environment.has(variable)
    ]
    if judge.shape.several and gone and not options.opaque:
        how = "clears the environment" if environment.closed else f"unsets {gone[0]}"
        said = f"{how} before the launcher reads it: {gone[0]} would not tell it the world"
        judge.refuse(SPLIT, said, "Leave PADDLE_* as they are.")


def _said(launch: Launch, name: str, variable: str) -> list[tuple[str, str]]:
    """By the option and by a variable that the command sets; both count, because the variable wins."""
    found = [launch.options.given[name]] if name in launch.options.given else []
    if (value := launch.call.set_here.get(variable)) is not None:
        found.append((variable, value))
    return found


def _paddle_elastic(launch: Launch, judge: Judge) -> None:
    if not judge.shape.several:
        return
    for name, harmless in (("max_restart", 0), ("elastic_level", -1)):
        if name not in launch.options.given:
            continue
        spelled, value = launch.options.given[name]
        number = judge.number(launch.call, spelled, value, str(harmless))
        if number is not None and number > harmless:
            said = f"says {spelled}={number}: a training group never changes its size{_PADDLE_WINS}"
            judge.warn("elastic_world", said, f"Remove {spelled}.")


def mpi(launch: Launch, judge: Judge) -> None:
    options, shape = launch.options, judge.shape
    if shape.several:
        said = f"calls {launch.kind} in a group of {shape.nodes} nodes: it would need ssh between the containers"
        judge.refuse("needs_ssh", said, "Use one node, or start it by torchrun: NCCL and Gloo need no ssh.")
    if hosts := [options.given[name] for name in _HOSTS if name in options.given]:
        spelled, value = hosts[0]
        slots = _slots_here(value)
        if slots is None:
            said = f"says {spelled}, and {launch.kind} would reach those hosts by ssh: there is none"
            judge.refuse("needs_ssh", said, f"Remove {spelled}: processes start on this node.")
        elif shape.cards is not None and slots < shape.cards:
            said = f"says {spelled} {judge.shown(value)}, which is room for {slots}, but training.per_node_gpu is "
            judge.refuse(CONTRADICTION, f"{said}{shape.cards}", f"Remove {spelled}: every card has a slot.")
    given = options.given.get("np") or options.given.get("n") or options.given.get("npernode")
    if given is None or shape.several:
        return
    number = judge.number(launch.call, *given, "$LOCAL_WORLD_SIZE")
    each = _cards_of_each(launch.script)
    if number is None or (others := _other_contexts(launch.script)) is None:
        return
    number += others
    if shape.cards is not None and number * each != shape.cards:
        said = f"says {given[0]} {number}, but training.per_node_gpu is {shape.cards}"
        judge.refuse(CONTRADICTION, said, f"Write {given[0]} $LOCAL_WORLD_SIZE.")


def _slots_here(value: str) -> int | None:
    """Processes that `-H localhost:4` leaves room for; None where it names another host, or a file of hosts."""
    slots = 0
    for entry in value.split(","):
        host, _, said = entry.partition(":")
        if not is_loopback(host) or not re.fullmatch(r"[0-9]{0,6}", said):
            return None
        slots += int(said or 1)
    return slots


def _other_contexts(script: list[str]) -> int | None:
    """Processes behind the `:` that separates programs of one run; None where that cannot be told."""
    processes = 0
    while ":" in script:
        options = read_options(script[script.index(":") + 1 :], MPI)
        said = options.value("np") or options.value("n") or ""
        if not re.fullmatch(r"[0-9]{1,6}", said):
            return None
        processes, script = processes + int(said), options.rest
    return processes


def _cards_of_each(script: list[str]) -> int:
    """Programs such as nccl-tests take several cards in one process: -g N, threads -t N."""
    each = 1
    for at, word in enumerate(script[:-1]):
        if word in _GPUS_EACH and re.fullmatch(r"[1-9][0-9]{0,2}", script[at + 1]):
            each *= int(script[at + 1])
    return each
