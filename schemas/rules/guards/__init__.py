"""Guards of a training command (SPEC G3, G6): pure rules that see what a launcher would do before it does it.

The page for users is docs/guards.md; where a rule was measured with a real launcher, tests/data/guards says so.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from schemas.errors import Finding
from schemas.rules.guards.as_typed import judge_typing
from schemas.rules.guards.calls import Walk, walk
from schemas.rules.guards.judge import Judge, Shape
from schemas.rules.guards.launch import MPI_KINDS, PADDLE_KINDS, TORCH_KINDS, Launch
from schemas.rules.guards.launcher_choice import SCRIPT, judge_choice, judge_strangers, launches_of
from schemas.rules.guards.other_worlds import deepspeed, mpi, paddle
from schemas.rules.guards.parallelism import judge_parameters
from schemas.rules.guards.some_nodes import judge_nodes
from schemas.rules.guards.torch_world import accelerate, torchrun
from schemas.rules.guards.variables import judge_untold, judge_variables
from schemas.rules.guards.words import Unknowns, Unreadable
from schemas.rules.hyper_params import variable_name

_WORLDS = {
    **dict.fromkeys(TORCH_KINDS, torchrun),
    "accelerate": accelerate,
    "deepspeed": deepspeed,
    **dict.fromkeys(PADDLE_KINDS, paddle),
    **dict.fromkeys(MPI_KINDS, mpi),
}

# What training.launcher may say; `script`: the script itself starts one process a card.
LAUNCHERS = (*_WORLDS, SCRIPT)

__all__ = ["LAUNCHERS", "command_findings"]


def command_findings(
    training: Mapping[str, Any], task: Mapping[str, Any], framework: str
) -> tuple[list[Finding], list[Finding]]:
    """Errors and warnings. training, task: normalised, without the fields that were refused. framework: the declared
    one, "" where it is none. Total: no input raises."""
    shape = Shape(framework, training.get("n_nodes"), training.get("per_node_gpu"), "image" in task)
    parameters: Mapping[str, str] = training.get("hyper_params", {})
    environment = _known(shape, parameters, task.get("env", {}))
    command: str | Sequence[str] | None = task.get("command")
    found: Walk | None = None
    launches: list[Launch] = []
    judge = Judge(shape, Unknowns(), environment)
    if command is not None:
        try:
            found = walk(command, environment)
        except (Unreadable, RecursionError) as error:
            said = f"cannot be read as a shell reads it, so its launcher is not checked: {error}"
            judge.warn("unreadable_command", said, "Close its quotes and brackets, or put it into a script.")
        else:
            judge.unknowns = found.unknowns
            launches = launches_of(found)
            judge_choice(found, launches, training.get("launcher"), judge)
            for launch in launches:
                _WORLDS[launch.kind](launch, judge)
            judge_variables(found, launches, judge)
            judge_untold(found, launches, judge)
            judge_nodes(found, launches, judge)
            judge_typing(command, found, launches, judge)
            _of_bash(found, judge)
            if not judge.errors:  # a mistyped launcher has been told by then
                judge_strangers(found, launches, training.get("launcher"), judge)
    judge_parameters(parameters, found, launches, judge)
    return judge.errors, judge.warnings


def _known(shape: Shape, parameters: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Variables whose value is the same on every node and known now."""
    known = dict(env) | {variable_name(key): value for key, value in parameters.items()}
    for names, count in (
        (("NNODES", "PET_NNODES", "PADDLE_NNODES", "JAX_NUM_PROCESSES"), shape.nodes),
        (("NPROC_PER_NODE", "LOCAL_WORLD_SIZE", "PET_NPROC_PER_NODE", "PADDLE_NPROC_PER_NODE"), shape.cards),
        (("WORLD_SIZE",), shape.world),
    ):
        if count is not None:
            known |= dict.fromkeys(names, str(count))
    return known


def _of_bash(found: Walk, judge: Judge) -> None:
    if used := list(dict.fromkeys(judge.shown(what) for what in found.of_bash)):
        said = (
            f"uses {', '.join(used[:4])}, which bash knows, but /bin/sh runs it, and that is dash on Debian and Ubuntu"
        )
        judge.warn("needs_bash", said, "Write bash -c '…' around the command (with a pipe: bash -o pipefail -c '…').")
