"""What each framework's ranks are given: variables and generated files, as pure functions of document and placement.

The agent starts tasks by them, and `heteroflow render` shows them. The page for users is docs/frameworks.md.
"""

from collections.abc import Callable, Mapping
from typing import Any

from schemas.rules.frameworks import deepspeed, fsdp, jax, megatron, paddle, tensorflow
from schemas.rules.frameworks.interface import backend_hint, sockets
from schemas.rules.frameworks.one_node import mpi, threads
from schemas.rules.frameworks.parameters import Parameters
from schemas.rules.frameworks.placement import Given, Placement, PlacementIncomplete

FRAMEWORKS = ("ddp", "fsdp", "deepspeed", "megatron", "tensorflow", "paddle", "jax")
# They listen on every node: the addresses of all are needed before the first starts.
NEED_ADDRESSES = frozenset(("tensorflow", "paddle"))
LISTEN_EVERYWHERE = frozenset(("tensorflow",))
_ONE_PROCESS = frozenset(("tensorflow", "jax"))
_GIVEN: dict[str, Callable[[Parameters, Placement], Given]] = {
    "fsdp": fsdp.given,
    "deepspeed": deepspeed.given,
    "megatron": megatron.given,
    "tensorflow": tensorflow.given,
    "paddle": paddle.given,
    "jax": jax.given,
}

__all__ = [
    "FRAMEWORKS", "LISTEN_EVERYWHERE", "NEED_ADDRESSES", "Given", "Placement", "PlacementIncomplete", "given_to"
]  # fmt: skip


def given_to(document: Mapping[str, Any], placement: Placement) -> Given:
    """document: normalised. Raises PlacementIncomplete."""
    training, task = document.get("training") or {}, document.get("task") or {}
    framework = training.get("framework")
    make = _GIVEN.get(str(framework))
    made = make(Parameters(training.get("hyper_params") or {}), placement) if make else Given()
    if framework == "ddp" and placement.nodes == 1:
        made = mpi(placement)
    # Without a framework a rank is one program, and may have no cards.
    processes = 1 if framework is None or framework in _ONE_PROCESS else placement.cards
    defaults = {**made.defaults, **threads(task, placement, processes), **sockets(placement)}
    return Given({**made.env, **backend_hint(placement)}, defaults, made.files)
