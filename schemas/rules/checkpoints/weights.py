"""Which files of a checkpoint are weights, wherever its trainer puts them, and whether these can be loaded together."""

import re
from collections.abc import Collection, Iterator, Mapping

from schemas.rules.checkpoints.deepspeed import TRACKER
from schemas.rules.checkpoints.names import is_silly_rename, shown
from schemas.rules.checkpoints.view import Directory, Incomplete, Kind, Stat, opened
from schemas.rules.checkpoints.whole_files import SAME_SAVE_NS, refuse_leftovers, require_shards, require_whole

_ENDS = r"\.(?:safetensors|bin|pt|pth|pdparams|h5|msgpack)\Z"
# Under any name: trainers of one's own, and models that save each of their modules in a directory.
_WEIGHTS = re.compile(
    r"(?!rng_state|random_states|custom_checkpoint|optimizer|scheduler|scaler|sampler|dl_state|training_args|\.)"
    rf".*{_ENDS}"
)
_KNOWN = re.compile(rf"(?:adapter_)?(?:pytorch_)?model(?:_fsdp|_state|_[0-9]+)?(?:-[0-9]+-of-[0-9]+)?{_ENDS}")
_BESIDE = re.compile(r"(?:optimizer|scheduler|scaler).*\.(?:safetensors|bin|pt|pth|pdopt)\Z")
_SHARD = re.compile(r"(?P<stem>(?:adapter_|pytorch_)?model)-[0-9]{5}-of-[0-9]{5}(?P<end>\.(?:safetensors|bin))\Z")


def has_weights(names: Mapping[str, Kind]) -> bool:
    return any(_WEIGHTS.match(name) for name in names)


def require_loadable(names: Mapping[str, Kind]) -> None:
    """Raises Incomplete over a file without that the weights beside it are not found."""
    for name in sorted(names):
        if (match := _SHARD.match(name)) and (index := f"{match['stem']}{match['end']}.index.json") not in names:
            raise Incomplete(f"{index} is missing, without which the numbered files cannot be loaded")
    adapter = any(name.startswith("adapter_model") for name in names)
    if adapter and "adapter_config.json" not in names:
        raise Incomplete("adapter_config.json is missing, without which the adapter cannot be loaded")
    if not adapter and "adapter_config.json" in names:
        raise Incomplete("adapter_model.safetensors is missing, though adapter_config.json is here")


def modules(directory: Directory, names: Mapping[str, Kind], parts: Collection[str]) -> Iterator[str]:
    """Directories with weights in them, those of `parts` aside: an adapter that is not called `default`, a module of
    sentence-transformers, what diffusers saves. Raises Incomplete over what is not whole there."""
    for part, kind in sorted(names.items()):
        if kind != "directory" or part in parts or part.startswith((".", "global_step")):
            continue
        with directory.open(part) as inner:
            found = inner.names()
            if TRACKER in found or not (has_weights(found) or "adapter_config.json" in found):
                continue
            try:
                refuse_leftovers(found)
                require_shards(inner, found)
                require_loadable(found)
                require_whole(inner, found)
            except Incomplete as why:
                raise Incomplete(f"{shown(part)}: {why}") from why
        yield part


def require_older(
    directory: Directory, marker: str, parts: Collection[str], inside: Collection[str], written: Stat
) -> None:
    """A save over an older one leaves the older `marker` until it ends: then what is written before it is newer. parts:
    distributed checkpoints below, and the tag of DeepSpeed; inside: modules. Raises Incomplete."""
    for path, found in _written_before(directory, parts, inside):
        if found.mtime_ns > written.mtime_ns + SAME_SAVE_NS:
            raise Incomplete(
                f"{shown(path)} is newer than {marker}: a save over an older one did not finish (or a copy did not "
                f"keep the times; then run `touch {marker}` in it)"
            )


def _written_before(
    directory: Directory, parts: Collection[str], inside: Collection[str]
) -> Iterator[tuple[str, Stat]]:
    names = directory.names()
    # Beside parts, weights are an export, made by hand at any time; and so are those of a name that is not known.
    weights = _KNOWN if any(_KNOWN.match(name) for name in names) else _WEIGHTS
    below = {"": _BESIDE} | dict.fromkeys(parts, re.compile(r"\.metadata\Z|.*\.pt\Z"))
    if not parts:
        below = dict.fromkeys(("", *inside), re.compile(f"{weights.pattern}|{_BESIDE.pattern}"))
    for part, wanted in below.items():
        with opened(directory, part) as inner:
            for name, kind in sorted(inner.names().items()):
                if kind == "file" and wanted.match(name) and not is_silly_rename(name):
                    yield f"{part}/{name}" if part else name, inner.stat(name)
