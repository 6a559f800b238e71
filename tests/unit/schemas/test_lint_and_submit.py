"""`heteroflow lint` and an agent judge one file alike: what YAML left unquoted reaches the agent as JSON."""

import pytest

from schemas.as_written_yaml import parse_yaml
from schemas.strict_json import parse_strict_json
from schemas.task_group import check_task_group, encode_document
from tests.unit.schemas.documents import good

TEXT = """\
name: llama math
task_type: training
training:
  framework: ddp
  n_nodes: 2
  per_node_gpu: 4
  checkpoint_path: /data/ckpt/x
task:
  image: r/x:1
  command: torchrun t.py
  gpu_required: 4
"""
LINES = {
    "training": [
        *(f"n_nodes: {value}" for value in ("+2", "04", "2.0", "yes", "0x2", ".nan", '"2"', "two", "-0", "~", "1e3")),
        *(f"framework: {value}" for value in ("DDP", "no", '"ddp"', "1")),
        *(f"deadline_s: {value}" for value in ("2h", "+60", '"60"', "60")),
        *(f"preemptible: {value}" for value in ("yes", '"true"', "true", "on")),
        "hyper_params: {a: 1e-4, b: no, c: 1e400, d: 0755, e: 22:30, f: ~}",
        "recovery: {max_restarts: +2, on: node_lost}",
        "recovery: {max_restarts: two, on: [nccl_init, no]}",
        "recovery: 3",
        "seed: 017",
        "gpu_type: [4090, no]",
    ],
    "task": [
        "cpus: 08",
        "memory: 1_000g",
        "env: {A: no, B: 0x1F, C: true}",
        "mounts: [{source: /data/x, target: /x, read_only: yes}]",
        "mounts: [{source: 1, target: /x}]",
        "ports: {http: 08000}",
        "ulimits: {nofile: +5, stack: -1}",
        "command: [torchrun, --nnodes, 2, t.py]",
        "command: 3",
    ],
}
CASES = [(section, line) for section, lines in LINES.items() for line in lines]


@pytest.mark.parametrize(("section", "line"), CASES, ids=[line for _, line in CASES])
def test_both_say_the_same(section, line):
    field = line.partition(":")[0]
    kept = "".join(each for each in TEXT.splitlines(True) if not each.startswith(f"  {field}:"))
    raw = parse_yaml(kept.replace(f"{section}:\n", f"{section}:\n  {line}\n").encode())
    here, there = check_task_group(raw), check_task_group(parse_strict_json(encode_document(raw)))
    assert here == there


@pytest.mark.parametrize("path", ["name", "training.recovery", "task.mounts", "training.hyper_params", "task.env"])
def test_no_depth_crashes_the_check(path):
    value: object = {}
    for _ in range(5_000):
        value = {"a": value} if path != "task.mounts" else [value]
    found = check_task_group(good(task__image="r/x:1", **{path.replace(".", "__"): value})).errors
    assert [finding for finding in found if finding.path.startswith(path)]
