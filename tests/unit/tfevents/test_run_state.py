from math import inf, nan

import pytest

from schemas.rules.tfevents.report import curves_report, json_number
from schemas.rules.tfevents.run_state import STATES, RunState, run_state
from schemas.rules.tfevents.run_tree import RunTree
from tests.unit.tfevents.event_bytes import scalar, version

NOW = 1_700_000_000.0


def state(*files: bytes, chosen: str | None = None, now: float = NOW) -> RunState:
    return run_state(tree(*files), now, chosen)


def tree(*files: bytes) -> RunTree:
    made = RunTree()
    for at, data in enumerate(files):
        made.run("").open(f"events.out.tfevents.{at}.h.1.0").feed(data)
    return made


def points(first: int, end: int, ago: float = 1.0, tag: str = "loss", value: float = 0.5) -> bytes:
    return b"".join(scalar(tag, step, value, NOW - ago) for step in range(first, end))


BAD_HEAD = b"\x01" * 12


@pytest.mark.parametrize(
    ("files", "want"),
    [
        ((), "no_log"),
        ((b"",), "no_points"),
        ((version(),), "no_points"),
        ((points(0, 5),), "live"),
        ((points(0, 5, 181.0),), "stale"),
        ((points(0, 5, 60.0), points(3, 5, 1.0)), "restarted"),
        ((points(0, 5) + BAD_HEAD,), "unreadable"),
        ((BAD_HEAD,), "unreadable"),
        ((points(0, 5) + points(5, 6, value=nan) + points(6, 9),), "nan"),
        ((points(0, 5) + points(5, 6, value=-inf),), "nan"),
    ],
)
def test_each_state(files: tuple[bytes, ...], want: str):
    found = state(*files)
    assert found.state == want
    assert found.state in STATES and found.text


def test_the_worst_is_said_first():
    restarted = (points(0, 5, 900.0), points(3, 5, 800.0))
    assert state(*restarted).state == "restarted"
    restarted = (restarted[0], restarted[1] + points(5, 6, 700.0, value=nan))
    assert state(*restarted).state == "nan"
    assert state(restarted[0], restarted[1] + BAD_HEAD).state == "unreadable"


def test_an_older_file_that_is_unreadable_does_not_hide_the_newer():
    assert state(points(0, 5, 60.0) + BAD_HEAD, points(5, 9)).state == "live"


def test_facts_beside_the_state():
    found = state(points(0, 8, 7.0))
    assert (found.loss, found.age_s) == ("loss", 7.0)
    assert found.last and found.last.step == 7


def test_texts_name_what_a_person_needs():
    assert "loss is nan at step 5" in state(points(5, 6, value=nan) + points(6, 8)).text
    assert "after byte" in state(points(0, 2) + BAD_HEAD).text
    assert "2 points" in state(points(0, 5, 60.0), points(3, 5)).text


def test_age_is_that_of_the_loss_not_of_other_tags():
    other = points(1000, 1002, 1.0, "samples")
    found = state(points(0, 5, 500.0) + other)
    assert (found.state, found.age_s) == ("stale", 500.0)
    assert found.last and found.last.step == 4


def test_nan_of_another_tag_is_no_alarm_while_there_is_a_loss():
    other = points(0, 5, tag="explained_variance", value=nan)
    assert state(points(0, 5) + other).state == "live"
    assert state(other).state == "nan"


def test_without_a_loss_the_newest_tag_tells_whether_it_lives():
    assert state(points(0, 5, 900.0, "lr") + points(0, 3, 2.0, "reward")).loss == "reward"


def test_the_user_names_the_loss():
    both = points(0, 5) + points(0, 5, 900.0, "val_loss")
    assert (state(both).state, state(both, chosen="val_loss").state) == ("live", "stale")


def test_a_writer_whose_clock_is_ahead_is_alive():
    assert state(points(0, 5, -100.0)).state == "live"
    assert state(b"".join(scalar("loss", at, 1.0, nan) for at in range(3))).state == "stale"


def test_report():
    made = tree(points(0, 2) + points(2, 3, value=nan) + points(3, 4, value=inf))
    report = curves_report(made, run_state(made, NOW))
    assert report == {
        "state": "nan",
        "tags": {"loss": {"n": 4, "first": (0, 0.5), "last": (3, "Infinity"), "nan": 2, "superseded": 0}},
    }


@pytest.mark.parametrize(("value", "text"), [(nan, "NaN"), (inf, "Infinity"), (-inf, "-Infinity"), (1.5, 1.5)])
def test_numbers_in_json(value: float, text: object):
    assert json_number(value) == text


def test_sub_runs_carry_their_directory():
    made = RunTree()
    made.run("").open("events.out.tfevents.1.h.1.0").feed(points(0, 3, tag="lr"))
    made.run("train").open("events.out.tfevents.1.h.1.0").feed(points(0, 3, tag="epoch_loss"))
    made.run("validation").open("events.out.tfevents.1.h.1.0").feed(points(0, 9, tag="epoch_loss"))
    assert [item.name for item in made.curves()] == ["lr", "train/epoch_loss", "validation/epoch_loss"]
    assert run_state(made, NOW).loss == "train/epoch_loss"
