"""Limits, each with its reason, and the inequalities between them (tests hold them).

The chain of sizes, smallest first: a log entry fits a peer frame, a frame fits a WebSocket message, a chunk fits an
HTTP body."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB

ENTRY_MAX = 256 * KIB  # one command: a bind of 1,250 nodes x 8 cards, a document with 96 KiB of parameters
FRAME_MAX = 1 * MIB  # one peer frame always holds at least one entry, and batches more
WEBSOCKET_MAX = 2 * MIB  # a frame plus its envelope, with room to spare
HTTP_BODY_MAX = 1 * MIB

DOCUMENT_MAX = 192 * KIB  # leaves ENTRY_MAX room for the envelope, the warnings and the request
DOCUMENT_DEPTH_MAX = 12
NAME_MAX = 128
NOTE_MAX = 300  # what an operator says about an order of theirs
TEXT_MAX = 4096  # reasons, failure texts, warnings
LIST_MAX = 20_000  # elements of one list in one command
MAP_MAX = 20_000
GPUS_PER_NODE_MAX = 64
NODES_MAX = 10_000
INT_MAX = (1 << 63) - 1  # SQLite's and msgpack's common integer

REASONS_PER_COMMAND = 500  # of ~300 bytes: half of ENTRY_MAX; the rest waits for the next pass

PORT_MIN = 20_000  # below the kernel's ephemeral range (32768...), so that no outgoing connection takes a master port
PORT_MAX = 29_999
EPHEMERAL_PORT_MIN = 32_768

REQUEST_TTL_MS = 24 * 3_600_000  # how long a repeated request id finds its first answer
REQUEST_FUTURE_MS = 10 * 60_000  # client clocks may be this far ahead
REQUESTS_PER_CLIENT = (
    20_000  # remembered answers of one client: beyond it new requests wait, remembered ones are never dropped
)

API_KEYS_MAX = 2_000
SIGNERS_KEPT = 2  # the present one, and the one whose last tokens may still be good
SIGNER_TTL_MS = 30 * 24 * 3_600_000
TOKEN_TTL_S = 15 * 60  # of what is given for an API key: as long as a stolen one is good
AUDIT_MAX = 50_000  # entries of about 300 bytes
AUDIT_TTL_MS = 90 * 24 * 3_600_000
FILE_SAID_MAX = 512  # characters of a path in an audit entry: its end, where the file's name is

CLAIM_DEADLINE_MS = 60_000
# What a claim may take in addition where an image has to come; the agent gives up a pull that is silent much earlier.
IMAGE_PULL_MS = 2 * 3_600_000
START_DEADLINE_MS = 60_000
KEEP_LAST_MAX = 1000
LEDGER_MAX = 200  # checkpoints of one group that are told of, the newest
RESTORES_KEPT = 8  # attempts that resumed from one of them
STOP_AFTER_MAX_S = 7 * 86_400  # what a stop waits for the next checkpoint
REMOVED_AT_ONCE = 64  # checkpoints that one report names as removed
# Attempts in a row whose nodes saw different checkpoints; rests between them give caches of network file systems time.
SHARED_STORAGE_TRIES = 4
RESTARTS_MAX = 100  # that a document may ask for: a group that needs more is not mended by them
PHASE_TRIES = 3  # leaders that may inherit one phase with a fresh deadline before it is rolled back

# Of an inference group that ends by itself: the first wait, doubled each time in a row up to the longest. A group that
# ran so long has recovered; one that never does is given up after an hour.
REBUILD_FIRST_MS, REBUILD_LONGEST_MS = 1_000, 300_000
REBUILD_RECOVERED_MS = 600_000
REBUILDS_IN_A_ROW = 20
# Of a group whose attempts end before they run: how many are made at once; then the first wait, doubled up to the
# longest.
RETRIES_AT_ONCE = 3
RETRY_FIRST_MS, RETRY_LONGEST_MS = 2_000, 300_000
ATTEMPTS_MAX = 9_999  # of one group: four digits in the keys of its tasks

PENALTY_UNIT = 1000  # of one rollback, in thousandths so that decay is integer arithmetic, equal on every voter
PENALTY_HALF_LIFE_MS = 5 * 60_000
PENALTY_FRESH_MS = 30_000  # a node that just failed a claim is passed over where others suffice
PENALTY_MAX = 1000 * PENALTY_UNIT

DRAIN_DEADLINE_MAX_S = 7 * 86_400  # a longer wait is a cordon
MAINTENANCE_MAX_S = 30 * 86_400  # of one window; longer than that the host is out of service
MAINTENANCE_AHEAD_MAX_S = 366 * 86_400

BEAT_PERIOD_MS = 1000
BEAT_LOST_MS = 3000  # controllers silent for this long: the leader steps down
DECIDE_BUDGET_MS = 20  # a longer controller pass runs beside the loop

KILL_BUDGET_MS = 4500  # SIGTERM at the deadline, SIGKILL 4 s later, 0.5 s until everything is reaped
CLOCK_DRIFT = 0.01  # two CLOCK_BOOTTIME of real hosts, generously
LEASE_MARGIN_MS = 1000
# What is left of a hold against what a lease granted in it has beyond T_stop: over such a length the host's clock may
# fall behind and the leaders' run ahead, each by CLOCK_DRIFT of true time.
HOLD_STRETCH = 1 + 3 * CLOCK_DRIFT
RENEW_TIMEOUT_MS = 1500
HOLD_MAX_S = 86_400  # planned work; meanwhile no lost node's work is started elsewhere
# How often the leader writes down what is left of a hold: each change of leader makes it longer by as much.
HOLD_COUNT_MIN_MS, HOLD_COUNT_MAX_MS = 1_000, 30_000
EXPIRY_DELAY_MS = 3000  # from T_lease of silence until the loss is committed: a tick, a read-index round, a commit


PRUNED_AT_ONCE = 20  # ended groups that one command removes: a minute's worth of a leader whose clock may be wrong
RETENTION_LEAST_MS = 3_600_000  # an ended group is kept so long whatever the bounds are: somebody looks at it


@dataclass(frozen=True, slots=True)
class Profile:
    """t_stop_ms: after this long without a grant the host stops its tasks; t_lease_ms: after this long without a
    renewal the leader may re-queue them; renew_ms: how often an agent asks."""

    name: str
    t_stop_ms: int
    t_lease_ms: int
    renew_ms: int


PROFILES = {
    # Tests, demos and small meshes on one switch: a lost node costs 15 s, a 9 s outage of the control plane stops
    # training.
    "fast": Profile("fast", t_stop_ms=9_000, t_lease_ms=15_000, renew_ms=1_000),
    # The default: longer than an engine restart, a switch reload or three elections.
    "lan": Profile("lan", t_stop_ms=40_000, t_lease_ms=50_000, renew_ms=4_000),
    # Voters in several sites: outlives a routing convergence.
    "wan": Profile("wan", t_stop_ms=90_000, t_lease_ms=105_000, renew_ms=8_000),
}
DEFAULT_PROFILE = "lan"


def lease_needed_ms(profile: Profile) -> float:
    """The shortest T_lease under which a host that went silent is surely done killing before anyone re-queues its
    work."""
    return (profile.t_stop_ms + KILL_BUDGET_MS) * (1 + CLOCK_DRIFT) + LEASE_MARGIN_MS


def lease_is_safe(profile: Profile) -> bool:
    return lease_needed_ms(profile) <= profile.t_lease_ms


def hold_is_safe(profile: Profile, for_ms: int) -> bool:
    """Whether a host that was granted the longest lease of a hold, and then fell silent, is done killing before anyone
    re-queues its work, with its clock slow and the leaders' fast."""
    dead_ms = (profile.t_stop_ms + for_ms + KILL_BUDGET_MS) / (1 - CLOCK_DRIFT)
    requeued_ms = (for_ms * HOLD_STRETCH + profile.t_lease_ms) / (1 + CLOCK_DRIFT)
    return dead_ms <= requeued_ms


def renewals_per_stop(profile: Profile) -> int:
    """How many renewals in a row may be lost before a healthy host stops its tasks."""
    return (profile.t_stop_ms - RENEW_TIMEOUT_MS) // profile.renew_ms


# One frame of an exec session: what a terminal shows at once, and little enough that a stalled reader costs nothing.
EXEC_READ_BYTES = 16 * 1024
EXEC_FRAME_MAX = 64 * 1024

# One request of an upload that can be continued: what is sent again at most where a connection breaks. Between agents
# a download is asked for in parts of this size too.
FILE_PART_MAX = 64 * MIB
FILE_SIZE_MAX = 1 << 50
FILE_NAMES_PAGE = 1000
