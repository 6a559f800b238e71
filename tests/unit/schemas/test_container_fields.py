"""What a document may ask of a container: read as written, bounded, and refused where there is none."""

import pytest

from schemas.as_written_yaml import parse_yaml
from schemas.rules.byte_size import byte_size
from schemas.strict_json import parse_strict_json
from schemas.task_group import check_task_group, encode_document
from tests.unit.schemas.documents import DELETED, accepted, codes, errors_at, good

YAML = """
name: sft math v3
task_type: training
training: {framework: ddp, n_nodes: 1, per_node_gpu: 1, dataset_path: /data/d}
task:
  image: registry.example:5000/team/pt:2.13
  command: torchrun t.py
  gpu_required: 1
  cpus: 2.50
  memory: 64g
  shm_size: 16GiB
  ulimits: {memlock: -1, nofile: 1048576}
  user: 1000:1000
  pull: always
  read_only_root: true
  mounts:
    - {source: /data/code, target: /code}
    - {source: /data/out, target: /out, read_only: false}
"""


def with_image(**changes):
    return good(**{"task__image": "team/pt:1", **changes})


def test_the_spelling_is_kept_and_a_round_trip_over_the_wire_changes_nothing():
    read = accepted(parse_strict_json(encode_document(parse_yaml(YAML.encode()))))
    task = read["task"]
    assert (task["cpus"], task["memory"], task["shm_size"]) == ("2.50", "64g", "16GiB")
    assert task["ulimits"] == {"memlock": -1, "nofile": 1048576}
    assert (task["user"], task["pull"], task["read_only_root"]) == ("1000:1000", "always", True)
    assert [mount["read_only"] for mount in task["mounts"]] == [True, False]
    assert accepted(read) == read
    assert accepted(parse_strict_json(encode_document(read))) == read


def test_a_pull_policy_is_written_down_where_there_is_an_image():
    assert accepted(with_image())["task"]["pull"] == "missing"
    assert "pull" not in accepted(good())["task"]


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("512", 512), ("512b", 512), ("1k", 1024), ("64g", 64 << 30), ("64GiB", 64 << 30), ("64Gi", 64 << 30)]
    + [(text, None) for text in ("", "g", "-1g", "1.5g", "1 g", "1gg", "0x10", "1e9", "1p", "9" * 40, "１g")],
)
def test_an_amount_of_memory_is_what_docker_reads(text, size):
    assert byte_size(text) == size


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image", "Team/PT:1 "),
        ("image", "pt:"),
        ("image", "UPPER"),
        ("image", "pt@sha256:12"),
        ("image", "-v"),
        ("cpus", "0"),
        ("cpus", "-1"),
        ("cpus", "5000"),
        ("cpus", "1e3"),
        ("cpus", "0.0001"),
        ("memory", "64"),
        ("memory", "1.5g"),
        ("memory", "65t"),
        ("memory", "lots"),
        ("memory", None),
        ("shm_size", "0"),
        ("ulimits", {"memlok": 1}),
        ("ulimits", {"nofile": "many"}),
        ("ulimits", {"nofile": -2}),
        ("ulimits", []),
        ("pull", "IfNotPresent"),
        ("user", "root; id"),
        ("user", "Ada"),
        ("user", "4294967296"),
        ("user", ":0"),
        ("read_only_root", "yes"),
        ("mounts", []),
        ("mounts", ["/data/a:/b"]),
        ("mounts", [{"source": "/data/a"}]),
        ("mounts", [{"source": "/data/a", "target": "/b", "mode": "ro"}]),
        ("mounts", [{"source": "/data/a", "target": "/"}]),
        ("mounts", [{"source": "/data/a", "target": "/etc/ssl"}]),
        ("mounts", [{"source": "/data/../etc", "target": "/b"}]),
        ("mounts", [{"source": "/data/a", "target": "/b", "read_only": "sometimes"}]),
        ("mounts", [{"source": "/data/a", "target": "/b"}, {"source": "/data/c", "target": "/b"}]),
        ("mounts", [{"source": "/etc", "target": "/b"}]),
        ("mounts", [{"source": "/data/docker.sock", "target": "/b"}]),
        ("mounts", [{"source": "/data/a", "target": "/checkpoint/x"}]),
    ],
)
def test_a_wrong_value_is_named_with_what_to_write(field, value):
    errors = check_task_group(with_image(**{f"task__{field}": value})).errors
    assert errors
    assert all(finding.path.startswith(f"task.{field}") and finding.hint for finding in errors)


@pytest.mark.parametrize(
    "changes",
    [
        {"cpus": "8"},
        {"memory": "64g"},
        {"shm_size": "1g"},
        {"ulimits": {"nofile": 10}},
        {"pull": "never"},
        {"mounts": [{"source": "/data/a", "target": "/b"}]},
        {"user": "1000"},
        {"read_only_root": False},
    ],
)
def test_what_only_a_container_has_is_refused_without_an_image(changes):
    ((name, value),) = changes.items()
    assert accepted(with_image(**{f"task__{name}": value}))
    assert codes(good(**{f"task__{name}": value})) == {f"task.{name}": "needs_image"}


def test_the_names_of_other_systems_are_told_ours():
    for theirs, ours in (("memory_limit", "memory"), ("image_pull_policy", "pull"), ("volumes", "mounts")):
        (finding,) = errors_at(with_image(**{f"task__{theirs}": "x"}), f"task.{theirs}")
        assert finding.code == "unknown_field"
        assert ours in finding.hint


def test_a_place_that_is_not_mounted_by_the_group_may_be_named_as_one_that_could_be():
    mounts = [{"source": "/data/a", "target": "/checkpoint"}]
    assert codes(with_image(task__mounts=mounts)) == {"task.mounts[0].target": "mount_twice"}
    assert accepted(with_image(task__mounts=mounts, training__checkpoint_path=DELETED))
    mounts = [{"source": "/data/a", "target": "/resume/a"}]
    named = {"training__resume_from_checkpoint": "/data/b/step-1"}
    assert codes(with_image(task__mounts=mounts, **named)) == {"task.mounts[0].target": "mount_twice"}
    assert accepted(with_image(task__mounts=mounts))
