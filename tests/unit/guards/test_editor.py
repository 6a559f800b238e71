"""The clone editor of the console says what a command would do wrong while it is typed."""

import pytest

from console.core.document_yaml import document_yaml
from console.core.guards import judged
from schemas.task_group import accepted_task_group
from tests.unit.guards.rows import document_of


def said(row, cells=200):
    original = accepted_task_group(document_of({"command": "torchrun t.py"}))[0]
    changed = {**original, "task": {**original["task"], "command": row["command"]}}
    found = judged(document_yaml(changed), original, cells)
    return found.body, "\n".join("".join(text for text, *_ in spans) for spans in found.lines)


def test_a_refused_command_is_not_submitted_and_says_what_to_write():
    body, text = said({"command": "torchrun --nnodes=3 t.py || true"})
    assert body is None
    assert "--nnodes=3, but training.n_nodes is 2" in text
    assert "write --nnodes=$NNODES" in text
    assert "|| true" in text


@pytest.mark.parametrize("command", ["torchrun --nnodes=2 t.py", ["torchrun", "t.py"]])
def test_a_right_command_may_be_submitted(command):
    body, text = said({"command": command})
    assert body is not None
    assert "✗" not in text


def test_a_doubtful_command_may_be_submitted_with_its_warning():
    body, text = said({"command": "torchrun --nnodes=$SLURM_NNODES t.py"})
    assert body is not None
    assert "! task.command says --nnodes=$SLURM_NNODES, which cannot be known" in text
