"""How many documents a second the checker with its guards judges, beside reading the same documents from JSON and
splitting their commands by `shlex`, which is the least that any check of a command would do."""

import json
import shlex
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from schemas.strict_json import parse_strict_json
from schemas.task_group import check_task_group
from tests.unit.guards.rows import document_of, every_row

ROUNDS = 5
# The longest command a document may hold, written to keep a reader busy.
LONGEST = "env A=$B torchrun --nnodes=$NNODES t.py --x 'y z' && " * 1200 + "true"


def main() -> dict[str, Any]:
    documents = [json.dumps(document_of(row)).encode() for _, row in every_row()]
    judged = _cpu_s(lambda: [check_task_group(parse_strict_json(document)) for document in documents])
    split = _cpu_s(lambda: [_split(document) for document in documents])
    longest = parse_strict_json(json.dumps(document_of({"command": LONGEST})).encode())
    longest_s = _cpu_s(lambda: check_task_group(longest))
    count = len(documents)
    figures = {
        "documents": float(count),
        "documents_per_cpu_s": count / judged,
        "cpu_us_each": judged / count * 1e6,
        "json_and_shlex_per_cpu_s": count / split,
        "longest_command_bytes": float(len(LONGEST)),
        "longest_command_cpu_ms": longest_s * 1e3,
    }
    ratios = {"judged_of_json_and_shlex": judged / split}
    return {"figures": figures, "ratios": ratios}


def _split(document: bytes) -> list[str]:
    command = parse_strict_json(document)["task"]["command"]
    line = command if isinstance(command, str) else " ".join(command)
    try:
        return list(shlex.shlex(line, posix=True, punctuation_chars=True))
    except ValueError:  # a quote that is not closed
        return []


def _cpu_s(work: Callable[[], object]) -> float:
    """Of one run, the middle of several: other work on the machine takes time, not processor."""
    spent = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        work()
        spent.append(time.process_time() - begun)
    return median(spent)
