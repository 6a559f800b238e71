"""What a group begins from, as its containers see it: shown read-only, told where it is, and never made."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.drills.mesh import until
from tests.docker.engine import IMAGE
from tests.docker.test_docker_mesh import WAIT_S, World

pytestmark = [pytest.mark.need("docker"), pytest.mark.slow, pytest.mark.timeout(480)]

SAVE = "cd /checkpoint && mkdir -p .tmp && echo of the parent >.tmp/w && mv .tmp step-5; while :; do sleep 0.1; done"


def look(place: str) -> str:
    """Says where it is, what is in it, and whether it can be written to."""
    return f"echo {place}; cat {place}/w; {{ echo x >{place}/new; }} 2>/dev/null || echo read-only"


class Lineage(World):
    """Groups of one rank that look at what they are given."""

    def __init__(self) -> None:
        super().__init__()
        # An agent looks for new checkpoints every fifth time.
        self.mesh.runtime = (*self.mesh.runtime, "--telemetry-every", "0.4")

    def place(self, name: str, text: str = "") -> Path:
        path = self.root / name
        if text:
            path.mkdir(parents=True)
            (path / "w").write_text(f"{text}\n")
        return path

    def begin(self, command: str, own: str, **training: Any) -> str:
        fields = {"checkpoint_path": str(self.root / own), **training}
        if "parent_checkpoint" not in training:
            fields |= {"framework": "ddp", "n_nodes": 1, "per_node_gpu": 1}
        task = {"command": command, "image": IMAGE, "pull": "never", "gpu_required": 1, "stop_grace_s": 1}
        document = {"name": own, "task_type": "training", "training": fields, "task": task}
        return str(self.mesh.api().call("POST", "/task-groups", document)["group_id"])

    def says(self, group: str) -> list[str]:
        self.until_status(group, "completed")
        return [str(line["text"]) for line in self.mesh.api().lines(f"/task-groups/{group}/logs") if "text" in line]

    def waits(self, group: str, words: str) -> None:
        """For a node that sees it: a share may be mounted elsewhere, or later."""

        def told() -> bool:
            events = self.mesh.api().call("GET", f"/task-groups/{group}/fault-events")["events"]
            return any(one["kind"] == "claim_failed" and words in one["text"] for one in events)

        until(f"{group} to say {words!r}", told, WAIT_S)
        self.mesh.api().call("POST", f"/task-groups/{group}/stop")
        self.until_status(group, "stopped")

    def saved(self, own: str) -> str:
        """A group that has saved step 5, and ended."""
        group = self.begin(SAVE, own)
        until("its checkpoint to be told", lambda: (self.mesh.group(group)["saved"] or {}).get("step") == 5, WAIT_S)
        self.mesh.api().call("POST", f"/task-groups/{group}/stop")
        self.until_status(group, "stopped")
        return group


@pytest.fixture(scope="module")
def world() -> Iterator[Lineage]:
    made = Lineage()
    try:
        made.mesh.start()
        yield made
    finally:
        made.close()


def test_what_the_document_resumes_from_is_shown_where_the_rank_is_told(world: Lineage) -> None:
    told = look('"$HETEROFLOW_RESUME_FROM_CHECKPOINT"')
    other = world.place("other/step-5", "elsewhere")
    for own, path, inside, last in (
        ("outside", str(other), "/resume/step-5", "read-only"),
        ("inside", "/checkpoint/step-1", "/checkpoint/step-1", ""),
        ("dataset", "/dataset/step-2", "/dataset/step-2", "read-only"),
    ):
        real = {"/checkpoint": "inside", "/dataset": "data"}.get(path[: path.index("/", 1)])
        text = f"of {own}"
        if real is not None:
            world.place(f"{real}/{path.rpartition('/')[2]}", text)
        more = {"dataset_path": str(world.root / "data")} if own == "dataset" else {}
        group = world.begin(told, own, resume_from_checkpoint=path, **more)
        assert world.says(group) == [inside, text if real else "elsewhere", *([last] if last else [])]
    assert [one.name for one in other.iterdir()] == ["w"]


def test_what_the_document_resumes_from_is_never_made(world: Lineage) -> None:
    gone = world.place("gone/step-5")
    group = world.begin("true", "from-gone", resume_from_checkpoint=str(gone))
    failure = world.until_status(group, "failed")["failure"]
    assert failure["class"] == "resume_missing" and f"{gone} does not exist there" in failure["text"]
    assert not gone.parent.exists()


def test_a_link_that_a_container_cannot_follow_is_refused_with_where_it_leads(world: Lineage) -> None:
    world.place("linked/step-3", "linked")
    (world.root / "linked" / "latest").symlink_to("step-3")
    (world.root / "linked" / "best").symlink_to(world.root / "linked" / "step-3")
    told = look('"$HETEROFLOW_RESUME_FROM_CHECKPOINT"')
    group = world.begin(told, "linked", resume_from_checkpoint="/checkpoint/latest")
    assert world.says(group)[:2] == ["/checkpoint/latest", "linked"]
    group = world.begin(told, "linked", resume_from_checkpoint="/checkpoint/best")
    failure = world.until_status(group, "failed")["failure"]
    assert f"name {world.root}/linked/step-3" in failure["text"]
    # Mounted by itself it is what it leads to.
    group = world.begin(told, "unlinked", resume_from_checkpoint=str(world.root / "linked" / "best"))
    assert world.says(group) == ["/resume/best", "linked", "read-only"]


def test_the_model_to_begin_with_is_at_base(world: Lineage) -> None:
    model = world.place("models/m", "a model")
    told = look('"$HETEROFLOW_BASE_CHECKPOINT"')
    assert world.says(world.begin(told, "based", base_checkpoint=str(model))) == ["/base", "a model", "read-only"]
    assert [one.name for one in model.iterdir()] == ["w"]
    gone = world.place("models/gone")
    world.waits(world.begin("true", "baseless", base_checkpoint=str(gone)), f"base_checkpoint {gone} does not exist")
    assert not gone.exists()
    # One file is a model too.
    group = world.begin("cat /base; echo x >/base || echo read-only", "one-file", base_checkpoint=str(model / "w"))
    assert "a model" in world.says(group) and (model / "w").read_text() == "a model\n"


def test_the_parents_checkpoint_is_at_parent_until_there_is_an_own_one(world: Lineage) -> None:
    parent = world.saved("parent")
    told = look('"$HETEROFLOW_RESUME_FROM_CHECKPOINT"')
    child = world.begin(f"{told}; ls /parent", "child", parent_checkpoint=parent)
    assert world.says(child) == ["/parent/step-5", "of the parent", "read-only", "step-5"]
    world.place("child/step-9", "its own")
    later = world.begin(f"{told}; ls -d /parent 2>/dev/null || echo no parent", "child", parent_checkpoint=parent)
    assert world.says(later) == ["/checkpoint/step-9", "its own", "no parent"]

    shutil.rmtree(world.root / "parent" / "step-5")
    world.waits(world.begin("true", "orphan", parent_checkpoint=parent), "step-5 is not there (any more)")
    shutil.rmtree(world.root / "parent")
    world.waits(world.begin("true", "homeless", parent_checkpoint=parent), f"{world.root}/parent does not exist")
    assert not (world.root / "parent").exists()
