"""Distributed checkpoints saved with `use_collectives=False`: each rank lists its own shards, and nothing says that all
have ended. The layout is that of torch 2.13 with three processes."""

import os
from pathlib import Path

import pytest

from tests.unit.checkpoints.test_inert_pickle import metadata
from tests.unit.checkpoints.trees import probed, why


def saved(root: Path, step: int, world: int = 3) -> None:
    place = root / f"step-{step}"
    place.mkdir(parents=True)
    for rank in range(world):
        (place / f"__{rank}_0.distcp").write_bytes(bytes(100))
        (place / f"__{rank}.metadata").write_bytes(metadata([(f"__{rank}_0.distcp", 0, 100)]))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    saved(tmp_path, 10)
    saved(tmp_path, 20)
    return tmp_path


def test_a_whole_one_is_the_newest(root: Path):
    found = probed(root, "fsdp")
    assert (found.pick, found.step, found.rejected) == ("step-20", 20, [])


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        (("__2.metadata",), "__2.metadata, which rank 2 writes when its shards are, is missing"),
        (("__1.metadata", "__1_0.distcp"), "__1.metadata is missing"),
        (("__2.metadata", "__2_0.distcp"), "__2.metadata, __2_0.distcp missing, which step-10 before it has"),
        (("__0_0.distcp",), "__0_0.distcp missing: __0.metadata names 1 shards, 0 are here"),
        (
            ("__0.metadata", "__1.metadata", "__2.metadata"),
            ".metadata, which is written when all shards are, is missing",
        ),
    ],
)
def test_a_rank_that_did_not_end(root: Path, gone: tuple[str, ...], said: str):
    for name in gone:
        (root / "step-20" / name).unlink()
    found = probed(root, "fsdp")
    assert found.pick == "step-10" and said in why(found, "step-20")


def test_a_shard_that_does_not_fit_its_own_metadata(root: Path):
    shard = root / "step-20" / "__1_0.distcp"
    before = shard.stat()
    os.truncate(shard, 99)
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert why(probed(root, "fsdp"), "step-20") == "__1_0.distcp is cut short: 99 of 100 bytes"
    os.truncate(shard, 100)
    os.utime(shard, (2**33, 2**33))
    assert "__1_0.distcp is newer than __1.metadata" in why(probed(root, "fsdp"), "step-20")


def test_the_number_of_ranks_where_it_is_known(root: Path):
    assert probed(root, "fsdp", world=3).pick == "step-20"
    found = probed(root, "fsdp", world=4)
    assert found.pick is None and why(found, "step-20") == "holds the parts of 3 ranks, 4 wrote it"
