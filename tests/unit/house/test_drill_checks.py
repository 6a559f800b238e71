"""The checks of the drills go red on what they are there to find."""

import json
from pathlib import Path

import pytest

from scripts.drills.job import check_steps
from scripts.drills.life import overlap
from scripts.drills.losses import check_watches, watched
from scripts.drills.mesh import DrillFailed
from scripts.drills.rolling import check_acknowledged


def lines(*steps: int) -> list[str]:
    return [json.dumps({"attempt": 1, "text": f"rank 0 of 4 step {step} loss 0.5"}) for step in steps]


@pytest.mark.parametrize("steps", [(10, 20, 40), (10, 20, 20), (10, 20, 10)])
def test_a_log_line_lost_repeated_or_out_of_order(steps: tuple[int, ...]):
    with pytest.raises(DrillFailed, match="skip or repeat"):
        check_steps(lines(*steps), "log")


def test_a_whole_log():
    assert check_steps(lines(1, 10, 20, 30), "log") == 3


@pytest.mark.parametrize(
    ("indexes", "said"), [((), "0 frames"), ((5, 6, 7, 6), "went back"), ((5, 6, 7, 7), "went back")]
)
def test_a_watch_that_shows_nothing_or_goes_back(tmp_path: Path, indexes: tuple[int, ...], said: str):
    shown = tmp_path / "watch"
    shown.write_text("".join(json.dumps({"idx": index, "changes": []}) + "\n" for index in indexes))
    with pytest.raises(DrillFailed, match=said):
        watched(shown)


@pytest.mark.parametrize(("second_began", "seen"), [(250, True), (300, True), (301, False)])
def test_two_attempts_alive_at_once(tmp_path: Path, second_began: int, seen: bool):
    trace = tmp_path / "life.trace"
    trace.write_text(f"1 0 100\n1 3 300\n2 0 {second_began}\n2 0 torn")
    assert (overlap(trace) is not None) == seen


@pytest.mark.parametrize(("second", "gap"), [((4, 5, 6, 7, 8), False), ((6, 7, 8, 9), False), ((4, 5, 7, 8), True)])
def test_a_gap_in_one_of_two_watches(tmp_path: Path, second: tuple[int, ...], gap: bool):
    for name, indexes in (("one", (5, 6, 7, 8)), ("other", second)):
        (tmp_path / name).write_text("".join(json.dumps({"idx": index}) + "\n" for index in indexes))
    if gap:
        with pytest.raises(DrillFailed, match="did not show"):
            check_watches(tmp_path / "one", tmp_path / "other")
    else:
        check_watches(tmp_path / "one", tmp_path / "other")


TOLD = {f"load-{number}": f"tg-{number}" for number in range(4)}


def ended(*statuses: str) -> list[dict[str, object]]:
    """The groups of TOLD, completed but for the first ones."""
    by_number = [*statuses, *["completed"] * (len(TOLD) - len(statuses))]
    return [
        {"name": name, "group_id": group_id, "status": status, "failure": None}
        for (name, group_id), status in zip(TOLD.items(), by_number, strict=True)
    ]


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (ended()[1:], "not there, or not once"),
        ([*ended(), {**ended()[0], "group_id": "tg-other"}], "not there, or not once"),
        ([{**ended()[0], "group_id": "tg-other"}, *ended()[1:]], "not there, or not once"),
        (ended("failed"), "is failed"),
        (ended("stopped"), "is stopped"),
    ],
)
def test_an_acknowledged_submission_that_is_lost_doubled_or_failed(groups: list[dict[str, object]], said: str):
    with pytest.raises(DrillFailed, match=said):
        check_acknowledged(TOLD, {"tg-1"}, groups)


def test_acknowledged_ones_that_are_all_there():
    check_acknowledged(TOLD, {"tg-1"}, ended("completed", "stopped"))
