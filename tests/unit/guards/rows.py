"""The rows of tests/data/guards: a command, the shape it stands in, and what must be found in it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from schemas.as_written_yaml import parse_yaml

DATA = Path(__file__).resolve().parents[2] / "data" / "guards"
RIGHT = {"paddle": "fleetrun t.py", "tensorflow": "python t.py", "jax": "python t.py"}
# Of the document, whatever the command is.
ELSEWHERE = ("shared_storage_unproved", "not_supported_yet", "mutable_image")


def rows(name: str) -> list[dict[str, Any]]:
    found = parse_yaml((DATA / f"{name}.yaml").read_bytes())
    assert isinstance(found, list)
    return found


def every_row() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(DATA.glob("*.yaml")):
        for row in rows(path.stem):
            yield path.stem, row


def document_of(row: Mapping[str, Any]) -> dict[str, Any]:
    cards = int(row.get("cards", 4))
    framework = str(row.get("framework", "ddp"))
    training = {
        "framework": framework,
        "n_nodes": int(row.get("nodes", 2)),
        "per_node_gpu": cards,
        "checkpoint_path": "/data/ckpt/x",
        **{name: row[name] for name in ("hyper_params", "launcher") if name in row},
    }
    task = {
        "command": row.get("command", RIGHT.get(framework, "torchrun --no_python x --tensorboard-dir y")),
        "gpu_required": cards,
        **{name: row[name] for name in ("env", "image") if name in row},
    }
    return {"name": "llama math", "task_type": "training", "training": training, "task": task}


def expected(row: Mapping[str, Any], kind: str) -> list[tuple[str, str]]:
    """(code, path), sorted; the path of a code without one is task.command."""
    pairs = (str(entry).partition("@") for entry in row.get(kind, ()))
    return sorted((code, path or "task.command") for code, _, path in pairs)
