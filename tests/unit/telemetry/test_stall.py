"""The stall rule. The ages are those of the default limit: three minutes."""

from dataclasses import replace
from typing import Any

import pytest

from agentd.core.quiet import Quiet
from agentd.core.stall import RankSignals, StallLimits, judge

LIMITS = StallLimits()
LONG, SHORT = Quiet(400.0, True), Quiet(20.0, True)
STUCK = RankSignals(
    rank=0, running=True, running_s=4000.0, log=LONG, cards=(LONG, LONG), files=LONG, processor=LONG, step=LONG
)
OTHER = replace(STUCK, rank=1, step=None)


def verdict(*ranks: RankSignals, world: int = 2):
    return judge(ranks or (STUCK, OTHER), world, LIMITS)


def test_all_signals_agree():
    found = verdict()
    assert found.state == "stalled"
    assert (found.stalled_s, found.quiet_s) == (220.0, 400.0)
    assert "no step for 6 min" in found.text and "every rank" in found.text


@pytest.mark.parametrize(
    ("moves", "why"),
    [
        ({"log": SHORT}, "rank 1 prints"),
        ({"cards": (LONG, SHORT)}, "a card of rank 1 is busy"),
        ({"files": SHORT}, "rank 1 reads or writes"),
        ({"running": False}, "rank 1 is not running"),
    ],
)
def test_one_sign_of_life_on_one_rank_is_enough(moves, why):
    found = verdict(STUCK, replace(OTHER, **moves))
    assert (found.state, found.text) == ("moving", why)


def test_a_fresh_step_outweighs_everything():
    assert verdict(replace(STUCK, step=Quiet(60.0, True)), OTHER).state == "moving"


def test_points_that_the_writer_holds_back_for_two_minutes():
    held_back = replace(STUCK, step=Quiet(125.0, True), log=Quiet(125.0, True))
    assert verdict(held_back, OTHER).state == "moving"


def test_utilisation_that_is_not_available_is_not_zero():
    blind = replace(OTHER, cards=(None, None))
    found = verdict(replace(STUCK, cards=(None, None)), blind)
    assert found.state == "unjudged"
    assert "GPU utilisation" in found.text and "not available" in found.text and "no step for 6 min" in found.text
    assert verdict(replace(STUCK, step=Quiet(60.0, True), cards=(None,)), blind).state == "moving"


def test_one_blind_card_among_idle_ones():
    assert verdict(STUCK, replace(OTHER, cards=(LONG, None))).state == "unjudged"


def test_a_busy_card_contradicts_whatever_is_not_seen():
    assert verdict(replace(STUCK, cards=(None,)), replace(OTHER, cards=(SHORT,))).state == "moving"


def test_a_rank_that_nothing_is_heard_of():
    found = verdict(STUCK)
    assert found.state == "unjudged" and "rank 1" in found.text


def test_watched_for_too_short_is_no_sign_of_life_and_no_proof():
    begun = Quiet(30.0, False)
    found = verdict(STUCK, replace(OTHER, cards=(LONG, begun)))
    assert found.state == "unjudged" and "watched for 30 s" in found.text
    assert verdict(STUCK, replace(OTHER, cards=(LONG, Quiet(200.0, False)))).state == "stalled"


def test_a_log_that_cannot_be_looked_at():
    assert verdict(replace(STUCK, log=None), OTHER).state == "unjudged"


def test_files_that_the_agent_may_not_see_do_not_stand_in_the_way():
    assert verdict(replace(STUCK, files=None), replace(OTHER, files=None)).state == "stalled"


class TestBeforeTheFirstStep:
    FIRST = replace(STUCK, step=None)

    def test_the_limit_is_longer(self):
        slow = replace(self.FIRST, running_s=900.0), replace(OTHER, running_s=900.0)
        assert verdict(*slow).state == "moving"

    def test_silence_beyond_it(self):
        quiet = Quiet(1900.0, True)
        silent: dict[str, Any] = {
            "log": quiet,
            "cards": (quiet,),
            "files": quiet,
            "processor": quiet,
            "running_s": 1950.0,
        }
        found = verdict(replace(self.FIRST, **silent), replace(OTHER, **silent))
        assert found.state == "stalled" and "no step in 32 min" in found.text

    @pytest.mark.parametrize("moves", [{"processor": SHORT}, {"log": SHORT}, {"files": SHORT}])
    def test_who_prints_computes_or_loads_is_starting(self, moves):
        quiet = Quiet(1900.0, True)
        silent: dict[str, Any] = {
            "log": quiet,
            "cards": (quiet,),
            "files": quiet,
            "processor": quiet,
            "running_s": 1950.0,
        }
        assert verdict(replace(self.FIRST, **silent), replace(OTHER, **(silent | moves))).state == "moving"

    def test_a_busy_processor_after_the_first_step_proves_nothing(self):
        """A rank that waits for another in a loop computes too."""
        assert verdict(STUCK, replace(OTHER, processor=SHORT)).state == "stalled"


def test_a_checkpoint_pause():
    """Ten minutes without a step, cards idle, logs silent: but something is written."""
    saving = Quiet(600.0, True)
    rank = replace(STUCK, step=saving, log=saving, cards=(saving,), files=Quiet(3.0, True))
    assert verdict(rank, OTHER).state == "moving"


def test_a_group_without_cards():
    found = verdict(replace(STUCK, cards=()), replace(OTHER, cards=()))
    assert found.state == "stalled" and "cards" not in found.text


def test_those_that_wait_for_a_rank_that_has_ended_stand_still_too():
    left = replace(OTHER, running_s=LIMITS.before_first_step_s, ended=1)
    quiet = Quiet(LIMITS.before_first_step_s + 60.0, True)
    left = replace(left, log=quiet, cards=(quiet,), files=quiet, processor=quiet)
    found = verdict(left)
    assert found.state == "stalled" and "every rank but rank 0, which has ended," in found.text
    assert verdict(replace(left, log=SHORT)).text == "rank 1 prints"
    assert verdict(left, world=3).text == "cannot judge: nothing is heard of rank 0", "one of the two is over, not both"
    assert verdict(replace(left, ended=0)).state == "unjudged"
