"""The table of desired x observed x claim, and that following it always ends."""

from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentd.core.reconcile import (
    SEQ,
    Claim,
    DropClaim,
    MakeClaim,
    Order,
    Remove,
    Report,
    Start,
    Stop,
    reconcile,
)
from agentd.runtime.base import Observed, TaskId

KEY = TaskId("tg-a", 1, 0)
TOKEN = 7


def order(status="bound", what="claim", seq=0, token=TOKEN, key=KEY, log_lost=0):
    return Order(key, token, what, status, seq, log_lost)


def seen(state="running", token=TOKEN, stopping=False, key=KEY, log_lost=0):
    return Observed(key, token, state, stopping=stopping, log_lost=log_lost)


def actions(wanted=None, present=None, claim=None, lease=True):
    claims = {} if claim is None else {KEY: Claim(TOKEN, claim)}
    found = reconcile([wanted] if wanted else [], [present] if present else [], claims, lease)
    return [describe(action) for action in found]


def describe(action):
    match action:
        case MakeClaim():
            return "claim"
        case DropClaim():
            return "drop"
        case Start():
            return "start"
        case Stop():
            return "stop"
        case Remove():
            return "remove"
        case Report(kind=kind):
            return f"report {kind}"


CASES = [
    # name, order, observed, claim, lease, expected
    ("a fresh order is claimed", order(), None, None, True, ["claim"]),
    ("without a lease nothing is claimed", order(), None, None, False, []),
    ("a claim at work is waited for", order(), None, "working", True, []),
    ("a held claim is reported", order(), None, "held", True, ["report claimed"]),
    ("and again until the row shows it", order("claimed", seq=1), None, "held", True, []),
    ("a failed claim is reported", order(), None, "failed", True, ["report claim_failed"]),
    ("a failed claim told is not tried again", order(seq=2), None, None, True, []),
    ("a claim is dropped when the lease lapses", order(), None, "held", False, ["drop"]),
    ("also one at work", order(), None, "working", False, ["drop"]),
    ("the claim died with the agent: claimed again", order("claimed", seq=1), None, None, True, ["claim"]),
    ("and may fail after it was told as held", order("claimed", seq=1), None, "failed", True, ["report claim_failed"]),
    ("something runs without a start order", order(), seen(), None, True, ["stop"]),
    ("start order with the claim held", order("starting", "start", 1), None, "held", True, ["start"]),
    ("start order, agent restarted in between", order("starting", "start", 1), None, None, True, ["claim"]),
    ("start order, no lease", order("starting", "start", 1), None, None, False, []),
    ("start order, claim lapsed with the lease", order("starting", "start", 1), None, "held", False, ["drop"]),
    ("start order, the second claim fails", order("starting", "start", 1), None, "failed", True, ["report exited"]),
    ("it is starting", order("starting", "start", 1), seen("starting"), None, True, []),
    ("it runs", order("starting", "start", 1), seen(), None, True, ["report started"]),
    ("it runs and the mesh knows", order("running", "start", 3), seen(), None, True, []),
    ("it runs and the lease is gone: the fence decides", order("running", "start", 3), seen(), None, False, []),
    ("ended before anyone heard it began", order("starting", "start", 1), seen("exited"), None, True,
     ["report started", "report exited"]),
    ("ended while the agent was dead", order("running", "start", 3), seen("exited"), None, True, ["report exited"]),
    ("output is lost", order("running", "start", 3), seen(log_lost=5), None, True, ["report log_lost"]),
    ("more, not yet twice as much", order("running", "start", 3, log_lost=5), seen(log_lost=10), None, True, []),
    ("twice as much", order("running", "start", 3, log_lost=5), seen(log_lost=11), None, True, ["report log_lost"]),
    ("and all of it at the end", order("running", "stop", 3, log_lost=5), seen("exited", log_lost=6), None, True,
     ["report log_lost", "report exited"]),
    ("ended and told: the runtime lets go", order("exited", "none", 4), seen("exited"), None, True, ["remove"]),
    ("nothing left to see: the cards are free", order("exited", "none", 4), None, None, True, ["report released"]),
    ("told", order("exited", "none", 5), None, None, True, []),
    ("a running task whose directory is gone", order("running", "start", 3), None, None, True, ["report exited"]),
    ("stop order", order("running", "stop", 3), seen(), None, True, ["stop"]),
    ("stop order given once", order("running", "stop", 3), seen(stopping=True), None, True, []),
    ("stop order without a lease", order("running", "stop", 3), seen(), None, False, ["stop"]),
    ("stopped", order("running", "stop", 3), seen("exited"), None, True, ["report exited"]),
    ("stop order before the start came through", order("starting", "stop", 1), None, None, True, ["report exited"]),
    ("rolled back with the claim held", order("cancelled", "stop", 1), None, "held", True, ["drop", "report released"]),
    ("rolled back after a restart of the agent", order("cancelled", "stop", 1), None, None, True, ["report released"]),
    ("rolled back while it claims", order("cancelled", "stop", 0), None, "working", True, ["drop", "report released"]),
    ("lost and still running", order("lost", "stop", 3), seen(), None, True, ["stop"]),
    ("lost and ended", order("lost", "stop", 3), seen("exited"), None, True, ["remove"]),
    ("lost and gone", order("lost", "stop", 3), None, None, True, ["report released"]),
    ("unknown to the mesh and running", None, seen(), None, True, ["stop"]),
    ("unknown and being stopped", None, seen(stopping=True), None, True, []),
    ("unknown and ended", None, seen("exited"), None, True, ["remove"]),
    ("the feed has passed the claim by", None, None, "held", True, ["drop"]),
    ("an old bind runs under this id", order("bound", "claim", token=9), seen(token=7), None, True, ["stop"]),
    ("a claim of an old bind", order("bound", "claim", token=9), None, "held", True, ["drop"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "present", "claim", "lease", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_table(wanted, present, claim, lease, expected):
    assert actions(wanted, present, claim, lease) == expected


def test_a_task_that_gives_up_cards_goes_before_one_that_wants_them():
    old, new = TaskId("tg-z", 1, 0), TaskId("tg-a", 1, 0)
    found = reconcile([order(key=new)], [seen("exited", key=old)], {}, True)
    assert [describe(action) for action in found] == ["remove", "claim"]


def test_sequence_numbers_follow_a_task_s_life():
    assert [SEQ[kind] for kind in ("claimed", "claim_failed", "started", "exited", "released")] == [1, 2, 3, 4, 5]


@given(
    st.one_of(
        st.none(),
        st.builds(
            order,
            st.sampled_from(["bound", "claimed", "starting", "running", "exited", "lost", "cancelled"]),
            st.sampled_from(["claim", "start", "stop", "none"]),
            st.integers(0, 5),
            st.sampled_from([TOKEN, TOKEN + 2]),
        ),
    ),
    st.one_of(
        st.none(), st.builds(seen, st.sampled_from(["starting", "running", "exited"]), st.just(TOKEN), st.booleans())
    ),
    st.sampled_from([None, "working", "held", "failed"]),
    st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_never_two_minds_about_one_task(wanted, present, claim, lease):
    found = actions(wanted, present, claim, lease)
    assert len(set(found)) == len(found)
    assert not {"start", "stop"} <= set(found)
    if "start" in found:
        assert claim == "held" and lease and present is None and wanted is not None and wanted.order == "start"
    if "claim" in found:
        assert claim is None and lease
    if "remove" in found:
        assert present is not None and present.state == "exited"
    if "stop" in found:
        assert present is not None and present.state != "exited" and not present.stopping
    if "report released" in found:
        assert present is None, "cards are called free while something of the task is here"


LEGAL = [
    ("bound", "claim", 0),
    ("claimed", "claim", 1),
    ("starting", "start", 1),
    ("starting", "stop", 1),
    ("running", "start", 3),
    ("running", "stop", 3),
    ("exited", "none", 4),
    ("cancelled", "stop", 1),
    ("lost", "stop", 3),
]


@pytest.mark.parametrize(("status", "what", "seq"), LEGAL)
@pytest.mark.parametrize("present", [None, seen(), seen("exited")], ids=["absent", "running", "ended"])
def test_every_order_comes_to_an_end(status, what, seq, present):
    """A world that does what it is told and a mesh that shows what it is told: no order leaves a task half way."""
    world = _World(order(status, what, seq), present)
    assert world.settles(), world.row


class _World:
    """Applies actions as runtime and reducers would, with all succeeding and processes that end when stopped."""

    SHOWN: ClassVar = {"claimed": ("claimed", "claim"), "started": ("running", None), "exited": ("exited", "none")}

    def __init__(self, row, present):
        self.row, self.present, self.claim = row, present, None

    def settles(self):
        for _ in range(30):
            claims = {} if self.claim is None else {KEY: Claim(TOKEN, self.claim)}
            found = reconcile([self.row] if self.row else [], [self.present] if self.present else [], claims, True)
            if not found:
                if self.row is None and self.present is None and self.claim is None:
                    return True
                if not self._time_passes():
                    return False
            for action in found:
                self._apply(action)
        return False

    def _time_passes(self):
        if self.row is not None and self.row.status == "running" and self.present is not None:
            self.present = seen("exited")  # it trains to its end
        elif self.row is not None and self.row.status == "claimed" and self.claim == "held":
            self.row = order("starting", "start", 1)  # all others are claimed too
        else:
            return False
        return True

    def _apply(self, action):
        match action:
            case MakeClaim():
                self.claim = "held"
            case DropClaim():
                self.claim = None
            case Start():
                self.claim, self.present = None, seen()
            case Stop():
                self.present = seen("exited", stopping=True)
            case Remove():
                self.present = None
            case Report(kind="released"):
                self.row = None
            case Report(kind=kind):
                status, following = self.SHOWN[kind]
                what = self.row.order if following is None else following
                self.row = order(status, what, SEQ[kind])
