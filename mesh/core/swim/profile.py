"""Settings, with the reason beside each number.

Where memberlist (the library under Serf and Consul) has the same knob, its value is taken: those have years of use
behind them, and a comparison with Serf compares like with like. Times are milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Profile:
    name: str

    probe_interval_ms: int
    """One member is probed each interval. With it scale detection and load: two packets a member and interval."""
    probe_timeout_min_ms: int
    """Measured round trips may not shorten the wait for an ack below this: the pause of a busy host."""
    probe_timeout_max_ms: int
    """The wait where nothing was measured yet, and its bound. At most half the interval: the indirect probes need the
    rest."""
    indirect_probes: int
    """Members asked to probe on one's behalf. With three a lossy path of one's own (5 % a packet) is mistaken for a
    dead member once in 10^4 probes instead of once in ten."""

    suspicion_mult: int
    """Shortest suspicion in intervals, times log10 of the members: an accusation and its refutation must have time to
    reach everyone, which grows with the logarithm."""
    suspicion_max_mult: int
    """Longest suspicion as a multiple of the shortest; it stands while nobody confirms. 1 switches that off."""
    confirmations: int
    """Independent accusers beyond the first that bring the suspicion down to its shortest."""
    awareness_max: int
    """The local health score stays below this, so probes are at most this many times slower. 1 switches it off."""
    nacks: bool
    """Relays say that they are there though the target did not answer. Who hears no nacks doubts himself."""
    buddy: bool
    """A suspected member is told by whoever speaks to it, and at once by its accuser."""
    stall_ms: int
    """A timer this late says that this process stood still: what waits in its sockets is read before it accuses. 0
    switches it off."""

    gossip_interval_ms: int
    gossip_nodes: int
    retransmit_mult: int
    """An update is sent this often times log10 of the members: (N - 1) exp(-4 log10 N) members miss it at 4, and those
    learn it by push/pull."""
    gossip_to_dead_ms: int
    """A dead member is still gossiped to for this long, so that it can say that it lives."""

    sync_interval_ms: int
    """Push/pull of everything with one member. Longer above 32 members, as each exchange is longer then."""
    reconnect_ms: int
    """One dead member in the mesh is probed about this often, which ends a partition. Cheap: one packet."""
    join_retry_ms: int
    """A member that knows nobody asks its seeds this often."""
    forget_ms: int
    """A dead or left member is remembered this long; it bounds the table and outlives a weekend's repair."""
    leave_ms: int
    """A leaving member waits at most this long for its word to spread."""

    def __post_init__(self) -> None:
        if not 0 < self.probe_timeout_min_ms <= self.probe_timeout_max_ms <= self.probe_interval_ms // 2:
            raise ValueError("need 0 < probe_timeout_min_ms <= probe_timeout_max_ms <= half of probe_interval_ms")
        if min(self.suspicion_mult, self.suspicion_max_mult, self.awareness_max, self.retransmit_mult) < 1:
            raise ValueError("multipliers are at least 1")
        if min(self.gossip_interval_ms, self.sync_interval_ms, self.reconnect_ms, self.join_retry_ms) <= 0:
            raise ValueError("intervals are positive")


LAN = Profile(
    "lan",
    probe_interval_ms=1000,
    probe_timeout_min_ms=150,  # a garbage collection or a run queue on a host that trains
    probe_timeout_max_ms=500,
    indirect_probes=3,
    suspicion_mult=4,
    suspicion_max_mult=6,
    confirmations=2,
    awareness_max=8,
    nacks=True,
    buddy=True,
    stall_ms=250,  # half a probe timeout: from there on an ack may wait unread
    gossip_interval_ms=200,
    gossip_nodes=3,
    retransmit_mult=4,
    gossip_to_dead_ms=30_000,
    sync_interval_ms=30_000,
    reconnect_ms=2_000,
    join_retry_ms=5_000,  # people watch a first join
    forget_ms=72 * 3_600_000,
    leave_ms=5_000,
)
LOCAL = replace(
    LAN,
    name="local",
    probe_timeout_min_ms=100,  # loopback answers in a millisecond; the rest is scheduling
    probe_timeout_max_ms=200,
    indirect_probes=1,  # there is no path to route around
    suspicion_mult=3,
    stall_ms=100,
    gossip_interval_ms=100,
    retransmit_mult=2,  # a handful of members, and no loss
    gossip_to_dead_ms=15_000,
    sync_interval_ms=15_000,
    reconnect_ms=1_000,
    join_retry_ms=1_000,
    leave_ms=2_000,
)
WAN = replace(
    LAN,
    name="wan",
    probe_interval_ms=5_000,  # so that the timeout below fits twice
    probe_timeout_min_ms=500,  # a lost segment costs TCP a retransmission timeout of 200 ms or more
    probe_timeout_max_ms=2_500,  # an intercontinental round trip with two lost segments
    suspicion_mult=6,
    stall_ms=1_000,
    gossip_interval_ms=500,
    gossip_nodes=4,
    gossip_to_dead_ms=60_000,
    sync_interval_ms=60_000,
    reconnect_ms=10_000,
    join_retry_ms=10_000,
    leave_ms=10_000,
)
PROFILES = {profile.name: profile for profile in (LOCAL, LAN, WAN)}


def plain_swim(profile: Profile) -> Profile:
    """The same without what Lifeguard added (and without our stall guard): what simulations compare with."""
    return replace(
        profile,
        name=f"{profile.name} without Lifeguard",
        suspicion_max_mult=1,
        confirmations=0,
        awareness_max=1,
        nacks=False,
        buddy=False,
        stall_ms=0,
    )
