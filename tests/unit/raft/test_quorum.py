"""Quorum arithmetic against brute force."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.core.raft import Majority, VoteResult

ids = st.sets(st.integers(1, 20), min_size=1, max_size=7)


def majorities(voters: set[int]) -> list[set[int]]:
    """Every set of more than half of the voters."""
    return [set(c) for n in range(len(voters) // 2 + 1, len(voters) + 1) for c in combinations(sorted(voters), n)]


@given(ids, st.data())
def test_committed_index_is_the_highest_that_some_majority_has(voters: set[int], data: st.DataObject) -> None:
    acked = data.draw(st.dictionaries(st.sampled_from(sorted(voters)), st.integers(0, 9)))
    brute = max(min(acked.get(v, 0) for v in m) for m in majorities(voters))
    assert Majority(voters).committed_index(lambda v: acked.get(v, 0)) == brute


@given(ids, st.data())
def test_vote_result(voters: set[int], data: st.DataObject) -> None:
    votes = data.draw(st.dictionaries(st.integers(1, 20), st.booleans()))
    yes = {v for v in voters if votes.get(v) is True}
    not_no = {v for v in voters if votes.get(v) is not False}
    if any(m <= yes for m in majorities(voters)):
        expected = VoteResult.WON
    elif any(m <= not_no for m in majorities(voters)):
        expected = VoteResult.PENDING
    else:
        expected = VoteResult.LOST
    assert Majority(voters).vote_result(votes) is expected


@given(ids)
def test_two_majorities_share_a_voter(voters: set[int]) -> None:
    needed = Majority(voters).needed
    assert 2 * needed > len(voters)
    assert all(len(m) >= needed for m in majorities(voters))


def test_describe() -> None:
    assert Majority([3, 1, 2]).describe({1: 5, 2: 4, 3: 0}.__getitem__) == "2 of 3 (1 at 5, 2 at 4, 3 at 0) reach 4"


@pytest.mark.parametrize("voters", [[], [0], [-1, 2]])
def test_refused(voters: list[int]) -> None:
    with pytest.raises(ValueError, match="voters"):
        Majority(voters)
