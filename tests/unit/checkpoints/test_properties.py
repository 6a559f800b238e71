"""What holds for every tree: no crash, a pick has its evidence, and taking evidence away never makes more complete."""

import string
from collections.abc import Callable
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.rules.checkpoints.memory import MemoryDirectory, MemoryFile
from schemas.rules.checkpoints.names import is_single_name
from schemas.rules.checkpoints.probe import FRAMEWORKS, Probe, probe
from tests.unit.checkpoints.test_samples import COMPLETE, INTERRUPTED
from tests.unit.checkpoints.trees import files_below, in_memory, samples

SAMPLES = sorted({(row[0], row[1]) for row in (*COMPLETE, *INTERRUPTED)})
# Names that mean something to some rule, so that random trees come near to being checkpoints.
TELLING = [
    *"step-1 step-2 step_10 checkpoint-3 checkpoint_4 global_step5 iter_0000006 7 ckpt_8 epoch_9 last.ckpt".split(),
    *"epoch=0-step=3.ckpt .metadata .metadata.tmp __0_0.distcp __1_0.distcp 0_0.distcp 0.metadata latest".split(),
    *"metadata.json checkpoint checkpoints latest_checkpointed_iteration.txt trainer_state.json optimizer.pt".split(),
    *"model.safetensors model.safetensors.index.json model-00001-of-00002.safetensors rng_state_0.pth".split(),
    *"rng_state_1.pth random_states_0.pkl meta.pt meta.json .complete mp_rank_00 mp_rank_00_model_states.pt".split(),
    *"zero_pp_rank_0_mp_rank_00_optim_states.pt model_optim_rng.pt common.pt ckpt-5.index default".split(),
    *"ckpt-5.data-00000-of-00001 latest.weights.h5 training_metadata.json commit_success.txt recipe_state".split(),
    *"_CHECKPOINT_METADATA model.pdparams model.pdopt .checkpoint_done recipe_state.pt .heteroflow".split(),
    *"run-1.json .nfs0001 .tmp1 \udcff 0000000008 iter_9.pth nemo-step=4 nemo-step=4-unfinished weights".split(),
    *"checkpoint_7 checkpoint_7_gda epoch=3 ckpt.pt 5.pth.tar loop.pt".split(),
]
WORTH = [
    b"",
    b"\x82\xa1w\xc4\x02ab\xa1b\x01",
    b"\x82\xa1w\xc5",
    b"{}",
    b'{"global_step": 3, "step": 1, "world": 2, "epoch": 1, "sharded_backend": "x", "weight_map": {"a": "b"}}',
    b"PK\x05\x06" + bytes(18),
    b"PK\x03\x04" + bytes(30) + b"PK\x05\x06" + bytes(12) + b"\x22\0\0\0\0\0",
    b"\x80\x04}.",
    b"\x02\0\0\0\0\0\0\0{}",
    b"\x89HDF\r\n\x1a\n" + bytes(80),
    b"global_step5",
    b"6",
    b"release",
    bytes(64),
]
NAMES = st.sampled_from(TELLING) | st.text(string.printable.replace("/", ""), min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..")
)
FILES = st.builds(
    MemoryFile,
    st.sampled_from(WORTH) | st.binary(max_size=80),
    st.integers(0, 3),
    st.sampled_from(["file"] * 8 + ["link", "other"]),
)
LEAVES = st.builds(MemoryDirectory, st.dictionaries(NAMES, FILES, max_size=8))
INNER = st.builds(MemoryDirectory, st.dictionaries(NAMES, FILES | LEAVES, max_size=8))
TREES = st.builds(MemoryDirectory, st.dictionaries(NAMES, FILES | LEAVES | INNER, max_size=8))


def sound(found: Probe, tree: MemoryDirectory) -> None:
    assert found.reason and (found.pick is not None or found.step is None)
    assert all(text.isprintable() for row in (*found.rejected, (found.reason, found.tracker or "")) for text in row)
    if found.pick is not None:
        place: MemoryDirectory = tree
        *above, last = found.pick.split("/")
        for segment in above:
            place = place.open(segment)
        assert any(name.startswith(last) for name in place.entries) and is_single_name(last)
        assert found.pick not in dict(found.rejected)


@settings(max_examples=100, deadline=None)
@given(tree=TREES, framework=st.sampled_from(sorted(FRAMEWORKS)), world=st.none() | st.integers(1, 4))
def test_any_tree(tree, framework, world):
    sound(probe(tree, framework, world), tree)


def without(tree: MemoryDirectory, path: tuple[str, ...]) -> MemoryDirectory:
    return changed(tree, path, lambda place, name: place.entries.pop(name))


def changed(tree: MemoryDirectory, path: tuple[str, ...], change: Callable[[MemoryDirectory, str], object]):
    copy = deepcopy(tree)
    place = copy
    for segment in path[:-1]:
        place = place.open(segment)
    change(place, path[-1])
    return copy


def order(found: Probe, before: Probe) -> bool:
    """Whether `found` is no better than `before`: an older pick, the same or none."""
    if found.pick is None or found.pick == before.pick:
        return True
    return before.pick is not None and rank(found) <= rank(before)


def rank(found: Probe) -> tuple[int, ...]:
    digits = [int(part) for part in "".join(c if c.isdigit() else " " for c in str(found.pick)).split()]
    return (digits[-1],)


# What may make others complete when it is gone: a leftover of a save, a record that holds back.
HOLDS_BACK = ("latest_checkpointed_iteration.txt", "latest", ".metadata.tmp")


def world_of(sample: str) -> int:
    """How many ranks wrote it. Without that a rank of which nothing is left cannot be missed."""
    return 4 if "zero3" in sample else 2


@pytest.mark.attack(12)
@pytest.mark.parametrize(("sample", "framework"), SAMPLES)
def test_without_any_one_file_nothing_is_more_complete(sample, framework):
    tree = in_memory(samples() / sample)
    before = probe(tree, framework, world_of(sample))
    for path in files_below(tree):
        if path[-1] in HOLDS_BACK:
            continue
        found = probe(without(tree, path), framework, world_of(sample))
        sound(found, tree)
        assert order(found, before), (path, found, before)


@pytest.mark.attack(12)
@pytest.mark.parametrize(("sample", "framework"), SAMPLES)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_with_any_file_cut_short_nothing_is_more_complete(sample, framework, data):
    tree = in_memory(samples() / sample)
    before = probe(tree, framework)
    paths = [path for path in files_below(tree) if path[-1] not in HOLDS_BACK]
    path = data.draw(st.sampled_from(paths))
    share = data.draw(st.integers(0, 999))

    def cut(place: MemoryDirectory, name: str) -> None:
        entry = place.entries[name]
        assert isinstance(entry, MemoryFile)
        entry.data = entry.data[: len(entry.data) * share // 1000]

    found = probe(changed(tree, path, cut), framework)
    sound(found, tree)
    assert order(found, before), (path, found, before)


# Files whose loss the directory itself cannot show: the rule takes them as optional, or does not look inside.
OPTIONAL = [
    *"config.json generation_config.json README.md scheduler.pt scheduler.bin scheduler.pdparams common.pt".split(),
    *"rng_state.pth zero_to_fp32.py zero_to_torch.py commit_success.txt _CHECKPOINT_METADATA _sharding".split(),
    *"_METADATA latest checkpoint latest_checkpointed_iteration.txt".split(),
]


# The marker of PaddleNLP stands for all it names; the same tree without it is among these.
NEEDY = [row[:3] for row in COMPLETE if row[0] != "layout-only/paddlenlp-trainer/complete"]


@pytest.mark.parametrize(("sample", "framework", "pick"), NEEDY)
def test_the_evidence_of_a_pick_is_needed(sample, framework, pick):
    """Every file of the pick but the optional ones: without it something else is picked, or nothing."""
    tree = in_memory(samples() / sample)
    others = {name for name in tree.entries if name != pick}
    missed = []
    for path in files_below(tree):
        inside = "/".join(path).startswith((f"{pick}/", f"{pick}.")) or (len(path) == 1 and pick == "latest.weights.h5")
        if not inside or path[-1] in OPTIONAL or "array_metadatas" in path or "d" in path[:-1] or "ocdbt" in str(path):
            continue
        found = probe(without(tree, path), framework)
        if found.pick == pick:
            missed.append("/".join(path))
    # Of the last rank's own file nothing tells where there is no checkpoint before, and no manifest.
    alone = not any(name[:4] == str(pick)[:4] for name in others)
    assert [path for path in missed if not (alone and path.endswith(("_1.pth", "_1.pkl")))] == []


_DATA = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pdparams", ".pdopt", ".safetensors", ".h5", ".json", ".ocdbt")
# Less than any file of its kind has: its kind itself cannot be told.
_FEW = range(1, 8)


@pytest.mark.attack(12)
@pytest.mark.parametrize(("sample", "framework", "pick"), [row[:3] for row in COMPLETE])
def test_no_file_of_a_pick_is_whole_with_a_few_bytes(sample, framework, pick):
    tree = in_memory(samples() / sample)
    taken = []
    for path in files_below(tree):
        # Smaller ones are placeholders, made by hand.
        real = samples().joinpath(sample, *path).stat().st_size > max(_FEW)
        if not (real and "/".join(path).startswith(f"{pick}/") and path[-1].endswith(_DATA)):
            continue
        for few in _FEW:

            def cut(place: MemoryDirectory, name: str, few: int = few) -> None:
                entry = place.entries[name]
                assert isinstance(entry, MemoryFile)
                entry.data = entry.data[:few]

            if probe(changed(tree, path, cut), framework).pick == pick:
                taken.append((path[-1], few))
    assert taken == []
