"""Bundles are made once for all tests here: half a minute of pip."""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.netns.bundles import ROOT, next_commit, unpacked_bundle
from tests.parts import missing

# The interpreter itself and not that of a virtual environment: an installed version is no child of the checkout's.
PYTHON = str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")


class Bundles(NamedTuple):
    """first: of this tree. second: of a commit after it. broken: of one whose agent does not start."""

    first: Path
    second: Path
    broken: Path


@contextlib.contextmanager
def in_memory() -> Iterator[Path]:
    """A directory for some hundred megabytes of small files, which no other program's fsync holds up."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 4 << 30
    with tempfile.TemporaryDirectory(prefix="heteroflow-", dir=memory if roomy else None) as directory:
        yield Path(directory)


@pytest.fixture
def place() -> Iterator[Path]:
    with in_memory() as directory:
        yield directory


@pytest.fixture(scope="session")
def bundles() -> Iterator[Bundles]:
    if why := missing("netns"):
        pytest.skip(why)
    with in_memory() as directory:
        yield make_bundles(directory)


def make_bundles(directory: Path) -> Bundles:
    second = next_commit(directory / "later", "README.md", "\nLater.\n")
    broken = next_commit(
        directory / "worse", "agentd/daemon.py", '\nraise RuntimeError("this version does not start")\n'
    )
    return Bundles(
        unpacked_bundle(ROOT, directory / "first"),
        unpacked_bundle(second, directory / "second"),
        unpacked_bundle(broken, directory / "broken"),
    )
