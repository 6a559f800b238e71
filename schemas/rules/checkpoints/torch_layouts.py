"""What trainers on PyTorch save: directories with a step in the name, told apart by their files; Lightning files."""

import re
from collections.abc import Iterable, Mapping
from functools import partial

from schemas.rules.checkpoints.accelerate import has_random_states, is_accelerate, judge_accelerate
from schemas.rules.checkpoints.candidate import Candidate, Found, directories, lacks_parts
from schemas.rules.checkpoints.dcp import METADATA, is_dcp, judge_dcp
from schemas.rules.checkpoints.deepspeed import is_deepspeed, judge_deepspeed, judge_inside
from schemas.rules.checkpoints.lightning import END as LIGHTNING_END
from schemas.rules.checkpoints.lightning import lightning_files
from schemas.rules.checkpoints.marked import MARKER, is_marked, judge_marked, loose_files
from schemas.rules.checkpoints.names import StepName, step_of
from schemas.rules.checkpoints.trainer import STATE, is_trainer, judge_trainer
from schemas.rules.checkpoints.view import Directory, Incomplete, Kind, Unknown
from schemas.rules.checkpoints.weights import require_older
from schemas.rules.checkpoints.whole_files import (
    SAME_SAVE_NS,
    refuse_leftovers,
    require_file,
    require_shards,
    require_whole,
    require_zip,
)

_RECIPE_DIRECTORY, _RECIPE_FILE = "recipe_state", "recipe_state.pt"
_FILES = (LIGHTNING_END, ".pth")
# Beside shards: of the loop, in every save; and weights, an export made by hand at any time, with files of its own.
_BESIDE = re.compile(r"\.complete\Z|[^.].*\.(?:pt|pth|pkl|json|npz)\Z")
_EXPORT = re.compile(r".*(?:model|weights|consolidated)[^/]*\.(?:pt|pth|bin|safetensors|index\.json)\Z")
_EVIDENCE = frozenset((STATE, MARKER))


def find_torch(place: Directory, deepspeed: bool = False) -> Found:
    """deepspeed: whether tags of DeepSpeed count too."""
    names = place.names()
    found = directories(
        {name: kind for name, kind in names.items() if not (kind == "file" and name.endswith(_FILES))},
        partial(_order, deepspeed),
        partial(_judge, deepspeed),
        _lacks,
    )
    if names.get(_RECIPE_DIRECTORY) == "directory":
        _bind_recipe(found)
    lightning_files(place, names, found)
    loose_files(names, found)
    return found


def _order(deepspeed: bool, name: str) -> StepName | None:
    """`iter_500.pth` may be a directory: where MMEngine has DeepSpeed save."""
    return None if deepspeed and name.startswith("global_step") else step_of(name.removesuffix(".pth"))


def _lacks(names: Iterable[str], before: Iterable[str]) -> frozenset[str]:
    """What says by its name alone that it is finished has to have all that the one before it has. A distributed
    checkpoint has to have what a script saves beside it, before or after `.metadata`."""
    listed, had = frozenset(names), frozenset(before)
    if listed & _EVIDENCE or has_random_states(listed):
        return lacks_parts(listed, had)
    if METADATA not in listed:
        return had - listed
    exported = any(_EXPORT.match(name) for name in had - listed)
    return lacks_parts(listed, had) | (frozenset() if exported else frozenset(filter(_BESIDE.match, had - listed)))


def _judge(deepspeed: bool, name: str, directory: Directory) -> None:
    names = directory.names()
    refuse_leftovers(names)
    if name.endswith(LIGHTNING_END):
        _judge_lightning_directory(directory, names)
    elif STATE in names:
        judge_trainer(name, directory)
    elif METADATA in names:
        judge_dcp(directory)
        require_whole(directory, (inner for inner in names if _BESIDE.match(inner) and not _EXPORT.match(inner)))
    elif has_random_states(names) or (is_accelerate(name, names) and not is_dcp(names)):
        judge_accelerate(directory, names)
    elif is_dcp(names):
        judge_dcp(directory)
    elif is_deepspeed(names):
        if not deepspeed:
            raise Unknown("is of DeepSpeed, which is not the framework of this group")
        judge_deepspeed(directory)
    elif is_trainer(name, names):
        judge_trainer(name, directory)
    elif any(inner.endswith(".index.json") for inner in names):
        raise Incomplete("holds weights only, without optimizer and step: there is nothing to resume")
    elif is_marked(name, names):
        judge_marked(name, directory)
    elif all(inner.endswith(LIGHTNING_END) for inner in names):
        raise Incomplete("is no checkpoint itself: files of Lightning (*.ckpt) are looked for above it, and in epoch=N")
    else:
        raise Unknown(
            "nothing in it tells that it was written to the end: no known layout, no .complete, not named step-N"
        )


def _judge_lightning_directory(directory: Directory, names: Mapping[str, Kind]) -> None:
    if "latest" in names:
        judge_inside(directory)
        return
    if "checkpoint" in names and not is_dcp(names):
        with directory.open("checkpoint") as inner:
            if is_deepspeed(inner.names()):
                judge_deepspeed(inner)
                return
    judge_dcp(directory)
    found = require_file(directory, "meta.pt")
    require_zip(directory, "meta.pt", found.size, alone=False)
    require_older(directory, "meta.pt", [""], [], found)


def _bind_recipe(found: Found) -> None:
    """torchtune keeps one recipe_state for all epochs, written after the weights: it belongs to the newest alone."""
    epochs = [item for item in found.candidates if item.name.startswith(("epoch_", "step_"))]
    newest = max((item.order.newer for item in epochs), default=None)
    for item in epochs:
        judge = partial(_judge_recipe, item.name, item.order.newer == newest)
        found.candidates[found.candidates.index(item)] = Candidate(item.name, item.order, judge)


def _judge_recipe(name: str, newest: bool, place: Directory) -> None:
    with place.open(name) as directory:
        names = directory.names()
        refuse_leftovers(names)
        if is_dcp(names):
            judge_dcp(directory)
            return
        require_shards(directory, names)
        if not any(inner.endswith(".index.json") for inner in names):
            raise Incomplete("has no index of its weights (model.safetensors.index.json)")
        require_whole(directory, names)
        written_ns = max(directory.stat(inner).mtime_ns for inner in names)
    if not newest:
        raise Incomplete(f"{_RECIPE_DIRECTORY}/{_RECIPE_FILE}, one for all, belongs to a newer one")
    with place.open(_RECIPE_DIRECTORY) as recipe:
        state = require_file(recipe, _RECIPE_FILE)
        require_zip(recipe, _RECIPE_FILE, state.size, alone=True)
    if state.mtime_ns + SAME_SAVE_NS < written_ns:
        raise Incomplete(f"{_RECIPE_DIRECTORY}/{_RECIPE_FILE}, which is written last, is older than its weights")
