"""The schedule that tells whether a rollback forgets who holds a claim."""

from __future__ import annotations

from tests.sim.agent import ClaimRates
from tests.sim.loop import S
from tests.sim.stage import Stage, runs


def rollback_with_a_claim_held() -> Stage:
    """One rank's claim is held when the other's is refused: the attempt is rolled back while an agent has cards."""
    stage = Stage(hosts=2, voters=1)
    refusing = stage.nodes[1].agent
    refusing.rates = ClaimRates(takes_ns=2 * S, fail=1.0)
    group = stage.submit(2, 2, runs(5))
    stage.until(lambda: stage.watch.counts["rollbacks"] > 0, 30, "the attempt is rolled back")
    refusing.rates = ClaimRates()
    stage.until(stage.is_(group, "completed"), 120, "it completes in the end")
    return stage
