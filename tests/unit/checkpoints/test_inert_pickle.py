"""Pickles are read as opcodes: the facts of a real one come out, a hostile one runs nothing and costs little."""

import os
import pickle
import pickletools
import resource
import subprocess
import sys
import time
from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.rules.checkpoints import dcp, inert_pickle
from schemas.rules.checkpoints.inert_pickle import Node, NoPickle, read_facts
from tests.unit.checkpoints.trees import copied, probed, samples, why


class Metadata:
    """Pickled like the class of torch.distributed.checkpoint."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


class Key:
    def __init__(self, number):
        self.number = number

    def __hash__(self):
        return self.number


def metadata(pieces, protocol=4, **more):
    storage = {Key(at): Metadata(relative_path=n, offset=o, length=length) for at, (n, o, length) in enumerate(pieces)}
    return pickle.dumps(Metadata(state_dict_metadata={}, storage_data=storage, **more), protocol)


class Runs:
    """What a hostile checkpoint is: an object whose loading calls a function."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_facts(protocol):
    facts = read_facts(metadata([("__0_0.distcp", 0, 10), ("__1_0.distcp", 2**40, 7)], protocol))
    found = [(piece.fields["relative_path"], piece.fields["offset"]) for piece in facts.fields["storage_data"].values]
    assert found == [("__0_0.distcp", 0), ("__1_0.distcp", 2**40)]


def test_a_real_one():
    facts = read_facts((samples() / "pytorch-fsdp2-dcp/complete/step-20/.metadata").read_bytes())
    pieces = [piece.fields for piece in facts.fields["storage_data"].values]
    assert {piece["relative_path"] for piece in pieces} == {"__0_0.distcp", "__1_0.distcp"}
    assert max(piece["offset"] + piece["length"] for piece in pieces) == 45_721


@pytest.mark.attack(9)
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_hostile_metadata_executes_nothing(tmp_path, protocol):
    touched = tmp_path / "owned"
    loaded_here = pickle.dumps(Runs(touched), protocol)
    pickle.loads(loaded_here)  # noqa: S301 - that it is hostile indeed
    assert touched.exists()
    touched.unlink()
    tree = copied("pytorch-fsdp2-dcp/complete", tmp_path)
    hostile = pickle.dumps(Metadata(storage_data={Key(1): Runs(touched)}), protocol)
    for data in (loaded_here, hostile, b"cos\nsystem\n(S'touch " + os.fsencode(touched) + b"'\ntR."):
        (tree / "step-20" / ".metadata").write_bytes(data)
        found = probed(tree, "fsdp")
        assert found.pick == "step-10" and why(found, "step-20").startswith(".metadata ")
    assert not touched.exists()


@pytest.mark.attack(9)
def test_no_module_is_imported(tmp_path):
    """In a process of its own: the module that a pickle names is not even looked for."""
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    tree = copied("pytorch-fsdp2-dcp/complete", tmp_path)
    (tree / "step-20" / ".metadata").write_bytes(b"\x80\x04cevil_module\nevil\n)R.")
    script = (
        "import sys; from tests.unit.checkpoints.trees import probed; from pathlib import Path\n"
        f"print(probed(Path({str(tree)!r}), 'fsdp').pick, 'evil_module' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), str(tmp_path)])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "step-10 False\n", done.stderr


@pytest.mark.attack(1, 9)
@pytest.mark.parametrize(
    "path", ["../../other-tenant/__0_0.distcp", "/etc/passwd", "..", "", "a/b", "__0_0.distcp\0", "\ud800"]
)
def test_a_shard_outside_the_directory(tmp_path, path):
    tree = copied("pytorch-fsdp2-dcp/complete", tmp_path)
    data = metadata([(path.encode("utf-8", "replace").decode(), 0, 1)])
    if path == "\ud800":
        data = data.replace(b"?", b"\xed\xa0\x80").replace(b"\x8c\x01\xed", b"\x8c\x03\xed")
    (tree / "step-20" / ".metadata").write_bytes(data)
    found = probed(tree, "fsdp")
    assert found.pick == "step-10"
    assert "no single name" in why(found, "step-20") or "missing" in why(found, "step-20")


@pytest.mark.parametrize(
    "pieces", [[], [("__0_0.distcp", -1, 5)], [("__0_0.distcp", "0", 5)], [(7, 0, 5)], [("__0_0.distcp", 0, 1 << 80)]]
)
def test_facts_that_are_none(tmp_path, pieces):
    tree = copied("pytorch-fsdp2-dcp/complete", tmp_path)
    (tree / "step-20" / ".metadata").write_bytes(metadata(pieces))
    assert probed(tree, "fsdp").pick == "step-10"


BOMBS = {
    "nested tuples as a key": b"\x80\x04}" + b")" + b"\x85" * 900_000 + b"Ns.",
    "nested lists": b"\x80\x04" + b"]" * 900_000 + b"a" * 800_000 + b".",
    "doubling": b"\x80\x04]\x94" + b"(h\x00h\x00e" * 100_000 + b".",
    "many nodes": b"\x80\x04" + b"}" * 3_000_000 + b".",
    "a length of 2^62": b"\x80\x04\x8d" + (1 << 62).to_bytes(8, "little") + b"x.",
    "a number of a megabyte": b"\x80\x04\x8b" + (1 << 20).to_bytes(4, "little") + b"\xff" * (1 << 20) + b".",
    "memo far out": b"\x80\x04Nr\xff\xff\xff\x7fj\xff\xff\xff\x7f.",
    "marks": b"\x80\x04" + b"(" * 900_000 + b"t" * 900_000 + b".",
    "no end": b"\x80\x04" + b"N0" * 900_000,
    "a persistent id": b"\x80\x04Pabc\n.",
}


@pytest.mark.attack(9)
@pytest.mark.timeout(120)
def test_bombs_cost_little():
    """In a process of its own, whose memory is limited; a crash of it would be one of the agent."""
    script = (
        "import sys; from tests.unit.checkpoints.test_inert_pickle import BOMBS, defuse\n"
        "[defuse(data) for data in BOMBS.values()]; print('alive')"
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)),
    )
    assert done.stdout == "alive\n", (done.returncode, done.stderr[-500:])


def defuse(data):
    try:
        found = read_facts(data)
    except NoPickle:
        return
    assert isinstance(found, Node)


@pytest.mark.attack(9)
def test_too_much_is_refused(monkeypatch):
    monkeypatch.setattr(inert_pickle, "OPCODES_MAX", 10)
    with pytest.raises(NoPickle, match="more than 10 opcodes"):
        read_facts(b"\x80\x04" + b"N0" * 20 + b".")
    monkeypatch.setattr(inert_pickle, "BYTES_MAX", 5)
    with pytest.raises(NoPickle, match="more than 5 bytes"):
        read_facts(bytes(6))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner) | st.sets(st.text()),
    max_leaves=20,
)


@settings(max_examples=60, deadline=None)
@given(value=VALUES, protocol=st.integers(2, 5))
def test_whatever_python_pickles_is_read_to_its_end(value, protocol):
    data = pickle.dumps({"value": value, "more": OrderedDict(a=1)}, protocol)
    facts = read_facts(data)
    if type(value) in (str, bool, type(None)):
        assert facts.fields["value"] == value
    if type(value) is int and -(2**63) <= value < 2**63:
        assert facts.fields["value"] == value
    assert read_facts(pickletools.optimize(data)).fields.keys() == {"value", "more"}


@pytest.mark.attack(9)
@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=300))
def test_any_bytes(data):
    defuse(data)
    defuse(b"\x80\x04" + data)


def test_a_metadata_too_large_for_its_places_is_taken_by_its_names(tmp_path, monkeypatch):
    monkeypatch.setattr(inert_pickle, "OPCODES_MAX", 100)
    tree = copied("pytorch-fsdp2-dcp/complete", tmp_path)
    assert probed(tree, "fsdp").pick == "step-20"
    os.truncate(tree / "step-20" / "__1_0.distcp", 0)
    os.utime(tree / "step-20" / "__1_0.distcp", (1, 1))
    assert "__1_0.distcp is empty" in why(probed(tree, "fsdp"), "step-20")
    (tree / "step-20" / "__1_0.distcp").unlink()
    monkeypatch.setattr(dcp, "BYTES_MAX", 100)
    monkeypatch.setattr(dcp, "_CHUNK", 1000)
    assert probed(tree, "fsdp").pick == "step-10"
    assert "__1_0.distcp missing" in why(probed(tree, "fsdp"), "step-20")


def test_time_for_the_metadata_of_a_large_model():
    data = metadata([(f"__{at % 64}_0.distcp", at, 100) for at in range(5_000)])
    began = time.process_time()
    assert len(read_facts(data).fields["storage_data"].values) == 5_000
    assert time.process_time() - began < 10
