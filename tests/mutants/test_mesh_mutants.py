"""Each deliberate bug in leases and gang rules is found by the scenario that names it; without it the scenario
holds."""

import contextlib
from typing import Any

import pytest

from mesh.core.lease.grantor import MS, Grantor
from mesh.core.lease.holder import Holder
from schemas.limits import KILL_BUDGET_MS, PROFILES
from tests.mutants.mesh_mutants import MUTANTS
from tests.unit.state.world import World

S = 1000 * MS


def surely_dead_before_requeued(answer_takes_s: float) -> bool:
    """The last renewal of a host is answered late, then nothing more gets through. Its tasks must be dead when the
    leader gives it up."""
    profile = PROFILES["fast"]
    grantor, holder = Grantor(profile, 0), Holder("n1", "u1", profile.renew_ms)
    grantor.observe("n1", {"uid": "u1", "state": "ready"}, 0)
    renewal = holder.renewal(1 * S)
    assert renewal is not None
    grantor.tick(1 * S, True)
    answer = grantor.renew(renewal, 1 * S, True)
    holder.answered(answer, round((1 + answer_takes_s) * S))
    dead_ns = holder.until_ns + KILL_BUDGET_MS * MS
    now_ns = 1 * S
    while not grantor.tick(now_ns, True):
        now_ns += S // 4
    return dead_ns < now_ns


def cards_stay_with_their_claims() -> bool:
    """Rank 0 holds its claim when rank 1 times out. Nobody else may get rank 0's cards before its agent has let go."""
    world = World({"n1": 2, "n2": 2})
    first = world.submit(2, 2)
    world.control()
    world.report(world.tasks(first)[0], "claimed")
    world.control(1_000)
    world.control(61_000)
    assert world.group(first)["rollbacks"] == 1
    claimed = set(world.tasks(first, 1)[0]["gpus"])
    world.do("StopGroup", group_id=first, by="ada")
    second = world.submit(1, 2)
    world.control(61_000)
    return not any(claimed & set(task["gpus"]) for task in world.tasks(second))


def surely_dead_after_a_hold(silent_s: int, released_s: int = 0, new_leader_s: int = 0) -> bool:
    """A hold of 60 s; the host falls silent in it. Its tasks must be dead when it is given up."""
    world = World({"n1": 1})
    profile = PROFILES["fast"]
    grantor, holder = Grantor(profile, 0), Holder("n1", "uid-n1", profile.renew_ms)

    def tell(name: str, now_ns: int, **fields: Any) -> bool:
        ok = world.do(name, **fields).ok
        grantor.observe_hold(world.store.get("meta", "lease_hold"), now_ns)
        return ok

    grantor.observe("n1", world.store.get("node", "n1"), 0)
    tell("HoldMesh", 0, for_s=60, by="op", reason="")
    for now_ns in range(0, 300 * S, S // 4):
        if now_ns == released_s * S > 0:
            tell("ReleaseHold", now_ns, by="op")
        if now_ns == new_leader_s * S > 0:
            grantor = Grantor(profile, now_ns)
            grantor.observe("n1", world.store.get("node", "n1"), now_ns)
            grantor.observe_hold(world.store.get("meta", "lease_hold"), now_ns)
        expired = grantor.tick(now_ns, True)
        if now_ns < silent_s * S and (renewal := holder.renewal(now_ns)) is not None:
            holder.answered(grantor.renew(renewal, now_ns, True), now_ns)
        left = grantor.hold_left(now_ns, True)
        if left is not None:
            tell("HoldLeft", now_ns, **left)
        if expired and tell("ExpireNode", now_ns, node_id="n1", uid="uid-n1", text=expired[0].text):
            return holder.until_ns + KILL_BUDGET_MS * MS < now_ns
        if expired:
            grantor.expiry_failed("n1", now_ns)
    raise AssertionError("never given up")


def a_port_has_one_holder() -> bool:
    """The second waits for the port of the only node, and a leader with an old picture cannot bind it either."""
    world = World({"n1": 2})
    first, second = (world.submit(1, 1, task_type="container", ports={"http": 8000}) for _ in range(2))
    world.run_up(first)
    if world.status(second) != "pending":
        return False
    free = {"GPU-n1-0", "GPU-n1-1"} - set(world.tasks(first)[0]["gpus"])
    placement = {"rank": 0, "node": "n1", "gpus": list(free), "port": 20_900}
    return not world.do("BindGroup", group_id=second, attempt=1, placements=[placement]).ok


def a_service_is_built_again_whatever_it_exits_with() -> bool:
    world = World({"n1": 1})
    group = world.submit(1, 1, task_type="inference")
    world.run_up(group)
    world.report(world.tasks(group)[0], "exited", exit_code=0)
    return world.status(group) == "pending"


SCENARIOS = {
    "lease-from-receipt-time": lambda: surely_dead_before_requeued(answer_takes_s=4.0),
    "requeue-at-T_stop": lambda: surely_dead_before_requeued(answer_takes_s=0.0),
    "rollback-forgets-claim": cards_stay_with_their_claims,
    "hold-grants-its-whole-length": lambda: surely_dead_after_a_hold(silent_s=58),
    "hold-ends-with-its-leader": lambda: surely_dead_after_a_hold(silent_s=5, new_leader_s=10),
    "release-takes-leases-back": lambda: surely_dead_after_a_hold(silent_s=5, released_s=6, new_leader_s=10),
    "declared-ports-are-forgotten": a_port_has_one_holder,
    "service-completes": a_service_is_built_again_whatever_it_exits_with,
}


@pytest.mark.parametrize("name", sorted(MUTANTS))
@pytest.mark.parametrize("mutated", [False, True])
def test_mutant_is_killed(name, mutated):
    with MUTANTS[name]() if mutated else contextlib.nullcontext():
        assert SCENARIOS[name]() is not mutated
