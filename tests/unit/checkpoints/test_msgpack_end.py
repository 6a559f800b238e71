"""flax's checkpoints of one file: whole by the structure of msgpack, at any size of its parts."""

import os
import struct

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.rules.checkpoints.memory import MemoryDirectory, MemoryFile
from schemas.rules.checkpoints.msgpack_end import ITEMS_MAX, require_msgpack
from schemas.rules.checkpoints.view import Incomplete
from tests.unit.checkpoints.trees import probed, why

ARRAYS = st.binary(max_size=70) | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=40))
PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=40)
LEAVES = ARRAYS | PLAIN
STATES = st.dictionaries(
    st.text(max_size=40),
    st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=20)),
    max_size=20,
)


def judged(data: bytes) -> str | None:
    """What is wrong."""
    try:
        require_msgpack(MemoryDirectory({"checkpoint_1": MemoryFile(data)}), "checkpoint_1", len(data))
    except Incomplete as why:
        return str(why)
    return None


@settings(max_examples=150, deadline=None)
@given(state=STATES, data=st.data())
def test_any_state_is_whole_and_no_part_of_it(state, data):
    packed = msgpack.packb(state)
    assert judged(packed) is None
    cut = data.draw(st.integers(1, len(packed) - 1)) if len(packed) > 1 else None
    assert cut is None or "cut short" in str(judged(packed[:cut]))
    assert "ends at" in str(judged(packed + b"\0"))


@pytest.mark.parametrize("size", [200, 300, 70_000, 200_000])
def test_arrays_and_tables_of_any_size(size):
    """Longer than what is read at once, too."""
    for state in (
        {"w": bytes(size), "b": bytes(3)},
        {"w": msgpack.ExtType(1, bytes(size)), "b": 1},
        {"w": "x" * size, "b": [bytes(size), bytes(size)]},
        {"w": list(range(min(size, 66_000))), "b": 1},
        {"w": {str(at): at for at in range(min(size, 66_000))}, "b": 1},
    ):
        packed = msgpack.packb(state)
        assert judged(packed) is None
        assert all("cut short" in str(judged(packed[:-less])) for less in (1, 2, 100))


@pytest.mark.attack(12)
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xdf\xff\xff\xff\xff", "cut short"),
        (b"\xdf\xff\xff\xff\xff" + b"\xc0" * (ITEMS_MAX + 1), f"more than {ITEMS_MAX} items"),
        (b"\x81" + b"\x91" * (ITEMS_MAX + 1), f"more than {ITEMS_MAX} items"),
        (b"\x81\xa1a\xc6\xff\xff\xff\xff", "cut short"),
        (b"\x81\xa1a\xc1", "damaged"),
        (b"not at all", "no state of flax"),
        (struct.pack(">BI", 0xDD, 2) + b"\xc0\xc0", "no state of flax"),
        (bytes(4096), "no state of flax"),
    ],
)
def test_what_was_made_to_hurt_ends_at_once(data, said):
    assert said in str(judged(data))


def test_the_newest_whole_file_of_flax(tmp_path):
    packed = msgpack.packb({"params": {"w": bytes(100_000)}, "step": 1})
    for step in (900, 1000):
        (tmp_path / f"checkpoint_{step}").write_bytes(packed)
    found = probed(tmp_path, "jax")
    assert (found.pick, found.step, found.rejected) == ("checkpoint_1000", 1000, [])
    for size in (len(packed) - 1, 50_000, 1, 0):
        os.truncate(tmp_path / "checkpoint_1000", size)
        found = probed(tmp_path, "jax")
        assert found.pick == "checkpoint_900" and why(found, "checkpoint_1000")


def test_arrays_of_several_hosts_lie_beside_it(tmp_path):
    (tmp_path / "checkpoint_10").write_bytes(msgpack.packb({"w": "//GDAPlaceholder:w"}))
    arrays = tmp_path / "checkpoint_10_gda"
    arrays.mkdir()
    assert "other hosts" in why(probed(tmp_path, "jax"), "checkpoint_10")
    (arrays / "commit_success.txt").touch()
    assert probed(tmp_path, "jax").pick == "checkpoint_10"
