"""What SWIM and Lifeguard promise, measured on the product's core. HF_SWIM_SEEDS (200) scales the samples; from 1,000
on the meshes of 1,000 members are watched to the end."""

import os
from dataclasses import replace
from math import log10
from statistics import mean

import pytest

from mesh.core.swim import LAN, plain_swim
from tests.sim.swim.measure import (
    Stalls,
    average,
    deaths_in_a_row,
    deaths_one_by_one,
    slow_members,
    spreading_model_s,
    spreads,
)

pytestmark = pytest.mark.sim

SEEDS = int(os.environ.get("HF_SWIM_SEEDS", "200"))
LONG = SEEDS >= 1000


# Nothing is gossiped about a death before its first suspicion: that is measured without gossip, ten times as fast.
SILENT = replace(LAN, gossip_interval_ms=10**7)


@pytest.mark.timeout(900)
def test_detection_time_does_not_depend_on_the_size():
    """From the crash to the first suspicion (SWIM's detection time): within 20 % for 8, 128 and 1,000 members."""
    seen = {8: deaths_one_by_one(8, SEEDS // 2, seed=1)}
    for count, crashes in ((128, 6), (1000, 50)):
        runs = range(max(2, SEEDS // (2 * crashes)))
        seen[count] = [death for seed in runs for death in deaths_in_a_row(count, crashes, seed, 0.05, 10, SILENT)]
    times = {count: mean(death.suspected_s for death in seen[count]) for count in seen}
    print({count: f"{times[count]:.2f} s of {len(seen[count])}" for count in times})
    assert all(death.suspected_s > 0 for some in seen.values() for death in some)
    assert max(times.values()) <= 1.2 * min(times.values())
    # An interval until somebody's turn comes, and the probe that fails.
    assert all(1.2 < at < 2.0 for at in times.values())


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [8, 128, 1000])
def test_the_verdict_comes_after_the_shortest_suspicion_and_spreads_as_the_model_says(count):
    """It grows with log N, so that a refutation has time."""
    if count == 1000 and not LONG:
        pytest.skip("runs for minutes: HF_SWIM_SEEDS=1000")
    seen = deaths_one_by_one(8, 20, seed=2) if count == 8 else deaths_in_a_row(count, count // 20, seed=2)
    death = average(seen)
    print(death)
    shortest_s = LAN.suspicion_mult * max(1, log10(count))
    assert shortest_s * 0.95 <= death.first_s - death.suspected_s < 1.1 * shortest_s + 0.5
    assert death.last_s - death.first_s < spreading_model_s(count)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [8, 128, 1000])
def test_a_change_is_known_to_all_in_the_time_of_the_model(count):
    took = spreads(count, changes=SEEDS // 8 if count < 1000 else max(4, SEEDS // 100), seed=1)
    model_s = spreading_model_s(count)
    print(f"{count} members: mean {mean(took):.2f} s, longest {max(took):.2f} s, model {model_s:.2f} s")
    assert mean(took) <= 1.5 * model_s
    assert mean(took) >= 0.2 * model_s, "faster than a rumour can be: the measure is wrong"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(1, 2 + SEEDS // 1000))
def test_slow_members_kill_nobody_with_lifeguard(seed):
    """A tenth of the members read nothing for 10 to 30 s, again and again. Counted: healthy members called dead."""
    stalls = Stalls(stall_s=20, open_s=0.05)
    count, seconds = (128, 300) if LONG else (40, 60)
    plain = slow_members(plain_swim(LAN), stalls, seed, count, seconds)
    ours = slow_members(LAN, stalls, seed, count, seconds)
    print(
        f"without {plain.at_anyone} ({plain.at_healthy} at healthy members), with {ours.at_anyone} ({ours.at_healthy})"
    )
    assert plain.at_anyone >= 200
    assert plain.at_anyone >= 20 * ours.at_anyone
    assert plain.at_healthy >= 20 * ours.at_healthy


def test_members_that_freeze_and_thaw_kill_nobody():
    frozen = slow_members(LAN, Stalls(stall_s=8, open_s=0.5, frozen=True), seed=1, count=40, seconds=60)
    assert frozen.at_anyone == 0
