"""Fields that more than one command has, by name, and what an agent reports of a task."""

from collections.abc import Mapping

from schemas.command_checks import (
    Check,
    boolean,
    choice,
    each,
    either,
    integer,
    optional,
    plain_map,
    record,
    refused_by,
    say,
    text,
)
from schemas.errors import Finding
from schemas.ids import group_id_refusal, node_id_refusal, segment_refusal
from schemas.limits import (
    ATTEMPTS_MAX,
    DRAIN_DEADLINE_MAX_S,
    GPUS_PER_NODE_MAX,
    INT_MAX,
    NAME_MAX,
    NODES_MAX,
    NOTE_MAX,
    PORT_MAX,
    REMOVED_AT_ONCE,
    TEXT_MAX,
)
from schemas.rules.permissions import KINDS
from schemas.rules.rendezvous_address import CANDIDATES_MAX
from schemas.states import DRAIN_MODES
from schemas.versions import FIRST, VERSION_MAX

NODE = refused_by(node_id_refusal)
GROUP = refused_by(group_id_refusal)
SEGMENT = refused_by(segment_refusal)
LONG = text(TEXT_MAX, empty=True)
ADDRESS = text(300)
RANK = integer(0, NODES_MAX - 1)
ATTEMPT = integer(1, ATTEMPTS_MAX)
UUID = text(NAME_MAX)
CLUSTER_VERSION = integer(FIRST, VERSION_MAX)
RESUME = optional(record({"path": text(TEXT_MAX)}, {"step": optional(integer()), "source": text(NAME_MAX)}))
# Of another group, where this one begins. checkpoint_path: the directory of the other's; path: below it.
PARENT = record(
    {"group_id": GROUP, "checkpoint_path": text(TEXT_MAX), "path": text(TEXT_MAX), "step": optional(integer())}
)

# Why one of rank 0's addresses was not reached.
UNREACHED = record({"addr": ADDRESS, "why": text(300)})
# What a node sees of the checkpoints, to be compared with what the others see; absent where nobody looked.
# mark: of the save that `pick` is; rejected: what was passed over; field: of the document, that names the path; code:
# why no rank can begin at it.
SEES = record(
    {"pick": text(TEXT_MAX, empty=True), "digest": text(64), "text": LONG},
    {
        "mark": text(64, empty=True),
        "rejected": each(record({"name": text(TEXT_MAX), "why": LONG}), 8),
        "field": text(NAME_MAX),
        "code": text(NAME_MAX),
    },
)

GPU = record({"uuid": UUID, "type": text(NAME_MAX), "memory_mb": integer(), "index": integer(0, GPUS_PER_NODE_MAX - 1)})
VOTER = record({"raft_id": integer(1), "node": NODE, "voter_addr": ADDRESS}, {"api_addr": ADDRESS})
# A card by its uuid, or by its index on the node: with uuids a gang of 1,250 x 8 would not fit one log entry.
CARD = either(str, UUID, integer(0, GPUS_PER_NODE_MAX - 1))
PLACEMENT = record({"rank": RANK, "node": NODE, "gpus": each(CARD, GPUS_PER_NODE_MAX), "port": integer(0, PORT_MAX)})
REASON = record({"code": text(NAME_MAX), "text": LONG}, {"details": plain_map})
TASK_REF = {"group_id": GROUP, "attempt": ATTEMPT, "rank": RANK, "token": integer()}
# For whom an agent asks; absent where it asks for itself. key: of a person, its API key.
CALLER = record({"kind": choice(*KINDS), "name": text(NAME_MAX), "node": NODE}, {"key": SEGMENT})
REQUEST = record({"client": SEGMENT, "id": SEGMENT, "digest": text(NAME_MAX)})

# Who asked for it, and in whose words.
ASKED = {"by": text(NAME_MAX), "reason": text(NOTE_MAX, empty=True)}
DRAIN = {"mode": choice(*DRAIN_MODES), "deadline_s": integer(0, DRAIN_DEADLINE_MAX_S)}

IMAGE = record({"id": text(NAME_MAX)}, {"digest": optional(text(NAME_MAX))})
_REPORT_BASE: dict[str, Check] = {**TASK_REF, "seq": integer(1), "kind": text(NAME_MAX)}
# Outside the order of a task's life.
_BESIDE: dict[str, Check] = {**TASK_REF, "seq": integer(0, 0), "kind": text(NAME_MAX)}
REPORT_KINDS: dict[str, Check] = {
    "progress": record({**_BESIDE, "text": LONG}),
    "claimed": record(
        {**_REPORT_BASE},
        {
            "resume": RESUME,
            "at_ms": integer(),
            "sees": SEES,
            # Where checkpoint_path leads there, where a link is in it.
            "checkpoint_real": text(TEXT_MAX),
            "reached": each(ADDRESS, CANDIDATES_MAX),
            "unreached": each(UNREACHED, CANDIDATES_MAX),
        },
    ),
    "claim_failed": record(
        {**_REPORT_BASE, "code": text(NAME_MAX), "text": LONG, "permanent": boolean}, {"at_ms": integer()}
    ),
    "started": record({**_REPORT_BASE}, {"at_ms": integer(), "image": IMAGE}),
    "exited": record(
        {
            **_REPORT_BASE,
            "exit_code": optional(integer(-INT_MAX)),
            "signal": optional(integer(0, 255)),
            "at_ms": integer(),
        },
        {"why": text(NAME_MAX, empty=True), "text": LONG, "class": optional(text(NAME_MAX))},
    ),
    "released": record({**_REPORT_BASE}, {"at_ms": integer()}),
    # Of rank 0: the newest complete checkpoint is another one. age_ms: since it was written. free_bytes: of its file
    # system, after it.
    "checkpoint": record(
        {
            **_BESIDE,
            "pick": text(TEXT_MAX),
            "step": optional(integer()),
            "mark": text(64),
            "bytes": integer(),
            "files": integer(),
            "age_ms": integer(),
            "took_ms": integer(),
        },
        {"free_bytes": integer()},
    ),
    "checkpoints_removed": record({**_BESIDE, "removed": each(text(TEXT_MAX), REMOVED_AT_ONCE)}),
    "log_lost": record({**_REPORT_BASE, "bytes": integer(1)}, {"at_ms": integer()}),
}


def report(value: object, path: str, found: list[Finding]) -> None:
    kind = value.get("kind") if isinstance(value, Mapping) else None
    check = REPORT_KINDS.get(kind) if isinstance(kind, str) else None
    if check is None:
        say(found, f"{path}.kind", f"is {kind!r:.80}; it must be one of {', '.join(REPORT_KINDS)}")
    else:
        check(value, path, found)
