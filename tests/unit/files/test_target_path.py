"""Which file a path names: by segments, below the group's own mounts, whatever is written."""

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidInput
from schemas.rules.frameworks.rank import MountPoint
from schemas.rules.target_path import UPLOAD_PREFIX, new_name_refusal, place_of

MOUNTS = (
    MountPoint("/data/ckpt/job1", "/checkpoint", False),
    MountPoint("/data/sets/", "/dataset", True),
    MountPoint("/mnt/a", "/checkpoint/inner", False),
    MountPoint("/data/ckpt/job1/deep", "/deep", True),
)
REFUSED = [
    "/data/ckpt/job1/../job2/x",
    "/data/ckpt/job10/x",
    "/data/ckpt/job1#/../../etc",
    "/data/ckpt/job1?x=/../..",
    "/data/ckpt/job1\\..\\x",
    "/data/ckpt/job1#x",
    "a/relative",
    "",
    "/",
    "//",
    "/etc/passwd",
    "/data/ckpt",
    "/checkpoint/./x",
    "/checkpoint/..",
    "/checkpoints/x",
    "/dataset1",
    "/checkpoint/" + "a/" * 65,
    "/checkpoint/" + "a" * 256,
    "/checkpoint/" + "é" * 128,
    "/checkpoint/a\0b",
    "/checkpoint/\ud800",
    "/checkpoint/" + "a" * 4085,
]
TAKEN = {
    "/data/ckpt/job1": ("/checkpoint", ()),
    "//data//ckpt//job1/ok": ("/checkpoint", ("ok",)),
    "/checkpoint/ok/": ("/checkpoint", ("ok",)),
    "/checkpoint/%2e%2e/x": ("/checkpoint", ("%2e%2e", "x")),
    "/checkpoint/a\\..\\b": ("/checkpoint", ("a\\..\\b",)),
    "/checkpoint/...": ("/checkpoint", ("...",)),
    "/checkpoint/a b\n\x1b[2J": ("/checkpoint", ("a b\n\x1b[2J",)),
    "/dataset": ("/dataset", ()),
    "/data/sets/x": ("/dataset", ("x",)),
    "/checkpoint/inner/x": ("/checkpoint/inner", ("x",)),
    "/data/ckpt/job1/deep/x": ("/deep", ("x",)),
    "/data/ckpt/job1/deeper": ("/checkpoint", ("deeper",)),
}


@pytest.mark.attack(1, 2)
@pytest.mark.parametrize("path", REFUSED)
def test_refused(path):
    with pytest.raises(InvalidInput) as caught:
        place_of(path, MOUNTS)
    assert (caught.value.problem.status, caught.value.problem.field) == (400, "target_path")


@pytest.mark.parametrize("path", TAKEN)
def test_taken(path):
    place = place_of(path, MOUNTS)
    assert (place.mount.target, place.segments) == TAKEN[path]
    # By the name that an answer gives it, it is the same place.
    assert place_of(place.path, MOUNTS[:3] if place.mount.target != "/deep" else MOUNTS) == place


@pytest.mark.attack(7)
def test_how_a_path_is_refused_is_a_function_of_the_path_alone():
    said = set()
    for path in ("/etc/passwd", "/etc/nowhere", "/data/ckpt/job2/x"):
        with pytest.raises(InvalidInput) as caught:
            place_of(path, MOUNTS)
        said.add(caught.value.problem.message.replace(path, "P"))
    assert len(said) == 1


PARTS = st.one_of(
    st.sampled_from(["..", ".", "", "job1", "job10", "ckpt", "data", "checkpoint", "%2e%2e", "..\\", "a\0", "#", "~"]),
    st.text(max_size=12),
)


@pytest.mark.attack(1, 2)
@given(st.lists(PARTS, max_size=12), st.sampled_from(["/", "//", "", "/checkpoint/", "/data/ckpt/job1", "/dataset/"]))
def test_what_is_taken_stays_below_its_mount_by_every_reading(parts, head):
    path = head + "/".join(parts)
    try:
        place = place_of(path, MOUNTS)
    except InvalidInput:
        return
    source = place.mount.source.rstrip("/")
    on_disk = "/".join([source, *place.segments])
    assert posixpath.normpath(on_disk) == on_disk
    assert posixpath.commonpath([on_disk, source]) == source
    assert all(part not in ("", ".", "..") and "/" not in part and "\0" not in part for part in place.segments)
    assert place.segments == tuple(part for part in path.split("/") if part)[-len(place.segments) :][: len(path)] or (
        not place.segments
    )


@pytest.mark.attack(11)
def test_names_that_are_not_made():
    bad = ["a\nb", "a\r\nb", "\x1b[2J", "a\x9bb", "\u202egpj", "\u2028", "\ud800", "a\tb", "\x7f", UPLOAD_PREFIX + "x"]
    assert all(new_name_refusal(name) for name in bad)
    assert not any(
        new_name_refusal(name) for name in ["model.pt", "模型", "a b", "é", ".hidden", "x" * 255, "a'\"&;$`"]
    )
