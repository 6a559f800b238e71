"""A question that cannot be read is none: ids are whole, and every line fits."""

import pytest

from console.core.confirm_text import (
    node_question,
    pause_question,
    resubmit_question,
    resume_question,
    stop_question,
)
from console.core.line import line_width, plain
from console.store.rows import group_of_row
from tests.snapshots.canned_mesh import NOW_MS, H, gid, group_row


@pytest.mark.parametrize("cells", [72, 112])
@pytest.mark.parametrize("name", ["a", "llama3-8b-sft-math-with-a-name-that-says-everything", "模型训练" * 8])
def test_lines_of_groups_fit_and_their_ids_are_whole(cells, name):
    rows = [group_row(at, name, "running", 128, 8, started_ms=NOW_MS - 99 * H, nodes=["gpu-1"]) for at in (1, 2)]
    question = stop_question([group_of_row(row) for row in rows], 1, NOW_MS, cells)
    assert all(line_width(item) <= cells for item in question.lines)
    for at, item in enumerate(question.lines[:2], 1):
        assert gid(at) in plain(item).split() and "1,024 GPU" in plain(item) and "ran 4d" in plain(item)
    assert any("1 marked has ended already and is left alone." in plain(item) for item in question.lines)


def of_status(status: str, **over):
    return group_of_row(group_row(1, "llama", status, 16, 2, nodes=["gpu-1", "gpu-2"], **over))


def test_a_pause_says_what_is_kept_and_what_it_costs():
    question = pause_question([of_status("running", started_ms=NOW_MS - H)], 2, NOW_MS, 100)
    text = "\n".join(map(plain, question.lines))
    assert (question.title, question.yes) == ("Pause this group", "pause")
    for said in ("SIGTERM", "cards come free", "keep their place in line", "2 marked are left alone"):
        assert said in text
    assert all(line_width(item) <= 100 for item in question.lines)


@pytest.mark.parametrize("task_type", ["training", "inference", "container"])
def test_no_checkpoint_is_promised_that_may_not_be_there(task_type):
    group = of_status("failed", task_type=task_type)
    for question in (resubmit_question(group), resume_question([group], 0, NOW_MS, 100)):
        text = "\n".join(map(plain, question.lines))
        assert ("without one it begins at zero" in text) == (task_type == "training")
        assert ("checkpoint" in text) == (task_type == "training")


def test_a_resume_says_where_it_waits():
    question = resume_question([of_status("paused"), of_status("paused")], 0, NOW_MS, 100)
    text = "\n".join(map(plain, question.lines))
    assert question.title == "Resume 2 groups" and "old place" in text and "SIGTERM" not in text


def test_a_stop_of_what_is_paused_has_no_ranks_to_end():
    text = "\n".join(map(plain, stop_question([of_status("paused")], 0, NOW_MS, 100).lines))
    assert "cannot be resumed" in text and "SIGTERM" not in text and "cards come free" not in text


@pytest.mark.parametrize("what", ["cordon", "uncordon", "drain"])
@pytest.mark.parametrize("groups", [[], ["a"], ["a", "b", "c", "d", "e"]])
def test_a_question_about_a_node_says_what_becomes_of_its_groups(what, groups):
    question = node_question(what, "gpu-07", groups, simple=False)
    text = "\n".join(map(plain, question.lines))
    assert question.yes == what and "gpu-07" in text
    assert ("SIGTERM" in text) == (what == "drain" and bool(groups))
