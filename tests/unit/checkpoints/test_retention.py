"""keep_last_n: what is removed, what never is, and that a kill at any moment leaves nothing half done."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentd.checkpoints.fenced import open_fenced
from agentd.checkpoints.removal import remove_checkpoints
from schemas.rules.checkpoints.memory import MemoryDirectory, MemoryFile
from schemas.rules.checkpoints.retention import Plan, plan_retention
from tests.unit.checkpoints.trees import copied, probed

KILLS = int(os.environ.get("HF_CHECKPOINT_KILLS", "5"))
SWAPS = int(os.environ.get("HF_SWAPS", "100000")) // 400
SEED = int(os.environ.get("HF_CHECKPOINT_SEED", "0")) or random.randrange(1, 10**6)


def own(place, step, whole=True, at=None):
    path = place / f"step-{step}"
    (path / "parts").mkdir(parents=True)
    (path / "parts" / "0.bin").write_bytes(b"x" * 100)
    (path / "weights.bin").write_bytes(b"x" * 100 if whole else b"")
    (path / "meta.json").write_text(json.dumps({"step": step}))
    for file in path.rglob("*"):
        os.utime(file, (at or step, at or step))


def loose(place, name, at, marked=True):
    """A file of torch.save, and its marker."""
    place.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(place / name, "w") as archive:
        archive.writestr("data.pkl", b"x" * 100)
    files = [place / name]
    if marked:
        (place / f"{name}.complete").touch()
        files.append(place / f"{name}.complete")
    for file in files:
        os.utime(file, (at, at))


def plan(place, keep, *protected, framework="ddp", **more):
    with open_fenced(os.path.realpath(place)) as root:
        return plan_retention(root, framework, keep, protected, **more)


def carry_out(place, planned, may_go_on=lambda: True):
    with open_fenced(os.path.realpath(place)) as root:
        return remove_checkpoints(root, planned.remove, may_go_on)


def names(planned):
    return [path for path, _ in planned.remove]


def left(place):
    return sorted(path.name for path in place.iterdir() if not path.name.startswith("."))


def test_the_newest_n_stay(tmp_path):
    for step in (1, 2, 10, 9, 30):
        own(tmp_path, step)
    planned = plan(tmp_path, 2)
    assert names(planned) == ["step-1", "step-2", "step-9"], "by number, the oldest first"
    assert [path for path, _ in planned.kept] == ["step-30", "step-10"]
    assert carry_out(tmp_path, planned) == ["step-1", "step-2", "step-9"]
    assert left(tmp_path) == ["step-10", "step-30"]
    assert carry_out(tmp_path, planned) == [], "a second time there is nothing left to do"
    assert plan(tmp_path, 2).remove == ()


def test_a_plan_is_the_same_after_a_file(tmp_path):
    for step in range(1, 5):
        own(tmp_path, step)
    planned = plan(tmp_path, 1)
    assert Plan.from_dict(json.loads(json.dumps(planned.to_dict()))) == planned


def test_what_is_incomplete_is_never_touched_and_counts_for_nothing(tmp_path):
    for step in (1, 2, 3):
        own(tmp_path, step)
    for step in (4, 0):
        own(tmp_path, step, whole=False)
    planned = plan(tmp_path, 1)
    assert names(planned) == ["step-1", "step-2"]
    assert "is not complete" in dict(planned.kept)["step-4"] and "is not complete" in dict(planned.kept)["step-0"]
    for step in (1, 2, 3):
        (tmp_path / f"step-{step}" / "weights.bin").write_bytes(b"")
    assert plan(tmp_path, 1).remove == (), "without a complete one nothing is superseded"


def test_what_was_resumed_from_stays(tmp_path):
    for step in (1, 2, 3, 4):
        own(tmp_path, step)
    planned = plan(tmp_path, 1, "step-2")
    assert names(planned) == ["step-1", "step-3"]
    assert "resumed from" in dict(planned.kept)["step-2"]


def test_a_run_that_began_again_at_an_older_one_keeps_what_it_saves(tmp_path):
    """resume_from_checkpoint: step-10 of a directory that goes to 500: the new 20 is no old one."""
    for step in (10, 490, 500):
        own(tmp_path, step)
    own(tmp_path, 20, at=2_000_000_000)
    planned = plan(tmp_path, 2, "step-10")
    assert planned.remove == () and dict(planned.kept)["step-20"] == "was written later than newer ones"


def test_what_the_trainer_calls_its_best_stays(tmp_path):
    tree = copied("hf-trainer/complete", tmp_path)
    first, last = sorted((path for path in tree.iterdir() if path.is_dir()), key=lambda path: int(path.name[11:]))[:2]
    state = json.loads((last / "trainer_state.json").read_text())
    times = (last / "trainer_state.json").stat()
    (last / "trainer_state.json").write_text(
        json.dumps({**state, "best_model_checkpoint": f"/checkpoint/{first.name}"})
    )
    os.utime(last / "trainer_state.json", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert plan(tree, 1).remove == ()
    (last / "trainer_state.json").write_text(json.dumps(state))
    os.utime(last / "trainer_state.json", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert names(plan(tree, 1)) == [first.name]


def test_what_the_tracker_names_stays(tmp_path):
    tree = copied("deepspeed-zero2/complete", tmp_path)
    (tree / "latest").write_text("global_step10")
    assert plan(tree, 1, framework="deepspeed").remove == ()


def test_files_of_one_that_are_no_directory_stay(tmp_path):
    tree = copied("tensorflow-mwms/complete", tmp_path)
    planned = plan(tree, 1, framework="tensorflow")
    assert planned.remove == () and planned.kept


@pytest.mark.parametrize("place", ["", "checkpoints"])
def test_a_file_goes_with_its_marker(tmp_path, place):
    for step in (1, 2, 10, 30):
        loose(tmp_path / place, f"step_{step}.pt", step)
    loose(tmp_path / place, "step_3.pt", 3, marked=False)
    (tmp_path / place / "step_1.pt.note").write_text("of the user's own")
    os.utime(tmp_path / place / "step_1.pt.note", (1, 1))
    below = f"{place}/" if place else ""
    planned = plan(tmp_path, 2, f"{below}step_2.pt")
    assert names(planned) == [f"{below}step_1.pt"]
    assert carry_out(tmp_path, planned) == names(planned) and carry_out(tmp_path, planned) == []
    stays = ["step_1.pt.note", "step_3.pt", *(f"step_{at}.pt{end}" for at in (2, 10, 30) for end in ("", ".complete"))]
    assert left(tmp_path / place) == sorted(stays)
    assert probed(tmp_path, "ddp").pick == f"{below}step_30.pt"


def test_what_lightning_saved_stays_in_files_and_in_directories(tmp_path):
    """Which one its trainer calls the best is in a pickle."""
    for step in (1, 2, 3):
        loose(tmp_path, f"epoch=0-step={step}.ckpt", step, marked=False)
    tree = copied("pytorch-fsdp2-dcp/complete", tmp_path / "directories")
    for step in (10, 20):
        written_s = (tree / f"step-{step}" / ".metadata").stat().st_mtime
        loose(tree / f"step-{step}", "meta.pt", written_s + 1, marked=False)
        (tree / f"step-{step}").rename(tree / f"epoch=0-step={step}.ckpt")
    for place, oldest in ((tmp_path, 1), (tree, 10)):
        planned = plan(place, 1)
        assert planned.remove == (), planned
        assert "calls its best" in dict(planned.kept)[f"epoch=0-step={oldest}.ckpt"]


def test_what_nemo_saved_stays_and_directories_of_a_number_alone_go(tmp_path):
    """NeMo removes what is not among its best, by the loss in their names; a number alone is any script's."""
    tree = copied("megatron-torch_dist/complete", tmp_path)
    for step in (10, 20):
        (tree / f"iter_{step:07}").rename(tree / f"gpt--val_loss={step}.0-step={step}-consumed_samples={step * 8}.0")
    (tree / "latest_checkpointed_iteration.txt").unlink()
    planned = plan(tree, 1, framework="megatron")
    assert planned.remove == () and "NeMo" in dict(planned.kept)["gpt--val_loss=10.0-step=10-consumed_samples=80.0"]
    tree = copied("hf-trainer/complete", tmp_path / "numbers")
    for step in (10, 20):
        (tree / f"checkpoint-{step}").rename(tree / str(step))
    planned = plan(tree, 1)
    assert [path for path, _ in planned.remove] == ["10"]
    carry_out(tree, planned)
    assert sorted(path.name for path in tree.iterdir() if path.name.isdigit()) == ["20"]


def test_what_lies_in_a_directory_for_an_epoch_stays(tmp_path):
    """It is found there, beside files of Lightning; nothing is removed that deep."""
    for step in (1, 2):
        own(tmp_path / "epoch=0", step)
    assert probed(tmp_path, "ddp").pick == "epoch=0/step-2"
    planned = plan(tmp_path, 1)
    assert planned.remove == () and "deeper" in dict(planned.kept)["epoch=0/step-1"]


def test_what_bears_one_number_stays_or_goes_together(tmp_path):
    """A model and its optimizer in a file each: the newest checkpoint is both, and so is what was resumed from."""
    for step in (1, 2, 3):
        loose(tmp_path, f"model_step_{step}.pt", step)
        loose(tmp_path, f"optim_step_{step}.pt", step)
    planned = plan(tmp_path, 1, "model_step_2.pt")
    assert names(planned) == ["model_step_1.pt", "optim_step_1.pt"]
    assert dict(planned.kept)["optim_step_2.pt"] == "belongs to model_step_2.pt"
    assert names(plan(tmp_path, 2)) == ["model_step_1.pt", "optim_step_1.pt"]
    for name in ("ema", "net"):
        for step in (4, 5):
            own(tmp_path / name, step)
            (tmp_path / name / f"step-{step}" / ".complete").touch()
            (tmp_path / name / f"step-{step}").rename(tmp_path / f"{name}-step-{step}")
    assert [path for path in names(plan(tmp_path, 1)) if path.endswith("-5")] == []


def test_a_file_that_is_saved_again_while_it_is_removed_stays(tmp_path, monkeypatch):
    for step in (1, 2):
        loose(tmp_path, f"step_{step}.pt", step)
    planned, rename = plan(tmp_path, 1), os.rename

    def saved_again(name, *words, **places):
        rename(name, *words, **places)
        if name == "step_1.pt.complete":
            (tmp_path / "step_1.pt").write_bytes(b"half of a new one")

    monkeypatch.setattr(os, "rename", saved_again)
    assert carry_out(tmp_path, planned) == []
    assert left(tmp_path) == ["step_1.pt", "step_2.pt", "step_2.pt.complete"]
    assert carry_out(tmp_path, Plan()) == [] and (tmp_path / "step_1.pt").exists()


class Killed(Exception):
    pass


@pytest.mark.parametrize("moment", range(5))
def test_a_file_that_was_half_removed_is_finished_and_a_lease_is_asked_for(tmp_path, monkeypatch, moment):
    """Ended before each call that changes something."""
    for step in (1, 2):
        loose(tmp_path, f"step_{step}.pt", step)
    planned, made = plan(tmp_path, 1), []

    def ends(call):
        def counted(*words, **places):
            if len(made) == moment:
                raise Killed
            made.append(call)
            return call(*words, **places)

        return counted

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", ends(os.rename))
        patched.setattr(os, "unlink", ends(os.unlink))
        with contextlib.suppress(Killed):
            carry_out(tmp_path, planned)
    assert len(made) == min(moment, 4), "two renames, two removals"
    assert probed(tmp_path, "ddp").pick == "step_2.pt"
    before = left(tmp_path)
    if moment == 1:
        assert carry_out(tmp_path, Plan(), lambda: False) == [] and left(tmp_path) == before
    carry_out(tmp_path, plan(tmp_path, 1))
    assert left(tmp_path) == ["step_2.pt", "step_2.pt.complete"]
    assert not list((tmp_path / ".heteroflow" / "trash").iterdir())


def test_one_that_was_saved_again_since_the_plan_stays(tmp_path):
    for step in (1, 2):
        own(tmp_path, step)
    planned = plan(tmp_path, 1)
    os.utime(tmp_path / "step-1" / "weights.bin")
    assert carry_out(tmp_path, planned) == [] and left(tmp_path) == ["step-1", "step-2"]


def test_in_a_directory_of_the_trainer_and_in_turns(tmp_path):
    for step in range(1, 8):
        own(tmp_path / "checkpoints", step)
    planned = plan(tmp_path, 2, most=3)
    assert names(planned) == ["checkpoints/step-1", "checkpoints/step-2", "checkpoints/step-3"] and planned.more
    assert carry_out(tmp_path, planned) == names(planned)
    planned = plan(tmp_path, 2, most=3)
    assert not planned.more
    carry_out(tmp_path, planned)
    assert left(tmp_path / "checkpoints") == ["step-6", "step-7"]


def test_the_directory_of_another_group_within_it(tmp_path):
    for step in range(1, 5):
        own(tmp_path / "checkpoints", step)
    (tmp_path / "checkpoints" / ".heteroflow").mkdir()
    planned = plan(tmp_path, 1)
    assert planned.remove == () and "of another group" in dict(planned.kept)["checkpoints/step-1"]


def test_a_host_that_lost_its_lease_in_between_goes_no_further(tmp_path):
    for step in range(1, 6):
        own(tmp_path, step)
    asked = iter([True, True, False])
    assert carry_out(tmp_path, plan(tmp_path, 1), lambda: next(asked)) == ["step-1", "step-2"]
    assert left(tmp_path) == ["step-3", "step-4", "step-5"]


@settings(max_examples=60, deadline=None)
@given(
    steps=st.dictionaries(st.integers(0, 40), st.tuples(st.booleans(), st.integers(1, 50)), max_size=14),
    keep=st.integers(1, 5),
    protected=st.sets(st.integers(0, 40), max_size=3),
)
def test_rules_over_any_tree(steps, keep, protected):
    """Only complete ones go, the newest n and the protected stay, and those that go are older by number and time."""
    tree = MemoryDirectory()
    for step, (whole, at) in steps.items():
        meta = MemoryFile(json.dumps({"step": step}).encode(), at)
        tree.entries[f"step-{step}"] = MemoryDirectory({"meta.json": meta, "w": MemoryFile(b"x" if whole else b"", at)})
    complete = sorted((step for step, (whole, _) in steps.items() if whole), reverse=True)
    removed = {int(path[5:]) for path in names(plan_retention(tree, "ddp", keep, [f"step-{at}" for at in protected]))}
    assert removed <= set(complete[keep:]) - protected
    for step in set(complete[keep:]) - protected - removed:
        assert steps[step][1] > min(steps[newer][1] for newer in complete[:keep])
    assert complete[:1] == sorted(set(complete) - removed, reverse=True)[:1]


@settings(max_examples=60, deadline=None)
@given(
    saved=st.dictionaries(
        st.tuples(st.sampled_from(("net", "ema", "opt")), st.integers(0, 8)),
        st.tuples(st.booleans(), st.integers(1, 9)),
    ),
    keep=st.integers(1, 3),
    protected=st.sets(st.tuples(st.just("net"), st.integers(0, 8)), max_size=2),
)
def test_no_number_is_torn_apart(saved, keep, protected):
    tree = MemoryDirectory()
    for (series, step), (whole, at) in saved.items():
        meta = MemoryFile(json.dumps({"step": step}).encode(), at)
        parts = {"meta.json": meta, "w": MemoryFile(b"x" if whole else b"", at)}
        tree.entries[f"{series}-step-{step}"] = MemoryDirectory(dict(parts))
    complete = {f"{series}-step-{step}": step for (series, step), (whole, _) in saved.items() if whole}
    spared = [f"{series}-step-{step}" for series, step in protected]
    removed = set(names(plan_retention(tree, "ddp", keep, spared)))
    assert removed <= complete.keys() - set(spared)
    assert not {complete[name] for name in removed} & {complete[name] for name in complete.keys() - removed}
    assert not {complete[name] for name in removed} & set(sorted(set(complete.values()))[-keep:])


# -- attacks


@pytest.mark.attack(4)
@pytest.mark.parametrize(
    "path",
    ["..", "../other", "/etc", "a/b", "checkpoints/..", "checkpoints/../x", ".", "", "train.py", "w_step_1.ckpt"],
)
def test_a_plan_that_names_anything_else_removes_nothing(tmp_path, path):
    (tmp_path / "here" / "checkpoints").mkdir(parents=True)
    own(tmp_path / "here", 1)
    for name in ("train.py", "w_step_1.ckpt"):
        loose(tmp_path / "here", name, 1)
    before = sorted(tmp_path.rglob("*"))
    try:
        carry_out(tmp_path / "here", Plan(((path, "1000000000"),)))
    except Exception as error:
        assert "no single name" in str(error) or "no checkpoint" in str(error)
    after = [item for item in sorted(tmp_path.rglob("*")) if ".heteroflow" not in item.parts]
    assert after == before


@pytest.mark.attack(3)
def test_a_trash_that_is_a_link_and_links_inside_lead_nowhere(tmp_path):
    outside = tmp_path / "outside"
    own(outside, 1)
    here = tmp_path / "here"
    for step in (1, 2):
        own(here, step)
    (here / "step-1" / "out").symlink_to(outside)
    planned = plan(here, 1)
    assert planned.remove == (), "a link in it makes it incomplete"
    (here / "step-1" / "out").unlink()
    planned = plan(here, 1)
    (here / "step-1" / "parts" / "out").symlink_to(outside)
    (here / ".heteroflow").symlink_to(outside)
    with pytest.raises(OSError):
        carry_out(here, planned)
    (here / ".heteroflow").unlink()
    (here / ".heteroflow").mkdir()
    (here / ".heteroflow" / "trash").symlink_to(outside)
    with pytest.raises(OSError):
        carry_out(here, planned)
    (here / ".heteroflow" / "trash").unlink()
    assert carry_out(here, planned) == ["step-1"]
    assert left(outside) == ["step-1"] and (outside / "step-1" / "weights.bin").exists()


# By open directories: by paths it would itself walk through a link that it put there, and move what lies outside.
SWAPPER = """
import os, sys
root, outside = sys.argv[1:]
trash = (".heteroflow", "trash")
places = ((), "step-1"), (trash, "step-1"), ((*trash, "step-1"), "parts"), (("step-1",), "parts")

def opened(names):
    place = os.open(root, os.O_DIRECTORY)
    for name in names:
        try:
            below = os.open(name, os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
        finally:
            os.close(place)
        place = below
    return place

print("ready", flush=True)
while True:
    for names, name in places:
        try:
            place = opened(names)
        except OSError:
            continue
        try:
            os.rename(name, name + "-away", src_dir_fd=place, dst_dir_fd=place)
            os.symlink(outside, name, dir_fd=place)
            os.unlink(name, dir_fd=place)
            os.rename(name + "-away", name, src_dir_fd=place, dst_dir_fd=place)
        except OSError:
            pass
        finally:
            os.close(place)
"""


@pytest.mark.attack(4)
@pytest.mark.timeout(300)
def test_swaps_while_it_removes(tmp_path, record_property):
    """A user of the same rights exchanges directories with links that lead out, on and on."""
    outside, here = tmp_path / "outside", tmp_path / "here"
    (outside / "parts").mkdir(parents=True)
    canaries = [outside / "weights.bin", outside / "parts" / "0.bin", outside / "meta.json"]
    for canary in canaries:
        canary.write_bytes(b"x")
    own(here, 2)
    removed = 0
    command = [sys.executable, "-c", SWAPPER, str(here), str(outside)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as swapper:
        assert swapper.stdout is not None and swapper.stdout.readline() == "ready\n"
        try:
            for _ in range(SWAPS):
                # Anew each time: what the exchanges left of the one before may fit nothing any more.
                for leftover in (*here.glob("step-1*"), *here.glob(".heteroflow/trash/*")):
                    with contextlib.suppress(OSError):
                        leftover.unlink() if leftover.is_symlink() else shutil.rmtree(leftover, ignore_errors=True)
                try:
                    own(here / ".made", 1)
                    (here / ".made" / "step-1").rename(here / "step-1")
                    removed += len(carry_out(here, Plan((("step-1", "1000000000"),))))
                except OSError:
                    shutil.rmtree(here / ".made", ignore_errors=True)
        finally:
            swapper.kill()
    assert all(canary.read_bytes() == b"x" for canary in canaries)
    assert sorted(path.name for path in outside.iterdir()) == ["meta.json", "parts", "weights.bin"]
    print(f"{SWAPS} removals under swaps, {removed} done, nothing outside touched")
    record_property("attempts", SWAPS)
    assert removed > 0


# -- kills


REMOVER = """
import os, sys
from pathlib import Path
from tests.unit.checkpoints.test_retention import carry_out, plan
place = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
while (planned := plan(place, 2, most=4)).remove:
    carry_out(place, planned)
print("done", flush=True)
"""


@pytest.mark.timeout(300)
def test_a_kill_at_any_moment_is_made_good_by_the_next_run(tmp_path):
    print(f"HF_CHECKPOINT_SEED={SEED} replays the moments")
    chance = random.Random(SEED)
    killed = 0
    for turn in range(KILLS):
        here = tmp_path / str(turn)
        for step in range(1, 40):
            own(here, step)
        command = [sys.executable, "-c", REMOVER, str(here)]
        environment = {**os.environ, "PYTHONPATH": os.getcwd()}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as remover:
            assert remover.stdin is not None and remover.stdout is not None
            assert remover.stdout.readline() == "ready\n"
            remover.stdin.write("go\n")
            remover.stdin.flush()
            time.sleep(chance.uniform(0, 0.15))  # the moment of the kill, not a wait for anything
            remover.send_signal(signal.SIGKILL)
            killed += remover.wait() == -signal.SIGKILL
        assert probed(here, "ddp").pick == "step-39"
        for step in left(here):
            assert sorted(path.name for path in (here / step).iterdir()) == ["meta.json", "parts", "weights.bin"]
        while (planned := plan(here, 2)).remove:
            carry_out(here, planned)
        carry_out(here, planned)
        assert left(here) == ["step-38", "step-39"]
        assert not list((here / ".heteroflow" / "trash").iterdir())
    assert killed > 0


def test_the_trash_is_no_checkpoint(tmp_path):
    own(tmp_path, 1)
    own(Path(tmp_path) / ".heteroflow" / "trash", 99)
    assert probed(tmp_path, "ddp").pick == "step-1"
