"""What a command does to the platform's variables, and the ones it would hand on as they stand."""

import re

from schemas.rules.environment import PER_PROCESS_NAMES
from schemas.rules.guards.calls import Walk
from schemas.rules.guards.judge import Judge
from schemas.rules.guards.launch import Launch, python_call
from schemas.rules.guards.words import is_known
from schemas.rules.guards.wrappers import is_python

# Topology: what the scripts below a launcher read. PET_* and PADDLE_* are judged with their launchers.
_TOPOLOGY = frozenset(
    "MASTER_ADDR MASTER_PORT NNODES NODE_RANK NPROC_PER_NODE LOCAL_WORLD_SIZE WORLD_SIZE TF_CONFIG "
    "JAX_COORDINATOR_ADDRESS JAX_NUM_PROCESSES JAX_PROCESS_ID".split()
)
_CARDS = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_CARD_LIST = re.compile(r"[0-9]+(?:,[0-9]+)*\Z")
_LEFT = re.compile(r"\$\{?([A-Z][A-Z0-9_]*)\}?")
# By one of these a script without a launcher knows which node it is on.
_TELLS = {"tensorflow": ("TF_CONFIG",), "jax": ("JAX_PROCESS_ID", "NODE_RANK")}
_TOPOLOGY_FREE = ("torchrun", "torch.distributed.run", "torch.distributed.launch")


def judge_variables(walk: Walk, launches: list[Launch], judge: Judge) -> None:
    for call in walk.calls:
        launched = next((launch for launch in launches if launch.call is call), None)
        if launched is None and not is_python(call.program):
            continue
        for name, value in sorted(call.set_here.items()):
            if name in _CARDS:
                _cards(name, value, judge)
            elif name in _TOPOLOGY or name in PER_PROCESS_NAMES:
                _topology(name, value, launched, judge)
        if not call.expanded:
            _as_they_stand(launched.script if launched else call.words[1:], judge)


def judge_untold(walk: Walk, launches: list[Launch], judge: Judge) -> None:
    """Where no launcher stands between, the script itself reads of the world it is in."""
    scripts = [call for call in walk.calls if is_python(call.program) and python_call(call.words).kind != "inline"]
    if launches or not scripts or not judge.shape.several:
        return
    environment = scripts[-1].environment
    names = _TELLS.get(judge.shape.framework, ("NODE_RANK",))
    name = names[0]
    if not any(map(environment.has, names)):
        how = "clears the environment" if environment.closed else f"unsets {name}"
        said = f"{how} before the script reads it: without {name} each node trains alone"
        judge.refuse("split_world", said, f'Leave {name} as it is, or hand it on: {name}="${name}".')


def _cards(name: str, value: str, judge: Judge) -> None:
    cards = judge.shape.cards
    if not value or not is_known(value):
        return
    count = value.count(",") + 1 if _CARD_LIST.match(value) else None
    if not judge.shape.image:
        said = f"sets {name}={judge.shown(value)}: without a container these may be the cards of another group"
        judge.refuse("overrides_cards", said, f"Remove {name}: the platform names this group's cards.")
    elif count is not None and cards is not None and count != cards:
        said = f"sets {name}={judge.shown(value)}, but training.per_node_gpu is {cards}"
        judge.refuse("overrides_cards", said, f"Remove {name}: a task has exactly its own cards.")
    else:
        said = f"sets {name}={judge.shown(value)}, which the platform sets to this group's cards"
        judge.warn("overrides_platform", said, f"Remove {name}.")


def _topology(name: str, value: str, launched: Launch | None, judge: Judge) -> None:
    names = judge.unknowns.names(value)
    if name in names or (names and set(names) <= _TOPOLOGY):
        return
    if is_known(value) and value == judge.env.get(name):
        return
    if (name, value) == ("LOCAL_RANK", "0") and judge.shape.cards == 1:
        return
    ignored = launched is not None and launched.kind in _TOPOLOGY_FREE
    if name in PER_PROCESS_NAMES and names:
        return
    if not ignored and judge.shape.several and is_known(value) and launched is None:
        said = f"sets {name}={judge.shown(value)} on every node, where the platform's value tells each its place"
        judge.refuse("overrides_platform", said, f"Remove {name}.")
        return
    why = "torchrun does not read it" if ignored else "the platform sets it"
    judge.warn("overrides_platform", f"sets {name}={judge.shown(value)}; {why}", f"Remove {name}.")


def _as_they_stand(words: list[str], judge: Judge) -> None:
    for word in words:
        if found := _LEFT.search(word):
            said = f"says {judge.shown(word)} in a list, which no shell reads: the script gets the $ as it stands"
            hint = f"Write the command as one text, or read {found.group(1)} from the environment in the script."
            if found.group(1) == "MEGATRON_TP_PP_ARGS":
                judge.refuse("not_expanded", said, hint)
            else:
                judge.warn("not_expanded", said, hint)
            return
