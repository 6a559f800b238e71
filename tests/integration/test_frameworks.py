"""Real launchers over a mesh: one world, a stop in mid-run that saves, and the same job again that goes on from there.

`torchrun` itself is in tests/docker/test_torchrun.py; those that need more are run by scripts/frameworks.
"""

import dataclasses
import importlib.util
from pathlib import Path

import pytest

from scripts.framework_world import World
from scripts.frameworks_run import KINDS, environment_of
from tests.docker.engine import torch_environment

pytestmark = [pytest.mark.need("torch"), pytest.mark.slow, pytest.mark.timeout(300)]
WAIT_S = 120.0


@pytest.fixture
def world():
    with World(WAIT_S) as made:
        yield made


@pytest.fixture
def numpy_alone(tmp_path):
    """A directory with the numpy of this environment and nothing else of it: torch's has none."""
    found = importlib.util.find_spec("numpy")
    assert found is not None and found.origin is not None
    for package in Path(found.origin).parents[1].glob("numpy*"):
        if package.is_dir():
            (tmp_path / package.name).symlink_to(package)
    return tmp_path


def train(world, name, environment, variables):
    # Of one card a node: the machine's cores are few, and every process loads torch.
    job = dataclasses.replace(KINDS[name].job, cards=1, env=variables)
    seen = world.train(name, job, f"PATH={environment}/bin:$PATH; {job.command}")
    assert (seen.ranks, seen.world) == ([0, 1], 2), name
    assert seen.loss == seen.resumed_loss and seen.went_on_to > seen.stopped_at >= 20, name


def test_one_world_stops_with_a_checkpoint_and_goes_on_from_it(world, numpy_alone):
    for name in ("torch.distributed.run", "fsdp"):
        train(world, name, torch_environment(), {"PYTHONPATH": str(numpy_alone)})


@pytest.mark.need("accelerate")
def test_accelerate_does_too(world):
    train(world, "accelerate", environment_of(KINDS["accelerate"], torch_environment()), {})
