"""Real launchers over a mesh: one world, a stop in mid-run that saves, and the same job again that goes on from there.

`torchrun` itself is in tests/docker/test_torchrun.py; those that need more than torch are run by scripts/frameworks.
"""

import dataclasses
import importlib.util
from pathlib import Path

import pytest

from scripts.framework_world import World
from scripts.frameworks_run import KINDS
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


# One after another: torch listens on every address of the machine, and two young meshes give the same port.
def test_one_world_stops_with_a_checkpoint_and_goes_on_from_it(world, numpy_alone):
    for name in ("torch.distributed.run", "fsdp"):
        # Of one card a node: the machine's cores are few, and every process loads torch.
        job = dataclasses.replace(KINDS[name].job, cards=1, env={"PYTHONPATH": str(numpy_alone)})
        seen = world.train(name, job, f"PATH={torch_environment()}/bin:$PATH; {job.command}")
        assert (seen.ranks, seen.world) == ([0, 1], 2), name
        assert seen.loss == seen.resumed_loss and seen.went_on_to > seen.stopped_at >= 20, name
