"""Each deliberate bug in SWIM is found by the scenario that names what it breaks; without it the scenario holds."""

import pytest

from tests.mutants.swim_mutants import MUTANTS
from tests.sim.loop import Violation
from tests.sim.swim.scenarios import SCENARIOS

KILLERS = {
    "incarnation-not-raised": ("a_suspected_member_refutes", "declared dead though it was there"),
    "refutation-ignored": ("a_suspected_member_refutes", "declared dead though it was there"),
    "suspicion-without-confirmation": ("one_ill_accuser_kills_nobody", "a single accuser killed"),
    "accuser-confirms-itself": ("one_accuser_does_not_confirm_itself", "one accuser's word"),
    "no-push-pull": ("missed_news_arrive_by_push_pull", "push/pull brings it"),
    "resurrection-after-leave": ("who_left_stays_left", "rose from having left"),
}


def test_every_mutant_has_its_killer():
    assert KILLERS.keys() == MUTANTS.keys()


@pytest.mark.parametrize("name", KILLERS)
def test_a_scenario_kills(name):
    scenario, said = KILLERS[name]
    SCENARIOS[scenario]()
    with MUTANTS[name](), pytest.raises(Violation, match=said):
        SCENARIOS[scenario]()
    SCENARIOS[scenario]()
