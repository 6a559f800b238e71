"""What is said of ranks that meet, or do not."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.core.rendezvous import Processes, RankView, RendezvousLimits, RendezvousNow, judge_rendezvous
from agentd.core.rendezvous_lines import world_said

WHERE = "10.0.0.1:20007"
LIMITS = RendezvousLimits(120.0)
LONG = 500.0


def seen(listens=False, connected=False, processes=None, watched_s=LONG, held_s=LONG):
    return RendezvousNow(WHERE, watched_s, listens, connected, held_s, processes)


def view(rank, now, running_s=LONG, running=True, stepped=False):
    return RankView(rank, f"gpu-{rank:02d}", running, running_s, stepped, now)


def torch(rank, world=2, each=1, outside=None, inside=None):
    inside = (0 if outside is not None else each) if inside is None else inside
    return Processes(rank * each, world, inside, outside, gathered=True)


def said(*views, nodes=2):
    return judge_rendezvous(views, nodes, WHERE, LIMITS)


MASTER, PEER, NOBODY = seen(True, True), seen(False, True), seen()


@pytest.mark.parametrize(
    "first, second",
    [
        (MASTER, PEER),
        (seen(True), PEER),
        (seen(True, True, torch(0)), seen(False, True, torch(1))),
        (seen(True, True, torch(0, 3)), seen(False, True, Processes(1, 3, 2))),
    ],
)
def test_one_world(first, second):
    for running_s in (31.0, 5_000.0):
        found = said(view(0, first, running_s), view(1, second, running_s))
        assert found.state == "formed" and found.text.startswith("one world of 2 nodes"), found


@pytest.mark.parametrize(
    "first, second, state, words",
    [
        (MASTER, NOBODY, "missing", "missing: rank 1 (gpu-01) never connected to 10.0.0.1:20007"),
        (NOBODY, NOBODY, "silent", "silent world: rank 0 (gpu-00) has not opened 10.0.0.1:20007"),
        (MASTER, seen(True, False), "split", "split world: ranks 0, 1 each wait"),
        (
            seen(False, False, Processes(0, 1, 0, 0, True)),
            seen(False, False, Processes(0, 1, 0, 0, True)),
            "split",
            "the processes of rank 0, 1 were started as a world of 1, and the group has 2 nodes",
        ),
        (
            seen(True, True, torch(0)),
            seen(False, True, torch(0)),
            "split",
            "split world: ranks 0 and 1 both run RANK 0 of 2",
        ),
        (seen(True, True, torch(0)), seen(False, True, torch(1, 4)), "split", "rank 0 runs in a world of 2, rank 1 in"),
        (
            seen(True, True, torch(0, 4, 2)),
            seen(False, True, torch(1, 4, 2, outside=3, inside=1)),
            "missing",
            "missing: RANK 3 on rank 1 (gpu-01) has not joined",
        ),
        (seen(None, None), NOBODY, "unjudged", "the open ports of rank 0 are not seen"),
        (MASTER, seen(None, None), "unjudged", "the connections of a rank are not seen"),
        (MASTER, None, "unjudged", "the connections of a rank are not seen"),
    ],
)
def test_what_there_is_instead(first, second, state, words):
    found = said(view(0, first), view(1, second))
    assert found.state == state and words in found.text, found
    if state not in ("unjudged",):
        assert found.late_s == LONG - LIMITS.after_s and found.text.endswith("after all ranks were running")
    if first is not None and second is not None:
        early = said(view(0, first, 119.0), view(1, second))
        assert early.state == "forming" and not early.late_s, early


def test_a_rank_that_trains_alone_is_a_world_of_its_own():
    trains = said(view(0, MASTER, stepped=True), view(1, NOBODY))
    assert trains.state == "split" and "rank 0 trains without rank 1 (gpu-01)" in trains.text
    elsewhere = said(view(0, NOBODY, stepped=True), view(1, NOBODY))
    assert elsewhere.state == "split" and "rank 0 has never opened 10.0.0.1:20007" in elsewhere.text


def test_a_launcher_that_has_connected_but_started_nothing_yet_is_no_world():
    """Its process may sleep before it joins; a framework without a launcher only connects."""
    young = view(1, seen(False, True, held_s=3.0), 20.0)
    assert said(view(0, MASTER, 20.0), young).state == "forming"
    assert said(view(0, MASTER, 20.0), replace(young, seen=seen(False, True, held_s=11.0))).state == "formed"
    assert said(view(0, MASTER, 20.0), replace(young, seen=seen(False, True, torch(1, outside=1)))).state == "forming"


def test_a_gathered_world_whose_script_joins_nobody_is_left_alone():
    views = [view(rank, seen(not rank, True, torch(rank, outside=rank))) for rank in (0, 1)]
    assert said(*views).state == "forming" and "no process has joined yet" in said(*views).text


def test_an_agent_that_came_later_has_not_seen_what_was():
    found = said(view(0, MASTER), view(1, seen(watched_s=30.0)))
    assert (found.state, found.text) == ("unjudged", "cannot judge: watched for 30 s only")


def test_ranks_that_are_not_there_or_do_not_run():
    assert said(view(0, MASTER)).text == "cannot judge: nothing is heard of rank 1"
    assert said(replace(view(0, MASTER), ended=1)).text == "cannot judge: rank 1 has ended"
    assert said(view(0, MASTER), view(1, NOBODY, running=False)).state == "forming"


def test_of_many_that_are_missing_a_few_are_named():
    found = said(view(0, MASTER), *(view(rank, NOBODY) for rank in range(1, 9)), nodes=9)
    assert "rank 4 (gpu-04) and 4 more never connected" in found.text and "gpu-05" not in found.text


TRUTH = st.sampled_from((None, False, True))
PROCESSES = st.none() | st.builds(
    Processes,
    st.integers(0, 4),
    st.integers(1, 9),
    st.integers(0, 4),
    st.none() | st.integers(0, 9),
    st.booleans(),
)
SEEN = st.none() | st.builds(
    RendezvousNow, st.just(WHERE), st.floats(0, 1e4), TRUTH, TRUTH, st.floats(0, 1e4), PROCESSES
)
VIEWS = st.lists(st.tuples(SEEN, st.floats(0, 1e4), st.booleans(), st.booleans()), max_size=5)


@given(VIEWS, st.integers(2, 5))
def test_total_and_never_early(parts, nodes):
    views = [view(rank, now, s, running, stepped) for rank, (now, s, running, stepped) in enumerate(parts)]
    found = judge_rendezvous(views, nodes, WHERE, LIMITS)
    assert found.text and found.late_s >= 0
    if found.state in ("missing", "silent", "split"):
        assert all(item.running and item.running_s >= LIMITS.after_s for item in views)


@pytest.mark.parametrize(
    "line, said",
    [
        ("Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/2", (0, 2)),
        ("[rank: 1] Initializing distributed: GLOBAL_RANK: 1, MEMBER: 2/2\r", (1, 2)),
        ("Initializing distributed: GLOBAL_RANK: 0, MEMBER: 2/2", None),
        ("Initializing distributed: GLOBAL_RANK: 3, MEMBER: 4/2", None),
        ("GLOBAL_RANK: 0", None),
        ("Initializing distributed: GLOBAL_RANK: 99999999999, MEMBER: 1/2", None),
        ("", None),
    ],
)
def test_known_lines(line, said):
    assert world_said(line) == said
