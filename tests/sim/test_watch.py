"""Every invariant goes red when what it guards is broken: a watch that cannot fail proves nothing."""

import itertools
import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import pytest

from agentd.core import reconcile
from mesh.core.control import view
from mesh.core.lease.grantor import Grantor
from mesh.core.raft import HardState, RawNode
from mesh.core.state import bind, reducer, submit
from mesh.core.state.group import Group
from schemas import states
from tests.sim.batch import run_seed

pytestmark = pytest.mark.sim

MESH, VOTERS = [s for s in range(1, 60) if s % 3], list(range(3, 300, 3))


def term_not_persisted(honest):
    def ready(self):
        rd = honest(self)
        if rd.hard_state is not None:
            rd.hard_state = HardState(0, 0, rd.hard_state.commit)
        return rd

    return ready


def event_with_a_counter(honest):
    counter = itertools.count()
    return lambda self, kind, text, **about: honest(self, kind, f"{text} {next(counter)}", **about)


def completed_may_stop(honest):
    return {**honest, ("completed", "stopping"): honest["running", "stopping"]}


def no_lease(honest):
    return lambda self, renewal, now_ns, quorum_held: honest(self, renewal, now_ns, False)


def nothing(honest):
    return lambda *about: None


# name -> (what is replaced by what, seeds to try, the invariant that must notice). A seed that comes first did it last.
BROKEN: dict[str, tuple[list[tuple[Any, str, Callable[[Any], Any]]], list[int], str]] = {
    "terms are forgotten": ([(RawNode, "ready", term_not_persisted)], VOTERS, "log matching|one vote per term"),
    "reducers depend on the voter": ([(Group, "event", event_with_a_counter)], MESH, "equal state at equal applied"),
    "requests are forgotten": ([(reducer, "recall", nothing)], MESH, "a request is applied once"),
    "cards are not checked": (
        [(bind, "_card_refusal", nothing), (view, "_CHANGES", lambda honest: {**honest, "hold": nothing(None)})],
        MESH,
        "no (card|port) is held twice",
    ),
    "a claim is enough to start": ([(reconcile, "_claim", lambda honest: reconcile._start)], MESH, "gang"),
    "a completed group can be stopped": (
        [(submit, "COMPLETED", lambda honest: ""), (states, "_GROUP_MOVE", completed_may_stop)],
        [32, *MESH],
        "nothing leaves a terminal state",
    ),
    "nobody is granted a lease": ([(Grantor, "renew", no_lease)], MESH, "liveness"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_watch_notices(name):
    replaced, seeds, invariant = BROKEN[name]
    with ExitStack() as stack:
        for owner, attribute, breaks in replaced:
            stack.enter_context(mock.patch.object(owner, attribute, breaks(getattr(owner, attribute))))
        result = next((r for r in map(run_seed, seeds) if r.violation), None)
    assert result is not None, f"{len(seeds)} seeds did not notice"
    assert re.search(invariant, result.violation), result.report()
