"""The leader's side of leases: who may go on, and who is surely done.

A node's clock here starts at the receipt of its last granted renewal, which is after the sending that the node itself
counts from. It starts anew whenever this leader may have missed renewals through a fault of its own: at election, after
its quorum lease lapsed, after its loop stood still. Times are nanoseconds of this host's monotonic clock."""

from dataclasses import dataclass, field
from typing import Any

from mesh.core.lease import mesh_hold
from mesh.core.lease.mesh_hold import MeshHold
from schemas.limits import Profile
from schemas.states import NODE_LOST

MS = 1_000_000
LOOP_GAP_MS = 1000


def expiry_ms(profile: Profile) -> int:
    """How long without a renewal until a node's tasks are surely dead."""
    return profile.t_lease_ms


@dataclass(frozen=True, slots=True)
class Expire:
    """Effect: after a read-index round, propose ExpireNode; then call `expiry_failed` unless it was applied."""

    node: str
    uid: str
    text: str


@dataclass(slots=True)
class _Lease:
    uid: str
    state: str
    since_ns: int
    expiring: bool = False


@dataclass(slots=True)
class Grantor:
    """Made when the first entry of this leader's own term is applied, dropped at the step-down. Not earlier: an
    ExpireNode of the leader before may still be in the log, unapplied, and its node must not be granted anything."""

    profile: Profile
    elected_ns: int
    _leases: dict[str, _Lease] = field(default_factory=dict)
    _ticked_ns: int = field(init=False)
    _quorum: bool = True
    _hold: MeshHold | None = None
    _held_until_ns: int = 0

    def __post_init__(self) -> None:
        self._ticked_ns = self.elected_ns

    def observe(self, node: str, row: dict[str, Any] | None, now_ns: int) -> None:
        """An applied node row (None: gone). Returning from `lost` starts the clock."""
        if row is None:
            self._leases.pop(node, None)
            return
        lease = self._leases.get(node)
        if lease is None or lease.uid != row["uid"] or lease.state != row["state"]:
            self._leases[node] = _Lease(row["uid"], row["state"], now_ns)

    def observe_hold(self, row: dict[str, Any] | None, now_ns: int) -> None:
        """An applied row of the mesh's hold (None: there never was one)."""
        self._hold = mesh_hold.taken(row, now_ns, self._hold) if row is not None else None
        if self._hold is not None:
            self._held_until_ns = max(self._held_until_ns, self._hold.end_ns)

    def hold_left(self, now_ns: int, quorum_held: bool) -> dict[str, int] | None:
        """What to tell the log of the hold now, as fields of HoldLeft; most times nothing."""
        left_ms = self._hold.count(now_ns) if self._hold is not None and quorum_held else None
        return (
            {"hold": self._hold.number, "left_ms": left_ms} if self._hold is not None and left_ms is not None else None
        )

    def renew(self, renewal: dict[str, Any], now_ns: int, quorum_held: bool) -> dict[str, Any]:
        refusal = self._refusal(renewal, now_ns, quorum_held)
        if refusal is not None:
            return {"granted": False, "sent_ns": renewal["sent_ns"], "ttl_ms": 0, "reason": refusal}
        self._leases[renewal["node"]].since_ns = now_ns
        extra_ms = self._hold.extra_ms(now_ns) if self._hold is not None else 0
        ttl_ms = self.profile.t_stop_ms + extra_ms
        return {"granted": True, "sent_ns": renewal["sent_ns"], "ttl_ms": ttl_ms, "reason": ""}

    def _refusal(self, renewal: dict[str, Any], now_ns: int, quorum_held: bool) -> str | None:
        # A stalled loop may see its first renewal before its first tick: the quorum lease must be judged at this
        # moment.
        self._note(now_ns, quorum_held)
        lease = self._leases.get(renewal["node"])
        if not quorum_held:
            return "no_quorum"
        if lease is None:
            return "unknown_node"
        if lease.uid != renewal["uid"]:
            return "wrong_uid"
        if lease.state == NODE_LOST:
            return "lost"
        if lease.expiring:
            return "expiring"
        return None

    def tick(self, now_ns: int, quorum_held: bool) -> list[Expire]:
        self._note(now_ns, quorum_held)
        if not quorum_held or now_ns < self._held_until_ns:
            return []
        limit_ms = expiry_ms(self.profile)
        effects = []
        for node in sorted(self._leases):
            lease = self._leases[node]
            silent_ms = (now_ns - lease.since_ns) // MS
            # Up to the end of a hold a host may have been granted more than T_stop.
            due = (now_ns - max(lease.since_ns, self._held_until_ns)) // MS >= limit_ms
            if lease.state != NODE_LOST and not lease.expiring and due:
                lease.expiring = True
                effects.append(Expire(node, lease.uid, f"no lease renewal for {silent_ms / 1000:.1f} s"))
        return effects

    def expiry_failed(self, node: str, now_ns: int) -> None:
        """The ExpireNode of this node was not applied: the node may renew again, on a fresh clock."""
        lease = self._leases.get(node)
        if lease is not None and lease.state != NODE_LOST:
            lease.expiring = False
            lease.since_ns = now_ns

    def _note(self, now_ns: int, quorum_held: bool) -> None:
        gap = now_ns - self._ticked_ns > LOOP_GAP_MS * MS
        if gap or (quorum_held and not self._quorum):
            for lease in self._leases.values():
                lease.since_ns = now_ns
        self._ticked_ns = now_ns
        self._quorum = quorum_held

    def silence_ms(self, now_ns: int) -> dict[str, int]:
        """How long each node has been silent, for status answers."""
        return {node: (now_ns - lease.since_ns) // MS for node, lease in sorted(self._leases.items())}
