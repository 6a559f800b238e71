"""Deliberate bugs in leases and gang rules, as context managers that patch one named decision each.

    with MUTANTS["requeue-at-T_stop"]():
        ...  # every leader in this process has the bug

The product has no switch for them: they replace functions from outside. Each is killed by test_mesh_mutants.py, and by
the simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from mesh.core.control import view
from mesh.core.lease import grantor, holder, mesh_hold
from mesh.core.state import bind, lease_hold, reducer, reports, settle
from mesh.core.state.group import Group, release
from mesh.core.state.outcome import Outcome
from mesh.core.state.store import StateStore
from schemas.limits import Profile


@contextmanager
def lease_from_receipt_time() -> Iterator[None]:
    """The host counts its deadline from the answer, so a slow answer stretches the lease beyond what the leader
    waits."""

    def deadline_ns(sent_ns: int, received_ns: int, ttl_ms: int) -> int:
        return received_ns + ttl_ms * holder.MS

    with mock.patch.object(holder, "deadline_ns", deadline_ns):
        yield


@contextmanager
def requeue_at_t_stop() -> Iterator[None]:
    """The leader gives a silent node up at the moment the node only begins to stop its tasks."""

    def expiry_ms(profile: Profile) -> int:
        return profile.t_stop_ms

    with mock.patch.object(grantor, "expiry_ms", expiry_ms):
        yield


@contextmanager
def rollback_forgets_claim() -> Iterator[None]:
    """A rollback frees the cards at once, while agents still hold their claims."""
    honest = settle.leave_releasing

    def leave_releasing(group: Group) -> None:
        honest(group)
        for task in group.tasks():
            if not task["released"]:
                release(group.store, task)
                group.put_task(task)

    with mock.patch.object(settle, "leave_releasing", leave_releasing):
        yield


@contextmanager
def hold_grants_its_whole_length() -> Iterator[None]:
    """Each lease of a hold is longer by all of it, also the one of its last second."""

    honest = mesh_hold.MeshHold.extra_ms

    def extra_ms(self: mesh_hold.MeshHold, now_ns: int) -> int:
        return 30_000 if honest(self, now_ns) else 0

    with mock.patch.object(mesh_hold.MeshHold, "extra_ms", extra_ms):
        yield


@contextmanager
def hold_ends_with_its_leader() -> Iterator[None]:
    """A leader that takes over a hold calls it over: it has granted nothing longer itself."""
    honest = mesh_hold.taken

    def taken(row: dict[str, Any], now_ns: int, before: mesh_hold.MeshHold | None) -> mesh_hold.MeshHold | None:
        found = honest(row, now_ns, before)
        counted = row["left_ms"] < row["for_ms"]
        if found is not None and before is None and counted:
            found.end_ns = found.next_ns = now_ns
        return found

    with mock.patch.object(mesh_hold, "taken", taken):
        yield


@contextmanager
def release_takes_leases_back() -> Iterator[None]:
    """A hold that is released is over at once, as if the leases granted under it were too."""
    honest = lease_hold.release_hold

    def release_hold(store: StateStore, idx: int, command: dict[str, Any]) -> Outcome:
        outcome = honest(store, idx, command)
        row = store.get("meta", lease_hold.KEY)
        if row is not None and row["over_ms"] is None:
            store.put("meta", lease_hold.KEY, {**row, "left_ms": 0, "over_ms": command["at_ms"]})
        return outcome

    with mock.patch.dict(reducer.REDUCERS, {"ReleaseHold": release_hold}):
        yield


@contextmanager
def declared_ports_are_forgotten() -> Iterator[None]:
    """A hold keeps the rendezvous port from others, and what its document declares not."""

    def ports_of(hold: dict[str, Any]) -> list[int]:
        return [hold["port"]] if hold["port"] else []

    with mock.patch.object(bind, "ports_of", ports_of), mock.patch.object(view, "ports_of", ports_of):
        yield


@contextmanager
def service_completes() -> Iterator[None]:
    """An inference group whose program exits 0 is called completed, as training is."""

    def endless_exit(group: Group) -> None:
        return None

    with mock.patch.object(reports, "endless_exit", endless_exit):
        yield


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "lease-from-receipt-time": lease_from_receipt_time,
    "requeue-at-T_stop": requeue_at_t_stop,
    "rollback-forgets-claim": rollback_forgets_claim,
    "hold-grants-its-whole-length": hold_grants_its_whole_length,
    "hold-ends-with-its-leader": hold_ends_with_its_leader,
    "release-takes-leases-back": release_takes_leases_back,
    "declared-ports-are-forgotten": declared_ports_are_forgotten,
    "service-completes": service_completes,
}
