"""Documents of every framework, as they are accepted."""

from typing import Any

from schemas.rules.frameworks.placement import Placement
from tests.unit.schemas.documents import accepted

COMMANDS = {
    "ddp": "torchrun t.py",
    "fsdp": "torchrun t.py",
    "deepspeed": "torchrun t.py --deepspeed_config $HETEROFLOW_DEEPSPEED_CONFIG",
    "megatron": "torchrun t.py $MEGATRON_TP_PP_ARGS --tensorboard-dir x",
    "tensorflow": "python t.py",
    "paddle": "python -m paddle.distributed.launch t.py",
    "jax": "python t.py",
}


def written(framework: str, nodes: int = 2, cards: int = 4, **hyper_params: Any) -> dict[str, Any]:
    training = {
        "framework": framework,
        "n_nodes": nodes,
        "per_node_gpu": cards,
        "checkpoint_path": "/data/ckpt/x",
        "hyper_params": {key: str(value) for key, value in hyper_params.items()},
    }
    task = {"command": COMMANDS[framework], "gpu_required": cards}
    return {"name": "llama math", "task_type": "training", "training": training, "task": task}


def document(framework: str, nodes: int = 2, cards: int = 4, **hyper_params: Any) -> dict[str, Any]:
    return accepted(written(framework, nodes, cards, **hyper_params))


def placed(rank: int = 1, nodes: int = 2, cards: int = 4, **changes: Any) -> Placement:
    facts: dict[str, Any] = {
        "group_id": "tg-x",
        "attempt": 3,
        "rank": rank,
        "nodes": nodes,
        "cards": cards,
        "master_addr": "10.0.0.1",
        "master_port": 29_998,
        "addresses": tuple(f"10.0.0.{1 + at}" for at in range(nodes)),
        "checkpoint_path": "/data/ckpt/x",
        "files_dir": "/given",
    }
    return Placement(**(facts | changes))
