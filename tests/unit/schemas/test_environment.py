import re
from pathlib import Path

import pytest

from schemas.rules.environment import (
    DEFAULT_NAMES,
    FRAMEWORK_NAMES,
    PLATFORM_NAMES,
    rank_environment,
    reserved_refusal,
)
from tests.unit.schemas.documents import accepted, good

PAGE = Path(__file__).parents[3] / "docs" / "environment.md"


def environment(rank=1, document=None, **changes):
    arguments = {
        "document": document or accepted(good(task__env={"A": "1"})),
        "group_id": "tg-x",
        "attempt": 3,
        "rank": rank,
        "n_nodes": 2,
        "per_node_gpu": 4,
        "master_addr": "10.0.0.7",
        "master_port": 20_123,
        "checkpoint_path_in_task": "/checkpoint",
        "dataset_path_in_task": "/dataset",
        "resume": "/checkpoint/step-5",
        "gpus": ["GPU-a", "GPU-b"],
    }
    return rank_environment(**(arguments | changes))


def test_everything_a_launcher_and_a_script_need():
    assert environment() == {
        "A": "1",
        "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": "20123",
        "NNODES": "2",
        "NODE_RANK": "1",
        "NPROC_PER_NODE": "4",
        "LOCAL_WORLD_SIZE": "4",
        "WORLD_SIZE": "8",
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
        "PET_NPROC_PER_NODE": "4",
        "PET_MASTER_ADDR": "10.0.0.7",
        "PET_MASTER_PORT": "20123",
        "PET_RDZV_CONF": "timeout=300",
        "HETEROFLOW_GROUP_ID": "tg-x",
        "HETEROFLOW_ATTEMPT": "3",
        "HETEROFLOW_CHECKPOINT_PATH": "/checkpoint",
        "HETEROFLOW_TB_DIR": "/checkpoint/tb_logs",
        "HETEROFLOW_DATASET_PATH": "/dataset",
        "HETEROFLOW_RESUME_FROM_CHECKPOINT": "/checkpoint/step-5",
        "HETEROFLOW_HP_LR": "1e-4",
        "HETEROFLOW_HYPER_PARAMS": '{"lr":"1e-4"}',
        "HETEROFLOW_GPUS": "GPU-a,GPU-b",
        "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b",
    }


def test_ranks_differ_in_their_rank_alone():
    one, other = environment(0), environment(1)
    assert {name for name in one if one[name] != other[name]} == {"NODE_RANK", "PET_NODE_RANK"}
    assert one.keys() == other.keys()


def test_simulated_cards_are_never_offered_to_cuda():
    found = environment(simulated_gpus=True)
    assert (found["CUDA_VISIBLE_DEVICES"], found["NVIDIA_VISIBLE_DEVICES"]) == ("", "void")
    assert found["HETEROFLOW_GPUS"] == "GPU-a,GPU-b"


@pytest.mark.attack(18)
def test_without_cards_nothing_falls_back_to_all():
    assert (environment(gpus=[])["CUDA_VISIBLE_DEVICES"], environment(gpus=[])["NVIDIA_VISIBLE_DEVICES"]) == (
        "",
        "void",
    )


@pytest.mark.attack(19)
def test_user_values_never_override():
    # Past the checks, as a document of another version in the log might be.
    document = {"task": {"env": {"NODE_RANK": "9", "WORLD_SIZE": "1"}}, "training": {}}
    found = environment(document=document)
    assert (found["NODE_RANK"], found["WORLD_SIZE"]) == ("1", "8")


def test_absent_paths_are_absent():
    found = environment(checkpoint_path_in_task=None, dataset_path_in_task=None, resume=None)
    assert not {"HETEROFLOW_CHECKPOINT_PATH", "HETEROFLOW_TB_DIR", "HETEROFLOW_DATASET_PATH"} & set(found)
    assert "HETEROFLOW_RESUME_FROM_CHECKPOINT" not in found


def test_ports_by_name_and_the_only_one_as_port():
    ports = {"http": 8000, "admin_2": 9000}
    found = environment(document=accepted(good(task__ports=ports)), address="10.0.0.8")
    assert (found["HETEROFLOW_PORT_HTTP"], found["HETEROFLOW_PORT_ADMIN_2"]) == ("8000", "9000")
    assert found["HETEROFLOW_ADDRESS"] == "10.0.0.8" and "PORT" not in found
    document = accepted(good(task__ports={"http": 8000}))
    assert environment(document=document)["PORT"] == "8000"
    document = accepted(good(task__ports={"http": 8000}, task__env={"PORT": "x"}))
    assert environment(document=document)["PORT"] == "x"
    assert "HETEROFLOW_ADDRESS" not in environment(address="10.0.0.8")


@pytest.mark.parametrize(
    ("task_type", "told"),
    [("inference", {"MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK"}), ("container", {"NNODES", "NODE_RANK"})],
)
def test_other_types_are_told_of_no_world(task_type, told):
    document = {"name": "a b", "task_type": task_type, "task": {"command": "c", "gpu_required": 0}}
    found = environment(
        document=accepted(document), checkpoint_path_in_task=None, dataset_path_in_task=None, resume=None
    )
    always = {"HETEROFLOW_GROUP_ID", "HETEROFLOW_ATTEMPT", "HETEROFLOW_GPUS"}
    assert set(found) == told | always | {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"}


def test_every_name_that_is_set_is_reserved_and_on_the_page():
    page = PAGE.read_text()
    for name in environment(document=accepted(good(task__env={"A": "1"}, task__ports={"http": 8000})), address="h"):
        if name in ("A", "PORT") or name.startswith(("HETEROFLOW_HP_", "HETEROFLOW_PORT_")):
            continue
        assert name in PLATFORM_NAMES
        assert reserved_refusal(name)
    listed = dict(re.findall(r"^\| `([A-Za-z_]+)` \| (.+) \|$", page, re.MULTILINE))
    assert listed == PLATFORM_NAMES | FRAMEWORK_NAMES | DEFAULT_NAMES
