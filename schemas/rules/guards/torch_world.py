"""The world that torchrun and accelerate would form. Options beat PET_* variables, which the platform sets."""

import re

from schemas.rules.guards.calls import Call
from schemas.rules.guards.judge import CONTRADICTION, SPLIT, Judge, is_loopback
from schemas.rules.guards.launch import Launch
from schemas.rules.guards.words import is_known

_RANGE = re.compile(r"([0-9]{1,9}):([0-9]{1,9})\Z")
_BY_DEVICE = ("gpu", "auto", "xpu", "npu", "cuda")
_FORKED = ": ranks would hang or form separate worlds"
_TOLD = "PET_* variables tell torchrun the world"
_UNORDERED = "which this rendezvous ignores: ranks are given in the order of arrival"


def torchrun(launch: Launch, judge: Judge) -> None:
    options, call, shape = launch.options, launch.call, judge.shape
    if launch.kind == "torch.distributed.launch":
        judge.warn(
            "deprecated_launcher",
            "calls torch.distributed.launch, which is deprecated and passes --local_rank to the script",
            "Use torchrun; the script reads LOCAL_RANK from its environment.",
        )
    _told(judge, launch, "nnodes", "PET_NNODES", 1)
    _told(judge, launch, "nproc_per_node", "PET_NPROC_PER_NODE", 1)
    if "standalone" in options.given:
        if shape.several:
            spelled = options.spelled("standalone")
            said = f"says {spelled}, which waits for ever or splits a group of {shape.nodes} nodes into worlds of one"
            judge.refuse(CONTRADICTION, said, f"Remove {spelled}: {_TOLD}.")
        return
    backend = _text(launch, "rdzv_backend", "PET_RDZV_BACKEND") or "static"
    dynamic = is_known(backend) and backend != "static"
    if (rank := _given(launch, "node_rank", "PET_NODE_RANK")) is not None:
        judge.rank(call, *rank, "$NODE_RANK", ignored=_UNORDERED if dynamic else "")
    elif shape.several and not call.environment.has("PET_NODE_RANK") and not dynamic and not options.opaque:
        judge.refuse(SPLIT, f"{_gone(call, 'PET_NODE_RANK')}: every node would be rank 0", "Leave PET_* as they are.")
    if dynamic:
        _rendezvous(launch, judge, backend)
    _addresses(launch, judge, backend)
    _restarts(launch, judge, "max_restarts", "PET_MAX_RESTARTS")


def _told(judge: Judge, launch: Launch, name: str, variable: str, default: int) -> None:
    """nnodes or nproc_per_node: by the option, else by the variable, else torchrun's default."""
    right, field_name, why, mean = (
        (judge.shape.nodes, "training.n_nodes", _FORKED, "$NNODES")
        if name == "nnodes"
        else (judge.shape.cards, "training.per_node_gpu", "", "$LOCAL_WORLD_SIZE")
    )
    given = _given(launch, name, variable)
    if given is None:
        lost = not launch.call.environment.has(variable) and not launch.options.opaque
        if lost and right is not None and right != default:
            said = f"{_gone(launch.call, variable)}, so torchrun takes {default} for {name}; {field_name} is {right}"
            judge.refuse(SPLIT, said, "Leave PET_* as they are.")
        return
    spelled, value = given
    if name == "nnodes" and (elastic := _RANGE.match(value)):
        low, high = elastic.groups()
        if not int(low) == int(high) == (right or int(low)):
            said = f"says {spelled}={value}, an elastic range; a training group never changes its size"
            judge.refuse(CONTRADICTION, said, f"Remove {spelled}: {_TOLD}.")
    elif name == "nproc_per_node" and value in _BY_DEVICE:
        return
    elif name == "nproc_per_node" and value == "cpu":
        said = f"says {spelled}=cpu, one process for each processor of the node, not for each of its cards"
        judge.refuse(CONTRADICTION, said, f"Remove {spelled}: {_TOLD}.")
    else:
        judge.count(launch.call, spelled, value, right, field_name, why, mean)


def _given(launch: Launch, name: str, variable: str) -> tuple[str, str] | None:
    """(how it was said, value), where the command itself says it."""
    if (option := launch.options.given.get(name)) is not None:
        return option
    value = launch.call.set_here.get(variable)
    return None if value is None else (variable, value)


def _text(launch: Launch, name: str, variable: str) -> str:
    given = _given(launch, name, variable)
    return given[1] if given else ""


def _gone(call: Call, variable: str) -> str:
    how = "clears the environment" if call.environment.closed else f"unsets {variable}"
    return f"{how} before the launcher reads it"


def _rendezvous(launch: Launch, judge: Judge, backend: str) -> None:
    if not judge.shape.several:
        return
    shown = judge.shown(backend)
    judge.warn(
        "rank_order",
        f"uses the rendezvous {shown}: node ranks are given in the order of arrival, not by the platform",
        "Leave --rdzv_backend out: with the static rendezvous task k is node rank k.",
    )
    if not _text(launch, "rdzv_endpoint", "PET_RDZV_ENDPOINT") and not launch.options.opaque:
        said = f"uses the rendezvous {shown} without --rdzv_endpoint: each node would wait for the others on itself"
        judge.refuse(SPLIT, said, "Add --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT, or leave --rdzv_backend out.")


def _addresses(launch: Launch, judge: Judge, backend: str) -> None:
    for name, variable in (
        ("master_addr", "PET_MASTER_ADDR"),
        ("rdzv_endpoint", "PET_RDZV_ENDPOINT"),
    ):
        given = _given(launch, name, variable)
        # The endpoint of etcd is a server of its own, which is no node of the group.
        if given is not None and (not backend.startswith("etcd") or is_loopback(given[1])):
            judge.address(*given)
    if (given := _given(launch, "master_port", "PET_MASTER_PORT")) is not None:
        judge.port(*given)
    call = launch.call
    if not judge.shape.several or call.environment.has("PET_MASTER_ADDR") or launch.options.opaque:
        return
    if not (_given(launch, "master_addr", "") or _given(launch, "rdzv_endpoint", "PET_RDZV_ENDPOINT")):
        said = f"{_gone(call, 'PET_MASTER_ADDR')}: each node would wait for the others on itself"
        judge.refuse(SPLIT, said, "Leave PET_* as they are.")


def _restarts(launch: Launch, judge: Judge, name: str, variable: str) -> None:
    given = _given(launch, name, variable)
    if given is None or not judge.shape.several:
        return
    number = judge.number(launch.call, *given, "0")
    if number:
        said = f"says {given[0]}={number}: ranks that start again on one node cannot join the world of the others"
        judge.refuse("elastic_world", said, f"Remove {given[0]}; clone or resubmit resumes from the newest checkpoint.")


_ACCELERATE_OWN = ("machine_rank", "main_process_ip")
_ACCELERATE_ONE_OF = ("cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp")
_ACCELERATE_NEEDS = ("num_machines", "machine_rank", "main_process_ip")


def accelerate(launch: Launch, judge: Judge) -> None:
    options, call, shape = launch.options, launch.call, judge.shape
    has_file = "config_file" in options.given
    world = shape.world
    counts = (
        ("num_machines", shape.nodes, "training.n_nodes", _FORKED, "$NNODES"),
        ("num_processes", world, "n_nodes x per_node_gpu", "; it counts the processes of all nodes", "$WORLD_SIZE"),
    )
    for name, right, field_name, why, mean in counts:
        if (given := options.given.get(name)) is not None:
            judge.count(call, *given, right, field_name, why, mean)
    if (given := options.given.get("machine_rank")) is not None:
        judge.rank(call, *given, "$NODE_RANK")
    if (given := options.given.get("main_process_ip")) is not None:
        judge.address(*given)
    if (given := options.given.get("main_process_port")) is not None:
        judge.port(*given)
    _restarts(launch, judge, "max_restarts", "")
    if (given := options.given.get("gpu_ids")) is not None:
        judge.cards(*given)
    if "cpu" in options.given and (world is None or world > 1):
        said = "says --cpu, with which accelerate starts one process a node, each a world of its own"
        judge.refuse(
            SPLIT, said, "Use --multi_gpu, and Accelerator(cpu=True) in the script where processors are meant."
        )
    if "multi_gpu" in options.given and world == 1:
        judge.refuse(CONTRADICTION, "says --multi_gpu, which refuses a group of one process", "Remove --multi_gpu.")
    several = [options.spelled(name) for name in _ACCELERATE_ONE_OF if name in options.given]
    if len(several) > 1:
        said = f"says {' and '.join(several)}, of which accelerate takes one"
        judge.refuse(CONTRADICTION, said, f"Keep {several[-1]}.")
    if options.opaque or not shape.several:
        return
    if has_file:
        _accelerate_of_a_file(launch, judge)
    else:
        _accelerate_of_several(launch, judge)


def _accelerate_of_a_file(launch: Launch, judge: Judge) -> None:
    """Options win over the file; what it says of a node is right on one of them at most, where they read the same."""
    left = [f"--{name}" for name in _ACCELERATE_OWN if name not in launch.options.given]
    if left:
        said = f"leaves {' and '.join(left)} to its configuration file, which says the same on every node that reads it"
        hint = "Add --machine_rank=$NODE_RANK --main_process_ip=$MASTER_ADDR --main_process_port=$MASTER_PORT."
        judge.warn("unknown_value", said, hint)


def _accelerate_of_several(launch: Launch, judge: Judge) -> None:
    given, nodes, cards = launch.options.given, judge.shape.nodes, judge.shape.cards
    missing = [f"--{name}" for name in _ACCELERATE_NEEDS if name not in given]
    missing += ["--num_processes"] if "num_processes" not in given else []
    if missing:
        judge.refuse(
            SPLIT,
            f"calls accelerate launch on {nodes} nodes without {' '.join(missing)}: each would be a world of its own",
            "Add --num_machines=$NNODES --num_processes=$WORLD_SIZE --machine_rank=$NODE_RANK "
            "--main_process_ip=$MASTER_ADDR --main_process_port=$MASTER_PORT, or use torchrun.",
        )
    elif "main_process_port" not in given:
        said = "leaves --main_process_port out, and its default 29500 may be taken on that node"
        judge.warn("fixed_port", said, "Add --main_process_port=$MASTER_PORT.")
    how = ("multi_gpu", "use_fsdp", "use_deepspeed", "use_megatron_lm", "cpu")
    if cards == 1 and not missing and not any(name in given for name in how):
        said = "calls accelerate launch with one card a node and no --multi_gpu: each node would be a world of its own"
        judge.refuse(SPLIT, said, "Add --multi_gpu.")
    if "use_deepspeed" in given and launch.options.value("deepspeed_multinode_launcher") not in ("standard", "nossh"):
        said = "uses DeepSpeed through accelerate, which reaches the other nodes by ssh (pdsh): there is none"
        judge.refuse("needs_ssh", said, "Add --deepspeed_multinode_launcher=standard.")
