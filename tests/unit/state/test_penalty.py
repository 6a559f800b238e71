import pytest

from mesh.core.state.penalty import NO_PENALTY, decayed, raised
from schemas.limits import PENALTY_HALF_LIFE_MS, PENALTY_MAX, PENALTY_UNIT


@pytest.mark.parametrize(
    ("halves", "left"),
    [(0, PENALTY_UNIT), (0.5, 750), (1, 500), (1.5, 375), (2, 250), (10, 0), (1000, 0), (-1, PENALTY_UNIT)],
)
def test_a_penalty_halves_every_half_life(halves, left):
    assert decayed(PENALTY_UNIT, int(halves * PENALTY_HALF_LIFE_MS)) == left


def test_it_never_grows_by_waiting():
    scores = [decayed(7777, since) for since in range(0, 10 * PENALTY_HALF_LIFE_MS, 7919)]
    assert scores == sorted(scores, reverse=True)


def test_repeated_faults_add_up_to_a_bound():
    penalty = dict(NO_PENALTY)
    for at in range(3000):
        penalty = raised(penalty, at)
    assert penalty == {"score": PENALTY_MAX, "at_ms": 2999}
    assert raised({"score": 1000, "at_ms": 0}, PENALTY_HALF_LIFE_MS)["score"] == 1500
