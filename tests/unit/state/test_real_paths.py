"""Two names of one directory are one directory: a link in checkpoint_path lets no second group write into it."""

import pytest

from tests.unit.state.world import World, document


@pytest.fixture
def world():
    return World({"n1": 2, "n2": 2})


def claimed(world, path, real):
    group = world.submit(checkpoint_path=path)
    world.control()
    world.report(world.tasks(group)[0], "claimed", resume=None, checkpoint_real=real)
    return group


def test_the_directory_of_another_group_by_a_link(world):
    first = world.submit(checkpoint_path="/data/run")
    second = claimed(world, "/data/link", "/data/run")
    failure = world.group(second)["failure"]
    assert (world.group(second)["status"], failure["class"]) == ("failed", "checkpoint_path_in_use")
    assert f"/data/link leads through a link to /data/run, which active group {first} uses" in failure["text"]
    assert world.store.get("ckpt", "/data/run") == {"group_id": first}
    assert world.store.get("ckpt", "/data/link") is None


def test_two_links_to_one_directory_and_the_directory_itself(world):
    first = claimed(world, "/data/link", "/data/run")
    assert world.group(claimed(world, "/data/other", "/data/run"))["status"] == "failed"
    outcome = world.try_submit(document(checkpoint_path="/data/run"))
    assert outcome.code == "checkpoint_path_in_use" and outcome.data == {"group_id": first}
    world.run_up(first)
    world.finish(first)
    assert list(world.store.scan("ckpt")) == [] and world.try_submit(document(checkpoint_path="/data/run")).ok


def test_what_is_said_twice_and_another_way_on_another_host(world):
    group = claimed(world, "/data/link", "/data/run")
    world.report(world.tasks(group)[0], "claimed", resume=None, checkpoint_real="/data/run")
    assert world.group(group)["real_paths"] == ["/data/run"]
    assert world.group(group)["status"] in ("scheduling", "starting")


def test_a_group_of_another_tenant_is_not_named(world):
    first = world.submit(checkpoint_path="/data/run")
    row = world.store.get("group", first)
    world.store.put("group", first, {**row, "tenant": "theirs"})
    failure = world.group(claimed(world, "/data/link", "/data/run"))["failure"]
    assert first not in failure["text"] and "which a group of another tenant uses" in failure["text"]
