"""What each framework's ranks get."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from schemas.limits import PORT_MAX, PORT_MIN
from schemas.rules.environment import DEFAULT_NAMES, FRAMEWORK_NAMES, reserved_refusal
from schemas.rules.frameworks import FRAMEWORKS, PlacementIncomplete, given_to
from schemas.rules.frameworks.parameters import CONSUMED
from schemas.rules.frameworks.placement import port_of
from schemas.rules.frameworks.rank import rank_start
from schemas.task_group import check_task_group
from tests.unit.frameworks.documents import COMMANDS, document, placed, written


def test_megatron_gets_its_sizes_as_options():
    found = given_to(document("megatron", tp=2, pipeline_model_parallel_size=2, cp=2), placed())
    said = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --context-parallel-size 2"
    assert found.env == {"MEGATRON_TP_PP_ARGS": said}
    assert found.defaults == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}


def test_megatron_s_variable_is_set_without_any_size():
    found = given_to(document("megatron"), placed())
    assert found.env["MEGATRON_TP_PP_ARGS"] == "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1"
    assert found.defaults == {}


def test_tensorflow_lists_every_worker_in_one_order():
    told = [json.loads(given_to(document("tensorflow"), placed(rank)).env["TF_CONFIG"]) for rank in (0, 1)]
    assert told[0]["cluster"] == told[1]["cluster"] == {"worker": ["10.0.0.1:29998", "10.0.0.2:29999"]}
    assert [config["task"] for config in told] == [{"type": "worker", "index": 0}, {"type": "worker", "index": 1}]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_collectives_use_the_interface_that_leads_to_rank_0(framework):
    two = replace(placed(1), interface="eth1")
    told = {"NCCL_SOCKET_IFNAME": "=eth1", "GLOO_SOCKET_IFNAME": "eth1"}
    assert told.items() <= given_to(document(framework), two).defaults.items()
    assert not told.keys() & given_to(document(framework), placed(1)).defaults.keys(), "not known: left alone"
    assert not told.keys() & given_to(document(framework), replace(two, nodes=1, rank=0)).defaults.keys()
    own = document(framework)
    own["task"]["env"] = {"GLOO_SOCKET_IFNAME": "ib0"}
    env = rank_start(own, two, True, {}).env
    assert (env["GLOO_SOCKET_IFNAME"], env["NCCL_SOCKET_IFNAME"]) == ("ib0", "=eth1"), "the user's own stands"
    assert reserved_refusal("NCCL_SOCKET_IFNAME") is None


def test_an_ipv6_address_stands_alone_or_in_brackets_before_a_port():
    """Without brackets nobody can tell where the address ends."""
    where = replace(placed(1), master_addr="2001:db8::10", addresses=("2001:db8::10", "2001:db8::11"))
    assert given_to(document("jax"), where).env["JAX_COORDINATOR_ADDRESS"] == f"[2001:db8::10]:{where.port(0)}"
    assert given_to(document("paddle"), where).env["PADDLE_MASTER"] == f"[2001:db8::10]:{where.port(0)}"
    assert f'"[2001:db8::11]:{where.port(1)}"' in given_to(document("tensorflow"), where).env["TF_CONFIG"]
    assert rank_start(document("ddp"), where, True, {}).env["MASTER_ADDR"] == "2001:db8::10"


def test_ranks_that_meet_over_a_public_address_are_told():
    across = replace(placed(1), crosses_networks=True)
    found = given_to(document("ddp"), across)
    assert (found.env, found.defaults) == ({"HETEROFLOW_BACKEND_HINT": "gloo"}, {"NCCL_IB_DISABLE": "1"})
    alone = given_to(document("ddp"), replace(across, nodes=1, rank=0))
    assert not alone.env and "NCCL_IB_DISABLE" not in alone.defaults


def test_tensorflow_of_one_node_has_no_cluster():
    assert given_to(document("tensorflow", nodes=1), placed(0, nodes=1)).env == {}


def test_an_older_leader_s_start_is_refused_rather_than_half_a_cluster():
    with pytest.raises(PlacementIncomplete, match="older version"):
        given_to(document("tensorflow"), placed(addresses=()))


def test_an_ipv6_address_is_bracketed():
    found = given_to(document("tensorflow"), placed(master_addr="fd00::1", addresses=("fd00::1", "fd00::2")))
    assert json.loads(found.env["TF_CONFIG"])["cluster"]["worker"][1] == "[fd00::2]:29999"


def test_paddle():
    assert given_to(document("paddle"), placed()).env == {
        "PADDLE_MASTER": "10.0.0.1:29998",
        "PADDLE_NNODES": "2",
        "PADDLE_RANK": "1",
        "PADDLE_NPROC_PER_NODE": "4",
        "PADDLE_JOB_ID": "tg-x-3",
        "PADDLE_LOG_DIR": "/data/ckpt/x/paddle_logs/attempt-3/node-1",
        "PADDLE_MAX_RESTART": "0",
        "PADDLE_ELASTIC_LEVEL": "-1",
        "POD_IP": "10.0.0.2",
    }


def test_paddle_is_told_of_simulated_cards_by_a_name_that_is_not_cuda_s():
    """Its launcher takes an empty CUDA_VISIBLE_DEVICES for one card, and fails to start a second process."""
    found = given_to(document("paddle"), replace(placed(), simulated_gpus=True))
    assert found.env["PADDLE_DISTRI_BACKEND"] == "gloo"
    assert found.defaults == {"PYTHONUNBUFFERED": "1", "XPU_VISIBLE_DEVICES": "0,1,2,3"}
    assert given_to(document("paddle"), placed()).defaults == {"PYTHONUNBUFFERED": "1"}


def test_jax():
    assert given_to(document("jax"), placed()).env == {
        "JAX_COORDINATOR_ADDRESS": "10.0.0.1:29998",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": "1",
    }


def test_fsdp_for_scripts_that_use_accelerate():
    hyper: dict[str, Any] = {"sharding_strategy": "SHARD_GRAD_OP", "precision": "bf16"}
    found = given_to(document("fsdp", **hyper), placed())
    assert found.defaults["FSDP_RESHARD_AFTER_FORWARD"] == "SHARD_GRAD_OP"
    assert found.defaults["ACCELERATE_MIXED_PRECISION"] == "bf16"
    assert (
        given_to(document("fsdp", **hyper, fsdp_version=2), placed()).defaults["FSDP_RESHARD_AFTER_FORWARD"] == "false"
    )
    assert given_to(document("fsdp"), placed()).defaults == {}


def test_a_program_of_one_node_gets_a_slot_a_card():
    found = given_to(document("ddp", nodes=1), placed(0, nodes=1))
    assert found.files == {"mpi_hosts": "localhost slots=4\n"}
    assert found.defaults["OMPI_MCA_orte_default_hostfile"] == "/given/mpi_hosts"
    assert given_to(document("ddp"), placed()).files == {}


@pytest.mark.parametrize(("framework", "threads"), [("ddp", "3"), ("tensorflow", "14")])
def test_declared_processors_are_shared_by_the_processes_of_a_node(framework, threads):
    right = document(framework)
    right["task"] |= {"image": "r/x:1", "cpus": "14"}
    assert given_to(right, placed()).defaults["OMP_NUM_THREADS"] == threads


def test_a_user_s_value_beats_defaults_and_never_the_topology():
    right = document("megatron", tp=2)
    right["task"]["env"] = {"CUDA_DEVICE_MAX_CONNECTIONS": "8", "MEGATRON_TP_PP_ARGS": "--tensor-model-parallel-size 1"}
    found = rank_start(right, placed(), True, {}).env
    assert found["CUDA_DEVICE_MAX_CONNECTIONS"] == "8"
    assert found["MEGATRON_TP_PP_ARGS"].startswith("--tensor-model-parallel-size 2")


def test_ports_of_ranks_stay_in_the_range_and_apart():
    ports = [port_of(PORT_MAX - 1, rank) for rank in range(PORT_MAX - PORT_MIN + 1)]
    assert ports[:3] == [PORT_MAX - 1, PORT_MAX, PORT_MIN]
    assert len(set(ports)) == len(ports) and min(ports) == PORT_MIN and max(ports) == PORT_MAX


names = st.sampled_from(sorted({name for names in CONSUMED.values() for name in names}))
values = st.sampled_from(
    ["1", "2", "3", "4", "0", "auto", "bf16", "FULL_SHARD", "true", "{", "{}", "", "0.5"]
) | st.text(max_size=8).filter(lambda text: "\0" not in text)


@settings(max_examples=200, deadline=None)
@forall(st.sampled_from(FRAMEWORKS), st.integers(1, 4), st.dictionaries(names, values, max_size=6))
def test_every_rank_of_every_document_has_an_answer_of_known_names(framework, nodes, hyper_params):
    """Also of one that this version's guards would refuse: the log may hold it."""
    raw = written(framework, nodes, 4, **hyper_params)
    checked = check_task_group(raw)
    for rank in range(nodes):
        found = given_to(checked.document or raw, placed(rank, nodes))
        assert found.env.keys() <= FRAMEWORK_NAMES.keys() and found.defaults.keys() <= DEFAULT_NAMES.keys()
        assert all(isinstance(value, str) for value in [*found.env.values(), *found.files.values()])
    assert all(reserved_refusal(name) for name in FRAMEWORK_NAMES)
    assert not any(reserved_refusal(name) for name in DEFAULT_NAMES)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_launcher_s_rank_is_set_for_a_whole_node(framework):
    found = rank_start(document(framework), placed(), True, {}).env
    assert not {"RANK", "LOCAL_RANK"} & found.keys()
    assert COMMANDS[framework] == rank_start(document(framework), placed(), True, {}).shell, "never rewritten"


def test_a_container_sees_its_parents_checkpoint_read_only_while_it_begins_there():
    inside = document("ddp")
    inside["task"]["image"] = "x:1"
    began = placed(parent_path="/data/base", resume="/data/base/checkpoints/step-5")
    start = rank_start(inside, began, False, {})
    assert ("/data/base", "/parent", True) in start.mounts
    assert start.env["HETEROFLOW_RESUME_FROM_CHECKPOINT"] == "/parent/checkpoints/step-5"
    on_host = rank_start(document("ddp"), began, True, {}).env
    assert on_host["HETEROFLOW_RESUME_FROM_CHECKPOINT"] == "/data/base/checkpoints/step-5"
    later = rank_start(inside, placed(resume="/data/ckpt/x/step-9"), False, {})
    assert later.env["HETEROFLOW_RESUME_FROM_CHECKPOINT"] == "/checkpoint/step-9"
    assert "/parent" not in [mount.target for mount in later.mounts]


@pytest.mark.parametrize(
    ("framework", "resume", "told", "mount"),
    [
        ("ddp", "/data/other/run/step-5", "/resume/step-5", ("/data/other/run/step-5", "/resume/step-5", True)),
        ("ddp", "/data/other/w.pt", "/resume/w.pt", ("/data/other/w.pt", "/resume/w.pt", True)),
        ("tensorflow", "/data/other/run/ckpt-5", "/resume/ckpt-5", ("/data/other/run", "/resume", True)),
        ("ddp", "/data/ckpt/x/step-5", "/checkpoint/step-5", None),
        ("ddp", "/data/ckpt/xy/step-5", "/resume/step-5", ("/data/ckpt/xy/step-5", "/resume/step-5", True)),
        ("ddp", "/data/a/step-5", "/m/step-5", None),
        # Another mount lies over it in the container.
        ("ddp", "/data/a/sub/step-5", "/resume/step-5", ("/data/a/sub/step-5", "/resume/step-5", True)),
        ("ddp", "/data/b/step-5", "/m/sub/step-5", None),
    ],
)
def test_what_a_rank_is_told_to_resume_from_is_where_it_runs(framework, resume, told, mount):
    own = document(framework)
    own["task"]["image"] = "x:1"
    own["task"]["mounts"] = [
        {"source": "/data/a", "target": "/m", "read_only": True},
        {"source": "/data/b", "target": "/m/sub", "read_only": True},
    ]
    start = rank_start(own, placed(resume=resume), False, {})
    assert start.env["HETEROFLOW_RESUME_FROM_CHECKPOINT"] == told
    assert [one for one in start.mounts if one.target.startswith("/resume")] == ([mount] if mount else [])
    on_host = rank_start(document(framework), placed(resume=resume), True, {}).env
    assert on_host["HETEROFLOW_RESUME_FROM_CHECKPOINT"] == resume


def test_the_model_to_begin_with_is_told_and_shown_read_only():
    own = document("ddp")
    own["training"]["base_checkpoint"] = "/data/models/llama3-8b"
    where = placed(base_checkpoint="/data/models/llama3-8b", resume="/data/models/llama3-8b/step-1")
    assert rank_start(own, where, True, {}).env["HETEROFLOW_BASE_CHECKPOINT"] == "/data/models/llama3-8b"
    own["task"]["image"] = "x:1"
    start = rank_start(own, where, False, {})
    assert ("/data/models/llama3-8b", "/base", True) in start.mounts
    assert start.env["HETEROFLOW_BASE_CHECKPOINT"] == "/base"
    assert start.env["HETEROFLOW_RESUME_FROM_CHECKPOINT"] == "/base/step-1"
    assert "HETEROFLOW_BASE_CHECKPOINT" not in rank_start(document("ddp"), placed(), True, {}).env
