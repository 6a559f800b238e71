import dataclasses

import pytest

from schemas import limits
from schemas.limits import HOLD_MAX_S, PROFILES, hold_is_safe, lease_is_safe, lease_needed_ms, renewals_per_stop


def test_sizes_are_a_chain():
    assert limits.DOCUMENT_MAX < limits.ENTRY_MAX < limits.FRAME_MAX < limits.WEBSOCKET_MAX
    assert limits.DOCUMENT_MAX < limits.HTTP_BODY_MAX
    # a frame holds its largest entry and an envelope, a message holds its largest frame and an envelope
    assert limits.FRAME_MAX >= 2 * limits.ENTRY_MAX
    assert limits.WEBSOCKET_MAX >= 2 * limits.FRAME_MAX


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_no_profile_lets_two_attempts_live_at_once(name):
    profile = PROFILES[name]
    assert profile.name == name
    assert lease_is_safe(profile)
    assert profile.t_stop_ms + limits.KILL_BUDGET_MS < profile.t_lease_ms


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_the_inequality_bites(name):
    profile = PROFILES[name]
    assert not lease_is_safe(dataclasses.replace(profile, t_lease_ms=int(lease_needed_ms(profile)) - 1))
    assert lease_is_safe(dataclasses.replace(profile, t_lease_ms=int(lease_needed_ms(profile)) + 1))


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_healthy_host_survives_lost_renewals_and_an_election(name):
    assert renewals_per_stop(PROFILES[name]) >= 5
    assert PROFILES[name].renew_ms * 3 + limits.RENEW_TIMEOUT_MS <= PROFILES[name].t_stop_ms


def test_figures_of_the_profiles():
    assert [(p.t_stop_ms, p.t_lease_ms) for p in PROFILES.values()] == [
        (9_000, 15_000),
        (40_000, 50_000),
        (90_000, 105_000),
    ]
    assert limits.DEFAULT_PROFILE in PROFILES


def test_master_ports_stay_out_of_the_ephemeral_range():
    assert (limits.PORT_MIN, limits.PORT_MAX) == (20_000, 29_999)
    assert limits.PORT_MAX < limits.EPHEMERAL_PORT_MIN


def test_the_leader_is_replaced_only_after_several_missed_beats():
    assert limits.BEAT_LOST_MS >= 3 * limits.BEAT_PERIOD_MS


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
@pytest.mark.parametrize("for_s", [1, 60, 1800, HOLD_MAX_S])
def test_a_hold_of_any_length_ends_before_its_work_is_requeued(profile, for_s):
    assert hold_is_safe(profile, for_s * 1000)
