"""The view is a join semilattice: which updates were heard decides it, not their order nor how often."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from mesh.core.swim import Config, Gossip, Meta, Packet, State, Swim, Update, supersedes

METAS = [Meta(("10.0.0.1:7460",), version) for version in ("1.0", "1.1")]
updates = st.lists(
    st.builds(
        Update,
        st.sampled_from(["n1", "n2", "n3"]),
        st.integers(0, 4),
        st.sampled_from(State),
        st.sampled_from(METAS),
        st.sampled_from(["n1", "n2", "n3"]),
    ),
    max_size=12,
)
View = dict[str, tuple[int, State, Meta]]


def view_after(heard: list[Update], packet_size: int = 1) -> View:
    core = Swim(Config("me", "m1", METAS[0], 1), Random(0), 0)
    for at in range(0, len(heard), packet_size):
        chunk = tuple(heard[at : at + packet_size])
        core.handle(Packet("m1", "n9", 1, at, "me", Gossip(), chunk), 0)
    # What the timers and the probe order hold follows from the view.
    assert set(core.suspicions) == {name for name, held in core.records.items() if held.state is State.SUSPECT}
    living = {name for name, held in core.records.items() if held.state in (State.ALIVE, State.SUSPECT)}
    assert sorted(core.order.names) == sorted(living - {"me"})
    return {name: (held.incarnation, held.state, held.meta) for name, held in core.records.items()}


@given(updates, st.randoms(), st.integers(1, 5))
def test_any_order_and_any_packing_give_the_same_view(heard: list[Update], rng: Random, packet_size: int) -> None:
    shuffled = heard.copy()
    rng.shuffle(shuffled)
    assert view_after(heard) == view_after(shuffled, packet_size)


@given(updates)
def test_hearing_again_changes_nothing(heard: list[Update]) -> None:
    assert view_after(heard) == view_after(heard + heard) == view_after([*heard, *reversed(heard)])


@given(updates)
def test_an_older_incarnation_never_wins(heard: list[Update]) -> None:
    view = view_after(heard)
    for node in {update.node for update in heard}:
        assert view[node][0] == max(update.incarnation for update in heard if update.node == node)


@given(updates)
def test_the_order_is_total(heard: list[Update]) -> None:
    for a in heard:
        assert not supersedes(a, a)
        for b in heard:
            same = (a.incarnation, a.state, a.meta) == (b.incarnation, b.state, b.meta)
            assert supersedes(a, b) + supersedes(b, a) == (not same)
            for c in heard:
                assert not (supersedes(a, b) and supersedes(b, c)) or supersedes(a, c)


@given(updates)
def test_about_me_only_i_have_the_last_word(heard: list[Update]) -> None:
    core = Swim(Config("n1", "m1", METAS[0], 1), Random(0), 0)
    for at, update in enumerate(heard):
        core.handle(Packet("m1", "n9", 1, at, "n1", Gossip(), (update,)), 0)
    claims = [update for update in heard if update.node == "n1"]
    assert core.own.state is State.ALIVE and core.own.meta == METAS[0]
    assert not any(supersedes(claim, core.own) for claim in claims)
