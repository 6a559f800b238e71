"""The environment of one rank: the user's variables, and over them what the platform decides.

docs/environment.md is the page for users; a test holds both together.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from schemas.rules.frameworks.placement import FILES_IN_CONTAINER, Given
from schemas.rules.hyper_params import ALL_AS_JSON, AS_FILE, FILE_NAME, as_json, needs_file, variable_name
from schemas.task_types import CONTAINER, INFERENCE, type_of

# torchrun ignores MASTER_ADDR, NNODES and the like; without the PET_ twins a bare `torchrun train.py` makes each node a
# world of its own, both write one checkpoint, and every exit code is 0.
RENDEZVOUS_TIMEOUT_S = 300

PLATFORM_NAMES: dict[str, str] = {
    "MASTER_ADDR": "address of rank 0's node",
    "MASTER_PORT": "free port on rank 0's node, new in every attempt",
    "NNODES": "training.n_nodes",
    "NODE_RANK": "rank of this node, from 0",
    "NPROC_PER_NODE": "training.per_node_gpu",
    "LOCAL_WORLD_SIZE": "training.per_node_gpu",
    "WORLD_SIZE": "n_nodes x per_node_gpu",
    "PET_NNODES": "for torchrun: n_nodes",
    "PET_NODE_RANK": "for torchrun: rank of this node",
    "PET_NPROC_PER_NODE": "for torchrun: per_node_gpu",
    "PET_MASTER_ADDR": "for torchrun: address of rank 0's node",
    "PET_MASTER_PORT": "for torchrun: the master port",
    "PET_RDZV_CONF": f"for torchrun: give up a rendezvous after {RENDEZVOUS_TIMEOUT_S} s instead of 900",
    "HETEROFLOW_GROUP_ID": "id of the task group",
    "HETEROFLOW_ATTEMPT": "attempt, from 1",
    "HETEROFLOW_ADDRESS": "address of this node (with task.ports)",
    "HETEROFLOW_CHECKPOINT_PATH": "where to write checkpoints (with checkpoint_path)",
    "HETEROFLOW_TB_DIR": "where to write TensorBoard event files: tb_logs in it (with checkpoint_path)",
    "HETEROFLOW_DATASET_PATH": "where the dataset is (with dataset_path)",
    "HETEROFLOW_BASE_CHECKPOINT": "the model to begin with (with base_checkpoint)",
    "HETEROFLOW_RESUME_FROM_CHECKPOINT": "checkpoint to go on from; unset when the run starts from zero",
    "HETEROFLOW_HYPER_PARAMS": "every hyper-parameter as one JSON object of texts (with hyper_params)",
    "HETEROFLOW_HYPER_PARAMS_FILE": "file with that object, instead of it where all variables exceed 96 KiB",
    "HETEROFLOW_REPORT": "pipe that heteroflow_report tells progress through",
    "HETEROFLOW_GPUS": "ids of this rank's cards, simulated ones too",
    "CUDA_VISIBLE_DEVICES": "this rank's cards by UUID; empty on simulated cards",
    "NVIDIA_VISIBLE_DEVICES": "the same for the NVIDIA container runtime; void on simulated cards",
}
# Launchers set these for each process; at node level they would make every process believe it is one and the same rank.
PER_PROCESS_NAMES = frozenset(("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"))
# Of one framework each; no document may set them, whatever its framework is.
FRAMEWORK_NAMES: dict[str, str] = {
    "HETEROFLOW_BACKEND_HINT": "gloo where the ranks could meet at a public address alone, for init_process_group",
    "HETEROFLOW_HOSTFILE": "deepspeed: hostfile of the group, for --hostfile",
    "HETEROFLOW_DEEPSPEED_CONFIG": "deepspeed: the generated ds_config.json",
    "MEGATRON_TP_PP_ARGS": "megatron: its parallelism as options",
    "TF_CONFIG": "tensorflow, several nodes: every worker's address, and which of them this is",
    "PADDLE_MASTER": "paddle, several nodes: address and port of rank 0",
    "PADDLE_NNODES": "paddle: n_nodes",
    "PADDLE_RANK": "paddle: rank of this node",
    "PADDLE_NPROC_PER_NODE": "paddle: per_node_gpu",
    "PADDLE_JOB_ID": "paddle: group and attempt",
    "PADDLE_LOG_DIR": "paddle: where its workers' output goes, paddle_logs under the checkpoint path",
    "PADDLE_MAX_RESTART": "paddle: 0",
    "PADDLE_ELASTIC_LEVEL": "paddle: -1, never elastic",
    "PADDLE_DISTRI_BACKEND": "paddle on simulated cards: gloo",
    "POD_IP": "paddle, several nodes: address of this node",
    "JAX_COORDINATOR_ADDRESS": "jax: address and port of rank 0",
    "JAX_NUM_PROCESSES": "jax: n_nodes",
    "JAX_PROCESS_ID": "jax: rank of this node",
}
# What the platform sets unless task.env says otherwise: no rank meets another by them.
DEFAULT_NAMES: dict[str, str] = {
    "PORT": "the port of task.ports, where there is one alone",
    "PYTHONPATH": "where heteroflow_report is; what task.env or the image says comes behind it",
    "OMP_NUM_THREADS": "task.cpus shared by the processes of a node, at least 1 (with task.cpus)",
    "NCCL_SOCKET_IFNAME": "several nodes: the interface of this node that leads to MASTER_ADDR, with = before it",
    "GLOO_SOCKET_IFNAME": "several nodes: the same interface",
    "NCCL_IB_DISABLE": "1 where the ranks could meet at a public address alone",
    "CUDA_DEVICE_MAX_CONNECTIONS": "megatron with tp or cp above 1: 1",
    "ACCELERATE_USE_FSDP": "fsdp with sharding_strategy: true",
    "ACCELERATE_MIXED_PRECISION": "fsdp: precision",
    "FSDP_SHARDING_STRATEGY": "fsdp: sharding_strategy",
    "FSDP_RESHARD_AFTER_FORWARD": "fsdp: the same as FSDP 2 says it, with fsdp_version 2",
    "FSDP_STATE_DICT_TYPE": "fsdp with sharding_strategy: SHARDED_STATE_DICT",
    "FSDP_SHARDING_GROUP_SIZE": "fsdp: sharding_group_size",
    "FSDP_VERSION": "fsdp: fsdp_version",
    "FSDP_OFFLOAD_PARAMS": "fsdp: fsdp_offload_params",
    "FSDP_AUTO_WRAP_POLICY": "fsdp: fsdp_auto_wrap_policy",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "fsdp: fsdp_transformer_cls_to_wrap",
    "PYTHONUNBUFFERED": "paddle: 1, so that what its launcher repeats of a worker's output comes at once",
    "XPU_VISIBLE_DEVICES": "paddle on simulated cards: as many as the node has, for its launcher to count",
    "OMPI_ALLOW_RUN_AS_ROOT": "ddp on one node, for mpirun: 1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "ddp on one node, for mpirun: 1",
    "OMPI_MCA_orte_default_hostfile": "ddp on one node, for mpirun: file with a slot a card",
    "PRTE_MCA_prte_default_hostfile": "the same for Open MPI 5",
}
_OTHER_VENDORS = frozenset(("GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"))
# Each of task.ports by its name.
PORT_PREFIX = "HETEROFLOW_PORT_"
# What ranks of these types are told of one another; only training has launchers that would read the rest.
_OF_TYPE = {
    INFERENCE: ("MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK"),
    CONTAINER: ("NNODES", "NODE_RANK"),
}
RESERVED_PREFIXES = ("HETEROFLOW_", "PET_", "PADDLE_", "TORCHELASTIC_")


def reserved_refusal(name: str) -> str | None:
    """The reason why a user may not set a variable, or None."""
    if name in PLATFORM_NAMES:
        return f"is set by the platform ({PLATFORM_NAMES[name]})"
    if name in PER_PROCESS_NAMES:
        return (
            "is set by the launcher for each process; a value for the whole node would give every process the same rank"
        )
    if name in FRAMEWORK_NAMES:
        return f"is the platform's to set ({FRAMEWORK_NAMES[name]})"
    if name in _OTHER_VENDORS:
        return "is the platform's to set, from the cards of the group"
    for prefix in RESERVED_PREFIXES:
        if name.startswith(prefix):
            return f"begins with {prefix}, which the platform keeps for itself"
    return None


def rank_environment(
    document: Mapping[str, Any],
    group_id: str,
    attempt: int | str,
    rank: int,
    n_nodes: int,
    per_node_gpu: int,
    master_addr: str,
    master_port: int | str,
    checkpoint_path_in_task: str | None,
    dataset_path_in_task: str | None,
    resume: str | None,
    gpus: Sequence[str],
    simulated_gpus: bool = False,
    given: Given | None = None,
    files_dir: str = FILES_IN_CONTAINER,
    address: str | None = None,
    base_checkpoint_in_task: str | None = None,
) -> dict[str, str]:
    """document: normalised; gpus: UUIDs of this rank's cards; the paths are those the task sees; given: what the
    framework adds; address: of this rank's node, where it is known.

    User variables come over defaults alone. RANK and LOCAL_RANK are never set: they belong to processes, not to nodes.
    """
    task, given = document.get("task") or {}, given or Given()
    hyper_params: Mapping[str, str] = (document.get("training") or {}).get("hyper_params") or {}
    ports: Mapping[str, int] = task.get("ports") or {}
    environment: dict[str, str] = dict(given.defaults)
    if len(ports) == 1:
        environment["PORT"] = str(*ports.values())
    environment |= task.get("env") or {}
    environment |= {variable_name(key): value for key, value in sorted(hyper_params.items())}
    told = _orchestration(rank, n_nodes, per_node_gpu, master_addr, master_port)
    environment |= {name: told[name] for name in _OF_TYPE.get(type_of(document), tuple(told))}
    environment |= {f"{PORT_PREFIX}{name.upper()}": str(port) for name, port in ports.items()}
    if ports and address is not None:
        environment["HETEROFLOW_ADDRESS"] = address
    environment |= {"HETEROFLOW_GROUP_ID": group_id, "HETEROFLOW_ATTEMPT": str(attempt)}
    environment |= given.env
    if needs_file(hyper_params, task.get("env") or {}):
        environment[AS_FILE] = f"{files_dir}/{FILE_NAME}"
    elif hyper_params:
        environment[ALL_AS_JSON] = as_json(hyper_params)
    if checkpoint_path_in_task:
        environment["HETEROFLOW_CHECKPOINT_PATH"] = checkpoint_path_in_task
        environment["HETEROFLOW_TB_DIR"] = f"{checkpoint_path_in_task.rstrip('/')}/tb_logs"
    if dataset_path_in_task:
        environment["HETEROFLOW_DATASET_PATH"] = dataset_path_in_task
    if base_checkpoint_in_task:
        environment["HETEROFLOW_BASE_CHECKPOINT"] = base_checkpoint_in_task
    if resume:
        environment["HETEROFLOW_RESUME_FROM_CHECKPOINT"] = resume
    return environment | _cards(gpus, simulated_gpus)


def _orchestration(
    rank: int, n_nodes: int, per_node_gpu: int, master_addr: str, master_port: int | str
) -> dict[str, str]:
    return {
        "MASTER_ADDR": master_addr,
        "MASTER_PORT": str(master_port),
        "NNODES": str(n_nodes),
        "NODE_RANK": str(rank),
        "NPROC_PER_NODE": str(per_node_gpu),
        "LOCAL_WORLD_SIZE": str(per_node_gpu),
        "WORLD_SIZE": str(n_nodes * per_node_gpu),
        "PET_NNODES": str(n_nodes),
        "PET_NODE_RANK": str(rank),
        "PET_NPROC_PER_NODE": str(per_node_gpu),
        "PET_MASTER_ADDR": master_addr,
        "PET_MASTER_PORT": str(master_port),
        "PET_RDZV_CONF": f"timeout={RENDEZVOUS_TIMEOUT_S}",
    }


def _cards(gpus: Sequence[str], simulated: bool) -> dict[str, str]:
    """Always both: where one is missing, CUDA or the container runtime falls back to every card of the host."""
    listed = ",".join(gpus)
    if simulated or not gpus:
        return {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void", "HETEROFLOW_GPUS": listed}
    return {"CUDA_VISIBLE_DEVICES": listed, "NVIDIA_VISIBLE_DEVICES": listed, "HETEROFLOW_GPUS": listed}
