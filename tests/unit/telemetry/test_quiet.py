from agentd.core.quiet import Quiet, QuietWatch


def test_quiet_is_counted_from_the_last_move():
    watch = QuietWatch(15.0)
    for now, moving in [(0.0, False), (2.0, True), (4.0, False), (6.0, False)]:
        watch.note(now, moving)
    assert watch.quiet(6.0) == Quiet(4.0, True)


def test_never_seen_moving_is_a_lower_bound():
    watch = QuietWatch(15.0)
    watch.note(10.0, False)
    watch.note(20.0, False)
    assert watch.quiet(20.0) == Quiet(10.0, False)


def test_what_cannot_be_seen_is_no_rest():
    watch = QuietWatch(15.0)
    assert watch.quiet(0.0) is None
    watch.note(0.0, False)
    watch.note(2.0, None)
    assert watch.quiet(2.0) is None
    watch.note(4.0, False)
    assert watch.quiet(5.0) == Quiet(1.0, False)


def test_a_gap_in_watching_begins_anew():
    watch = QuietWatch(15.0)
    watch.note(0.0, True)
    watch.note(100.0, False)
    assert watch.quiet(100.0) == Quiet(0.0, False)
