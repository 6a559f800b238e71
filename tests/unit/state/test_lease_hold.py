"""The mesh held for planned work, as the log keeps it."""

from schemas.limits import EXPIRY_DELAY_MS, PROFILES
from tests.unit.state.world import World

ASKED = {"by": "ada", "reason": "new switch"}


def row(world):
    return world.store.get("meta", "lease_hold")


def test_nobody_is_given_up_until_the_leader_has_counted_it_down():
    world = World({"n1": 1})
    assert world.do("HoldMesh", for_s=60, **ASKED).ok
    number = row(world)["hold"]
    assert row(world)["left_ms"] > 60_000, "clocks may be apart"
    assert world.lose("n1").code == "mesh_held"
    assert world.do("HoldLeft", hold=number, left_ms=20_000).ok
    assert world.do("HoldLeft", hold=number, left_ms=30_000).ok and row(world)["left_ms"] == 20_000
    assert world.lose("n1").code == "mesh_held"
    assert world.do("HoldLeft", hold=number, left_ms=0).ok
    assert row(world)["over_ms"] is not None
    assert world.do("HoldLeft", hold=number, left_ms=5).code == "other_hold"
    assert world.lose("n1").ok


def test_a_second_one_makes_it_longer_and_never_shorter_and_outdates_old_counts():
    world = World({"n1": 1})
    world.do("HoldMesh", for_s=600, **ASKED)
    first = row(world)
    world.do("HoldMesh", for_s=60, by="bob", reason="")
    second = row(world)
    assert (second["for_ms"], second["left_ms"], second["since_ms"]) == (600_000, first["left_ms"], first["since_ms"])
    assert world.do("HoldLeft", hold=first["hold"], left_ms=0).code == "other_hold"


def test_a_release_changes_no_lease_that_was_granted():
    world = World({"n1": 1})
    assert world.do("ReleaseHold", by="ada").code == "no_hold"
    world.do("HoldMesh", for_s=60, **ASKED)
    assert world.do("ReleaseHold", by="ada").data["left_ms"] == row(world)["left_ms"]
    assert not row(world)["granting"] and row(world)["over_ms"] is None
    assert world.lose("n1").code == "mesh_held"


def failed_then_lost(lost_after_over_ms: int) -> str:
    """A gang of two: rank 0 fails 100 s into a hold, the host of rank 1 is lost after it."""
    world = World({"n1": 1, "n2": 1})
    group = world.submit(2, 1)
    world.run_up(group)
    world.do("HoldMesh", for_s=600, **ASKED)
    world.now_ms += 100_000
    world.report(world.tasks(group)[0], "exited", exit_code=1)
    world.now_ms += 500_000
    world.do("HoldLeft", hold=row(world)["hold"], left_ms=0)
    world.now_ms += lost_after_over_ms
    world.lose("n2")
    return world.status(group)


def test_a_failure_during_the_hold_may_be_the_consequence_of_a_host_that_fell_silent_in_it():
    assert failed_then_lost(PROFILES["lan"].t_lease_ms) == "pending"


def test_long_after_it_a_loss_explains_no_failure_of_then():
    assert failed_then_lost(PROFILES["lan"].t_lease_ms + 2 * EXPIRY_DELAY_MS) == "failed"
