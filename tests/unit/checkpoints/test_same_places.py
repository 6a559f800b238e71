"""A pickle that says the same of all places as the one before is told from one that does not, without being read."""

import os
from array import array
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.rules.checkpoints import dcp
from schemas.rules.checkpoints.inert_pickle import TooLarge
from schemas.rules.checkpoints.same_places import ReadPickle
from schemas.rules.checkpoints.view import Incomplete
from tests.unit.checkpoints.test_inert_pickle import Metadata, metadata
from tests.unit.checkpoints.trees import copied, probed, samples, why


def read(data: bytes) -> ReadPickle:
    texts = array("Q")
    names = dcp._shard_ends(dcp.METADATA, data, texts)
    return ReadPickle(data, texts, dcp._FIELDS | {name.encode() for name in names})


def ends(data: bytes) -> dict[str, int] | None:
    try:
        return dcp._shard_ends(dcp.METADATA, data, array("Q"))
    except (Incomplete, TooLarge):
        return None


def saved(*pieces: tuple[str, int, int], step: str = "step-10", **more: object) -> bytes:
    return metadata(pieces, storage_meta=Metadata(checkpoint_id=step, save_id="cbd26305-8357-459a"), **more)


ONE = ("__0_0.distcp", 0, 10), ("__1_0.distcp", 5, 7)


@pytest.mark.parametrize("sample", ["pytorch-fsdp2-dcp/complete", "pytorch-fsdp2-dcp/async-complete", "torchtitan"])
def test_saves_of_one_real_job_say_the_same(sample):
    place = samples() / ("layout-only/torchtitan/complete/checkpoint" if sample == "torchtitan" else sample)
    one, other = ((place / step / ".metadata").read_bytes() for step in ("step-10", "step-20"))
    assert one != other and ends(one) == ends(other)
    assert read(one).says_the_same_as(other) and read(other).says_the_same_as(one)


@pytest.mark.parametrize(
    "other",
    [
        saved(("__0_0.distcp", 0, 10), ("__2_0.distcp", 5, 7)),
        saved(("__0_0.distcp", 0, 10), ("__1_0.distcp", 6, 7)),
        saved(("__0_0.distcp", 0, 10), ("__1_0.distcp", 5, 8)),
        saved(*ONE, step="step-100"),
        saved(*ONE, a=1),
        saved(*ONE)[:-1] + b"N",
        saved(*ONE).replace(b"step-10", b"step-1\xff"),
        # What is no field of a place becomes one, and the other way round.
        saved(*ONE).replace(b"checkpoint_id", b"relative_path"),
        saved(*ONE).replace(b"storage_data", b"storage_meta"),
        b"",
    ],
)
def test_others_are_read(other):
    assert not read(saved(*ONE)).says_the_same_as(other)


def test_another_step_and_id_say_the_same():
    assert read(saved(*ONE)).says_the_same_as(saved(*ONE, step="step-99").replace(b"cbd26305", b"00000000"))


SHARD = st.sampled_from(["__0_0.distcp", "__1_0.distcp", "__2_0.distcp"])
PIECES = st.lists(st.tuples(SHARD, st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=4)
TEXT = st.sampled_from(
    ["step-10", "step-11", "storage_data", "relative_path", "offset", "length", "__1_0.distcp", "ab"]
)


@settings(max_examples=300, deadline=None)
@given(
    one=PIECES,
    other=PIECES,
    texts=st.lists(st.tuples(TEXT, TEXT), max_size=3),
    others=st.lists(st.tuples(TEXT, TEXT), max_size=3),
    same_pieces=st.booleans(),
    hit=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=2),
)
def test_what_says_the_same_has_the_same_places(one, other, texts, others, same_pieces, hit):
    first = saved(*one, extra=[dict([pair]) for pair in texts])
    second = bytearray(saved(*(one if same_pieces else other), extra=[dict([pair]) for pair in others]))
    for at, byte in hit:
        second[at % len(second)] = byte
    if read(first).says_the_same_as(bytes(second)):
        assert ends(bytes(second)) == ends(first)


def test_a_fault_of_one_shard_is_seen_in_each_save(tmp_path: Path):
    """The second one is judged by what was read of the first: its own files count all the same."""
    tree = copied("pytorch-fsdp2-dcp/complete", tmp_path)
    for step, size in (("step-20", 45_000), ("step-10", 44_000)):
        shard = tree / step / "__1_0.distcp"
        before = shard.stat()
        os.truncate(shard, size)
        os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    found = probed(tree, "fsdp")
    assert found.pick is None
    assert why(found, "step-20") == "__1_0.distcp is cut short: 45000 of 45721 bytes"
    assert why(found, "step-10") == "__1_0.distcp is cut short: 44000 of 45721 bytes"
    (tree / "step-10" / "__0_0.distcp").unlink()
    assert "__0_0.distcp missing: .metadata names 2 shards" in why(probed(tree, "fsdp"), "step-10")


def test_metadata_of_another_save_has_its_own_places(tmp_path: Path):
    tree = copied("pytorch-fsdp2-dcp/complete", tmp_path)
    (tree / "step-20" / ".metadata").write_bytes(metadata([("__0_0.distcp", 0, 1 << 40)]))
    os.utime(tree / "step-20" / ".metadata", (2**33, 2**33))
    found = probed(tree, "fsdp")
    assert found.pick == "step-10" and "cut short" in why(found, "step-20")
