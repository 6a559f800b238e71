"""Every refusal says what to write instead, and everything wrong below one field is told at once."""

import random

import pytest

from schemas.task_group import check_task_group
from tests.unit.schemas.documents import errors_at, good

RECORDS = [
    ("training.recovery", {"on": ["node_los"], "restarts": 3, "why": 1}, 3),
    ("training.recovery", {"max_restart": -1, "on": "x"}, 2),
    ("task.mounts", [{"source": "etc", "target": "/proc", "mode": "ro", "kind": "bind"}], 3),
    ("task.mounts", [{"sources": "/data/x", "read_only": "maybe"}], 3),
    ("task.mounts", [{"source": "/data/x", "target": f"/d{at // 3}"} for at in range(6)], 4),
]


@pytest.mark.parametrize(("path", "value", "count"), RECORDS)
def test_everything_wrong_below_a_field_is_told_at_once_in_one_order(path, value, count):
    def told(given):
        document = good(task__image="r/x:1", **{path.replace(".", "__"): given})
        return [finding.to_dict() for finding in check_task_group(document).errors]

    found = told(value)
    assert len(found) == count and all(finding["path"].startswith(path) and finding["hint"] for finding in found)
    for seed in range(5):
        assert told(shuffled(value, random.Random(seed))) == found


def shuffled(value, rng):
    if isinstance(value, dict):
        return {key: shuffled(value[key], rng) for key in rng.sample(list(value), len(value))}
    return [shuffled(item, rng) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("path", "value", "write"),
    [
        ("training.n_nodes", "4", "Write 4."),
        ("training.n_nodes", "04", "Write 4."),
        ("training.per_node_gpu", "4.0", "Write 4."),
        ("training.n_nodes", "99999", "Allowed: 1 to 10000."),
        ("training.deadline_s", "2h", "Write 7200."),
        ("training.max_wait_s", "1 d", "Write 86400."),
        ("training.checkpoint_interval", "10m", "Write 600."),
        ("training.deadline_s", "soon", "seconds"),
        ("task.stop_grace_s", "9999h", "0 to 3600 seconds"),
        ("training.framework", "DDP", "Did you mean ddp?"),
        ("training.framework", "pytorch", "Did you mean ddp?"),
        ("training.framework", "megatron-lm", "Did you mean megatron?"),
        ("training.framework", "cobol", "Use ddp or"),
        ("task_type", "train", "Did you mean training?"),
        ("priority", "Highest", "Did you mean highest?"),
        ("training.checkpoint_path", "s3://bucket/x", "Mount the storage"),
        ("training.checkpoint_path", "~/ckpt", "Nothing expands ~"),
        ("training.checkpoint_path", "$HOME/ckpt", "Nothing expands $"),
        ("training.checkpoint_path", "/data/" + "é" * 128, "Shorten it."),
        ("entry_point", "train.py", "Use task.command."),
        ("training.entry_point", "train.py", "Use task.command."),
        ("sweep", {"lr": [1]}, "Submit one group"),
        ("task.topology", {}, "packs nodes by itself"),
    ],
)
def test_the_hint_is_what_to_write(path, value, write):
    (finding,) = errors_at(good(**{path.replace(".", "__"): value}), path)
    assert write in finding.hint, finding


@pytest.mark.parametrize(
    "path", ["/data/$USER/ckpt", "/data/${RUN}", "/data/{name}/x", "/data/{{ name }}", "/data/$(date)"]
)
def test_a_variable_in_a_path_is_warned_of_because_nothing_expands_it(path):
    checked = check_task_group(good(training__checkpoint_path=path))
    assert not checked.errors
    assert ("not_expanded", "training.checkpoint_path") in [(each.code, each.path) for each in checked.warnings]


@pytest.mark.parametrize("path", ["/data/100%/x", "/data/a$", "/data/x{1}", "/data/{}", "/data/" + "é" * 127])
def test_a_path_that_only_looks_so_is_not(path):
    checked = check_task_group(good(training__checkpoint_path=path))
    assert not checked.errors
    assert "not_expanded" not in [each.code for each in checked.warnings]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("traning", "did you mean training?"),
        ("tasks", "did you mean task?"),
        ("kind", "Write task_type"),
        ("run", "Use task.command."),
        ("gpus", "task.gpu_required"),
        ("training.gpus", "Use per_node_gpu"),
        ("zzz", "name, task_type, priority, tenant"),
    ],
)
def test_words_of_other_systems_lead_to_ours(field, said):
    (finding,) = errors_at(good(**{field.replace(".", "__"): "x"}), field)
    assert said in f"{finding.message} {finding.hint}"


def test_the_fields_at_the_top_are_told_with_the_sections_of_its_type():
    (finding,) = errors_at(good(zzz="x"), "zzz")
    assert finding.hint.endswith("preemptible, training, task.")
    (finding,) = errors_at({"name": "a", "task_type": "container", "task": {}, "zzz": 1}, "zzz")
    assert "container" in finding.hint and "training" not in finding.hint and "inference" not in finding.hint
