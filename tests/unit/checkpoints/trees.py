"""The samples, unpacked once a process, copies to damage, and the probe as the agent runs it."""

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path

from agentd.checkpoints.fenced import open_fenced
from schemas.rules.checkpoints.memory import MemoryDirectory, MemoryFile
from schemas.rules.checkpoints.probe import Probe, probe
from tests.unpacked import unpack

ARCHIVE = Path(__file__).parents[2] / "data" / "checkpoints" / "samples.tar.gz"


@functools.cache
def samples() -> Path:
    place = tempfile.mkdtemp(prefix="heteroflow-checkpoints-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    unpack(ARCHIVE, Path(place))
    return Path(place)


def copied(sample: str, place: Path) -> Path:
    """With times."""
    return Path(shutil.copytree(samples() / sample, place / "tree", dirs_exist_ok=True))


def probed(path: Path, framework: str, world: int | None = None) -> Probe:
    with open_fenced(os.path.realpath(path)) as root:
        return probe(root, framework, world)


def why(found: Probe, name: str) -> str:
    """The reason of one rejected name; fails where it was not rejected."""
    return dict(found.rejected)[name]


def in_memory(path: Path) -> MemoryDirectory:
    tree = MemoryDirectory()
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            tree.entries[entry.name] = in_memory(Path(entry.path))
        else:
            tree.entries[entry.name] = MemoryFile(Path(entry.path).read_bytes(), entry.stat().st_mtime_ns)
    return tree


def files_below(tree: MemoryDirectory, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, entry in sorted(tree.entries.items()):
        path = (*above, name)
        found += files_below(entry, path) if isinstance(entry, MemoryDirectory) else [path]
    return found
