"""Which points a later start of the run takes back."""

import itertools

import pytest

from schemas.rules.tfevents.run import Run
from tests.unit.tfevents.event_bytes import event, frame, pairs, run_of, scalar, simple, start, summary, version
from tests.unit.tfevents.samples import damaged, samples


def steps(run: Run, tag: str = "loss") -> list[int]:
    return [point.step for point in run.curve(tag).points()]


def line(first: int, end: int, wall: float, tag: str = "loss", by: int = 10) -> bytes:
    """A point every `by` steps, a second apart."""
    return b"".join(scalar(tag, step, wall + step, wall + at) for at, step in enumerate(range(first, end, by)))


def test_a_resumed_job_takes_back_what_its_checkpoint_did_not_hold():
    old = version(1000) + line(10, 160, 1000.0)
    new = version(5000) + line(110, 210, 5000.0) + line(110, 210, 5000.0, "lr")
    run = run_of(_1000=old, _5000=new)
    curve = run.curve("loss")
    assert steps(run) == list(range(10, 210, 10))
    assert curve.superseded == 5
    assert curve.last and (curve.last.step, curve.last.wall) == (200, 5009.0)
    assert (steps(run, "lr"), run.curve("lr").superseded) == (list(range(110, 210, 10)), 0)


def test_sample_of_a_restart():
    run = Run()
    for path in sorted((samples() / "damaged" / "restart_dir").iterdir()):
        run.open(path.name).feed(path.read_bytes())
    for tag in ("loss/train", "lr", "grad_norm"):
        curve = run.curve(tag)
        assert (len(curve), curve.superseded) == (1600, 400)
        assert steps(run, tag) == list(range(1600))


def test_a_restart_in_a_later_file_of_a_later_file():
    run = run_of(_1=line(0, 100, 1.0), _2=line(50, 80, 1000.0), _3=line(60, 90, 2000.0))
    assert steps(run) == list(range(0, 90, 10))
    assert run.curve("loss").superseded == 5 + 2


def test_a_tag_that_the_new_file_does_not_hold_stays():
    run = run_of(_1=line(0, 100, 1.0) + line(0, 100, 1.0, "eval"), _2=line(50, 80, 1000.0))
    assert steps(run, "eval") == list(range(0, 100, 10))


def test_a_session_start_in_a_new_file_takes_back_every_tag():
    run = run_of(_1=line(0, 100, 1.0) + line(0, 100, 1.0, "eval"), _2=version(1000) + start(50, 1000.0))
    assert steps(run) == steps(run, "eval") == list(range(0, 50, 10))
    assert run.curve("eval").superseded == 5


def test_a_session_start_within_a_file():
    run = run_of(_1=line(0, 100, 1.0) + start(50, 5.0) + line(50, 70, 1000.0))
    assert steps(run) == [0, 10, 20, 30, 40, 50, 60]
    assert run.curve("loss").superseded == 5


def test_a_session_start_that_takes_everything_back():
    run = run_of(_1=line(0, 100, 1.0) + start(0, 5.0))
    curve = run.curve("loss")
    assert (len(curve), curve.first, curve.last, curve.superseded, curve.step_range()) == (0, None, None, 10, None)


def test_steps_that_go_back_within_a_file_are_kept():
    """An episode that begins again, an evaluation at step 0: the script means it."""
    run = run_of(_1=line(0, 50, 1.0) + line(0, 50, 1000.0))
    assert steps(run) == [0, 10, 20, 30, 40] * 2
    plain = run_of(_1=damaged("steps_back_plain"))
    assert (len(plain.curve("loss")), plain.curve("loss").superseded) == (160, 0)


def test_two_live_files_are_merged():
    """One began a second later; it takes back nothing that was written while both were live."""
    one = b"".join(scalar("loss", step, 1.0, 100.0 + step) for step in range(0, 100, 2))
    two = b"".join(scalar("loss", step, 2.0, 100.0 + step) for step in range(1, 100, 2))
    run = run_of(_100=one, _101=two)
    curve = run.curve("loss")
    assert (len(curve), curve.superseded) == (100, 0)
    assert curve.first and curve.last and (curve.first.step, curve.last.step) == (0, 99)


def test_the_newest_point_of_two_live_files():
    run = run_of(_1=scalar("loss", 1, 1.0, 10.0) + scalar("loss", 9, 1.0, 90.0), _2=scalar("loss", 20, 2.0, 50.0))
    last = run.curve("loss").last
    assert last and last.step == 9


def test_order_is_by_the_time_in_the_name_not_by_the_name():
    run = run_of(_10000=line(50, 80, 20_000.0), _9999=line(0, 100, 1.0))
    assert steps(run) == list(range(0, 80, 10))


def test_a_name_without_a_time_is_placed_by_its_first_record():
    run = Run()
    run.open("events.out.tfevents").feed(version(500.0) + line(0, 100, 500.0))
    run.open("events.out.tfevents.1000.host.1.0").feed(line(50, 80, 1000.0))
    run.open("events.out.tfevents.100.host.1.0").feed(line(0, 30, 100.0))
    assert steps(run) == list(range(0, 80, 10))
    assert run.curve("loss").superseded == 5 + 3


@pytest.mark.parametrize("wall", [float("nan"), float("inf"), 0.0, -1e300])
def test_walls_that_mean_nothing(wall: float):
    run = run_of(_1=scalar("loss", 5, 1.0, wall), _2=scalar("loss", 3, 1.0, wall))
    assert sorted(steps(run)) == [3, 5]
    assert run.curve("loss").last is not None


FILES = {
    "events.out.tfevents.1.h.1.0": line(0, 100, 1.0) + line(0, 100, 1.0, "eval"),
    "events.out.tfevents.2.h.1.0": line(50, 80, 1000.0) + start(70, 1005.0) + line(70, 90, 1006.0),
    "events.out.tfevents.3.h.1.0": start(60, 2000.0) + line(60, 120, 2001.0) + line(20, 40, 2001.0, "eval"),
}


@pytest.mark.parametrize("order", list(itertools.permutations(FILES)))
@pytest.mark.parametrize("piece", [100_000, 97])
def test_the_order_of_reading_changes_nothing(order: tuple[str, ...], piece: int):
    """Files in any order, whole or in turns."""
    run = Run()
    scans = {name: run.open(name) for name in order}
    while any(scan.offset < len(FILES[name]) for name, scan in scans.items()):
        for name, scan in scans.items():
            scan.feed(FILES[name][scan.offset : scan.offset + max(piece, scan.need)])
        for tag in run.tags():
            run.curve(tag)
    assert steps(run) == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110]
    assert steps(run, "eval") == [0, 10, 20, 30]
    assert (run.curve("loss").superseded, run.curve("eval").superseded) == (5 + 1 + 3, 8)
    assert all(value in (1.0 + step, 1000.0 + step, 2001.0 + step) for step, value in pairs(run.curve("loss")))


def test_a_tag_goes_on_after_all_its_points_were_taken_back():
    """In records of several values and of one, parsed and recognised."""
    several = frame(event(summary(simple("loss", 1.0), simple("lr", 2.0)), 5, 2.0))
    run = run_of(_1=several + start(0, 3.0) + several + scalar("loss", 6, 1.0, 4.0) * 2)
    assert run.tags() == ["loss", "lr"]
    assert (steps(run), steps(run, "lr")) == ([5, 6, 6], [5])


@pytest.mark.parametrize("first", [1, 2])
def test_a_session_start_leaves_files_that_began_later(first: int):
    """Whichever of the two is read first."""
    files = {1: line(0, 50, 1.0) + start(0, 500.0), 2: line(0, 30, 100.0, "other")}
    run = Run()
    for number in (first, 3 - first):
        run.open(f"events.out.tfevents.{number}.host.1.0").feed(files[number])
    assert (steps(run), steps(run, "other")) == ([], [0, 10, 20])
