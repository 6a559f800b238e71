"""Documents to begin with, as data. A version is never changed once it was released: a new one stands beside it.

What a document was made from stands in its label `template`, as `NAME/VERSION`.
"""

from dataclasses import dataclass
from typing import Any

LABEL = "template"


@dataclass(frozen=True, slots=True)
class Template:
    """summary: what it is for; document: as a file would hold it, texts for scalars; edit: what only its user knows."""

    name: str
    version: int
    summary: str
    document: dict[str, Any]
    edit: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        return f"{self.name}/{self.version}"


_TORCH = "pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime"
_EDIT = ("name", "training.checkpoint_path", "training.dataset_path", "task.image", "task.command")
_HYPER = {"learning_rate": "3e-4", "seed": "1"}


def _document(name: str, training: dict[str, Any], task: dict[str, Any]) -> dict[str, Any]:
    paths = {"checkpoint_path": f"/data/checkpoints/{name.replace(' ', '-')}", "dataset_path": "/data/dataset"}
    return {
        "name": name,
        "task_type": "training",
        "training": {**training, **paths},
        "task": {**task, "gpu_required": training["per_node_gpu"]},
    }


def _training(framework: str, n_nodes: int, cards: int, **hyper_params: str) -> dict[str, Any]:
    shape = {"framework": framework, "n_nodes": n_nodes, "per_node_gpu": cards}
    return {**shape, "hyper_params": {**_HYPER, **hyper_params}}


ALL: tuple[Template, ...] = (
    Template(
        "ddp-single-node",
        1,
        "PyTorch DDP on the cards of one node",
        _document(
            "ddp on one node",
            _training("ddp", 1, 8),
            {"image": _TORCH, "command": "torchrun /workspace/train.py", "shm_size": "16g"},
        ),
        _EDIT,
    ),
    Template(
        "deepspeed-zero2",
        1,
        "DeepSpeed ZeRO stage 2 in bf16 over two nodes, its configuration generated",
        _document(
            "deepspeed zero 2",
            _training(
                "deepspeed", 2, 8, zero_stage="2", precision="bf16", micro_batch_size="4", gradient_clipping="1.0"
            ),
            {
                "image": _TORCH,
                "command": "torchrun /workspace/train.py --deepspeed_config $HETEROFLOW_DEEPSPEED_CONFIG",
                "shm_size": "16g",
            },
        ),
        _EDIT,
    ),
    Template(
        "fsdp-full-shard",
        1,
        "PyTorch FSDP, everything sharded over two nodes, bf16",
        _document(
            "fsdp full shard",
            _training("fsdp", 2, 8, sharding_strategy="FULL_SHARD", precision="bf16"),
            {"image": _TORCH, "command": "torchrun /workspace/train.py", "shm_size": "16g"},
        ),
        _EDIT,
    ),
    Template(
        "megatron-tp2-pp2",
        1,
        "Megatron-LM, tensor parallel 2 x pipeline parallel 2, on four cards",
        _document(
            "megatron tp2 pp2",
            _training(
                "megatron",
                1,
                4,
                tensor_model_parallel_size="2",
                pipeline_model_parallel_size="2",
                micro_batch_size="2",
                global_batch_size="32",
            ),
            {
                "image": "heteroflow/megatron:1",
                "command": "torchrun pretrain_gpt.py $MEGATRON_TP_PP_ARGS --num-layers 24 --hidden-size 1024 "
                "--num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --bf16 "
                "--micro-batch-size $HETEROFLOW_HP_MICRO_BATCH_SIZE "
                "--global-batch-size $HETEROFLOW_HP_GLOBAL_BATCH_SIZE "
                "--lr $HETEROFLOW_HP_LEARNING_RATE --seed $HETEROFLOW_HP_SEED --train-iters 10000 --save-interval 500 "
                '--mock-data --tokenizer-type NullTokenizer --vocab-size 32000 --save "$HETEROFLOW_CHECKPOINT_PATH" '
                '--tensorboard-dir "$HETEROFLOW_TB_DIR" '
                "${HETEROFLOW_RESUME_FROM_CHECKPOINT:+--load $HETEROFLOW_CHECKPOINT_PATH --exit-on-missing-checkpoint}",
                "working_dir": "/workspace/megatron",
                "shm_size": "16g",
            },
        ),
        _EDIT,
    ),
    Template(
        "tensorflow-mwms",
        1,
        "TensorFlow MultiWorkerMirroredStrategy over two nodes, TF_CONFIG generated",
        _document(
            "tensorflow mwms",
            _training("tensorflow", 2, 4),
            {"image": "heteroflow/tensorflow:1", "command": "python /workspace/train.py", "shm_size": "8g"},
        ),
        _EDIT,
    ),
    Template(
        "paddle-data-parallel",
        1,
        "PaddlePaddle data parallel over two nodes",
        _document(
            "paddle data parallel",
            _training("paddle", 2, 4),
            {
                "image": "heteroflow/paddle:1",
                "command": "python -m paddle.distributed.launch /workspace/train.py",
                "shm_size": "8g",
            },
        ),
        _EDIT,
    ),
    Template(
        "mpi-nccl-tests",
        1,
        "NCCL's all_reduce_perf by mpirun on the cards of one node: bandwidth between them",
        _document(
            "nccl all-reduce by mpi",
            {"framework": "ddp", "n_nodes": 1, "per_node_gpu": 8},
            {
                "image": "heteroflow/mpi-nccl-tests:1",
                "command": "mpirun -np $LOCAL_WORLD_SIZE all_reduce_perf -b 8M -e 4G -f 2 -g 1",
                "shm_size": "8g",
            },
        ),
        ("name", "training.per_node_gpu", "task.image"),
    ),
    Template(
        "openmp",
        1,
        "one process with OpenMP threads beside one card",
        _document(
            "openmp program",
            {"framework": "ddp", "launcher": "script", "n_nodes": 1, "per_node_gpu": 1},
            {"image": "debian:12.11-slim", "command": "/workspace/program", "cpus": "16"},
        ),
        ("name", "training.checkpoint_path", "task.image", "task.command", "task.cpus"),
    ),
)
