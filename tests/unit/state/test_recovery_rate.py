"""How many interruptions ended without a person: counted over groups whose rows the reducers made."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.rules.failure_classes import INFRASTRUCTURE
from schemas.rules.recovery_rate import RecoveryRate, recovery_rate
from schemas.states import GROUP_STATUSES
from tests.unit.state.world import World


@pytest.fixture
def world():
    return World({f"n{number}": 1 for number in range(1, 7)})


def running(world, **recovery):
    group = world.submit(1, 1, **({"recovery": recovery} if recovery else {}))
    world.run_up(group)
    return group


def loses_its_node(world, group):
    node = world.group(group)["nodes"][0]
    world.lose(node)
    world.clean(group)
    world.rejoin(node)


def counted(world, *groups):
    found = recovery_rate(world.group(group) for group in groups)
    return found.recovered, found.interruptions


def test_without_an_interruption_there_is_no_rate(world):
    first, second = running(world), world.submit(1, 1)
    world.finish(first)
    found = recovery_rate([world.group(first), world.group(second)])
    assert (found.rate, found.text) == (
        None, "recovered without a person: no data, no interruption of 2 known groups is over",
    )  # fmt: skip
    assert recovery_rate([]).rate is None


def test_a_restart_counts_once_it_runs_again(world):
    group = running(world)
    loses_its_node(world, group)
    assert (world.status(group), counted(world, group)) == ("pending", (0, 0)), "under way"
    world.run_up(group)
    assert counted(world, group) == (1, 1)
    loses_its_node(world, group)
    assert counted(world, group) == (1, 1)
    world.run_up(group)
    world.finish(group)
    assert (world.status(group), counted(world, group)) == ("completed", (2, 2))


def test_spent_restarts_need_a_person(world):
    group = running(world, max_restarts=1, on=[])
    loses_its_node(world, group)
    world.run_up(group)
    loses_its_node(world, group)
    assert (world.status(group), counted(world, group)) == ("failed", (1, 2))


def test_the_infrastructure_failed_it_and_nobody_asked_for_restarts(world):
    group = running(world)
    world.report(world.tasks(group)[0], "exited", exit_code=1, at_ms=1, **{"class": INFRASTRUCTURE[0]})
    world.clean(group)
    assert (world.status(group), counted(world, group)) == ("failed", (0, 1))


def test_a_program_that_failed_is_no_interruption(world):
    group = running(world)
    loses_its_node(world, group)
    world.run_up(group)
    world.finish(group, code=7)
    assert (world.status(group), counted(world, group)) == ("failed", (1, 1))


def test_what_a_person_stopped_says_nothing_of_the_last_one(world):
    group = running(world)
    loses_its_node(world, group)
    world.do("StopGroup", group_id=group, by="ana")
    assert (world.status(group), counted(world, group)) == ("stopped", (0, 0))


def test_who_waited_too_long_after_a_loss_did_not_recover(world):
    group = running(world)
    loses_its_node(world, group)
    row = {**world.group(group), "status": "failed", "failure": {"class": "unschedulable"}}
    assert (recovery_rate([row]).recovered, recovery_rate([row]).interruptions) == (0, 1)


def test_199_of_200_is_not_all():
    assert RecoveryRate(9, 200, 199).text == "recovered without a person: 199 of 200 interruptions, 99 %"
    assert RecoveryRate(1, 1, 1) + RecoveryRate(2, 3, 2) == RecoveryRate(3, 4, 3)


rows = st.fixed_dictionaries(
    {
        "status": st.sampled_from(sorted(GROUP_STATUSES)),
        "restarts": st.integers(0, 9),
        "waits_since_ms": st.none() | st.just(5),
        "failure": st.none() | st.fixed_dictionaries({"class": st.sampled_from(["node_lost", "user_code", None])}),
    }
)


@given(st.lists(rows))
def test_never_more_than_all(groups):
    found = recovery_rate(groups)
    assert 0 <= found.recovered <= found.interruptions <= sum(row["restarts"] + 1 for row in groups)
    assert (found.rate is None) == (found.interruptions == 0) and (found.rate is None or 0 <= found.rate <= 1)
